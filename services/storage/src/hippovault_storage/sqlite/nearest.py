"""The dense arm: the memories of a scope whose nearest vector is nearest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hippovault_storage.sqlite import distances, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.distances import Vector
from hippovault_storage.sqlite.scope import Scope

CHUNK = 2_048
"""Rows that are looked at together."""

ALL = """
SELECT h.memory_id, h.created_at, v.vector
FROM hippo_memories h CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
WHERE {scope}
"""


class Best:
    """The k nearest of the memories that were looked at.

    Args:
        k: How many are kept.
        to: What they are near to.
    """

    def __init__(self, k: int, to: Vector) -> None:
        self._k = k
        self._to = to
        self._floor = -np.inf
        self._found: dict[int, tuple[float, float]] = {}

    def look_at(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Takes in rows of a memory's id, its time and one of its vectors."""
        cosines = distances.cosines(self._to, (row[2] for row in rows))
        for position in np.flatnonzero(cosines >= self._floor).tolist():
            memory_id, created_at, _ = rows[position]
            cosine = float(cosines[position])
            if memory_id not in self._found or cosine > self._found[memory_id][0]:
                self._found[memory_id] = (cosine, created_at)
        if len(self._found) > 2 * self._k + CHUNK:
            self._found = dict(self._ranked())
            self._floor = min(cosine for cosine, _ in self._found.values())

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
    best = Best(k, to)
    for rows in query.chunks(connection, ALL.format(scope=within.condition), within.parameters, CHUNK):
        best.look_at(rows)
    return best.scores()
