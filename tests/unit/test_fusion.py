"""Fusion keeps the promises that recall relies on, whatever the arms found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_gateway import fusion
from hippovault_gateway.fusion import Floats, Fusion, Scores
from hippovault_gateway.settings import MAX_FACTOR

NONE = float("nan")

Found = tuple[float, float, Sequence[float]]
"""Cosine, BM25 and token similarities of a hit."""


@st.composite
def pools(draw: st.DrawFn) -> list[Found]:
    """Hits of which everything, something or nothing is known."""
    width = draw(st.integers(0, 4))
    tokens = st.lists(st.floats(-1, 1), min_size=width, max_size=width) | st.just([NONE] * width)
    return draw(st.lists(st.tuples(st.just(NONE) | st.floats(-1, 1), st.floats(0, 100), tokens), max_size=60))


def scores(found: Sequence[Found]) -> Scores:
    width = len(found[0][2]) if found else 0
    return Scores(
        np.array([cosine for cosine, _, _ in found], float),
        np.array([bm25 for _, bm25, _ in found], float),
        np.array([tokens for _, _, tokens in found], float).reshape(len(found), width),
    )


def relevance(found: Sequence[Found], **weights: float) -> Floats:
    chosen, of_found = Fusion(**weights), scores(found)  # type: ignore[arg-type]
    return fusion.hybrid(of_found, fusion.late_interaction(of_found.tokens, chosen.contrast), chosen)


def order(values: Floats | Sequence[float]) -> list[int]:
    return [int(place) for place in np.argsort(-np.asarray(values), kind="stable")]


FACTORS = st.sampled_from([0.0, 0.5, 2.5, float(MAX_FACTOR)])


@given(pools(), st.fixed_dictionaries({}, optional=dict.fromkeys(("sharpness", "confidence", "contrast"), FACTORS)))
def test_relevance_is_a_fraction_and_the_best_has_one(found: list[Found], powers: dict[str, float]) -> None:
    values = relevance(found, **powers)
    assert values.shape == (len(found),)
    assert ((values >= 0) & (values <= 1)).all()
    assert not found or values.max() == 1


@given(pools())
def test_the_order_of_the_hits_does_not_matter(found: list[Found]) -> None:
    backwards = relevance(found[::-1])[::-1]
    assert relevance(found) == pytest.approx(backwards, abs=1e-6)


@pytest.mark.parametrize("values", [[0.9, 0.1, 0.5], [0.2, 0.3, 0.25, 0.9]])
def test_an_arm_without_hits_has_no_vote(values: list[float]) -> None:
    assert order(relevance([(value, 0, []) for value in values])) == order(values)
    assert order(relevance([(NONE, value, []) for value in values])) == order(values)
    assert order(relevance([(NONE, 0, [value]) for value in values])) == order(values)


@pytest.mark.parametrize("values", [[0.9, 0.1, 0.5], [0.2, 0.3, 0.25, 0.9]])
def test_an_arm_that_does_not_tell_its_hits_apart_has_no_vote(values: list[float]) -> None:
    alone = relevance([(value, 0, []) for value in values])
    assert relevance([(value, 7.0, []) for value in values]) == pytest.approx(alone)
    assert relevance([(value, 0, [0.5, 0.3]) for value in values]) == pytest.approx(alone)


def test_a_hit_that_all_arms_like_beats_those_that_one_likes() -> None:
    found = [(0.8, 9.0, [0.8, 0.9]), (0.85, 0.0, [0.2, 0.3]), (0.1, 9.5, [0.3, 0.3]), (0.2, 1.0, [0.1, 0.2])]
    assert order(relevance(found))[0] == 0


def test_a_hit_of_which_nothing_is_known_is_neither_lifted_nor_lowered() -> None:
    known = [(0.9, 0.0, [0.9]), (0.1, 0.0, [0.1]), (0.2, 0.0, [0.3])]
    assert order(relevance([*known, (NONE, 0.0, [NONE])])) == [0, 3, 2, 1]


def test_weights_of_nothing_leave_the_other_arms() -> None:
    found = [(0.9, 1.0, [0.1]), (0.1, 2.0, [0.2]), (0.2, 3.0, [0.9])]
    assert order(relevance(found, keyword=0, late_interaction=0)) == [0, 2, 1]
    assert order(relevance(found, dense=0, late_interaction=0)) == [2, 1, 0]


def test_words_decide_where_the_model_does_not_know_the_language_and_meaning_where_no_word_is_found() -> None:
    found = scores([(0.9, 1.0, [0.9]), (0.1, 3.0, [0.1]), (0.7, 2.0, [0.7])])
    late = fusion.late_interaction(found.tokens, Fusion.contrast)
    assert order(fusion.hybrid(found, late, Fusion())) == [0, 2, 1]
    assert order(fusion.hybrid(found, late, Fusion(), unknown=0.5)) == [1, 2, 0]
    assert order(fusion.hybrid(found._replace(bm25=np.zeros(3)), late, Fusion(), unknown=0.5)) == [0, 2, 1]


@pytest.mark.parametrize("contrast", [0.5, 2.5, MAX_FACTOR])
def test_a_token_that_is_as_near_to_all_hits_leaves_the_others_their_weight(contrast: float) -> None:
    """The mean of equal numbers may be above the largest."""
    said = fusion.late_interaction(np.array([[0.1, 0.5], [0.1, 0.2], [0.1, 0.9]]), contrast)
    assert said == pytest.approx([0.5, 0.2, 0.9])


def test_the_tokens_that_tell_hits_apart_count_most() -> None:
    # The first token is near to something in every hit, as those of common words are; the second in one alone.
    tokens = np.array([[0.9, 0.2], [0.8, 0.9], [0.95, 0.1], [NONE, NONE]])
    told = fusion.late_interaction(tokens, contrast=2.5)
    assert np.nanargmax(told) == 1
    assert np.isnan(told).tolist() == [False, False, False, True]
    assert fusion.late_interaction(tokens, contrast=0)[:3] == pytest.approx([0.55, 0.85, 0.525])


@given(st.lists(st.floats(0, 100), max_size=60))
def test_keyword_relevance_is_a_fraction_that_keeps_the_order(values: list[float]) -> None:
    parts = fusion.keyword(np.array(values, float))
    assert ((parts >= 0) & (parts <= 1)).all()
    assert order(parts) == order(values) or len(set(parts)) < len(set(values))
