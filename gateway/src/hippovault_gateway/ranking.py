"""The order of recalled memories: relevance first, lifted by a surprise that fades with age.

Source of the formulas: claude-hippo 0.5.0.
"""

from __future__ import annotations

import math

from hippovault_gateway.surprise import clamp

RELEVANCE_WEIGHT = 0.7
SURPRISE_WEIGHT = 0.3
SECONDS_A_DAY = 86_400.0


def similarity(cosine_distance: float) -> float:
    """Returns 1 - distance / 2, that is (1 + cosine) / 2, clamped to 0..1."""
    return clamp(1 - cosine_distance / 2)


def decay(age_days: float, half_life_days: float) -> float:
    """Returns exp(-age ln 2 / half-life); 1 for a negative age, and always 1 for a half-life of 0 or less."""
    if half_life_days <= 0:
        return 1.0
    return math.exp(-max(age_days, 0.0) * math.log(2) / half_life_days)


def score(relevance: float, surprise: float, decayed: float, floor: float) -> float:
    """Returns 0.7 relevance + 0.3 clamp(surprise * max(decay, floor), 0, 1).

    Args:
        relevance: Clamped to 0..1.
        surprise: The stored score; 0 for a memory that has none, so that it cannot outrank a scored one.
        decayed: See `decay`.
        floor: Least factor that age leaves, clamped to 0..1.
    """
    lift = clamp(surprise * max(decayed, clamp(floor)))
    return RELEVANCE_WEIGHT * clamp(relevance) + SURPRISE_WEIGHT * lift
