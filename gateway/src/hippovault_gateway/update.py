"""Update: the fields that a mask names; new content is embedded and scored as if it were remembered."""

from __future__ import annotations

from hippovault.embedding.v1 import embedding_pb2
from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_gateway import hints_gate
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.limits import MAX_VERSION
from hippovault_gateway.scoring import Scorer


class Updater:
    """Changes memories.

    Args:
        services: The services behind the gateway.
        scorer: Scores new content.
    """

    def __init__(self, services: Services, scorer: Scorer) -> None:
        self._services = services
        self._scorer = scorer

    async def update_memory(self, request: pb.UpdateMemoryRequest) -> pb.UpdateMemoryResponse:
        """Sets the fields of one live memory, or with dry_run tells what it would be."""
        update = _checked(request)
        truncated = "content" in update.update_mask.paths and await self._add_vector(update)
        updated = await call(self._services.storage.UpdateMemory, update, STORAGE)
        return pb.UpdateMemoryResponse(memory=updated.memory, changed=updated.changed, truncated=truncated)

    async def _add_vector(self, update: storage_pb2.UpdateMemoryRequest) -> bool:
        """Adds what belongs to the content: its vector and, where it is new, its surprise.

        Returns:
            Whether the vector covers only the head of the content.
        """
        get = storage_pb2.GetMemoryRequest(namespace=update.namespace, ref=update.ref)
        found = (await call(self._services.storage.GetMemory, get, STORAGE)).memory
        [embedded] = await self._services.embed([update.memory.content], embedding_pb2.INPUT_TYPE_DOCUMENT)
        update.vectors, update.model_revision = embedded.vector, embedded.model_revision
        if found.content != update.memory.content:
            for field in update.update_mask.paths:
                found.ClearField(field)  # type: ignore[arg-type]  # The validator knows them.
            found.MergeFrom(update.memory)
            update.memory.surprise.CopyFrom(await self._scorer.score(found, embedded.vector))
            update.update_mask.paths.append("surprise")
        return embedded.truncated


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
    )
