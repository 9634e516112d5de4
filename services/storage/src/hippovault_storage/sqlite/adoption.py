"""Makes ours what another program did to the file: rows that it wrote, changed or deleted since we last had it."""

from __future__ import annotations

import apsw

from hippovault_chassis.memory_rules import DEFAULT_NAMESPACE
from hippovault_storage.sqlite import identity, query, records, writes

VANISHED = """
SELECT h.memory_id FROM hippo_memories h LEFT JOIN memories m ON m.id = h.memory_id WHERE m.id IS NULL
"""
CHANGED = """
SELECT m.id FROM memories m LEFT JOIN hippo_memories h ON h.memory_id = m.id
WHERE h.memory_id IS NULL
    OR h.updated_at IS NOT CAST(m.updated_at AS REAL) OR h.deleted_at IS NOT CAST(m.deleted_at AS REAL)
"""
# The casts: SQLite stores text in a REAL column where it is not a number.
COPY = f"""
INSERT INTO hippo_memories (
    memory_id, namespace, category, key, content_hash, memory_type, hints, version, model_revision,
    created_at, updated_at, deleted_at
)
SELECT m.id, '{DEFAULT_NAMESPACE}', '', '', '', coalesce(CAST(m.memory_type AS TEXT), ''), '[]', 1, '',
    coalesce(CAST(m.created_at AS REAL), 0), CAST(m.updated_at AS REAL), CAST(m.deleted_at AS REAL)
FROM memories m WHERE m.id = ?
ON CONFLICT (memory_id) DO UPDATE SET
    memory_type = excluded.memory_type, created_at = excluded.created_at, updated_at = excluded.updated_at,
    deleted_at = excluded.deleted_at
"""
SET_CONTENT = """
UPDATE hippo_memories SET content_hash = :hash, surprise = :surprise,
    version = version + (content_hash NOT IN ('', :hash)),
    model_revision = iif(content_hash = :hash, model_revision, '')
WHERE memory_id = :id
"""


def adopt(connection: apsw.Connection) -> int:
    """Writes side rows, tags and words for what another program changed, in one transaction.

    Returns:
        How many memories were touched.
    """
    with connection:
        vanished, changed = query.column(connection, VANISHED), query.column(connection, CHANGED)
        for memory_id in vanished:
            _forget(connection, memory_id)
        for memory_id in changed:
            _adopt_one(connection, memory_id)
    return len(vanished) + len(changed)


def _forget(connection: apsw.Connection, memory_id: int) -> None:
    for table, column in (
        ("hippo_memories", "memory_id"),
        ("hippo_tags", "memory_id"),
        ("hippo_fts", "rowid"),
        ("memory_embeddings", "rowid"),
    ):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (memory_id,))


def _adopt_one(connection: apsw.Connection, memory_id: int) -> None:
    connection.execute(COPY, (memory_id,))
    memory = records.one(connection, memory_id)
    content = {
        "id": memory_id,
        "hash": identity.content_hash(memory.content),
        "surprise": memory.surprise.score if memory.HasField("surprise") else None,
    }
    connection.execute(SET_CONTENT, content)
    writes.write_tags(connection, memory)
    if memory.HasField("deleted_at"):
        writes.remove_words(connection, [memory_id])
    else:
        writes.write_words(connection, memory)
