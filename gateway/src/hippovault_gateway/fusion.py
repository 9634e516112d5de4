"""One relevance of 0..1 from the raw scores of a search's arms."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

POOL = 50
"""Hits of each arm that fusion needs at least, for its means and deviations to mean something."""

# Chosen by `make bench-recall` on conversations (locomo_dev), where the fused order must not lose to the better arm at
# any cut, and on banking and FAQ questions, where it must not lose to plain z-scores.
SHARPNESS = 4.0
"""Power of a score's part of its arm's best: above 1 it draws the best hits away from the rest of the arm."""
CONFIDENCE = 1.5
"""Power of how far an arm's best hit stands out, by which the arm's votes count."""


def keyword(bm25: Sequence[float | None]) -> list[float]:
    """Returns BM25 scores as parts of the best one.

    Args:
        bm25: One a hit, higher is better; None for a hit that the arm did not return.
    """
    best = max((value for value in bm25 if value is not None), default=0.0)
    return [value / best if value is not None and best > 0 else 0.0 for value in bm25]


def hybrid(cosine: Sequence[float | None], bm25: Sequence[float | None]) -> list[float]:
    """Returns the sum of the arms' votes, scaled so that the best hit of the pool has 1 and its worst 0.

    Votes are z-scores: they keep how far a hit stands out in its arm, which ranks lose. An arm that returned nothing
    has no vote, nor has one that does not tell its hits apart.

    Args:
        cosine: One a hit; None where it is not known.
        bm25: One a hit, higher is better; None for a hit that the arm did not return.
    """
    fused = [dense + words for dense, words in zip(_votes(cosine), _votes(bm25), strict=True)]
    low, high = min(fused, default=0.0), max(fused, default=0.0)
    return [(value - low) / (high - low) if high > low else 1.0 for value in fused]


def _votes(scores: Sequence[float | None]) -> list[float]:
    """Returns the sharpened scores' z-scores, weighed by how far the best stands out; a hit without a score has 0."""
    best = max((value for value in scores if value is not None), default=0.0)
    if best <= 0:
        return [0.0] * len(scores)
    sharpened = [(max(value or 0.0, 0.0) / best) ** SHARPNESS for value in scores]
    mean, deviation = statistics.fmean(sharpened), statistics.pstdev(sharpened)
    if not deviation:
        return [0.0] * len(scores)
    weight = ((max(sharpened) - mean) / deviation) ** CONFIDENCE
    return [weight * (value - mean) / deviation for value in sharpened]
