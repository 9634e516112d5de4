"""How fast a queue is worked off, as far as that is known."""

from __future__ import annotations

import time

import pytest

from hippovault_embedding.speed import BELIEVED_SECONDS, Speed


def noted(*seconds: float, batches: int = 1) -> Speed:
    measured = Speed(batches)
    for each in seconds:
        measured.note(100, each)
    return measured


def test_a_few_batches_make_it_known() -> None:
    assert noted().tokens_a_second == 0
    assert noted(1, 1).tokens_a_second == 0
    assert noted(1, 1, 1).tokens_a_second == pytest.approx(100)


def test_batches_side_by_side_add_up() -> None:
    assert noted(1, 1, 1, batches=8).tokens_a_second == pytest.approx(800)


@pytest.mark.parametrize("place", range(5))
def test_one_slow_batch_changes_nothing(place: int) -> None:
    seconds = [1.0] * 4
    seconds.insert(place, 60.0)
    assert noted(*seconds).tokens_a_second == pytest.approx(100)


def test_a_lasting_change_is_followed() -> None:
    assert noted(*[1] * 50, *[4] * 4).tokens_a_second == pytest.approx(25)


def test_what_nothing_confirms_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = noted(60, 60, 60)
    later = time.monotonic() + BELIEVED_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert measured.tokens_a_second == 0
