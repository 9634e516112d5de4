"""What looks at every character of a large request does not hold up other calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from hippovault_embedding.aside import MANY_CHARACTERS, aside


@pytest.mark.parametrize(
    ("texts", "here"),
    [([], True), (["a" * (MANY_CHARACTERS - 1)], True), (["a" * MANY_CHARACTERS], False), (["ab"] * 500_000, False)],
)
async def test_many_characters_are_looked_at_on_a_thread(texts: Sequence[str], here: bool) -> None:  # noqa: FBT001
    looked = await aside(texts, lambda given: (given, threading.current_thread()))
    assert looked[0] is texts
    assert (looked[1] is threading.current_thread()) == here
