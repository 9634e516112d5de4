"""Writing: the row, its side row, tags, words and vector, always in the caller's one transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import merging, times
from hippovault_storage.sqlite import (
    foreign,
    hint_vectors,
    history,
    identity,
    models,
    query,
    records,
    requests,
    text,
    vectors,
)
from hippovault_storage.sqlite.connections import Connection

Memory = memory_pb2.Memory
Columns = records.Columns
SealedColumns = records.SealedColumns
TakeModel = Callable[[str], None]
"""See `models.take`."""

ENDING = {memory_pb2.WRITE_OUTCOME_UPDATED, memory_pb2.WRITE_OUTCOME_REVIVED}
"""Outcomes after which a memory is another one than it was."""

LARGEST_ID = 2**63 - 1
LARGEST = (
    "SELECT max(coalesce((SELECT max(id) FROM memories), 0), "
    "coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'memories'), 0), "
    "coalesce((SELECT max(rowid) FROM memory_embeddings_rowids), 0))"
)
"""The largest id that a memory has or had, or that another program left a vector under."""


def put(connection: Connection, request: pb.PutMemoryRequest) -> pb.PutMemoryResponse:
    """Stores, merges, updates or revives a memory.

    Raises:
        ServiceError: FAILED_PRECONDITION when there is no vector and none is stored with the same live content, or the
            vectors are of another model than the store's; INVALID_ARGUMENT when the merged tags are too many.
    """
    return _put_once(connection, request, functools.partial(models.take, connection))


def _put_once(connection: Connection, request: pb.PutMemoryRequest, take_model: TakeModel) -> pb.PutMemoryResponse:
    return requests.once(connection, request, lambda: _put(connection, request, take_model))


def _put(connection: Connection, request: pb.PutMemoryRequest, take_model: TakeModel) -> pb.PutMemoryResponse:
    given = request.memory
    memory_id = identity.find(connection, given.namespace, given.content, given.category, given.key)
    stored = None if memory_id is None else records.one(connection, memory_id)
    now = times.now()
    memory, outcome = merging.decide(stored, request, now)
    existed = outcome == memory_pb2.WRITE_OUTCOME_EXISTED
    if not (existed or request.vectors or request.pending):
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "VECTOR_REQUIRED",
            "vectors: must be given, since no live memory has this content",
            field="vectors",
        )
    takes_vectors = bool(request.vectors) and not (existed and stored and not stored.pending)
    of_hints = hint_vectors.due(connection, request, memory, stored)
    if takes_vectors or of_hints.vectors or vectors.has_token_codes(request):
        take_model(request.model_revision)
    if stored and outcome in ENDING:
        history.begin_life(connection, stored, now)
    if stored is None or memory != stored:
        write(connection, memory, stored)
    if takes_vectors:
        write_vectors = vectors.write if stored else vectors.insert
        write_vectors(connection, memory.id, request.vectors, _token_codes(connection, request, stored))
    elif stored and memory.pending and not existed:
        vectors.purge(connection, [memory.id])
    elif request.HasField("token_codes"):
        vectors.write_token_codes(connection, memory.id, request.token_codes)
    hint_vectors.write(connection, memory.id, of_hints)
    return pb.PutMemoryResponse(memory=records.as_read(memory), outcome=outcome)


def put_each(
    connection: Connection, requests: Iterable[pb.PutMemoryRequest]
) -> list[pb.PutMemoryResponse | ServiceError]:
    """Does what `put` does for each; one that is refused has written nothing."""
    # Asked once of each model: puts take no vectors away, so what was right for one is for those after it.
    take_model = functools.cache(functools.partial(models.take, connection))
    return [_put_or_refuse(connection, request, take_model) for request in requests]


def delete(connection: Connection, request: pb.DeleteMemoryRequest) -> pb.DeleteMemoryResponse:
    """Deletes softly; with dry_run it tells which. The vector stays, the words go, so that they cost no search.

    Raises:
        ServiceError: NOT_FOUND when the reference names no live memory.
    """
    ids, now = identity.named(connection, request.namespace, request.ref), times.now()
    if not request.dry_run:
        for memory_id in ids:
            _set_deleted(connection, memory_id, times.later(now, history.since(connection, memory_id)))
        remove_words(connection, ids)
    return pb.DeleteMemoryResponse(ids=ids)


def undelete(connection: Connection, request: pb.UndeleteMemoryRequest) -> pb.UndeleteMemoryResponse:
    """Brings deleted memories back as they were; with dry_run it tells which.

    Raises:
        ServiceError: NOT_FOUND when the reference names no deleted memory.
    """
    ids = identity.named(connection, request.namespace, request.ref, memory_pb2.VISIBILITY_DELETED)
    now = times.now()
    if not request.dry_run:
        for memory in [records.one(connection, memory_id) for memory_id in ids]:
            history.begin_life(connection, memory, now)
            _set_deleted(connection, memory.id, None)
            write_words(connection, [memory])
    return pb.UndeleteMemoryResponse(ids=ids)


def write_tags(connection: Connection, memories: Sequence[Memory]) -> None:
    """Writes the tags that filters look at."""
    connection.executemany("DELETE FROM hippo_tags WHERE memory_id = ?", [(memory.id,) for memory in memories])
    _insert_tags(connection, memories)


def _insert_tags(connection: Connection, memories: Iterable[Memory]) -> None:
    connection.executemany(
        "INSERT INTO hippo_tags (tag, memory_id) VALUES (?, ?)",
        [(connection.vault.digest(tag), memory.id) for memory in memories for tag in memory.tags],
    )


def write_words(connection: Connection, memories: Sequence[Memory]) -> None:
    """Writes what the keyword arm looks at."""
    connection.executemany(
        "REPLACE INTO hippo_fts (rowid, body, hints) VALUES (?, ?, ?)",
        [(memory.id, text.indexed(memory.content), text.indexed_hints(memory.hints)) for memory in memories],
    )


def remove_words(connection: Connection, ids: Iterable[int]) -> None:
    """Takes memories out of the keyword arm."""
    connection.execute("DELETE FROM hippo_fts WHERE rowid IN (SELECT value FROM json_each(?))", (records.as_json(ids),))


def _put_or_refuse(
    connection: Connection, request: pb.PutMemoryRequest, take_model: TakeModel
) -> pb.PutMemoryResponse | ServiceError:
    before = connection.total_changes()
    try:
        return _put_once(connection, request, take_model)
    except ServiceError as error:
        if connection.total_changes() != before:  # Half of a memory: the transaction must not be committed.
            raise
        return error


def _token_codes(connection: Connection, request: pb.PutMemoryRequest, stored: Memory | None) -> pb.TokenCodes | None:
    """Returns what is given; where nothing is, what is stored with the same content."""
    if request.HasField("token_codes"):
        return request.token_codes
    if stored is None or stored.content != request.memory.content:
        return None
    there = vectors.token_codes(connection, stored.id)
    return there.of_content if there else None


def write(connection: Connection, memory: Memory, stored: Memory | None) -> None:
    """Writes what differs, and sets the memory's id when it is new."""
    vault = connection.vault
    if stored is None:
        memory.id = _next_id(connection)
        row = {"id": memory.id, "content_hash": _row_hash(connection, memory), **_row(memory)}
        _insert(connection, "memories", records.sealed(vault, memory, row))
        since = times.seconds(memory.updated_at)
        side_row = {"memory_id": memory.id, "since": since, **_side_row(memory)}
        _insert(connection, "hippo_memories", records.sealed(vault, memory, side_row))
    else:
        resealed = vault.seals and records.place(stored) != records.place(memory)
        changes = _differing(_row(stored), _row(memory), resealed=resealed)
        if [*identity.row_hashes(stored)] != [*identity.row_hashes(memory)]:
            changes["content_hash"] = _row_hash(connection, memory)
        with foreign.changing_content(connection, memory.id) if "content" in changes else nullcontext():
            _update(connection, "memories", "id", memory.id, records.sealed(vault, memory, changes))
        changes = _differing(_side_row(stored), _side_row(memory), resealed=resealed)
        _update(connection, "hippo_memories", "memory_id", memory.id, records.sealed(vault, memory, changes))
    if stored is None:
        _insert_tags(connection, [memory])
    elif stored.tags != memory.tags:
        write_tags(connection, [memory])
    if memory.HasField("deleted_at"):
        remove_words(connection, [memory.id])
    elif stored is None or _words(stored) != _words(memory):
        write_words(connection, [memory])


