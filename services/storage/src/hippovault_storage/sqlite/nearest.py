"""The dense arm: the memories of a scope whose nearest vector is nearest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import distances, query, scope
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.changes import Change
from hippovault_storage.sqlite.dense.columns import Wanted
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.dense.namespace import Candidates
from hippovault_storage.sqlite.distances import Vector
from hippovault_storage.sqlite.scope import Scope

CHUNK = 2_048
"""Rows that are looked at together."""

OVERSAMPLING = 8
"""Candidates for one of k, where that makes more."""
WIDENING = 4
"""How many times more candidates a search takes that did not find enough."""

SPARE = 6
"""Memories beyond k that are looked at: those that were compared are nearly all in the scope."""
SCAN_SHARE = 2
"""Where one of so many would be a candidate, all are looked at."""

READ = "SELECT count(*) FROM (SELECT 1 FROM sqlite_schema LIMIT 1)"
"""Any read: it fixes the moment of which all reads of the transaction are."""

OF_CHANGED = """
SELECT h.memory_id, h.created_at, v.vector
FROM carray(?) c CROSS JOIN hippo_memories h ON h.memory_id = c.value
CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
WHERE {scope}
"""
OWNERS = "SELECT v.memory_id FROM carray(?) c CROSS JOIN hippo_vectors v ON v.id = c.value"
ALL = """
SELECT h.memory_id, h.created_at, v.vector
FROM hippo_memories h CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
WHERE {scope}
"""
CANDIDATES = """
WITH c AS (SELECT value FROM carray(?))
SELECT h.memory_id, h.created_at, v.vector, {scope}
FROM c CROSS JOIN hippo_vectors v ON v.id = c.value CROSS JOIN hippo_memories h ON h.memory_id = v.memory_id
"""


class Best:
    """The k nearest of the memories that were looked at.

    Args:
        k: How many are kept.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._floor = -np.inf
        self._found: dict[int, tuple[float, float]] = {}

    def look_at(self, rows: Sequence[tuple[Any, ...]], cosines: Vector) -> None:
        """Takes in rows of a memory's id and its time, each with the cosine of one of its vectors."""
        for position in np.flatnonzero(cosines >= self._floor).tolist():
            memory_id, created_at, *_ = rows[position]
            cosine = float(cosines[position])
            if memory_id not in self._found or cosine > self._found[memory_id][0]:
                self._found[memory_id] = (cosine, created_at)
        if len(self._found) > 2 * self._k + CHUNK:
            self._found = dict(self._ranked())
            self._floor = min(cosine for cosine, _ in self._found.values())

    def take_in(self, other: Best) -> None:
        """Takes in what another one looked at."""
        for memory_id, found in other._found.items():
            self._found[memory_id] = max(found, self._found.get(memory_id, found))

    def scores(self) -> dict[int, float]:
        """Returns cosines by memory id, best first; ties newest first, then by id."""
        return {memory_id: cosine for memory_id, (cosine, _) in self._ranked()}

    def _ranked(self) -> list[tuple[int, tuple[float, float]]]:
        def order(item: tuple[int, tuple[float, float]]) -> tuple[float, float, int]:
            memory_id, (cosine, created_at) = item
            return -cosine, -created_at, memory_id

        return sorted(self._found.items(), key=order)[: self._k]


def exactly(connection: Connection, within: Scope, to: Vector, k: int) -> dict[int, float]:
    """Returns the k nearest of the scope, having looked at all of it."""
    best = Best(k)
    for rows in query.chunks(connection, ALL.format(scope=within.condition), within.parameters, CHUNK):
        best.look_at(rows, distances.cosines(to, (row[2] for row in rows)))
    return best.scores()


def begin(connection: Connection) -> float:
    """Begins to read in a transaction, when there is none as of now, and returns when that was, for `find`."""
    if not connection.in_transaction:
        connection.execute("BEGIN")
    moment = time.monotonic()
    query.value(connection, READ)
    return moment


def find(
    connection: Connection, index: CodeIndex, request: pb.SearchMemoriesRequest, to: Vector, moment: float
) -> dict[int, float]:
    """Returns the k nearest of the request's scope, found by the namespace's index where it has one.

    Args:
        connection: Reads.
        index: Of all namespaces.
        request: Says the namespace, the filter and k.
        to: The request's vector.
        moment: Of which all that the connection reads is, see `begin`.
    """
    changed = index.changed_since(moment)
    view, k = index.view(request.namespace), request.dense.k
    if view is not None:
        wanted = Wanted(connection.vault, request.filter)
        within = scope.live(connection.vault, request.namespace, request.filter, one_by_one="h.memory_id")
        best = _among(connection, within, changed, to, k)
        depth, enough = max(view.depth, OVERSAMPLING * k), k + SPARE
        while depth * SCAN_SHARE < len(view):
            found = _first(connection, within, to, view.candidates(to, wanted, depth, enough, moment), k)
            if found is not None:
                best.take_in(found)
                return best.scores()
            depth, enough = depth * WIDENING, enough * WIDENING
    return exactly(connection, scope.live(connection.vault, request.namespace, request.filter), to, k)


def _among(connection: Connection, within: Scope, changed: Change, to: Vector, k: int) -> Best:
    """Returns the nearest of the scope that were changed."""
    best = Best(k)
    owners = query.rows_of(connection, OWNERS, np.fromiter(changed.vectors, np.int64))
    ids = np.fromiter(changed.memories.union(memory_id for (memory_id,) in owners), np.int64)
    rows = query.rows_of(connection, OF_CHANGED.format(scope=within.condition), ids, within.parameters)
    best.look_at(rows, distances.cosines(to, (row[2] for row in rows)))
    return best


def _first(connection: Connection, within: Scope, to: Vector, candidates: Candidates, k: int) -> Best | None:
    """Returns the k nearest of the candidates that are in the scope; None where others may be as near.

    Args:
        connection: Reads.
        within: The scope.
        to: What they are near to.
        candidates: The vectors.
        k: How many.
    """
    ids = np.sort(candidates.ids)
    rows = query.rows_of(connection, CANDIDATES.format(scope=within.condition), ids, within.parameters)
    near = distances.cosines(to, (row[2] for row in rows))
    inside = [position for position, row in enumerate(rows) if row[3]]
    best = Best(k)
    best.look_at([rows[position] for position in inside], near[inside])
    if candidates.complete:
        return best
    scores = best.scores()
    settled = len(scores) == k and min(scores.values()) > max(near.min(), candidates.floor)
    return best if settled and len(rows) * 2 >= ids.size else None
