"""What a put makes of a memory: a function of what is stored, what is given, and the time. Any engine's rule."""

from __future__ import annotations

from collections.abc import Iterable

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_storage import metadata, times

Memory = memory_pb2.Memory


def decide(
    stored: Memory | None, request: pb.PutMemoryRequest, now: float
) -> tuple[Memory, memory_pb2.WriteOutcome.ValueType]:
    """Returns what the memory is after a put, and what the put did.

    Args:
        stored: The memory that the put's identity names, live or deleted; None when there is none.
        request: Checked and normalised. Not changed.
        now: Seconds since 1970.

    Raises:
        ServiceError: INVALID_ARGUMENT when the merged tags are too many.
    """
    if stored is None:
        return _replacement(Memory(), request, now, now), memory_pb2.WRITE_OUTCOME_CREATED
    if stored.HasField("deleted_at"):
        return _replacement(stored, request, now, now), memory_pb2.WRITE_OUTCOME_REVIVED
    if stored.content != request.memory.content:
        created = times.seconds(stored.created_at)
        return _replacement(stored, request, now, created), memory_pb2.WRITE_OUTCOME_UPDATED
    return _merged(stored, request.memory, now), memory_pb2.WRITE_OUTCOME_EXISTED


def _replacement(stored: Memory, request: pb.PutMemoryRequest, now: float, created: float) -> Memory:
    """Returns the given memory in the stored one's place; `created` is its time where none is given."""
    memory = Memory()
    memory.CopyFrom(request.memory)
    memory.id = stored.id
    memory.version = stored.version + (stored.content != memory.content)
    memory.model_revision = request.model_revision
    memory.metadata = metadata.sealed(memory.metadata, memory.surprise if memory.HasField("surprise") else None)
    if not memory.HasField("created_at"):
        memory.created_at.CopyFrom(times.timestamp(created))
    _touch(memory, stored, now)
    return memory


def _merged(stored: Memory, given: Memory, now: float) -> Memory:
    """Returns the stored memory with what is given added to it."""
    memory = Memory()
    memory.CopyFrom(stored)
    if given.key:
        memory.category, memory.key = given.category, given.key
    memory.tags[:] = _union(stored.tags, given.tags)
    if given.memory_type:
        memory.memory_type = given.memory_type
    if given.HasField("importance"):
        memory.importance = given.importance
    if given.metadata:
        surprise = stored.surprise if stored.HasField("surprise") else None
        memory.metadata = metadata.replaced(stored.metadata, given.metadata, surprise)
    if memory != stored:
        _touch(memory, stored, now)
    # Advisory, not part of the memory's state: new hints alone leave its time as it is.
    memory.hints[:] = given.hints
    return memory


def _union(stored: Iterable[str], given: Iterable[str]) -> list[str]:
    before = list(stored)
    tags = list(dict.fromkeys([*before, *given]))
    # Another program may have stored more than the limit; that must not bar a put that adds none.
    if len(tags) > max(memory_rules.MAX_TAGS, len(before)):
        raise ServiceError.invalid(
            "tags", f"must be at most {memory_rules.MAX_TAGS}, are {len(tags)} with those that the memory has"
        )
    return tags


def _touch(memory: Memory, stored: Memory, now: float) -> None:
    """Moves updated_at, strictly: two writes never share an instant, even when the clock stands or goes back."""
    moment = now
    if stored.HasField("updated_at"):
        moment = max(now, times.seconds(stored.updated_at) + times.MICROSECOND)
    memory.updated_at.CopyFrom(times.timestamp(moment))
