"""The embedding model of a store: vectors of two cannot be compared, so all that have a known one have the same.

Vectors that another program wrote are of no known model. They are taken for the store's, which is that of the first
vectors that come with one. A store without vectors has no model.
"""

from __future__ import annotations

from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.connections import Connection

NAME = "model_revision"
"""In hippo_state."""

TOLD = "SELECT value FROM hippo_state WHERE name = ?"
STORED = f"{TOLD} AND EXISTS (SELECT 1 FROM hippo_vectors)"
MOST_COMMON = """
SELECT model_revision FROM hippo_memories
WHERE model_revision <> '' AND memory_id IN (SELECT rowid FROM memory_embeddings_rowids)
GROUP BY model_revision ORDER BY count(*) DESC, model_revision LIMIT 1
"""


def of(connection: Connection) -> str:
    """Returns the revision of the store's model; nothing while it has none."""
    return query.value(connection, STORED, (NAME,)) or ""


def check(connection: Connection, revision: str) -> str:
    """Returns the revision of the store's model, with whose vectors those of a revision are to be compared.

    Args:
        connection: Reads.
        revision: Nothing where it is not known, and so not checked.

    Raises:
        ServiceError: FAILED_PRECONDITION MODEL_MISMATCH when it is another one.
    """
    stored = of(connection)
    if revision and stored not in {"", revision}:
        raise ServiceError.model_mismatch(f"the vectors are of the model {revision}, those of the store of {stored}")
    return stored


def take(connection: Connection, revision: str) -> None:
    """Makes the revision of vectors that are about to be written the store's where that has none.

    Raises:
        ServiceError: As `check`; nothing was written.
    """
    if not check(connection, revision):
        _write(connection, revision)  # Also that it is not known: what an emptied store had is no longer so.


def settle(connection: Connection) -> None:
    """Finds the model of a store that does not tell it, as earlier versions wrote it: that of most of its vectors.

    To be called before what another program wrote is adopted, which may be the first vectors of an emptied store.
    """
    if of(connection):
        return
    found = query.value(connection, MOST_COMMON) or ""
    if found != (query.value(connection, TOLD, (NAME,)) or ""):
        with connection:
            _write(connection, found)


def _write(connection: Connection, revision: str) -> None:
    connection.execute("REPLACE INTO hippo_state (name, value) VALUES (?, ?)", (NAME, revision))
