"""Whether all vectors are of the store's model."""

from __future__ import annotations

from hippovault_storage.sqlite import models, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

KNOWN = """
SELECT memory_id, model_revision FROM hippo_memories
WHERE model_revision <> '' AND memory_id IN (SELECT rowid FROM memory_embeddings_rowids)
"""


def look(connection: Connection, findings: Findings) -> None:
    """Counts the memories whose vectors are of a known model."""
    connection.execute("BEGIN")
    model = models.of(connection)
    for memory_id, revision in query.each(connection, KNOWN):
        findings.looked_at(1)
        if model not in {"", revision}:  # A file of an earlier version does not tell its model until it is served.
            findings.wrong(f"memory {memory_id}: its vectors are of the model {revision}, the store's is {model}")
