"""One relevance of 0..1 from the raw scores of a search's arms."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

POOL = 50
"""Hits of each arm that fusion needs at least, for its means and deviations to mean something."""

# Chosen by `make bench-recall` on conversations (locomo_dev), where the fused order must not lose to the better arm at
# any cut: plain z-scores lose to BM25 at rank 1, reciprocal ranks lose to it everywhere.
COSINE_POWER = 2.0
BM25_POWER = 3.0
"""Powers above 1 draw the best hits of an arm away from the rest of it."""


def keyword(bm25: Sequence[float | None]) -> list[float]:
    """Returns BM25 scores as parts of the best one.

    Args:
        bm25: One a hit, higher is better; None for a hit that the arm did not return.
    """
    best = max((value for value in bm25 if value is not None), default=0.0)
    return [value / best if value is not None and best > 0 else 0.0 for value in bm25]


def hybrid(cosine: Sequence[float | None], bm25: Sequence[float | None]) -> list[float]:
    """Returns the arms' z-scores, each arm weighed by how far its best hit stands out, and scaled to 0..1.

    The best hit of the pool has 1, its worst 0. Sums of z-scores keep how far a hit stands out in its arm, which ranks
    lose. An arm that returned nothing has no vote.

    Args:
        cosine: One a hit; None where it is not known.
        bm25: One a hit, higher is better; None for a hit that the arm did not return, which counts as the arm's worst.
    """
    arms = (_votes(_filled(cosine), COSINE_POWER), _votes(_filled(bm25), BM25_POWER))
    fused = [sum(votes) for votes in zip(*arms, strict=True)]
    low, high = min(fused, default=0.0), max(fused, default=0.0)
    return [(value - low) / (high - low) if high > low else 1.0 for value in fused]


def _filled(scores: Sequence[float | None]) -> list[float]:
    worst = min((value for value in scores if value is not None), default=0.0)
    return [worst if value is None else value for value in scores]


def _votes(scores: Sequence[float], power: float) -> list[float]:
    """Returns weighed z-scores of the sharpened scores; zeros for an arm that does not tell its hits apart."""
    best = max(scores, default=0.0)
    if best <= 0:
        return [0.0] * len(scores)
    sharpened = [(max(value, 0.0) / best) ** power for value in scores]
    mean, deviation = statistics.fmean(sharpened), statistics.pstdev(sharpened)
    if not deviation:
        return [0.0] * len(scores)
    standing_out = (max(sharpened) - mean) / deviation
    return [standing_out * (value - mean) / deviation for value in sharpened]
