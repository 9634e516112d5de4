"""Purging: the rows of memories, wherever there are any."""

from __future__ import annotations

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage import times
from hippovault_storage.sqlite import erasing, foreign, identity, query, records, requests, vectors
from hippovault_storage.sqlite.connections import Connection

CHUNK = 500
"""Memories a transaction."""
MAX_TOLD_IDS = 1_000

DELETED = """
SELECT memory_id FROM hippo_memories WHERE namespace = ? AND deleted_at < ? ORDER BY deleted_at, memory_id LIMIT ?
"""
ROWS = (
    ("hippo_memories", "memory_id"),
    ("hippo_tags", "memory_id"),
    ("hippo_fts", "rowid"),
    ("hippo_history", "memory_id"),
)
ASSOCIATIONS = "memory_associations"


def preview(connection: Connection, request: pb.PurgeMemoriesRequest) -> pb.PurgeMemoriesResponse:
    """Tells what a purge would remove.

    Raises:
        ServiceError: NOT_FOUND when the reference names no memory.
    """
    ids = _targets(connection, request, limit=-1)
    return pb.PurgeMemoriesResponse(ids=ids[:MAX_TOLD_IDS], total=len(ids))


def remove(
    connection: Connection, request: pb.PurgeMemoriesRequest, so_far: pb.PurgeMemoriesResponse
) -> tuple[pb.PurgeMemoriesResponse, bool]:
    """Removes memories that the request names, and marks that what is left of them is to be erased.

    Args:
        connection: The writer's.
        request: Names at most CHUNK at a time where it names them by the time of their deletion.
        so_far: What was removed for this request.

    Returns:
        What is removed now, and whether there is more. What a request with this id removed before, it does not again.

    Raises:
        ServiceError: NOT_FOUND when the reference names no memory.
    """
    if done := requests.answered(connection, request):
        return done, False
    ids = _targets(connection, request, CHUNK)
    if ids:
        erasing.mark(connection)
        _remove_rows(connection, ids)
    told = ids[: MAX_TOLD_IDS - len(so_far.ids)]
    response = pb.PurgeMemoriesResponse(ids=[*so_far.ids, *told], total=so_far.total + len(ids))
    more = len(ids) == CHUNK and request.HasField("deleted_before")
    if not more:
        requests.keep(connection, request, response)
    return response, more


def _targets(connection: Connection, request: pb.PurgeMemoriesRequest, limit: int) -> list[int]:
    if request.HasField("ref"):
        return identity.named(connection, request.namespace, request.ref, memory_pb2.VISIBILITY_ALL)
    before = min(times.seconds(request.deleted_before), times.now())
    return query.column(connection, DELETED, (request.namespace, before, limit))


def _remove_rows(connection: Connection, ids: list[int]) -> None:
    listed = (records.as_json(ids),)
    with foreign.removing_rows(connection, ids):
        connection.execute("DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?))", listed)
    for table, column in (*ROWS, *_associations(connection)):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", listed)
    vectors.purge(connection, ids)
    requests.forget(connection, ids)


def _associations(connection: Connection) -> list[tuple[str, str]]:
    """Returns both ends of what links memories; only another program writes that table, and may have dropped it."""
    there = query.value(connection, "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = ?)", (ASSOCIATIONS,))
    return [(ASSOCIATIONS, "from_id"), (ASSOCIATIONS, "to_id")] if there else []
