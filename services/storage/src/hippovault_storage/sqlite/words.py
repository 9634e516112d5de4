"""The keyword arm: the memories of a scope that match words best, by BM25."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import query, scope, text
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.scope import IN_SCOPE, Scope

BODY_WEIGHT = 1.0
HINTS_WEIGHT = 0.5
"""What BM25 weighs a match in the content and in the hints by.

With hints for half of the memories, the mean reciprocal ranks of questions to those with and to those without are .48
and .41 (6,228 command pages) and .65 and .58 (77 intents of a bank's customers); with 1.0 they are .53 and .32, .71 and
.52; with 0.25 they are .39 and .44, .59 and .60. With hints for all, 0.5 finds as much as any.
"""

LARGE = 10_000
"""Documents above which common terms are dropped; below, every word tells and none costs much."""
COMMON_SHARE = 0.2
"""The part of the documents that a common term stands in more than."""
MAX_KNOWN_TERMS = 10_000
DRIFT = 1.25
"""What is known of terms is forgotten when the newest document's id is so many times what it was, or as many less."""

DOCUMENTS = "SELECT count(*) FROM hippo_fts_docsize"
NEWEST = "SELECT coalesce(max(id), 0) FROM hippo_fts_docsize"
FREQUENCY = "SELECT count(*) FROM (SELECT 1 FROM hippo_fts WHERE hippo_fts MATCH ? LIMIT ?)"
SCORED = f"""
bm25(hippo_fts, {BODY_WEIGHT}, {HINTS_WEIGHT}) AS score, bm25(hippo_fts, 1, 0) < 0, bm25(hippo_fts, 0, 1) < 0
FROM hippo_fts
"""
"""A match in a column that alone has weight gives a score below 0, and none gives 0. SQLite computes these two for rows
that may be among the best only, and bm25 counts the terms once for all three."""
BEST = f"SELECT rowid, {SCORED} WHERE hippo_fts MATCH ? ORDER BY score LIMIT ?"
BEST_IN_SCOPE = f"""
SELECT h.memory_id, {SCORED} CROSS JOIN hippo_memories h ON h.memory_id = hippo_fts.rowid
WHERE hippo_fts MATCH ? AND {{scope}} ORDER BY score, h.created_at DESC, h.memory_id LIMIT ?
"""

OVERSAMPLING = 8
"""Memories for one of k that are ranked before it is known which of them are in the narrowest of wide scopes."""
OVERSAMPLING_ALL = 2
"""The same, where the scope has all of the sample."""
SPARE = 32
"""Further ones, since many may match as well as the last of a small k."""
WIDE_SHARE = 0.25
"""The part of the live memories from which on a scope is wide. Of those that are ranked k are then in it nearly always;
below it the matches outside of the scope are many, and ranking only those within is as fast."""
SAMPLE = 64
"""Memories that tell how wide a scope is."""
PLACES = np.arange(SAMPLE) * (5**0.5 - 1) / 2 % 1
"""Of the sample, in the order of the ids: evenly spread, and in step with nothing that comes back every so often."""
SHARE = """
WITH h AS (
    SELECT h.* FROM carray(?) c CROSS JOIN hippo_memories h ON h.memory_id = c.value WHERE h.deleted_at IS NULL
)
SELECT count(*) FILTER (WHERE {scope}), count(*) FROM h
"""

Row = tuple[int, float, int, int]
"""A memory's id, its score, which is lower the better it matches, and whether its content and its hints match."""


class Match(NamedTuple):
    """How well the words of a query match a memory, and where they stand."""

    score: float
    """Higher is better."""
    in_content: bool
    in_hints: bool


@dataclass(frozen=True)
class _Known:
    """What is known of the terms of a store of this size."""

    newest: int
    documents: int
    common: dict[str, bool] = field(default_factory=dict)


class Terms:
    """Knows which terms are common. Used by any thread: what two learn at once, both may learn."""

    def __init__(self) -> None:
        self._known = _Known(0, 0)

    def telling(self, connection: Connection, terms: list[str]) -> list[str]:
        """Returns the terms of a query that are not common; all, where all are or the store is small.

        Common terms match much and tell little. The query is faster without them and finds nearly the same.
        """
        known = self._up_to_date(connection)
        if known.documents <= LARGE:
            return terms
        return [term for term in terms if not self._is_common(connection, known, term)] or terms

    def _up_to_date(self, connection: Connection) -> _Known:
        newest = int(query.value(connection, NEWEST))
        if not self._known.newest / DRIFT <= newest <= self._known.newest * DRIFT:
            self._known = _Known(newest, int(query.value(connection, DOCUMENTS)))
        return self._known

    @staticmethod
    def _is_common(connection: Connection, known: _Known, term: str) -> bool:
        common = known.common.get(term)
        if common is None:
            limit = int(known.documents * COMMON_SHARE)
            common = query.value(connection, FREQUENCY, (term, limit + 1)) > limit
            if len(known.common) >= MAX_KNOWN_TERMS:
                known.common.clear()
            known.common[term] = common
        return common


def find(connection: Connection, terms: Terms, request: pb.SearchMemoriesRequest) -> dict[int, Match]:
    """Returns the best k of the request's scope by BM25, higher being better; ties newest first, then by id."""
    voting = terms.telling(connection, text.terms(request.keyword.query))
    if not voting:
        return {}
    expression = " OR ".join(voting)
    found = _ranked_first(connection, expression, request)
    if found is None:
        found = _within(connection, expression, request)
    return {  # FTS5 gives the best the lowest score.
        memory_id: Match(-score, bool(in_content), bool(in_hints)) for memory_id, score, in_content, in_hints in found
    }


def _ranked_first(connection: Connection, expression: str, request: pb.SearchMemoriesRequest) -> list[Row] | None:
    """Finds the best of the whole store, then those of them that are in the scope: most matches are never looked at.

    Returns:
        The best k of the scope; None where it is not wide, or others may be as good.
    """
    within = scope.live(connection.vault, request.namespace, request.filter, one_by_one="h.memory_id")
    share = _share(connection, within)
    if share < WIDE_SHARE:
        return None
    k = request.keyword.k
    number = round(k * (OVERSAMPLING - (OVERSAMPLING - OVERSAMPLING_ALL) * share)) + SPARE
    best: list[Row] = query.rows(connection, BEST, (expression, number))
    ids = np.array([row[0] for row in best], np.int64)
    created = dict(query.rows_of(connection, IN_SCOPE.format(scope=within.condition), ids, within.parameters))
    there = [row for row in best if row[0] in created]
    if len(best) == number:  # Others may be as good as the last one.
        there = [row for row in there if row[1] < best[-1][1]]
        if len(there) < k:
            return None
    return sorted(there, key=lambda row: (row[1], -created[row[0]], row[0]))[:k]


def _share(connection: Connection, within: Scope) -> float:
    """Returns what part of the live memories is in the scope, by a sample; all where there is none in the sample."""
    ids = 1 + (PLACES * query.value(connection, NEWEST)).astype(np.int64)
    ((in_scope, live),) = query.rows_of(connection, SHARE.format(scope=within.condition), ids, within.parameters)
    return in_scope / live if live else 1.0


def _within(connection: Connection, expression: str, request: pb.SearchMemoriesRequest) -> list[Row]:
    within = scope.live(connection.vault, request.namespace, request.filter, one_by_one="hippo_fts.rowid")
    parameters = (expression, *within.parameters, request.keyword.k)
    return query.rows(connection, BEST_IN_SCOPE.format(scope=within.condition), parameters)
