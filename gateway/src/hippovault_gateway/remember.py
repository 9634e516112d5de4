"""Remember: a duplicate is looked for before anything is embedded; one write stores all.

What cannot be embedded now is stored pending, see `backfill`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import embedding, hints_gate
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedder import EmbeddedMemory, Embedder, Texts
from hippovault_gateway.scoring import Scorer

MAX_BATCH = 100
MAX_BATCH_BYTES = 2 * 1024 * 1024
"""The answer has every memory again, and a gRPC client takes 4 MiB by default."""
OF_ONE_ITEM = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""How what is wrong with one of many, or with the memory that is there, is told; other errors are the services', and so
of all."""
VECTOR_REQUIRED = "VECTOR_REQUIRED"
"""Reason by which storage refuses a put without a vector: the memory is not there (any more)."""


class Rememberer:
    """Stores memories.

    Args:
        services: The services behind the gateway.
        embedder: Embeds what is new.
        scorer: Scores what is new.
        on_pending: Called when a memory was stored whose vectors are to come.
    """

    def __init__(self, services: Services, embedder: Embedder, scorer: Scorer, on_pending: Callable[[], None]) -> None:
        self._services = services
        self._embedder = embedder
        self._scorer = scorer
        self._on_pending = on_pending

    async def remember(self, request: pb.RememberRequest) -> pb.RememberResponse:
        """Stores one memory, or finds that it is stored already."""
        put = _checked(request)
        texts = await self._new_texts(put)
        return await self._write(put, await self._embedder.memory(texts) if texts else None)

    async def batch_remember(self, request: pb.BatchRememberRequest) -> pb.BatchRememberResponse:
        """Stores memories in order, embedding them together; each has its own result.

        Raises:
            ServiceError: A service does not answer, or is busy. The batch may be repeated: what is stored is found.
        """
        memory_rules.within("requests", len(request.requests), 1, MAX_BATCH)
        if request.ByteSize() > MAX_BATCH_BYTES:
            problem = f"must have at most {MAX_BATCH_BYTES} bytes together, have {request.ByteSize()}"
            raise ServiceError.invalid("requests", problem)
        return pb.BatchRememberResponse(results=await self.remember_each(request.requests))

    async def remember_each(self, requests: Sequence[pb.RememberRequest]) -> list[pb.BatchRememberResult]:
        """Does what `batch_remember` does with any number of them; one result a request."""
        results = [pb.BatchRememberResult() for _ in requests]
        puts: dict[int, storage_pb2.PutMemoryRequest] = {}
        new: dict[int, Texts] = {}
        for index, item in enumerate(requests):
            with _error_into(results[index]):
                put = _checked(item)
                if texts := await self._new_texts(put):
                    new[index] = texts
                puts[index] = put
        embedded = dict(zip(new, await self._embedder.memories([*new.values()]), strict=True))
        # In order: a key's last content wins, and each memory is part of the history of the next one's surprise.
        for index, put in puts.items():
            with _error_into(results[index]):
                results[index].response.CopyFrom(await self._write(put, embedded.get(index)))
        return results

    async def _new_texts(self, put: storage_pb2.PutMemoryRequest) -> Texts | None:
        """Returns what is to be embedded: not the content where the live memory that a put would go to has it.

        Nothing where the put is a repeat, or brings no hints that are new to that memory.
        """
        memory = put.memory
        find = storage_pb2.FindMemoryRequest(
            namespace=memory.namespace,
            content=memory.content,
            category=memory.category,
            key=memory.key,
            request_id=put.request_id,
        )
        found = await call(self._services.storage.FindMemory, find, STORAGE)
        live = found.HasField("memory") and not found.memory.HasField("deleted_at")
        if found.request_done:
            return None
        if not (live and found.has_vector and found.memory.content == memory.content):
            return Texts.of(memory)
        return Texts("", memory.hints) if memory.hints and memory.hints != found.memory.hints else None

    async def _write(
        self, put: storage_pb2.PutMemoryRequest, embedded: EmbeddedMemory | ServiceError | None
    ) -> pb.RememberResponse:
        """Writes the memory; without vectors where it is stored with some, pending where the embedder is away."""
        if isinstance(embedded, ServiceError):
            return await self._put_pending(put, embedded)
        if embedded:
            embedded.add_to(put)
        if embedded is None or embedded.content is None:
            try:
                return await self._put(put)
            except ServiceError as error:
                if error.reason != VECTOR_REQUIRED:
                    raise
            # Forgotten or changed since it was found.
            return await self._write(put, await self._embedder.memory(Texts.of(put.memory)))
        put.memory.surprise.CopyFrom(await self._scorer.score(put.memory, embedded.content))
        response = await self._put(put)
        response.windows, response.truncated = embedded.content.windows, embedded.content.truncated
        return response

    async def _put_pending(self, put: storage_pb2.PutMemoryRequest, why: ServiceError) -> pb.RememberResponse:
        if why.code not in embedding.AWAY:
            raise why
        put.pending = True
        response = await self._put(put)
        self._on_pending()
        return response

    async def _put(self, put: storage_pb2.PutMemoryRequest) -> pb.RememberResponse:
        stored = await call(self._services.storage.PutMemory, put, STORAGE)
        return pb.RememberResponse(memory=stored.memory, outcome=stored.outcome)


def _checked(request: pb.RememberRequest) -> storage_pb2.PutMemoryRequest:
    """Returns the put of the memory that the request describes, in its stored form and without vectors.

    Raises:
        ServiceError: A field is wrong; told before hints are refused for being switched off.
    """
    memory = memory_pb2.Memory(
        namespace=request.namespace,
        content=request.content,
        category=request.category,
        key=request.key,
        tags=request.tags,
        hints=request.hints,
        memory_type=request.memory_type,
        importance=request.importance if request.HasField("importance") else None,
        metadata=request.metadata,
        created_at=request.created_at if request.HasField("created_at") else None,
        status=request.status,
    )
    memory_rules.normalise(memory)
    if memory.hints:
        hints_gate.check()
    return storage_pb2.PutMemoryRequest(memory=memory, request_id=memory_rules.request_id(request.request_id))


@contextmanager
def _error_into(result: pb.BatchRememberResult) -> Iterator[None]:
    """Puts an error that is the item's own into its result; others are the batch's."""
    try:
        yield
    except ServiceError as error:
        if error.code not in OF_ONE_ITEM:
            raise
        result.error.CopyFrom(error.to_batch_error())
