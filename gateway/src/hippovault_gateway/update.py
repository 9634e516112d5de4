"""Update: the fields that a mask names; new content is embedded and scored as if it were remembered."""

from __future__ import annotations

from collections.abc import Callable

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import hints_gate
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedder import Embedder, Texts
from hippovault_gateway.embedding import Embedded
from hippovault_gateway.limits import MAX_VERSION
from hippovault_gateway.scoring import Scorer


class Updater:
    """Changes memories.

    Args:
        services: The services behind the gateway.
        embedder: Embeds new content and new hints.
        scorer: Scores new content.
        on_pending: Called when content was stored whose vectors are to come.
    """

    def __init__(self, services: Services, embedder: Embedder, scorer: Scorer, on_pending: Callable[[], None]) -> None:
        self._services = services
        self._embedder = embedder
        self._scorer = scorer
        self._on_pending = on_pending

    async def update_memory(self, request: pb.UpdateMemoryRequest) -> pb.UpdateMemoryResponse:
        """Sets the fields of one live memory, or with dry_run tells what it would be."""
        update = _checked(request)
        embedded = await self._add_vectors(update)
        updated = await call(self._services.storage.UpdateMemory, update, STORAGE)
        response = pb.UpdateMemoryResponse(memory=updated.memory, changed=updated.changed)
        lacks_vectors = updated.memory.pending or (update.memory.hints and not update.hint_vectors)
        if lacks_vectors and not update.dry_run:
            self._on_pending()
        if embedded:
            response.windows, response.truncated = embedded.windows, embedded.truncated
        return response

    async def _add_vectors(self, update: storage_pb2.UpdateMemoryRequest) -> Embedded | None:
        """Adds what belongs to new content and hints, or that it is to come.

        Returns:
            What became of the content; None where there is none, the embedder is away, or the update was done already.
        """
        if "content" not in update.update_mask.paths:
            await self._add_hints(update)
            return None
        if await self._is_done(update):
            update.pending = True
            return None
        get = storage_pb2.GetMemoryRequest(namespace=update.namespace, ref=update.ref)
        found = (await call(self._services.storage.GetMemory, get, STORAGE)).memory
        embedded = await self._embedder.memory(Texts.of(update.memory))
        if isinstance(embedded, ServiceError):
            update.pending = True
            return None
        embedded.add_to(update)
        if embedded.content and found.content != update.memory.content:
            for field in update.update_mask.paths:
                found.ClearField(field)  # type: ignore[arg-type]  # The validator knows them.
            found.MergeFrom(update.memory)
            update.memory.surprise.CopyFrom(await self._scorer.score(found, embedded.content))
            update.update_mask.paths.append("surprise")
        return embedded.content

    async def _add_hints(self, update: storage_pb2.UpdateMemoryRequest) -> None:
        if update.memory.hints:
            embedded = await self._embedder.memory(Texts("", update.memory.hints))
            if not isinstance(embedded, ServiceError):
                embedded.add_to(update)

    async def _is_done(self, update: storage_pb2.UpdateMemoryRequest) -> bool:
        if not update.request_id or update.dry_run:
            return False
        find = storage_pb2.FindMemoryRequest(
            namespace=update.namespace, content=update.memory.content, request_id=update.request_id
        )
        return (await call(self._services.storage.FindMemory, find, STORAGE)).request_done


def _checked(request: pb.UpdateMemoryRequest) -> storage_pb2.UpdateMemoryRequest:
    """Returns the update that the request describes, with the fields that it sets and no other.

    Raises:
        ServiceError: A field is wrong; told before hints are refused for being switched off.
    """
    memory_rules.reference("ref", request.ref)
    memory_rules.update(request.memory, request.update_mask)
    values = memory_pb2.Memory()
    values.CopyFrom(request.memory)
    for field, _ in request.memory.ListFields():
        if field.name not in request.update_mask.paths:
            values.ClearField(field.name)  # type: ignore[arg-type]  # It is the message's own.
    if values.hints:
        hints_gate.check()
    return storage_pb2.UpdateMemoryRequest(
        namespace=memory_rules.namespace(request.namespace),
        ref=request.ref,
        memory=values,
        update_mask=request.update_mask,
        expected_version=memory_rules.within("expected_version", request.expected_version, 0, MAX_VERSION),
        dry_run=request.dry_run,
        request_id=memory_rules.request_id(request.request_id),
    )
