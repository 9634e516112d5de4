"""Whether what memories were can be read, and their lives follow upon one another."""

from __future__ import annotations

import collections

from hippovault.memory.v1.memory_pb2 import Memory
from hippovault_chassis import deadline
from hippovault_storage.sqlite import history, query, readable
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

LIVES = """
SELECT memory_id, since, until, lag(until) OVER (PARTITION BY memory_id ORDER BY since) AS former_until
FROM hippo_history
"""
DISORDERED = f"""
SELECT DISTINCT memory_id FROM ({LIVES}) WHERE until <= since OR since < former_until
"""
WITH_ONE = """
SELECT h.memory_id, h.namespace FROM hippo_memories h
WHERE EXISTS (SELECT 1 FROM hippo_history l WHERE l.memory_id = h.memory_id)
"""


def look(connection: Connection, findings: Findings) -> None:
    """Counts what memories have been."""
    findings.looked_at(query.value(connection, "SELECT count(*) FROM hippo_history"))
    for (memory_id,) in query.each(connection, DISORDERED):
        findings.wrong(f"memory {memory_id}: what it was from one time to another overlaps")
    connection.execute("BEGIN")
    for memory_id, namespace in query.each(connection, WITH_ONE):
        deadline.remaining()
        try:
            collections.deque(history.versions(connection, Memory(id=memory_id, namespace=namespace)), maxlen=0)
        except readable.UNREADABLE as error:
            findings.wrong(f"memory {memory_id}: of what it was, {readable.told(error)}")
