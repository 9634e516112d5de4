"""What memories were: each row of the history is one life of one version of a memory's content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_storage import metadata, times
from hippovault_storage.sqlite import identity, query, records
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import Vault

Memory = memory_pb2.Memory
MemoryVersion = memory_pb2.MemoryVersion

PAGE = 32
"""Rows read at a time."""
TABLE = "hippo_history"
SELECT = (
    "SELECT since, until, version, category, key, content, tags, memory_type, importance, metadata, status, "
    "model_revision, created_at, coalesce(updated_at, created_at) FROM hippo_history"
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


def since(connection: Connection, memory_id: int) -> float:
    """Returns the instant since which a memory has its content and lives, or lived until it was deleted."""
    sql = "SELECT coalesce(since, updated_at, created_at) FROM hippo_memories WHERE memory_id = ?"
    return float(query.value(connection, sql, (memory_id,)))


def versions(connection: Connection, memory: Memory) -> Iterator[MemoryVersion]:
    """Yields what a memory was before, the oldest first."""
    last = float("-inf")
    sql = f"{SELECT} WHERE memory_id = ? AND since > ? ORDER BY since LIMIT {PAGE}"
    while rows := query.rows(connection, sql, (memory.id, last)):
        for row in rows:
            yield _version(connection.vault, memory, row)
        last = rows[-1][0]


def replace(connection: Connection, record: pb.MemoryRecord) -> None:
    """Gives a memory the past that a record has."""
    memory = record.memory
    connection.execute(
        "UPDATE hippo_memories SET since = ? WHERE memory_id = ?", (times.seconds(record.since), memory.id)
    )
    connection.execute("DELETE FROM hippo_history WHERE memory_id = ?", (memory.id,))
    connection.executemany(INSERT, (_row(connection.vault, memory, version) for version in record.history))


def _version(vault: Vault, memory: Memory, row: tuple[Any, ...]) -> MemoryVersion:
    result = MemoryVersion()
    was = result.memory
    was.id, was.namespace = memory.id, memory.namespace
    (
        began, ended, was.version, was.category, was.key, content, tags, was.memory_type, importance, stored_metadata,
        was.status, was.model_revision, created_at, updated_at,
    ) = row  # fmt: skip
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


def _row(vault: Vault, memory: Memory, version: MemoryVersion) -> records.SealedColumns:
    was = version.memory
    was.id, was.namespace = memory.id, memory.namespace
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
