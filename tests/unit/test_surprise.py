"""The surprise score against the published test vectors."""

from __future__ import annotations

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault_gateway import surprise
from hippovault_gateway.surprise import Weights

OTHER = Weights(outlier=0.2, engagement=0.1, explicit=0.5, prediction=0.2)

Vector = list[float]
X, Y, MINUS_X = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("vector", "history", "expected"),
    [
        (X, [], 1.0),
        (X, [X], 0.0),
        (X, [Y], 0.5),
        (X, [MINUS_X], 1.0),
        (X, [X, Y, MINUS_X], 0.5),
        (X, [[0.6, 0.8, 0.0]], 0.2),
        ([0.6, 0.8, 0.0], [X, Y], 0.15),
    ],
)
def test_outlier(vector: Vector, history: list[Vector], expected: float) -> None:
    cosines = [sum(a * b for a, b in zip(vector, past, strict=True)) for past in history]
    assert surprise.embedding_outlier(cosines) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("utf8_bytes", "tags", "expected"),
    [
        (0, 0, 0.0),
        (2, 0, 0.0014000),
        (100, 0, 0.0697676),
        (24, 1, 0.0760094),
        (len("日本語".encode()), 1, 0.0655124),
        (500, 2, 0.4374667),
        (1000, 5, 0.7615942),
        (0, 5, 0.2284783),
        (10000, 0, 0.7),
        (5000, 20, 0.9997352),
    ],
)
def test_engagement(utf8_bytes: int, tags: int, expected: float) -> None:
    assert surprise.engagement(utf8_bytes, tags) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("components", "by_default", "by_other"),
    [
        ((1, 1, 1, None), 1.0, 1.0),
        ((1, 0, 0, None), 0.6, 0.3333333),
        ((0, 1, 0, None), 0.3, 0.1666667),
        ((0, 0, 1, None), 0.1, 0.5),
        ((0, 0, 0, 1), 0.3, 0.2),
        ((0.5, 0.3, 0.2, None), 0.41, 0.3166667),
        ((0.5, 0.3, 0.2, 0), 0.28, 0.23),
        ((0.5, 0.3, 0.2, 0.8), 0.52, 0.39),
        ((0.42, 0.30, 0.15, None), 0.357, 0.265),
        ((0.42, 0.30, 0.15, 0.83), 0.492, 0.355),
        ((2, -1, 0.5, None), 0.65, 0.5833334),
        ((1, 0.4131844, 1, None), 0.8239554, 0.9021974),
    ],
)
def test_score(components: tuple[float, float, float, float | None], by_default: float, by_other: float) -> None:
    assert surprise.score(*components, weights=Weights()) == pytest.approx(by_default, abs=1e-6)
    assert surprise.score(*components, weights=OTHER) == pytest.approx(by_other, abs=1e-6)


@pytest.mark.parametrize("weights", [{"outlier": 0.5}, {"outlier": 1.1, "prediction": -0.4}, {"prediction": 0.302}])
def test_weights_that_do_not_sum_to_one_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Weights(**weights)


def test_a_thousandth_beside_one_is_accepted() -> None:
    assert Weights(prediction=0.3009).prediction == pytest.approx(0.3009)


def test_of_counts_bytes_tags_and_importance() -> None:
    memory = memory_pb2.Memory(content="日本語", tags=["a"], importance=0.5)
    result = surprise.of(memory, 0.5, Weights(), version=1)
    assert result.version == 1
    assert result.components.embedding_outlier == pytest.approx(0.5)
    assert result.components.engagement == pytest.approx(0.0655124, abs=1e-6)
    assert result.components.explicit == pytest.approx(0.5)
    assert not result.components.HasField("prediction_loss")
    assert result.score == pytest.approx(0.6 * 0.5 + 0.3 * 0.0655124 + 0.1 * 0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("cosines", "expected"),
    [
        ([], 0.5),
        ([1.0] * 10, 0.0),
        ([0.0] * 10, 1.0),
        ([-1.0] * 10, 1.0),
        ([0.6] * 10, 0.4),
        ([1.0], 0.45),
        ([0.0, -0.5], 0.6),
    ],
)
def test_a_neighbour_that_lacks_is_neither_near_nor_far(cosines: list[float], expected: float) -> None:
    assert surprise.neighbour_outlier(cosines) == pytest.approx(expected)
