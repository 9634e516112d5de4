"""Copies of vectors in half the bytes."""

from __future__ import annotations

import numpy as np

from hippovault_storage.sqlite import vectors


def test_a_vector_has_the_same_copy_alone_and_beside_any_other() -> None:
    random = np.random.default_rng(2)
    drawn = random.normal(size=(200, 384))
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    units = (drawn / lengths * random.uniform(1 - 4e-6, 1 + 4e-6, size=(200, 1))).astype(np.float32)
    others = np.stack([units[0] * 3, units[0] * 0, np.full(384, np.inf, np.float32), np.full(384, np.nan, np.float32)])
    alone = np.concatenate([vectors.halves(row[np.newaxis]) for row in units])
    for other in others:
        together = vectors.halves(np.concatenate([units, other[np.newaxis]]))
        assert together[:-1].tobytes() == alone.tobytes()
        assert together[-1].tobytes() == vectors.halves(other[np.newaxis]).tobytes()
