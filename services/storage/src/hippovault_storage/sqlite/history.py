"""What memories were: each row of the history is one life of one version of a memory's content, without hints.

A life ends when the content changes or the memory is deleted. The last one stands in the memory's own row, from `since`
until `deleted_at` or until now; it goes into the history when another one follows. All these instants are of this
store's clock, and those of one memory strictly increase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import metadata, times
from hippovault_storage.sqlite import identity, pages, query, records
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import Vault

Memory = memory_pb2.Memory
MemoryVersion = memory_pb2.MemoryVersion

CHUNK = 32
"""Rows read at a time."""

TABLE = "hippo_history"
SELECT = (
    "SELECT since, until, version, category, key, content, tags, memory_type, importance, metadata, status, "
    "model_revision, created_at, coalesce(updated_at, created_at) FROM hippo_history WHERE memory_id = ?"
)
INSERT = """
INSERT INTO hippo_history (
    memory_id, since, until, version, category, key, content, tags, memory_type, importance, metadata, status,
    model_revision, created_at, updated_at
) VALUES (
    :memory_id, :since, :until, :version, :category, :key, :content, :tags, :memory_type, :importance, :metadata,
    :status, :model_revision, :created_at, :updated_at
)
"""
# Another program may have set the memory's clock back; what we have seen of it stays before.
SINCE = """
SELECT max(coalesce(h.since, h.updated_at, h.created_at), coalesce(
    (SELECT max(until) FROM hippo_history WHERE memory_id = h.memory_id), h.since, h.updated_at, h.created_at
)) FROM hippo_memories h WHERE h.memory_id = ?
"""


def since(connection: Connection, memory_id: int) -> float:
    """Returns the instant since which a memory has its content and lives, or lived until it was deleted."""
    return float(query.value(connection, SINCE, (memory_id,)))


def begin_life(connection: Connection, stored: Memory, now: float) -> None:
    """Writes what a memory is, or was until its deletion, into its history; something else follows from now on."""
    began = since(connection, stored.id)
    deleted = [times.seconds(stored.deleted_at)] if stored.HasField("deleted_at") else []
    begins = times.later(now, began, *deleted)
    last = _last(stored, began)
    if not deleted:
        times.fill(last.until, begins)
    if began < times.seconds(last.until):  # Another program may have written that it was deleted before.
        connection.execute(INSERT, _row(connection.vault, last))
    connection.execute("UPDATE hippo_memories SET since = ? WHERE memory_id = ?", (begins, stored.id))


def as_of(connection: Connection, memory_id: int, instant: float) -> Memory | None:
    """Returns what a memory was at an instant; None when it was not there."""
    last = _last(records.one(connection, memory_id), since(connection, memory_id))
    if times.seconds(last.since) <= instant and not (last.HasField("until") and times.seconds(last.until) <= instant):
        return last.memory
    then = f"{SELECT} AND since <= ? AND until > ? ORDER BY since DESC LIMIT 1"
    found = query.rows(connection, then, (memory_id, instant, instant))
    return _version(connection.vault, last.memory, found[0]).memory if found else None


def list_page(connection: Connection, request: pb.ListMemoryVersionsRequest) -> pb.ListMemoryVersionsResponse:
    """Returns a page of what a memory was, the newest first, beginning with what it is.

    Raises:
        ServiceError: NOT_FOUND when the reference names no memory; INVALID_ARGUMENT when the page token is not one of
            this listing.
    """
    memory_id = identity.named(connection, request.namespace, request.ref, memory_pb2.VISIBILITY_ALL)[0]
    before = None
    if request.page_token:
        before, of = pages.position(request)
        if of != memory_id:
            raise ServiceError.invalid("page_token", "belongs to a memory that the reference no longer names")
    memory = records.one(connection, memory_id)
    newest = [] if before is not None else [_last(memory, since(connection, memory_id))]
    older = f"{SELECT} AND since < ? ORDER BY since DESC LIMIT ?"
    until = float("inf") if before is None else before
    with query.reading(connection, older, (memory_id, until, request.page_size + 1)) as rows:
        versions, more = pages.take(_chain(connection.vault, memory, newest, rows), request.page_size)
    response = pb.ListMemoryVersionsResponse(versions=versions)
    if more:
        response.next_page_token = pages.token(request, times.seconds(versions[-1].since), memory_id)
    return response


def versions(connection: Connection, memory: Memory) -> Iterator[MemoryVersion]:
    """Yields what a memory was before, the oldest first, without what its own row tells."""
    last = float("-inf")
    while found := query.rows(connection, f"{SELECT} AND since > ? ORDER BY since LIMIT {CHUNK}", (memory.id, last)):
        for columns in found:
            yield _version(connection.vault, memory, columns)
        last = found[-1][0]


def replace(connection: Connection, memory_id: int, began: float, before: Iterable[MemoryVersion]) -> None:
    """Gives a memory another history.

    Args:
        connection: The writer's.
        memory_id: The memory.
        began: The instant since which it has its content and lives, or lived until it was deleted.
        before: What it was before, with the memory's namespace; ids are of no meaning.
    """
    connection.execute("UPDATE hippo_memories SET since = ? WHERE memory_id = ?", (began, memory_id))
    connection.execute("DELETE FROM hippo_history WHERE memory_id = ?", (memory_id,))
    for version in before:
        version.memory.id = memory_id
        connection.execute(INSERT, _row(connection.vault, version))


def _version(vault: Vault, memory: Memory, columns: tuple[Any, ...]) -> MemoryVersion:
    """Returns the version of a row of SELECT; the memory tells id and namespace."""
    result = MemoryVersion()
    was = result.memory
    was.id, was.namespace = memory.id, memory.namespace
    (
        began, ended, was.version, was.category, was.key, content, tags, was.memory_type, importance, stored_metadata,
        was.status, was.model_revision, created_at, updated_at,
    ) = columns  # fmt: skip
    where = records.place(was)
    was.content = vault.open(where, "content", content, table=TABLE)
    was.content_hash = identity.content_hash(was.content)
    was.tags.extend(records.split_tags(vault.open(where, "tags", tags, table=TABLE)))
    was.metadata, surprise = metadata.read(vault.open(where, "metadata", stored_metadata, table=TABLE))
    if surprise:
        was.surprise.CopyFrom(surprise)
    if importance is not None:
        was.importance = importance
    instants = (was.created_at, was.updated_at, result.since, result.until)
    for field, value in zip(instants, (created_at, updated_at, began, ended), strict=True):
        times.fill(field, value)
    return result


def _row(vault: Vault, version: MemoryVersion) -> records.SealedColumns:
    """Returns the values of INSERT."""
    was = version.memory
    columns: records.Columns = {
        "memory_id": was.id,
        "since": times.seconds(version.since),
        "until": times.seconds(version.until),
        "version": was.version,
        "category": was.category,
        "key": was.key,
        "content": was.content,
        "tags": records.join_tags(was.tags),
        "memory_type": was.memory_type,
        "importance": was.importance if was.HasField("importance") else None,
        "metadata": was.metadata or None,
        "status": was.status,
        "model_revision": was.model_revision,
        "created_at": times.seconds(was.created_at),
        "updated_at": times.seconds(was.updated_at),
    }
    return records.sealed(vault, was, columns)


def _last(memory: Memory, began: float) -> MemoryVersion:
    """Returns what the memory's own row tells."""
    result = MemoryVersion(memory=memory, since=times.timestamp(began))
    result.memory.ClearField("hints")
    if memory.HasField("deleted_at"):
        result.until.CopyFrom(memory.deleted_at)
        result.memory.ClearField("deleted_at")
    return result


def _chain(vault: Vault, memory: Memory, newest: list[MemoryVersion], rows: apsw.Cursor) -> Iterator[MemoryVersion]:
    yield from newest
    yield from (_version(vault, memory, columns) for columns in rows)
