"""The ranking formula against the published test vectors."""

from __future__ import annotations

import numpy as np
import pytest

from hippovault_gateway import ranking


@pytest.mark.parametrize(
    ("age", "half_life", "expected"),
    [
        (0, 30, 1.0),
        (7, 7, 0.5),
        (1, 30, 0.9771600),
        (15, 30, 0.7071068),
        (30, 30, 0.5),
        (60, 30, 0.25),
        (90, 30, 0.125),
        (365, 30, 2.1750e-4),
        (365, 0, 1.0),
        (-5, 30, 1.0),
    ],
)
def test_decay(age: float, half_life: float, expected: float) -> None:
    assert ranking.decay(age, half_life) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("similarity", "surprise", "age", "half_life", "floor", "expected"),
    [
        (0.9, 0.8, 0, 30, 0.5, 0.87),
        (0.9, 0.8, 15, 30, 0.5, 0.7997056),
        (0.9, 0.8, 30, 30, 0.5, 0.75),
        (0.9, 0.8, 90, 30, 0.5, 0.75),
        (0.9, 0.8, 365, 30, 0.5, 0.75),
        (0.9, 0.8, 365, 30, 0.0, 0.6300522),
        (0.9, 0.8, 365, 0, 0.5, 0.87),
        (0.7, 0.9, 45, 30, 0.25, 0.5854594),
        (0.5, 0.5, 10, 30, 2.0, 0.5),
        (1.2, 1.5, 0, 30, 0.5, 1.0),
        (0.875, 0.8239554, 365, 30, 0.5, 0.7360933),
        (0.875, 0.1003163, 0, 30, 0.5, 0.6425949),
    ],
)
def test_score(similarity: float, surprise: float, age: float, half_life: float, floor: float, expected: float) -> None:
    decayed = ranking.decay(age, half_life)
    assert ranking.score(similarity, surprise, decayed, floor) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 1.0), (0.34, 0.83), (1.0, 0.5), (2.0, 0.0), (2.0001, 0.0)])
def test_similarity(distance: float, expected: float) -> None:
    assert ranking.similarity(distance) == pytest.approx(expected, abs=1e-6)


def salience(weights: list[float], cosines: list[float] | None = None) -> list[float]:
    """Returns the salience of memories of these importances and no surprise."""
    weight = np.array(weights)
    cosine = np.full(weight.size, 0.5) if cosines is None else np.array(cosines)
    return [round(value, 6) for value in ranking.salience(np.zeros(weight.size), weight, cosine).tolist()]


@pytest.mark.parametrize(
    ("importances", "expected"),
    [
        ([], []),
        ([1.0], [0.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.8, 0.8, 0.8, 0.8], [0.0] * 4),
        ([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]),
        ([0.0, 0.0, 0.0, 0.3], [0.0] * 4),
        ([0.0, 0.0, 0.0, 0.4], [0.0, 0.0, 0.0, 0.5]),
        ([1.0, 1.0, 1.0, 0.0], [0.0] * 4),
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0] * 6),
    ],
)
def test_only_what_differs_from_most_stands_out(importances: list[float], expected: list[float]) -> None:
    assert salience(importances) == pytest.approx(expected)


def test_surprise_and_importance_count_together() -> None:
    surprise, importance = np.array([0.2, 0.2, 0.2, 0.5]), np.array([0.0, 0.0, 0.0, 0.1])
    assert ranking.salience(surprise, importance, np.full(4, 0.5)).tolist() == pytest.approx([0, 0, 0, 0.5])


@pytest.mark.parametrize("unscored", [1, 3, 4])
def test_what_has_no_surprise_is_as_surprising_as_most(unscored: int) -> None:
    surprise = np.array([np.nan] * unscored + [0.5] * (4 - unscored))
    importance = np.array([0.0, 0.0, 0.0, 0.0])
    assert ranking.salience(surprise, importance, np.full(4, 0.5)).tolist() == [0, 0, 0, 0]
    importance[0] = 1
    assert ranking.salience(surprise, importance, np.full(4, 0.5)).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(("cosine", "expected"), [(0.8, 1.0), (0.6, 1.0), (0.5, 0.5), (0.4, 0.0), (np.nan, 1.0)])
def test_what_is_far_from_the_best_hit_is_not_lifted(cosine: float, expected: float) -> None:
    assert salience([0, 0, 0, 1], [0.8, 0.7, np.nan, cosine])[3] == pytest.approx(expected)
    assert salience([0, 0, 0, 1], [np.nan, np.nan, np.nan, np.nan])[3] == 1


def test_a_fused_relevance_is_stretched_over_the_range_of_similarities() -> None:
    fused, cosine = np.array([0.0, 0.5, 1.0]), np.array([0.2, np.nan, 0.6])
    assert ranking.on_similarity_scale(fused, cosine).tolist() == pytest.approx([0.6, 0.7, 0.8])
    assert ranking.on_similarity_scale(fused, np.full(3, np.nan)).tolist() == fused.tolist()
