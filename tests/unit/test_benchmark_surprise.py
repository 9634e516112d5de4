"""The evaluations are of the published shape, and the prediction loss is one."""

from __future__ import annotations

from benchmark.surprise import prediction, texts
from benchmark.surprise.evaluations import evaluations, orders


def test_the_evaluations_have_the_published_shape() -> None:
    topics, *aged, notes, predicted = evaluations()
    assert (len(topics.items), len(topics.questions), sum(bool(item.answers) for item in topics.items)) == (100, 25, 5)
    assert topics.items == predicted.items
    assert [evaluation.items[0].age_days for evaluation in aged] == [0, 30, 90, 365]
    for evaluation in aged:
        assert (len(evaluation.items), len(evaluation.questions)) == (50, 8)
        assert [bool(item.answers) for item in evaluation.items] == [True] + [False] * 49
    assert (len(notes.items), len(notes.questions), sum(bool(item.answers) for item in notes.items)) == (20, 8, 4)


def test_no_text_comes_twice_in_a_store() -> None:
    for evaluation in evaluations():
        for drawn in orders(evaluation.items, seeds=2).values():
            for items in drawn:
                assert len({item.text for item in items}) == len(items)
    assert len(set(texts.unrelated(500))) == 500


def test_a_text_is_less_of_a_surprise_the_second_time() -> None:
    first, second, other = prediction.losses(["the cache is cold", "the cache is cold", "Rain on Friday"])
    assert 0 < second < first <= 1
    assert second < other <= 1
