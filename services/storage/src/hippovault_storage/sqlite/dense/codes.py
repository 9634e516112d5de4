"""Vectors as codes of one bit a dimension, among which the nearest are estimated fast."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hippovault_storage.sqlite.distances import Vector

Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

QUERY_BITS = 3
"""What the query's components are rounded to. With 100,000 vectors and 128 candidates 3 bits find .998 of the true ten,
4 bits .999 in a tenth more time, 2 bits .995 in a tenth less."""

MAX_TURNED = 512
"""Components that are turned together."""

COPIED = 65_536
"""Codes that are copied at once."""


class Codes:
    """RaBitQ codes of vectors in the order in which they were added. Searched by any thread, once nothing is added.

    Args:
        center: What the codes are relative to: about the vectors' mean.
    """

    def __init__(self, center: Vector) -> None:
        self._center = center
        self._index = _made(center)
        self._packed: Any = None

    def __len__(self) -> int:
        """Returns how many there are."""
        return int(self._index.ntotal)

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        return self._center.size

    def add(self, matrix: npt.NDArray[np.float32]) -> None:
        """Adds unit vectors, a row each."""
        _faiss()
        self._index.add(_turned(matrix))

    def pack(self) -> None:
        """Makes a second form of the codes, in which all of them are searched in two thirds of the time.

        It takes long, and as much memory as the codes. Searches may go on meanwhile.
        """
        if self._packed is None:
            self._packed = _faiss().IndexRaBitQFastScan(self._index)

    def search(self, to: Vector, depth: int, mask: Mask | None = None) -> Slots:
        """Returns the places of the vectors that seem nearest, best first; of those only that the mask has."""
        if not len(self):
            return np.empty(0, np.int64)
        faiss = _faiss()
        query, number = _turned(to.reshape(1, -1)), min(depth, len(self))
        if mask is None and self._packed is not None:
            _, found = self._packed.search(query, number)
        else:
            selector = None if mask is None else faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
            parameters = faiss.RaBitQSearchParameters(qb=QUERY_BITS, centered=True, sel=selector)
            _, found = self._index.search(query, number, params=parameters)
        slots: Slots = found[0]
        return slots[slots >= 0]

    def rearranged(self, matrix: npt.NDArray[np.float32], order: Slots) -> Self:
        """Returns codes of the same vectors and further ones, in an order that may leave some out.

        Args:
            matrix: The further ones, which stand behind those that are here.
            order: Places that the new codes have in turn.
        """
        result, further = type(self)(self._center), type(self)(self._center)
        further.add(matrix)
        here, there, target = self.bytes(), further.bytes(), result.bytes(order.size)
        for start in range(0, order.size, COPIED):
            part = order[start : start + COPIED]
            old = part < len(self)
            target[start : start + COPIED][old] = here[part[old]]
            target[start : start + COPIED][~old] = there[part[~old] - len(self)]
        return result

    def bytes(self, size: int | None = None) -> npt.NDArray[np.uint8]:
        """Returns the codes themselves, a row each, to be read; or room for that many, to be written."""
        if size is not None:
            self._index.codes.resize(size * self._index.code_size)
            self._index.ntotal = size
        length = len(self) * self._index.code_size
        view: npt.NDArray[np.uint8] = _faiss().rev_swig_ptr(self._index.codes.data(), length)
        return view.reshape(len(self), self._index.code_size)


def _made(center: Vector) -> Any:
    faiss = _faiss()
    index = faiss.IndexRaBitQ(center.size, faiss.METRIC_L2)
    index.train(_turned(center.reshape(1, -1)))  # It takes the mean.
    return index


def _turned(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns vectors turned at random, all alike: codes tell little of one that has few components."""
    rotation = _rotation(matrix.shape[1])
    parts = matrix.reshape(-1, rotation.shape[0])
    # A query alone is not worth the threads that BLAS would wake.
    turned = np.einsum("ij,jk->ik", parts, rotation) if len(matrix) == 1 else parts @ rotation
    return np.ascontiguousarray(turned.reshape(matrix.shape))


@cache
def _rotation(dimensions: int) -> npt.NDArray[np.float32]:
    """Returns a rotation of a part of a vector: of all of it, or of one of equal parts that are not too long."""
    size = max(size for size in range(1, MAX_TURNED + 1) if dimensions % size == 0)
    drawn = np.random.default_rng(0).normal(size=(size, size))
    return np.linalg.qr(drawn).Q.astype(np.float32)


def _faiss() -> ModuleType:
    """Returns the library, which only large namespaces need, kept to one thread: each that calls says so for itself."""
    import faiss

    faiss.omp_set_num_threads(1)
    module: ModuleType = faiss
    return module
