"""One relevance of 0..1 from the raw scores of a search's arms and from what their hits' tokens say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_BY_MEANING = 0.02
"""What is left of the votes by meaning, however little the model knows: they decide where no word is found."""
SMALLEST = 1e-9
"""A deviation below it is rounding."""


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """How the arms are fused. Each value is the best of those compared on four sets, see benchmark/README.md."""

    pool: int = 50
    """Hits of each arm at least, for the means and deviations to mean something."""
    sharpness: float = 3.0
    """Power of a score's part of its arm's best: above 1 it draws the best hits away from the rest of the arm."""
    confidence: float = 0.5
    """Power of how far an arm's best hit stands out, by which the arm's votes count."""
    dense: float = 2.0
    """Weight of the cosine similarity's votes."""
    keyword: float = 0.5
    """Weight of BM25's votes."""
    late_interaction: float = 1.25
    """Weight of the token similarities' votes."""
    contrast: float = 2.5
    """Power of how far the nearest hit of a query's token stands out, by which the token counts. With 0, which is plain
    MaxSim, conversations lose .03 of nDCG: the tokens of common words are near to something in every hit."""
    foreign: float = 12.0
    """By how many times the share of the query's tokens that the model does not know the votes by meaning count less.
    With 0, Japanese questions to an English model have an nDCG of .76, where words alone have .92; with 12 .92."""


class Scores(NamedTuple):
    """What is known of the hits, one value or row a hit; NaN for what is not known."""

    cosine: Floats
    bm25: Floats
    """Higher is better; 0 for a hit that the arm did not return."""
    tokens: Floats
    """Hits * tokens of the query: the largest cosine similarity to a token of the hit."""


def keyword(bm25: Floats) -> Floats:
    """Returns BM25 scores as parts of the best one."""
    best = bm25.max(initial=0.0)
    return bm25 / best if best > 0 else np.zeros_like(bm25)


def late_interaction(tokens: Floats, contrast: float) -> Floats:
    """Returns the mean similarity of each hit's tokens to those of the query, NaN for a hit that has none.

    This is MaxSim (Khattab and Zaharia, 2020) whose query tokens count by how far their nearest hit stands out from the
    mean of all.

    Args:
        tokens: See `Scores`.
        contrast: See `Fusion`.
    """
    means = np.full(len(tokens), np.nan)
    known = ~np.isnan(tokens).any(axis=1)
    if known.any() and tokens.shape[1]:
        similarities = tokens[known]
        standing_out = np.maximum(similarities.max(axis=0) - similarities.mean(axis=0), 0)
        most = standing_out.max()
        weights = (standing_out / most) ** contrast if most > SMALLEST else np.ones_like(standing_out)
        means[known] = similarities @ (weights / weights.sum())
    return means


def hybrid(scores: Scores, late: Floats, fusion: Fusion, unknown: float = 0.0) -> Floats:
    """Returns the sum of the votes, scaled so that the best hit of the pool has 1 and its worst 0.

    Votes are z-scores: they keep how far a hit stands out in its arm, which ranks lose. An arm that returned nothing
    has no vote, nor has one that does not tell its hits apart.

    Args:
        scores: Of the pool.
        late: See `late_interaction`.
        fusion: The weights.
        unknown: Share of the query's tokens that the model does not know.
    """
    by_meaning = max(LEAST_BY_MEANING, 1 - fusion.foreign * unknown)
    arms: Sequence[tuple[float, Floats]] = (
        (by_meaning * fusion.dense, scores.cosine),
        (fusion.keyword, scores.bm25),
        (by_meaning * fusion.late_interaction, late),
    )
    fused = sum((weight * _votes(values, fusion) for weight, values in arms), np.zeros(len(late)))
    low, high = fused.min(initial=np.inf), fused.max(initial=-np.inf)
    return (fused - low) / (high - low) if high - low > SMALLEST else np.ones_like(fused)


def _votes(values: Floats, fusion: Fusion) -> Floats:
    """Returns the sharpened scores' z-scores, weighed by how far the best stands out; 0 where none is known."""
    votes = np.zeros_like(values)
    known = ~np.isnan(values)
    best = values[known].max(initial=0.0)
    if best > 0:
        sharpened = (np.maximum(values[known], 0.0) / best) ** fusion.sharpness
        deviation = sharpened.std()
        if deviation > SMALLEST:
            away = (sharpened - sharpened.mean()) / deviation
            votes[known] = away.max() ** fusion.confidence * away
    return votes