def _set_deleted(connection: Connection, memory_id: int, instant: float | None) -> None:
    for table, key in (("memories", "id"), ("hippo_memories", "memory_id")):
        connection.execute(f"UPDATE {table} SET deleted_at = ? WHERE {key} = ?", (instant, memory_id))


def _row(memory: Memory) -> Columns:
    """Returns the drop-in row, but for what identifies it."""
    created_at, updated_at = times.seconds(memory.created_at), times.seconds(memory.updated_at)
    return {
        "content": memory.content,
        "tags": records.join_tags(memory.tags),
        "memory_type": memory.memory_type or None,
        "metadata": memory.metadata or None,
        "created_at": created_at,
        "updated_at": updated_at,
        "created_at_iso": times.iso(created_at),
        "updated_at_iso": times.iso(updated_at),
        "deleted_at": times.seconds(memory.deleted_at) if memory.HasField("deleted_at") else None,
    }


def _side_row(memory: Memory) -> Columns:
    """Returns our row beside it, but for its id."""
    return {
        "namespace": memory.namespace,
        "category": memory.category,
        "key": memory.key,
        "hints": records.join_hints(memory.hints),
        "importance": memory.importance if memory.HasField("importance") else None,
        **records.derived(memory),
        "version": memory.version,
        "model_revision": memory.model_revision,
        "status": memory.status,
        "created_at": times.seconds(memory.created_at),
        "updated_at": times.seconds(memory.updated_at),
        "deleted_at": times.seconds(memory.deleted_at) if memory.HasField("deleted_at") else None,
    }


