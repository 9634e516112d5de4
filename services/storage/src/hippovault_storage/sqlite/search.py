"""Searching: two arms inside one scope, joined into hits."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage import times
from hippovault_storage.sqlite import distances, late_interaction, models, nearest, query, records, schema, words
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.words import Match, Terms

LAST = sys.maxsize
"""The rank of a hit that an arm did not return."""

Scores = dict[int, float]
"""Score by memory id, best first."""

LIGHT = f"""
SELECT h.memory_id, h.created_at, h.surprise, h.importance, {records.SIZE}
FROM hippo_memories h JOIN memories m ON m.id = h.memory_id WHERE h.memory_id IN (SELECT value FROM json_each(?))
"""


@dataclass
class Found:
    """What the arms found."""

    near: Scores = field(default_factory=dict)
    """What the dense arm returned."""
    others: Scores = field(default_factory=dict)
    """Cosines of what the keyword arm alone returned."""
    matching: dict[int, Match] = field(default_factory=dict)


def search(
    connection: Connection, index: CodeIndex, terms: Terms, request: pb.SearchMemoriesRequest
) -> pb.SearchMemoriesResponse:
    """Runs the arms that are set and returns the union of what they found.

    Raises:
        ServiceError: FAILED_PRECONDITION when the dense arm's vector, or the query's tokens, are of another model than
            the store's.
    """
    response, found = pb.SearchMemoriesResponse(), Found()
    moment = nearest.begin(connection)
    for of_model in (request.dense, request.late_interaction):
        models.check(connection, of_model.model_revision)
    if request.HasField("dense"):
        with _timed(response.dense_time):
            to = distances.vector(request.dense.vector)
            found.near = nearest.find(connection, index, request, to, moment)
    if request.HasField("keyword"):
        with _timed(response.keyword_time):
            found.matching = words.find(connection, terms, request)
    if request.HasField("dense") and (further := found.matching.keys() - found.near.keys()):
        with _timed(response.dense_time):
            found.others = distances.of_memories(connection, to, further)
    _fill(connection, request, found, response)
    return response


def _fill(
    connection: Connection, request: pb.SearchMemoriesRequest, found: Found, response: pb.SearchMemoriesResponse
) -> None:
    """Fills an answer with hits, the best first by the better of their ranks."""
    near_ranks, word_ranks, cosine = _ranks(found.near), _ranks(found.matching), found.near | found.others
    ranks = near_ranks | {id_: min(rank, near_ranks.get(id_, LAST)) for id_, rank in word_ranks.items()}
    light = {row[0]: row for row in query.rows(connection, LIGHT, (records.as_json(ranks),))}
    best = sorted(light, key=ranks.__getitem__)
    hits = {}
    for memory_id in best:
        hit = hits[memory_id] = _added(response, light[memory_id])
        if memory_id in cosine:
            _score(hit.dense, near_ranks.get(memory_id, 0), cosine[memory_id])
        match = found.matching.get(memory_id)
        if match:
            _score(hit.keyword, word_ranks[memory_id], match.score)
        hit.matched_by.extend(_matched_by(match, is_near=memory_id in near_ranks))
    if request.HasField("late_interaction"):
        with _timed(response.late_interaction_time):
            compared = [memory_id for memory_id in best if ranks[memory_id] <= request.late_interaction.depth]
            _compare_tokens(connection, request.late_interaction, compared, hits)
    wanted = best[: request.whole] if request.HasField("whole") else best
    whole = records.fitting(((memory_id, light[memory_id][4]) for memory_id in wanted), response.ByteSize())
    for row in records.rows(connection, whole):
        records.fill(connection.vault, hits[row[0]].memory, row)


def _added(response: pb.SearchMemoriesResponse, row: tuple[Any, ...]) -> pb.SearchHit:
    """Adds a hit with what a row of LIGHT tells of it."""
    hit = response.hits.add()
    hit.id, created_at, surprise, importance, _ = row
    times.fill(hit.created_at, created_at)
    if surprise is not None:
        hit.surprise = surprise
    hit.importance = importance or 0.0
    return hit


def _compare_tokens(
    connection: Connection, asked: pb.LateInteraction, ids: list[int], hits: dict[int, pb.SearchHit]
) -> None:
    dimensions = connection.of_schema(schema.dimensions)
    told = late_interaction.similarities(connection, ids, asked.token_vectors, dimensions)
    for memory_id, similarities in told.items():
        hits[memory_id].token_similarities = similarities


@contextmanager
def _timed(duration: Duration) -> Iterator[None]:
    """Adds to a duration what the context takes."""
    began = time.perf_counter_ns()
    yield
    duration.FromNanoseconds(duration.ToNanoseconds() + time.perf_counter_ns() - began)


def _ranks(found: Iterable[int]) -> dict[int, int]:
    return {memory_id: rank for rank, memory_id in enumerate(found, start=1)}


def _score(arm: memory_pb2.ArmScore, rank: int, score: float) -> None:
    arm.rank = rank
    arm.score = score


def _matched_by(match: Match | None, *, is_near: bool) -> list[memory_pb2.MatchedBy.ValueType]:
    dense = [memory_pb2.MATCHED_BY_DENSE] if is_near else []
    if match is None:
        return dense
    content = [memory_pb2.MATCHED_BY_CONTENT] if match.in_content else []
    return [*content, memory_pb2.MATCHED_BY_HINT, *dense] if match.in_hints else [*content, *dense]
