"""Searching: two arms inside one scope, joined into hits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage import times
from hippovault_storage.sqlite import query, records, scope, text
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.scope import Scope

BODY_WEIGHT = 1.0
HINTS_WEIGHT = 1.0
"""What BM25 weighs a match in the content and in the hints by."""

MAX_VEC0_K = 4096
"""vec0 refuses more neighbours in one query."""

SCAN_COST = 64
"""What looking up one vector costs, measured in vectors that vec0 runs through (10 to 50 µs against 0.4 to 0.5 µs)."""

LAST = sys.maxsize
"""The rank of a hit that an arm did not return."""

Scores = dict[int, float]
"""Score by memory id, best first."""

KNN = """
SELECT e.rowid, e.distance FROM memory_embeddings e JOIN hippo_memories h ON h.memory_id = e.rowid
WHERE e.content_embedding MATCH ? AND e.k = ? AND e.rowid IN (SELECT h.memory_id FROM hippo_memories h WHERE {scope})
ORDER BY e.distance, h.created_at DESC, e.rowid
"""
SCAN = """
SELECT h.memory_id, vec_distance_cosine(e.content_embedding, ?) AS distance
FROM hippo_memories h CROSS JOIN memory_embeddings e ON e.rowid = h.memory_id
WHERE {scope} ORDER BY distance, h.created_at DESC, h.memory_id LIMIT ?
"""
WORDS = f"""
SELECT h.memory_id, bm25(hippo_fts, {BODY_WEIGHT}, {HINTS_WEIGHT}) AS score
FROM hippo_fts CROSS JOIN hippo_memories h ON h.memory_id = hippo_fts.rowid
WHERE hippo_fts MATCH ? AND {{scope}} ORDER BY score, h.created_at DESC, h.memory_id LIMIT ?
"""
DISTANCES = """
SELECT e.rowid, vec_distance_cosine(e.content_embedding, ?)
FROM json_each(?) CROSS JOIN memory_embeddings e ON e.rowid = json_each.value
"""
LIGHT = f"""
SELECT h.memory_id, h.created_at, h.surprise, {records.SIZE}
FROM hippo_memories h JOIN memories m ON m.id = h.memory_id WHERE h.memory_id IN (SELECT value FROM json_each(?))
"""
NEWEST = """
SELECT vec_distance_cosine(e.content_embedding, ?)
FROM hippo_memories h CROSS JOIN memory_embeddings e ON e.rowid = h.memory_id
WHERE {scope} ORDER BY h.created_at DESC, h.memory_id DESC LIMIT ?
"""


def search(connection: Connection, request: pb.SearchMemoriesRequest) -> pb.SearchMemoriesResponse:
    """Runs the arms that are set and returns the union of what they found."""
    within = scope.live(connection.vault, request.namespace, request.filter)
    words = find_by_words(connection, within, request.keyword.query, request.keyword.k)
    if not request.HasField("dense"):
        return _response(connection, request, {}, {}, words)
    near = find_nearest(connection, within, request.dense.vector, request.dense.k)
    others = cosines(connection, request.dense.vector, words.keys() - near.keys())
    return _response(connection, request, near, others, words)


def find_by_words(connection: Connection, within: Scope, words: str, k: int) -> Scores:
    """Returns the best k by BM25, higher being better; ties newest first, then by id."""
    expression = text.match_expression(words)
    if not expression:
        return {}
    rows = query.rows(connection, WORDS.format(scope=within.condition), (expression, *within.parameters, k))
    return {memory_id: -score for memory_id, score in rows}  # FTS5 gives the best the lowest score.


def find_nearest(connection: Connection, within: Scope, vector: bytes, k: int) -> Scores:
    """Returns exactly the k nearest of the scope by cosine similarity; ties newest first, then by id.

    vec0 searches all its vectors fast, and finds k inside the scope however many outside it lie nearer. A small part
    of them is scanned faster one by one; so is what vec0 cannot do: more than MAX_VEC0_K, and the order of equals
    where they straddle the k-th place.
    """
    if k < MAX_VEC0_K and not _is_small(connection, within):
        near = _scores(query.rows(connection, KNN.format(scope=within.condition), (vector, k + 1, *within.parameters)))
        scores = list(near.values())
        if len(near) <= k:
            return near
        if scores[k - 1] > scores[k]:
            near.popitem()
            return near
    return _scores(query.rows(connection, SCAN.format(scope=within.condition), (vector, *within.parameters, k)))


def cosines(connection: Connection, vector: bytes, ids: Iterable[int]) -> Scores:
    """Returns cosine similarities, of those that have a vector."""
    return _scores(query.rows(connection, DISTANCES, (vector, records.as_json(ids))))


def compare_to_newest(connection: Connection, request: pb.CompareToNewestRequest) -> pb.CompareToNewestResponse:
    """Returns cosine similarities to the newest live memories, newest first.

    They are the newest n that have a vector: one that another program wrote without takes no place.
    """
    within = scope.live(connection.vault, request.namespace, memory_pb2.Filter())
    parameters = (request.vector, *within.parameters, request.newest)
    distances = query.column(connection, NEWEST.format(scope=within.condition), parameters)
    return pb.CompareToNewestResponse(cosine_similarities=map(_cosine, distances))


def _is_small(connection: Connection, within: Scope) -> bool:
    limit = int(query.value(connection, "SELECT coalesce(max(id), 0) FROM memories")) // SCAN_COST
    counted = f"SELECT count(*) FROM (SELECT 1 FROM hippo_memories h WHERE {within.condition} LIMIT ?)"
    return int(query.value(connection, counted, (*within.parameters, limit + 1))) <= limit


def _scores(rows: Iterable[tuple[Any, ...]]) -> Scores:
    return {memory_id: _cosine(distance) for memory_id, distance in rows}


def _cosine(distance: float | None) -> float:
    # NULL stands for a zero vector, which another program may have written: it points nowhere.
    return 0.0 if distance is None else 1.0 - distance


def _response(
    connection: Connection, request: pb.SearchMemoriesRequest, near: Scores, others: Scores, words: Scores
) -> pb.SearchMemoriesResponse:
    near_ranks, word_ranks, cosine = _ranks(near), _ranks(words), near | others
    light = {row[0]: row for row in query.rows(connection, LIGHT, (records.as_json(near | words),))}
    best = sorted(light, key=lambda memory_id: min(near_ranks.get(memory_id, LAST), word_ranks.get(memory_id, LAST)))
    response = pb.SearchMemoriesResponse()
    hits = {}
    for memory_id in best:
        hit = hits[memory_id] = response.hits.add(id=memory_id)
        _, created_at, surprise, _ = light[memory_id]
        times.fill(hit.created_at, created_at)
        if surprise is not None:
            hit.surprise = surprise
        if memory_id in cosine:
            hit.dense.rank, hit.dense.score = near_ranks.get(memory_id, 0), cosine[memory_id]
        if memory_id in words:
            hit.keyword.rank, hit.keyword.score = word_ranks[memory_id], words[memory_id]
    wanted = best[: request.whole] if request.HasField("whole") else best
    fitting = records.fitting((memory_id, light[memory_id][3]) for memory_id in wanted)
    for row in records.rows(connection, fitting):
        records.fill(connection.vault, hits[row[0]].memory, row)
    return response


def _ranks(scores: Scores) -> dict[int, int]:
    return {memory_id: rank for rank, memory_id in enumerate(scores, start=1)}