def _words(memory: Memory) -> tuple[bool, str, list[str]]:
    return memory.HasField("deleted_at"), memory.content, list(memory.hints)


def _differing(before: Columns, after: Columns, *, resealed: bool) -> Columns:
    # Columns that stay are not written: another program may have put into them what it alone can read. Sealed ones are
    # where what they belong to has changed.
    return {
        name: value for name, value in after.items() if before[name] != value or (resealed and name in records.SEALED)
    }


def _next_id(connection: Connection) -> int:
    """Returns an id that no memory has or had. What is sealed needs it before the row is there."""
    largest = int(query.value(connection, LARGEST))
    if largest == LARGEST_ID:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "IDS_EXHAUSTED",
            f"{connection.filename}: another program has given a row of the table memories the largest id there is, "
            f"{LARGEST_ID}, which none can follow",
        )
    return largest + 1


def _insert(connection: Connection, table: str, values: SealedColumns) -> None:
    connection.execute(_insertion(table, *values), tuple(values.values()))


@functools.cache
def _insertion(table: str, *columns: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _update(connection: Connection, table: str, key: str, memory_id: int, changes: SealedColumns) -> None:
    if changes:
        settings = ", ".join(f"{name} = :{name}" for name in changes)
        connection.execute(f"UPDATE {table} SET {settings} WHERE {key} = :{key}", {**changes, key: memory_id})


def _row_hash(connection: Connection, memory: Memory) -> str:
    taken_by_another = "SELECT EXISTS(SELECT 1 FROM memories WHERE content_hash = ? AND id <> ?)"
    digest, row_hash = connection.vault.digest, ""
    for row_hash in identity.row_hashes(memory):
        if not query.value(connection, taken_by_another, (digest(row_hash), memory.id)):
            break
    return row_hash
