"""Writes that may come again: one with a request_id is done once, and its repeats get the first one's answer."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite import query, records
from hippovault_storage.sqlite.connections import Connection

AnswerT = TypeVar("AnswerT", bound="Answer")
Write = (
    pb.PutMemoryRequest
    | pb.UpdateMemoryRequest
    | pb.DeleteMemoryRequest
    | pb.UndeleteMemoryRequest
    | pb.PurgeMemoriesRequest
)
Answer = (
    pb.PutMemoryResponse
    | pb.UpdateMemoryResponse
    | pb.DeleteMemoryResponse
    | pb.UndeleteMemoryResponse
    | pb.PurgeMemoriesResponse
)
ANSWERS: dict[type[Message], type[Answer]] = {
    pb.PutMemoryRequest: pb.PutMemoryResponse,
    pb.UpdateMemoryRequest: pb.UpdateMemoryResponse,
    pb.DeleteMemoryRequest: pb.DeleteMemoryResponse,
    pb.UndeleteMemoryRequest: pb.UndeleteMemoryResponse,
    pb.PurgeMemoriesRequest: pb.PurgeMemoriesResponse,
}

KEPT_SECONDS = 86_400.0

DERIVED = ("request_id", "vectors", "model_revision", "token_codes", "hint_vectors", "hint_token_codes", "pending")
"""Fields that may be others when the same is asked for again: a text that is embedded once more, or not this time."""

READ = "SELECT digest, answer FROM hippo_requests WHERE namespace = ? AND request_id = ? AND at > ?"


def once(connection: Connection, request: Write, write: Callable[[], AnswerT]) -> AnswerT:
    """Does a write, or answers as when it was done; in the writer's transaction.

    Raises:
        ServiceError: INVALID_ARGUMENT REQUEST_ID_REUSED when something else was asked with this id; NOT_FOUND when
            what was written then has been purged; what the write raises, and then nothing is kept.
    """
    response: AnswerT | None = answered(connection, request)
    if response is None:
        response = write()
        keep(connection, request, response)
    return response


def answered(connection: Connection, request: Write) -> Any:
    """Returns what this request was answered, with its memory as it is now; None when it is new. Raises as `once`."""
    found = _read(connection, _namespace(request), request.request_id)
    if found is None:
        return None
    digest, answer = found
    if not digest:
        raise ServiceError.not_found("request_id", "what was written with it has been purged since")
    if digest != _digest(connection, request):
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "REQUEST_ID_REUSED",
            "request_id: was given with another request within the last day; give each request its own",
            field="request_id",
        )
    response = ANSWERS[type(request)].FromString(answer)
    if isinstance(response, pb.PutMemoryResponse | pb.UpdateMemoryResponse):
        response.memory.CopyFrom(records.one(connection, response.memory.id))
    return response


def keep(connection: Connection, request: Write, response: Answer) -> None:
    """Notes what a request was answered, and forgets what is older than a day."""
    if not request.request_id:
        return
    now = times.now()
    connection.execute(
        "REPLACE INTO hippo_requests (namespace, request_id, digest, memory_id, answer, at) VALUES (?, ?, ?, ?, ?, ?)",
        (
            _namespace(request),
            connection.vault.digest(request.request_id),
            _digest(connection, request),
            _written(response),
            _without_memory(response).SerializeToString(),
            now,
        ),
    )
    connection.execute("DELETE FROM hippo_requests WHERE at <= ?", (now - KEPT_SECONDS,))


def is_done(connection: Connection, namespace: str, request_id: str) -> bool:
    """Tells whether a request with this id was answered within the last day."""
    return _read(connection, namespace, request_id) is not None


def forget(connection: Connection, ids: Iterable[int]) -> None:
    """Takes away all but the fact of the requests that wrote memories which are gone for good."""
    gone = "UPDATE hippo_requests SET digest = '', answer = x'' WHERE memory_id IN (SELECT value FROM json_each(?))"
    connection.execute(gone, (records.as_json(ids),))


def _read(connection: Connection, namespace: str, request_id: str) -> tuple[str, bytes] | None:
    if not request_id:
        return None
    since = times.now() - KEPT_SECONDS
    found = query.rows(connection, READ, (namespace, connection.vault.digest(request_id), since))
    return found[0] if found else None


def _namespace(request: Write) -> str:
    return request.memory.namespace if isinstance(request, pb.PutMemoryRequest) else request.namespace


def _digest(connection: Connection, request: Write) -> str:
    """Returns what tells whether two requests ask for the same, without what is computed of it."""
    asked: Message = copy.deepcopy(request)
    for field in DERIVED:
        if field in asked.DESCRIPTOR.fields_by_name:
            asked.ClearField(field)
    if isinstance(asked, pb.PutMemoryRequest | pb.UpdateMemoryRequest):
        asked.memory.ClearField("surprise")
    if isinstance(asked, pb.UpdateMemoryRequest):
        asked.update_mask.paths[:] = [path for path in asked.update_mask.paths if path != "surprise"]
    framed = asked.DESCRIPTOR.name.encode() + b"\0" + asked.SerializeToString(deterministic=True)
    return connection.vault.digest(hashlib.sha256(framed).hexdigest())


def _written(response: Answer) -> int | None:
    """Returns the id of the memory that was written; of several, which have the same content, the first."""
    if isinstance(response, pb.PutMemoryResponse | pb.UpdateMemoryResponse):
        return response.memory.id
    return None if isinstance(response, pb.PurgeMemoriesResponse) else response.ids[0]


def _without_memory(response: Answer) -> Answer:
    """Returns the answer with the memory's id in place of the memory."""
    if not isinstance(response, pb.PutMemoryResponse | pb.UpdateMemoryResponse):
        return response
    short = copy.deepcopy(response)
    short.memory.Clear()
    short.memory.id = response.memory.id
    return short
