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
    # The put's surprise is that of the vector.
    takes_vector = bool(request.vectors) and stored.pending
    memory = _merged(stored, request.memory, now, takes_surprise=takes_vector and not stored.HasField("surprise"))
    if takes_vector:
        memory.model_revision, memory.pending = request.model_revision, False
    return memory, memory_pb2.WRITE_OUTCOME_EXISTED


def updated(stored: Memory, request: pb.UpdateMemoryRequest, now: float) -> Memory:
    """Returns what the memory is after an update.

    Args:
        stored: The live memory.
        request: Checked and normalised: its memory has nothing that the mask does not name. Not changed.
        now: Seconds since 1970.
    """
    memory = Memory()
    memory.CopyFrom(stored)
    for field in request.update_mask.paths:
        memory.ClearField(field)  # type: ignore[arg-type]  # The validator knows them.
    memory.MergeFrom(request.memory)
    memory.version += memory.content != stored.content
    if takes_vector(stored, memory, request):
        memory.model_revision, memory.pending = request.model_revision, False
    elif memory.content != stored.content:
        memory.model_revision, memory.pending = "", True
        if "surprise" not in request.update_mask.paths:
            memory.ClearField("surprise")
    unscored = memory.HasField("surprise") != stored.HasField("surprise")
    if unscored or not {"metadata", "surprise"}.isdisjoint(request.update_mask.paths):
        memory.metadata = metadata.replaced(stored.metadata, memory.metadata, _surprise(memory))
    times.fill(memory.created_at, times.seconds(memory.created_at))
    if memory.HasField("surprise"):
        memory.surprise.components.SetInParent()  # As it is read back.
    hints = list(memory.hints)  # Advisory, as in a put.
    memory.hints[:] = stored.hints
    if memory != stored:
        _touch(memory, stored, now)
    memory.hints[:] = hints
    return memory


def takes_vector(stored: Memory, memory: Memory, request: pb.UpdateMemoryRequest) -> bool:
    """Tells whether a memory gets the vectors of an update: with new content, or where it had none."""
    return bool(request.vectors) and (memory.content != stored.content or stored.pending)


def _replacement(stored: Memory, request: pb.PutMemoryRequest, now: float, created: float) -> Memory:
    """Returns the given memory in the stored one's place; `created` is its time where none is given."""
    memory = Memory()
    memory.CopyFrom(request.memory)
    memory.id = stored.id
    if stored.key:  # What it is called outlives its deletion; a write without a key may not know of it.
        memory.category, memory.key = stored.category, stored.key
    memory.version = stored.version + (stored.content != memory.content)
    if request.vectors or stored.pending or stored.content != memory.content:
        memory.model_revision, memory.pending = request.model_revision if request.vectors else "", not request.vectors
    else:  # It lives again with its vectors, and so with its surprise.
        memory.model_revision = stored.model_revision
        memory.MergeFrom(Memory(surprise=_surprise(memory) or _surprise(stored)))
    memory.metadata = metadata.replaced(stored.metadata, memory.metadata, _surprise(memory))
    if not memory.HasField("created_at"):
        memory.created_at.CopyFrom(times.timestamp(created))
    _touch(memory, stored, now)
    return memory


def _merged(stored: Memory, given: Memory, now: float, *, takes_surprise: bool) -> Memory:
    """Returns the stored memory with what is given added to it."""
    memory = Memory()
    memory.CopyFrom(stored)
    if given.key:
        memory.category, memory.key = given.category, given.key
    elif given.category and not stored.key:
        memory.category = given.category
    memory.tags[:] = _union(stored.tags, given.tags)
    if given.memory_type:
        memory.memory_type = given.memory_type
    if given.status:
        memory.status = given.status
    if given.HasField("importance"):
        memory.importance = given.importance
    if takes_surprise and given.HasField("surprise"):
        memory.surprise.CopyFrom(given.surprise)
    if given.metadata or memory.HasField("surprise") != stored.HasField("surprise"):
        memory.metadata = metadata.replaced(stored.metadata, given.metadata or stored.metadata, _surprise(memory))
    if memory != stored:
        _touch(memory, stored, now)
    # Advisory, not part of the memory's state: new hints alone leave its time as it is. A write without a key may not
    # know of the memory that it meets, so it does not clear what another gave.
    if given.key or given.hints:
        memory.hints[:] = given.hints
    return memory


def _surprise(memory: Memory) -> memory_pb2.Surprise | None:
    return memory.surprise if memory.HasField("surprise") else None


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
    past = [times.seconds(stored.updated_at)] if stored.HasField("updated_at") else []
    memory.updated_at.CopyFrom(times.timestamp(times.later(now, *past)))
