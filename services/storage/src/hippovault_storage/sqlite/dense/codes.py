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
Matrix = npt.NDArray[np.float32]
Rows = npt.NDArray[np.uint8]

BITS = 4
"""Of a part of a vector, which stand for one of 16 such parts: as many as the processor looks up at once."""
PARTS = (4, 2, 1)
"""Components of a part: the most that leave MIN_PARTS of them."""
MIN_PARTS = 64
ROUNDS = 10
"""Of k-means, which chooses the 16; more change nothing."""

MAX_TURNED = 512
"""Components that are turned together."""

COPIED = 65_536
"""Codes that are copied at once."""


class Codes:
    """Product-quantized vectors in the order in which they were added; searched by any thread, once they are packed.

    Args:
        quantizer: What the codes mean, see `trained`.
    """

    def __init__(self, quantizer: Any) -> None:
        self._quantizer = quantizer
        self._index = _faiss().IndexPQ(quantizer.d, quantizer.M, BITS, _faiss().METRIC_INNER_PRODUCT)
        self._index.pq, self._index.is_trained = quantizer, True
        self._packed: Any = None

    @classmethod
    def trained(cls, sample: Matrix) -> Self:
        """Returns no codes as yet, for vectors like some unit vectors, a row each; at least one."""
        dimensions = sample.shape[1]
        fitting = [size for size in PARTS if dimensions % size == 0 and dimensions >= MIN_PARTS * size]
        quantizer = _faiss().ProductQuantizer(dimensions, dimensions // (fitting or PARTS[-1:])[0], BITS)
        quantizer.cp.niter, quantizer.cp.min_points_per_centroid = ROUNDS, 1
        quantizer.train(_turned(np.resize(sample, (max(len(sample), 2**BITS), dimensions))))
        return cls(quantizer)

    def __len__(self) -> int:
        """Returns how many there are."""
        return int(self._index.ntotal)

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        return int(self._quantizer.d)

    def add(self, matrix: Matrix) -> None:
        """Adds unit vectors, a row each."""
        _faiss()
        self._index.add(_turned(matrix))

    def pack(self) -> None:
        """Makes the form of the codes that is searched, once all are there."""
        self._packed = _faiss().IndexPQFastScan(self._index) if len(self) else None

    def search(self, to: Vector, depth: int) -> Slots:
        """Returns the places of the vectors that seem nearest, best first."""
        if self._packed is None:
            return np.empty(0, np.int64)
        _faiss()
        _, found = self._packed.search(_turned(to.reshape(1, -1)), min(depth, len(self)))
        slots: Slots = found[0]
        return slots[slots >= 0]

    def taken(self, slots: Slots) -> Self:
        """Returns the codes of some of the vectors alone."""
        result = type(self)(self._quantizer)
        result.room(slots.size)[:] = self.rows()[slots]
        result.pack()
        return result

    def rearranged(self, matrix: Matrix, order: Slots) -> Self:
        """Returns codes of the same vectors and further ones, in an order that may leave some out.

        Args:
            matrix: The further ones, which stand behind those that are here.
            order: Places that the new codes have in turn.
        """
        result, further = type(self)(self._quantizer), type(self)(self._quantizer)
        further.add(matrix)
        here, there, target = self.rows(), further.rows(), result.room(order.size)
        for start in range(0, order.size, COPIED):
            part = order[start : start + COPIED]
            old = part < len(self)
            target[start : start + COPIED][old] = here[part[old]]
            target[start : start + COPIED][~old] = there[part[~old] - len(self)]
        result.pack()
        return result

    def room(self, size: int) -> Rows:
        """Makes room for so many codes, to be written."""
        self._index.codes.resize(size * self._index.code_size)
        self._index.ntotal = size
        return self.rows()

    def rows(self) -> Rows:
        """Returns the codes themselves, a row each, to be read."""
        length = len(self) * self._index.code_size
        view: Rows = _faiss().rev_swig_ptr(self._index.codes.data(), length)
        return view.reshape(len(self), self._index.code_size)


def _turned(matrix: Matrix) -> Matrix:
    """Returns vectors turned at random, all alike: codes tell little of one that has few components."""
    rotation = _rotation(matrix.shape[1])
    parts = matrix.reshape(-1, rotation.shape[0])
    # A query alone is not worth the threads that BLAS would wake.
    turned = np.einsum("ij,jk->ik", parts, rotation) if len(matrix) == 1 else parts @ rotation
    return np.ascontiguousarray(turned.reshape(matrix.shape))


@cache
def _rotation(dimensions: int) -> Matrix:
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
