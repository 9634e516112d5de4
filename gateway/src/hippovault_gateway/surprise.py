"""How unexpected a memory is, computed once, when it is written.

Source of the formulas, less the outlier of version 2: claude-hippo 0.5.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hippovault.memory.v1 import memory_pb2

Version = Literal[1, 2]
"""Of the scoring rule; stored with each score. 1 is the published one."""
HISTORY = 50
"""The newest live memories of the namespace that version 1 compares a new one with."""
NEIGHBOURS = 10
"""The nearest live memories of the namespace that version 2 compares a new one with."""
UNKNOWN = 0.5
"""Distance to a neighbour that a small namespace lacks: a first memory is neither usual nor an outlier."""
WEIGHT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Weights:
    """The part of each component in the score; each 0 to 1, their sum 1.

    Raises:
        ValueError: A weight is out of its range, or the sum is not 1.
    """

    outlier: float = 0.4
    engagement: float = 0.2
    explicit: float = 0.1
    prediction: float = 0.3

    def __post_init__(self) -> None:
        """Checks range and sum."""
        for name, weight in vars(self).items():
            if not 0 <= weight <= 1:
                raise ValueError(f"{name}_weight: must be 0 to 1, is {weight:g}")
        total = sum(vars(self).values())
        if abs(total - 1) > WEIGHT_TOLERANCE:
            raise ValueError(f"the four surprise weights must sum to 1, sum to {total:g}")


def clamp(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """Returns the nearest value within the bounds."""
    return min(max(value, low), high)


def embedding_outlier(cosine_similarities: Sequence[float]) -> float:
    """Returns the mean distance to the history, scaled to 0..1; 1 without history.

    Args:
        cosine_similarities: Of the new vector to each vector of the history.
    """
    if not cosine_similarities:
        return 1.0
    return sum(clamp(1 - cosine, 0, 2) / 2 for cosine in cosine_similarities) / len(cosine_similarities)


def neighbour_outlier(cosine_similarities: Sequence[float]) -> float:
    """Returns the mean distance, 1 - cosine clamped to 0..1, to the nearest memories of the namespace.

    Against the whole namespace and not the newest: what was written just before does not count.

    Args:
        cosine_similarities: Of the new vector to its NEIGHBOURS nearest; the distance to each that lacks is UNKNOWN.
    """
    distances = [clamp(1 - cosine) for cosine in cosine_similarities]
    return (sum(distances) + UNKNOWN * (NEIGHBOURS - len(distances))) / NEIGHBOURS


def engagement(utf8_bytes: int, tags: int) -> float:
    """Returns 0.7 tanh(bytes / 1000) + 0.3 tanh(tags / 5)."""
    return 0.7 * math.tanh(utf8_bytes / 1000) + 0.3 * math.tanh(tags / 5)


def score(
    outlier: float,
    engagement: float,
    explicit: float,
    prediction: float | None,
    weights: Weights,
) -> float:
    """Returns the weighted sum of the components, each clamped to 0..1.

    Args:
        outlier: See `embedding_outlier` and `neighbour_outlier`.
        engagement: See `engagement`.
        explicit: The importance that the caller gave; 0 when absent.
        prediction: Of a prediction backend; None without one: its weight goes 2/3 to outlier and 1/3 to engagement.
        weights: The parts.
    """
    # Absent is not zero: the weight of a prediction that nobody makes goes to what is measured.
    spare = weights.prediction if prediction is None else 0.0
    return clamp(
        (weights.outlier + spare * 2 / 3) * clamp(outlier)
        + (weights.engagement + spare / 3) * clamp(engagement)
        + weights.explicit * clamp(explicit)
        + (weights.prediction - spare) * clamp(prediction or 0.0)
    )


def of(memory: memory_pb2.Memory, outlier: float, weights: Weights, version: Version) -> memory_pb2.Surprise:
    """Returns the surprise of a memory that is about to be written.

    Args:
        memory: Its content, tags and importance count.
        outlier: By the rule of the version.
        weights: The parts.
        version: Is stored with the score.
    """
    components = memory_pb2.SurpriseComponents(
        embedding_outlier=outlier,
        engagement=engagement(len(memory.content.encode()), len(memory.tags)),
        explicit=clamp(memory.importance),
    )
    total = score(components.embedding_outlier, components.engagement, components.explicit, None, weights)
    return memory_pb2.Surprise(score=total, components=components, version=version)
