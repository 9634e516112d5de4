"""Makes ours what another program did to the file: rows that it wrote, changed or deleted since we last had it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_storage import metadata
from hippovault_storage.sqlite import query, records, requests, vectors, writes
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.records import Memory
from hippovault_storage.vault import Place, Vault

CHUNK = 2_000
"""Memories a transaction: what is adopted stays so, should the start be cut short."""

VANISHED = """
SELECT h.memory_id FROM hippo_memories h LEFT JOIN memories m ON m.id = h.memory_id WHERE m.id IS NULL
"""
CHANGED = """
SELECT m.id FROM memories m LEFT JOIN hippo_memories h ON h.memory_id = m.id
WHERE h.memory_id IS NULL
    OR h.updated_at IS NOT CAST(m.updated_at AS REAL) OR h.deleted_at IS NOT CAST(m.deleted_at AS REAL)
"""
# The casts: SQLite stores text in a REAL column where it is not a number.
READ = f"""
SELECT coalesce(h.namespace, ''), coalesce(h.category, ''), coalesce(h.key, ''), coalesce(h.version, 0), m.id,
    m.content, m.tags, m.memory_type, m.metadata, coalesce(h.hints, '{records.NO_HINTS}')
FROM memories m LEFT JOIN hippo_memories h ON h.memory_id = m.id
WHERE m.id IN (SELECT value FROM json_each(?))
"""
DERIVED = tuple(records.derived(Memory()))
WRITE = f"""
INSERT INTO hippo_memories (
    memory_id, namespace, category, key, hints, version, model_revision, created_at, updated_at, deleted_at, since,
    {", ".join(DERIVED)}
)
SELECT m.id, '{memory_rules.DEFAULT_NAMESPACE}', '', '', '{records.NO_HINTS}', 1, '',
    coalesce(CAST(m.created_at AS REAL), 0), CAST(m.updated_at AS REAL), CAST(m.deleted_at AS REAL),
    coalesce(CAST(m.updated_at AS REAL), CAST(m.created_at AS REAL), 0),
    {", ".join(f":{name}" for name in DERIVED)}
FROM memories m WHERE m.id = :id
ON CONFLICT (memory_id) DO UPDATE SET
    version = version + (content_hash <> excluded.content_hash),
    model_revision = iif(content_hash = excluded.content_hash, model_revision, ''),
    since = iif(content_hash = excluded.content_hash AND deleted_at IS NULL, since, excluded.since),
    created_at = excluded.created_at, updated_at = excluded.updated_at, deleted_at = excluded.deleted_at,
    {", ".join(f"{name} = excluded.{name}" for name in DERIVED)}
"""
DEAD = """
SELECT memory_id FROM hippo_memories
WHERE deleted_at IS NOT NULL AND memory_id IN (SELECT value FROM json_each(?))
"""
OURS = (("hippo_memories", "memory_id"), ("hippo_tags", "memory_id"), ("hippo_fts", "rowid"))
OF_THE_VANISHED = (*OURS, ("hippo_history", "memory_id"))
OF_OTHER_CONTENT = """
DELETE FROM hippo_token_codes WHERE memory_id IN (
    SELECT memory_id FROM hippo_memories WHERE model_revision = '' AND memory_id IN (SELECT value FROM json_each(?))
)
"""


@dataclass
class Adopted:
    """What became of what another program changed."""

    count: int = 0
    """Memories that are up to date now."""
    unreadable: list[int] = field(default_factory=list)
    """Ids of rows that cannot be memories. They stay as they are, unseen, and are tried again at the next open."""


def adopt(connection: Connection) -> Adopted:
    """Writes side rows, tags and words for what another program changed, a chunk in a transaction."""
    adopted = Adopted()
    with connection:
        vanished = query.column(connection, VANISHED)
        _forget(connection, vanished, *OF_THE_VANISHED)
        vectors.purge(connection, vanished)
        requests.forget(connection, vanished)
        changed = query.column(connection, CHANGED)
    adopted.count = len(vanished)
    for start in range(0, len(changed), CHUNK):
        with connection:
            _adopt_chunk(connection, changed[start : start + CHUNK], adopted)
    return adopted


def adoptable(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Returns those of the ids whose rows can be memories."""
    return [memory.id for row in _read(connection, ids) if (memory := _memory(connection.vault, row))]


def _adopt_chunk(connection: Connection, ids: Sequence[int], adopted: Adopted) -> None:
    vault = connection.vault
    memories = [memory for row in _read(connection, ids) if (memory := _memory(vault, row))]
    unreadable = sorted(set(ids) - {memory.id for memory in memories})
    if not vault.seals:  # There it is evidence, and reading it an error that tells so.
        _forget(connection, unreadable, *OURS)  # What had been a memory may have been made unreadable.
        requests.forget(connection, unreadable)
    derived = ((memory, {"id": memory.id, **records.derived(memory)}) for memory in memories)
    connection.executemany(WRITE, (records.sealed(vault, memory, columns) for memory, columns in derived))
    connection.execute(OF_OTHER_CONTENT, (records.as_json(ids),))
    writes.write_tags(connection, memories)
    dead = set(query.column(connection, DEAD, (records.as_json(ids),)))
    writes.remove_words(connection, dead)
    writes.write_words(connection, [memory for memory in memories if memory.id not in dead])
    vectors.refresh(connection, [memory.id for memory in memories])
    adopted.count += len(memories)
    adopted.unreadable += unreadable


def _read(connection: Connection, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yields rows, without those in which text is no UTF-8."""
    try:
        yield from query.rows(connection, READ, (records.as_json(ids),))
    except UnicodeDecodeError:
        if len(ids) > 1:
            for memory_id in ids:
                yield from _read(connection, [memory_id])


def _memory(vault: Vault, row: tuple[Any, ...]) -> Memory | None:
    """Returns what another program's row says of a memory; None when it cannot be one."""
    where = Place(*row[: len(Place._fields)])
    content, tags, memory_type, stored_metadata, hints = row[len(Place._fields) :]
    memory_type = memory_type or ""
    try:
        content, tags = vault.open(where, "content", content), vault.open(where, "tags", tags)
        if vault.seals:
            stored_metadata = vault.open(where, "metadata", stored_metadata)
        hints = records.read_hints(vault, where, hints)
        if not all(isinstance(text, str) for text in (content, tags, memory_type)):
            return None
        # What could be put, but of any length.
        memory_rules.text("content", content, sys.maxsize, allowed=memory_rules.LINE_CONTROLS)
    except ServiceError:
        return None
    text, surprise = metadata.read(stored_metadata if isinstance(stored_metadata, str) else "")
    return Memory(
        id=where.memory_id,
        namespace=where.namespace,
        category=where.category,
        key=where.key,
        version=where.version,
        content=content,
        tags=records.split_tags(tags),
        hints=hints,
        memory_type=memory_type,
        metadata=text,
        surprise=surprise,
    )


def _forget(connection: Connection, ids: Sequence[int], *places: tuple[str, str]) -> None:
    for table, column in places:
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(memory_id,) for memory_id in ids])
