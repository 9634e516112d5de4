"""The order of recalled memories: relevance first, lifted by a surprise that fades with age.

Source of the formulas, less the salience: claude-hippo 0.5.0.
"""

from __future__ import annotations

import math

import numpy as np

from hippovault_gateway.fusion import Floats
from hippovault_gateway.surprise import clamp

RELEVANCE_WEIGHT = 0.7
SURPRISE_WEIGHT = 0.3
SECONDS_A_DAY = 86_400.0

# Chosen by `make bench-surprise`, where what stands out must come first, and on four sets where nothing does
# and the order must stay, see benchmark/README.md.
DEVIATION = 1.4826
"""Standard deviation of a normal distribution, in its median absolute deviation."""
LEAST_DEVIATION = 0.1
"""Of surprise + importance: smaller differences tell nothing, however alike the others are."""
STANDS_OUT = (3.0, 5.0)
"""Deviations above the median from which a memory begins to stand out, and stands out fully."""
IS_NEAR = (0.2, 0.4)
"""Cosine similarity below the best hit's up to which the lift is whole, and at which it is gone."""


def similarity(cosine_distance: float) -> float:
    """Returns 1 - distance / 2, that is (1 + cosine) / 2, clamped to 0..1."""
    return clamp(1 - cosine_distance / 2)


def on_similarity_scale(fused: Floats, cosine: Floats) -> Floats:
    """Returns fused relevances, 0 to 1, stretched over the range of the hits' similarities.

    So a surprise weighs the same against what a fused relevance tells apart as against similarity itself.

    Args:
        fused: One a hit.
        cosine: Similarity to the query; NaN where it is not known. Where none is, the relevances stay.
    """
    known = cosine[~np.isnan(cosine)]
    if not known.size:
        return fused
    low, high = (1 + known.min()) / 2, (1 + known.max()) / 2
    stretched: Floats = np.clip(low + fused * (high - low), 0, 1)
    return stretched


def decay(age_days: float, half_life_days: float) -> float:
    """Returns exp(-age ln 2 / half-life); 1 for a negative age, and always 1 for a half-life of 0 or less."""
    if half_life_days <= 0:
        return 1.0
    return math.exp(-max(age_days, 0.0) * math.log(2) / half_life_days)


def salience(surprise: Floats, importance: Floats, cosine: Floats) -> Floats:
    """Returns how clearly each hit of a search stands out among the others, 0 to 1.

    Hits that are as surprising and important as most have 0, so that the order of those is that of their relevance.

    Args:
        surprise: The stored score of each hit; NaN where there is none, which counts as that of most. Where many wait
            to be scored, or another program wrote them, those that are scored do not stand out by it.
        importance: What the caller gave.
        cosine: Similarity to the query; NaN where it is not known.
    """
    known = ~np.isnan(surprise)
    weight = np.where(known, surprise, _median(surprise[known])) + importance
    away = weight - _median(weight)
    deviation = max(DEVIATION * _median(np.abs(away)), LEAST_DEVIATION)
    begins, fully = STANDS_OUT
    return np.clip((away / deviation - begins) / (fully - begins), 0, 1) * _nearness(cosine)


def _nearness(cosine: Floats) -> Floats:
    whole, gone = IS_NEAR
    below = np.fmax.reduce(cosine, initial=-1.0) - cosine
    nearness: Floats = np.clip((gone - below) / (gone - whole), 0, 1)
    return np.nan_to_num(nearness, nan=1.0)


def _median(values: Floats) -> float:
    """Returns the lower median: of two hits, one can stand out."""
    return float(np.sort(values)[(values.size - 1) // 2]) if values.size else 0.0


def score(relevance: float, surprise: float, decayed: float, floor: float) -> float:
    """Returns 0.7 relevance + 0.3 clamp(surprise * max(decay, floor), 0, 1).

    Args:
        relevance: Clamped to 0..1.
        surprise: The stored score times its salience; 0 for a memory that has none, so that it cannot outrank a scored
            one.
        decayed: See `decay`.
        floor: Least factor that age leaves, clamped to 0..1.
    """
    lift = clamp(surprise * max(decayed, clamp(floor)))
    return RELEVANCE_WEIGHT * clamp(relevance) + SURPRISE_WEIGHT * lift
