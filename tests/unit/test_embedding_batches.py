"""How texts are cut into inferences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hippovault_embedding.batches import MAX_TEXTS, MAX_TOKENS, plan

LENGTHS = st.lists(st.integers(2, 512), max_size=100)


@given(LENGTHS)
def test_every_text_is_in_exactly_one_batch(lengths: list[int]) -> None:
    assert sorted(index for batch in plan(lengths) for index in batch) == list(range(len(lengths)))


@given(LENGTHS)
def test_no_batch_is_over_a_limit_unless_one_text_is(lengths: list[int]) -> None:
    for batch in plan(lengths):
        padded = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) == 1 or (len(batch) <= MAX_TEXTS and padded <= MAX_TOKENS)


def test_texts_of_like_length_stand_together() -> None:
    assert plan([50, 5, 52, 6, 256, 300]) == [[1, 3, 0, 2], [4], [5]]


def test_equal_short_texts_fill_batches() -> None:
    assert [len(batch) for batch in plan([10] * 20)] == [MAX_TEXTS, MAX_TEXTS, 4]
