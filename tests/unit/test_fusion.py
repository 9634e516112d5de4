"""Fusion keeps the promises that recall relies on, whatever the arms found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_gateway import fusion

Scores = st.lists(st.none() | st.floats(-1, 100), max_size=60)


@given(st.lists(st.tuples(st.none() | st.floats(-1, 1), st.none() | st.floats(0, 100)), max_size=60))
def test_relevance_is_a_fraction_and_the_best_has_one(pairs: list[tuple[float | None, float | None]]) -> None:
    relevance = fusion.hybrid([cosine for cosine, _ in pairs], [bm25 for _, bm25 in pairs])
    assert len(relevance) == len(pairs)
    assert all(0 <= value <= 1 for value in relevance)
    assert not pairs or max(relevance) == 1


def order(relevance: list[float]) -> list[int]:
    return sorted(range(len(relevance)), key=lambda index: -relevance[index])


@pytest.mark.parametrize("scores", [[0.9, 0.1, 0.5], [0.2, 0.3, 0.25, 0.9]])
def test_an_arm_without_hits_has_no_vote(scores: list[float | None]) -> None:
    silent: list[float | None] = [None] * len(scores)
    by_score = order([score or 0.0 for score in scores])
    assert order(fusion.hybrid(scores, silent)) == by_score
    assert order(fusion.hybrid(silent, scores)) == by_score


@pytest.mark.parametrize("scores", [[0.9, 0.1, 0.5], [0.2, 0.3, 0.25, 0.9]])
def test_an_arm_that_does_not_tell_its_hits_apart_has_no_vote(scores: list[float | None]) -> None:
    assert fusion.hybrid(scores, [7.0] * len(scores)) == fusion.hybrid(scores, [None] * len(scores))


def test_a_hit_that_both_arms_like_beats_one_that_a_single_arm_likes() -> None:
    both, dense_only, words_only, neither = fusion.hybrid([0.8, 0.85, 0.1, 0.2], [9.0, None, 9.5, 1.0])
    assert both == max(both, dense_only, words_only, neither)


@given(Scores)
def test_keyword_relevance_is_a_fraction_that_keeps_the_order(scores: list[float | None]) -> None:
    relevance = fusion.keyword(scores)
    assert all(value <= 1 for value in relevance)
    ranked = [(score, value) for score, value in zip(scores, relevance, strict=True) if score is not None and score > 0]
    assert [value for _, value in sorted(ranked)] == sorted(value for _, value in ranked)
