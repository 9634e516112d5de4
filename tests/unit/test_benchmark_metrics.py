"""The measures that the benchmark prints, on rankings worked out by hand."""

from __future__ import annotations

import math

import pytest

from benchmark.recall import metrics


def test_one_answer_at_rank_two() -> None:
    scores = metrics.score(["x", "a", "y"], frozenset({"a"}), any_is_enough=False)
    assert scores.recall == (0.0, 1.0, 1.0)
    assert scores.mrr == pytest.approx(0.5)
    assert scores.ndcg == pytest.approx(1 / math.log2(3))


def test_two_answers_of_which_one_is_found() -> None:
    scores = metrics.score(["a"], frozenset({"a", "b"}), any_is_enough=False)
    assert scores.recall == (0.5, 0.5, 0.5)
    assert scores.ndcg == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_any_answer_is_enough() -> None:
    scores = metrics.score(["b", "a"], frozenset({"a", "b", "c"}), any_is_enough=True)
    assert scores == metrics.Scores((1.0, 1.0, 1.0), 1.0, 1.0)


def test_what_lies_below_rank_ten_does_not_count() -> None:
    scores = metrics.score([*"abcdefghij", "k"], frozenset({"k"}), any_is_enough=False)
    assert scores == metrics.Scores((0.0, 0.0, 0.0), 0.0, 0.0)
