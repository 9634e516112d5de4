"""One relevance of 0..1 from the raw scores of a search's arms."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

POOL = 50
"""Hits of each arm that fusion needs at least, for its means and deviations to mean something."""


def keyword(bm25: Sequence[float | None]) -> list[float]:
    """Returns BM25 scores as parts of the best one.

    Args:
        bm25: One a hit, higher is better; None for a hit that the arm did not return.
    """
    best = max((value for value in bm25 if value is not None), default=0.0)
    return [value / best if value is not None and best > 0 else 0.0 for value in bm25]


def hybrid(cosine: Sequence[float | None], bm25: Sequence[float | None]) -> list[float]:
    """Returns z(cosine) + z(BM25) over the pool, scaled so that its best hit has 1 and its worst 0.

    Sums of z-scores keep how far a hit stands out in its arm, which ranks lose: on conversations they beat both arms,
    where reciprocal rank fusion falls below the better one. An arm that returned nothing has no vote.

    Args:
        cosine: One a hit; None where it is not known.
        bm25: One a hit, higher is better; None for a hit that the arm did not return.
    """
    fused = [dense + words for dense, words in zip(_standardised(cosine), _standardised(bm25), strict=True)]
    low, high = min(fused, default=0.0), max(fused, default=0.0)
    return [(value - low) / (high - low) if high > low else 1.0 for value in fused]


def _standardised(scores: Sequence[float | None]) -> list[float]:
    """Returns z-scores; a hit that the arm does not have counts as its worst."""
    known = [value for value in scores if value is not None]
    if not known:
        return [0.0] * len(scores)
    filled = [min(known) if value is None else value for value in scores]
    deviation = statistics.pstdev(filled)
    mean = statistics.fmean(filled)
    return [(value - mean) / deviation if deviation else 0.0 for value in filled]
