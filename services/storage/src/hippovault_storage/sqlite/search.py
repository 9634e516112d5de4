"""Searching: two arms inside one scope, joined into hits."""

from __future__ import annotations

import sys

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage import times
from hippovault_storage.sqlite import distances, nearest, query, records, scope, text, vectors
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.scope import Scope

BODY_WEIGHT = 1.0
HINTS_WEIGHT = 1.0
"""What BM25 weighs a match in the content and in the hints by."""

LAST = sys.maxsize
"""The rank of a hit that an arm did not return."""

Scores = dict[int, float]
"""Score by memory id, best first."""

WORDS = f"""
SELECT h.memory_id, bm25(hippo_fts, {BODY_WEIGHT}, {HINTS_WEIGHT}) AS score
FROM hippo_fts CROSS JOIN hippo_memories h ON h.memory_id = hippo_fts.rowid
WHERE hippo_fts MATCH ? AND {{scope}} ORDER BY score, h.created_at DESC, h.memory_id LIMIT ?
"""
LIGHT = f"""
SELECT h.memory_id, h.created_at, h.surprise, {records.SIZE} + iif(?, ({vectors.CODES_SIZE}), 0)
FROM hippo_memories h JOIN memories m ON m.id = h.memory_id WHERE h.memory_id IN (SELECT value FROM json_each(?))
"""


def search(connection: Connection, index: CodeIndex, request: pb.SearchMemoriesRequest) -> pb.SearchMemoriesResponse:
    """Runs the arms that are set and returns the union of what they found."""
    within = scope.live(connection.vault, request.namespace, request.filter)
    if not request.HasField("dense"):
        return _response(connection, request, {}, {}, find_by_words(connection, within, request.keyword))
    to = distances.vector(request.dense.vector)
    near = nearest.find(connection, index, request, to)
    words = find_by_words(connection, within, request.keyword)
    others = distances.of_memories(connection, to, words.keys() - near.keys())
    return _response(connection, request, near, others, words)


def find_by_words(connection: Connection, within: Scope, arm: pb.KeywordArm) -> Scores:
    """Returns the best k by BM25, higher being better; ties newest first, then by id."""
    expression = text.match_expression(arm.query)
    if not expression:
        return {}
    rows = query.rows(connection, WORDS.format(scope=within.condition), (expression, *within.parameters, arm.k))
    return {memory_id: -score for memory_id, score in rows}  # FTS5 gives the best the lowest score.


def _response(
    connection: Connection, request: pb.SearchMemoriesRequest, near: Scores, others: Scores, words: Scores
) -> pb.SearchMemoriesResponse:
    near_ranks, word_ranks, cosine = _ranks(near), _ranks(words), near | others
    light = {row[0]: row for row in query.rows(connection, LIGHT, (request.token_codes, records.as_json(near | words)))}
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
    whole = records.fitting((memory_id, light[memory_id][3]) for memory_id in wanted)
    for row in records.rows(connection, whole):
        records.fill(connection.vault, hits[row[0]].memory, row)
    if request.token_codes:
        for memory_id, codes in vectors.token_codes(connection, whole).items():
            hits[memory_id].token_codes.CopyFrom(codes)
    return response


def _ranks(scores: Scores) -> dict[int, int]:
    return {memory_id: rank for rank, memory_id in enumerate(scores, start=1)}
