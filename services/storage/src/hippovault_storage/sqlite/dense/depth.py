"""How many candidates it takes to find the nearest vectors.

Codes tell vectors of texts apart well. They tell less of vectors that are nearly alike, or that have no structure at
all: there more candidates are needed. So it is measured whenever an index is made, on vectors of its own.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from hippovault_storage.sqlite.dense.codes import Codes

FEWEST = 96
"""Candidates at least, and one more for every PER_CANDIDATE vectors: so the ten nearest of 100,000 vectors of texts are
among them in .997 of the cases, and of a million in .999 (128 for a million: .988)."""
PER_CANDIDATE = 4_000

QUERIES = 48
NEIGHBOURS = 11
"""Of each, itself included."""
FOUND = 0.997
"""Of all neighbours, that shall be among the candidates."""
MAX_FACTOR = 32

Matrix = npt.NDArray[np.float32]


def usual(vectors: int) -> int:
    """Returns how many candidates it takes among so many vectors of texts, and are never too many."""
    return FEWEST + vectors // PER_CANDIDATE


class Neighbours:
    """The true neighbours of some vectors, among those that were looked at.

    Args:
        queries: The vectors, of length 1, a row each.
    """

    def __init__(self, queries: Matrix) -> None:
        self._queries = queries
        self._cosines = np.full((len(queries), NEIGHBOURS), -np.inf, np.float32)
        self._slots = np.full((len(queries), NEIGHBOURS), -1, np.int64)
        self._seen = 0

    def look_at(self, matrix: Matrix) -> None:
        """Takes in the next vectors, in the order of their codes."""
        slots = np.arange(self._seen, self._seen + len(matrix))
        self._seen += len(matrix)
        cosines = np.concatenate([self._cosines, self._queries @ matrix.T], axis=1)
        all_slots = np.concatenate([self._slots, np.tile(slots, (len(self._queries), 1))], axis=1)
        best = np.argpartition(-cosines, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
        self._cosines = np.take_along_axis(cosines, best, axis=1)
        self._slots = np.take_along_axis(all_slots, best, axis=1)

    def share(self, codes: Codes) -> float:
        """Returns what part of all vectors, as candidates, has FOUND of the neighbours among them."""
        most = min(MAX_FACTOR * usual(len(codes)), len(codes))
        needed = np.full(self._slots.size, most)
        number = 0
        for query, neighbours in zip(self._queries, self._slots, strict=True):
            ranks = np.flatnonzero(np.isin(codes.search(query, most), neighbours))
            needed[number : number + ranks.size] = ranks + 1
            number += ranks.size
        return float(np.sort(needed)[math.ceil(FOUND * needed.size) - 1]) / len(codes)
