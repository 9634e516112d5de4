"""Whether a memory's lives follow upon one another."""

from __future__ import annotations

from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

LIVES = """
SELECT memory_id, since, until, lag(until) OVER (PARTITION BY memory_id ORDER BY since) AS former_until
FROM hippo_history
"""
DISORDERED = f"""
SELECT DISTINCT l.memory_id FROM ({LIVES}) l LEFT JOIN hippo_memories h ON h.memory_id = l.memory_id
WHERE l.until <= l.since OR l.since < l.former_until OR l.until > h.since
"""


def look(connection: Connection, findings: Findings) -> None:
    """Counts what memories have been."""
    findings.looked_at(query.value(connection, "SELECT count(*) FROM hippo_history"))
    for (memory_id,) in query.each(connection, DISORDERED):
        findings.wrong(f"memory {memory_id}: what it was from one time to another overlaps")
