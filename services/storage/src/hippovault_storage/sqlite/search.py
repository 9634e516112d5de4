"""Searching: two arms inside one scope, joined into hits."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage import times
from hippovault_storage.sqlite import distances, models, nearest, query, records, vectors, words
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.words import Match, Terms

LAST = sys.maxsize
"""The rank of a hit that an arm did not return."""

Scores = dict[int, float]
"""Score by memory id, best first."""

LIGHT = f"""
SELECT h.memory_id, h.created_at, h.surprise, {records.SIZE} + iif(?, ({vectors.CODES_SIZE}), 0)
FROM hippo_memories h JOIN memories m ON m.id = h.memory_id WHERE h.memory_id IN (SELECT value FROM json_each(?))
"""


def search(
    connection: Connection, index: CodeIndex, terms: Terms, request: pb.SearchMemoriesRequest
) -> pb.SearchMemoriesResponse:
    """Runs the arms that are set and returns the union of what they found.

    Raises:
        ServiceError: FAILED_PRECONDITION when the dense arm's vector is of another model than the store's.
    """
    if not request.HasField("dense"):
        return _response(connection, request, {}, {}, words.find(connection, terms, request))
    moment, to = nearest.begin(connection), distances.vector(request.dense.vector)
    models.check(connection, request.dense.model_revision)
    near = nearest.find(connection, index, request, to, moment)
    matching = words.find(connection, terms, request) if request.HasField("keyword") else {}
    further = matching.keys() - near.keys()
    others = distances.of_memories(connection, to, further) if further else {}
    return _response(connection, request, near, others, matching)


def _response(
    connection: Connection, request: pb.SearchMemoriesRequest, near: Scores, others: Scores, matching: dict[int, Match]
) -> pb.SearchMemoriesResponse:
    near_ranks, word_ranks, cosine = _ranks(near), _ranks(matching), near | others
    ids = records.as_json(near.keys() | matching.keys())
    light = {row[0]: row for row in query.rows(connection, LIGHT, (request.token_codes, ids))}
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
        if memory_id in matching:
            hit.keyword.rank, hit.keyword.score = word_ranks[memory_id], matching[memory_id].score
        hit.matched_by.extend(_matched_by(matching.get(memory_id), is_near=memory_id in near))
    wanted = best[: request.whole] if request.HasField("whole") else best
    whole = records.fitting(((memory_id, light[memory_id][3]) for memory_id in wanted), response.ByteSize())
    for row in records.rows(connection, whole):
        records.fill(connection.vault, hits[row[0]].memory, row)
    if request.token_codes:
        for memory_id, codes in vectors.token_codes(connection, whole).items():
            hits[memory_id].token_codes.CopyFrom(codes)
    return response


def _ranks(found: Iterable[int]) -> dict[int, int]:
    return {memory_id: rank for rank, memory_id in enumerate(found, start=1)}


def _matched_by(match: Match | None, *, is_near: bool) -> Iterator[memory_pb2.MatchedBy.ValueType]:
    if match and match.in_content:
        yield memory_pb2.MATCHED_BY_CONTENT
    if match and match.in_hints:
        yield memory_pb2.MATCHED_BY_HINT
    if is_near:
        yield memory_pb2.MATCHED_BY_DENSE
