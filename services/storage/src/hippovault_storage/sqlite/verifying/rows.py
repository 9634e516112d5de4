"""Whether what is ours stands beside what other programs read, and nothing is left of what is gone."""

from __future__ import annotations

from hippovault_storage.sqlite import adoption, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

WITHOUT_SIDE_ROW = """
SELECT m.id FROM memories m LEFT JOIN hippo_memories h ON h.memory_id = m.id WHERE h.memory_id IS NULL
"""
DIFFERING = """
SELECT m.id FROM memories m JOIN hippo_memories h ON h.memory_id = m.id
WHERE h.updated_at IS NOT CAST(m.updated_at AS REAL) OR h.deleted_at IS NOT CAST(m.deleted_at AS REAL)
    OR h.created_at <> coalesce(CAST(m.created_at AS REAL), 0) OR h.memory_type <> coalesce(m.memory_type, '')
"""
BELONGING = ("hippo_tags", "hippo_token_codes", "hippo_history", "hippo_vectors")
"""Tables whose rows belong to a memory."""


def look(connection: Connection, findings: Findings) -> None:
    """Counts memories."""
    findings.looked_at(query.value(connection, "SELECT count(*) FROM memories"))
    for batch in query.chunks(connection, WITHOUT_SIDE_ROW, (), query.CHUNK):
        for memory_id in adoption.adoptable(connection, [memory_id for (memory_id,) in batch]):
            findings.wrong(f"memory {memory_id} lacks its row in hippo_memories")
    for (memory_id,) in query.each(connection, adoption.VANISHED):
        findings.wrong(f"memory {memory_id} has a row in hippo_memories alone")
    for (memory_id,) in query.each(connection, DIFFERING):
        findings.wrong(f"memory {memory_id} has another time or type in hippo_memories than in memories")
    for table in BELONGING:
        left = f"SELECT DISTINCT memory_id FROM {table} WHERE memory_id NOT IN (SELECT memory_id FROM hippo_memories)"
        for (memory_id,) in query.each(connection, left):
            findings.wrong(f"{table} has rows of memory {memory_id}, which is not there")
