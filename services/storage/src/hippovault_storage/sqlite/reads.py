"""Reading without searching: get, find, list, summary, counts."""

from __future__ import annotations

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite import history, identity, models, pages, query, records, requests, scope, unembedded
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.scope import Scope

MAX_TYPES = 100
"""Of one summary: another program or caller may have used any number of types, and an answer has bounds."""

SIZES = f"""
SELECT h.memory_id, {records.SIZE} FROM hippo_memories h JOIN memories m ON m.id = h.memory_id
WHERE {{scope}} AND h.memory_id IN (SELECT value FROM json_each(?))
"""


def find(connection: Connection, request: pb.FindMemoryRequest) -> pb.FindMemoryResponse:
    """Returns the memory, live or deleted, that a put of this content and key would write to."""
    response = pb.FindMemoryResponse(request_done=requests.is_done(connection, request.namespace, request.request_id))
    found = identity.find(connection, request.namespace, request.content, request.category, request.key)
    if found is not None:
        response.memory.CopyFrom(records.one(connection, found))
        response.has_vector = not response.memory.pending
    return response


def get(connection: Connection, request: pb.GetMemoryRequest) -> pb.GetMemoryResponse:
    """Returns the visible memory that the reference names; with as_of, what it was then.

    Raises:
        ServiceError: NOT_FOUND when there is none.
    """
    if request.HasField("as_of"):
        return pb.GetMemoryResponse(memory=_as_of(connection, request))
    ids = identity.named(connection, request.namespace, request.ref, request.visibility)
    return pb.GetMemoryResponse(memory=records.one(connection, ids[0]))


def batch_get(connection: Connection, request: pb.BatchGetMemoriesRequest) -> pb.BatchGetMemoriesResponse:
    """Returns the live memories of these ids, in their order, as many as fit into an answer."""
    within = scope.live(connection.vault, request.namespace, memory_pb2.Filter())
    sizes = dict(
        query.rows(connection, SIZES.format(scope=within.condition), (*within.parameters, records.as_json(request.ids)))
    )
    ids = records.fitting((memory_id, sizes[memory_id]) for memory_id in request.ids if memory_id in sizes)
    found = {row[0]: records.memory(connection.vault, row) for row in records.rows(connection, ids)}
    return pb.BatchGetMemoriesResponse(memories=[found[memory_id] for memory_id in ids])


def list_page(connection: Connection, request: pb.ListMemoriesRequest) -> pb.ListMemoriesResponse:
    """Returns a page of visible memories, newest first.

    Raises:
        ServiceError: INVALID_ARGUMENT when the page token is not one of this listing.
    """
    within = scope.visible(connection.vault, request.namespace, request.filter, request.visibility)
    after, parameters = "", within.parameters
    if request.page_token:
        after = "AND (h.created_at, h.memory_id) < (?, ?)"
        parameters += pages.position(request)
    newest = (
        f"{records.SELECT} WHERE {within.condition} {after} "
        "ORDER BY h.created_at DESC, h.memory_id DESC LIMIT ? OFFSET ?"
    )
    with query.reading(connection, newest, (*parameters, request.page_size + 1, request.skip)) as rows:
        found = (records.memory(connection.vault, row) for row in rows)
        memories, more = pages.take(found, request.page_size)
    response = pb.ListMemoriesResponse(memories=memories, total_size=_count(connection, within))
    if more:
        last = memories[-1]
        response.next_page_token = pages.token(request, times.seconds(last.created_at), last.id)
    return response


def summarize(connection: Connection, request: pb.SummarizeMemoriesRequest) -> pb.SummarizeMemoriesResponse:
    """Returns what is notable of the live memories created since a time; since ever when none is given."""
    conditions = memory_pb2.Filter()
    if request.HasField("since"):
        conditions.created_since.CopyFrom(request.since)
    within = scope.live(connection.vault, request.namespace, conditions)
    where, parameters = within.condition, within.parameters
    types = (
        f"SELECT h.memory_type, count(*) AS n FROM hippo_memories h WHERE {where} "
        "GROUP BY h.memory_type ORDER BY n DESC, h.memory_type LIMIT ?"
    )
    tags = (
        "SELECT t.tag, count(*) AS n, min(h.memory_id) FROM hippo_memories h "
        "JOIN hippo_tags t ON t.memory_id = h.memory_id "
        f"WHERE {where} GROUP BY t.tag ORDER BY n DESC, t.tag LIMIT ?"
    )
    highlights = (
        f"{records.SELECT} WHERE {where} AND h.surprise IS NOT NULL "
        "ORDER BY h.surprise DESC, h.created_at DESC, h.memory_id LIMIT ?"
    )
    notable = (
        records.memory(connection.vault, row)
        for row in query.rows(connection, highlights, (*parameters, request.highlights))
    )
    mean = f"SELECT avg(h.surprise) FROM hippo_memories h WHERE {where}"
    summary = memory_pb2.Summary(
        total_memories=_count(connection, within),
        by_type=dict(query.rows(connection, types, (*parameters, MAX_TYPES))),
        top_tags=[
            memory_pb2.TagCount(tag=_tag(connection, tag, having), count=count)
            for tag, count, having in query.rows(connection, tags, (*parameters, request.top_tags))
        ],
        highlights=pages.take(notable, request.highlights)[0],
        mean_surprise=query.value(connection, mean, parameters),
        since=request.since if request.HasField("since") else None,
    )
    return pb.SummarizeMemoriesResponse(summary=summary)


def count(connection: Connection) -> pb.GetStatsResponse:
    """Returns the counts over the whole store."""
    counts = (
        "SELECT count(*) FILTER (WHERE deleted_at IS NULL), count(*) FILTER (WHERE deleted_at IS NOT NULL), "
        "count(DISTINCT namespace) FILTER (WHERE deleted_at IS NULL) FROM hippo_memories"
    )
    live, deleted, namespaces = query.rows(connection, counts)[0]
    searched = "SELECT count(*) FROM hippo_vectors v JOIN hippo_memories h USING (memory_id) WHERE h.deleted_at IS NULL"
    return pb.GetStatsResponse(
        live_memories=live,
        deleted_memories=deleted,
        namespaces=namespaces,
        vectors=query.value(connection, searched),
        model_revision=models.of(connection),
        pending_memories=unembedded.count_pending(connection),
    )


def _as_of(connection: Connection, request: pb.GetMemoryRequest) -> memory_pb2.Memory:
    memory_id = identity.named(connection, request.namespace, request.ref, memory_pb2.VISIBILITY_ALL)[0]
    memory = history.as_of(connection, memory_id, times.seconds(request.as_of))
    if memory is None:
        raise ServiceError.not_found("as_of", "the memory was not there at this time")
    return memory


def _count(connection: Connection, within: Scope) -> int:
    counted = f"SELECT count(*) FROM hippo_memories h WHERE {within.condition}"
    return int(query.value(connection, counted, within.parameters))


def _tag(connection: Connection, stored: str, memory_id: int) -> str:
    """Returns the tag that stands in hippo_tags; a digest in its place is told by the tags of a memory that has it."""
    if not connection.vault.seals:
        return stored
    tags = records.one(connection, memory_id).tags
    return next((tag for tag in tags if connection.vault.digest(tag) == stored), "")
