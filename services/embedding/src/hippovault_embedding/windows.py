"""A text cut into overlapping windows: in tokens, or in characters where only a server knows tokens."""

from __future__ import annotations

from collections.abc import Iterator

OVERLAP_DIVISOR = 8
"""An eighth of a window is in the next one too: about a sentence, so that none is only seen in halves."""


def overlap(capacity: int) -> int:
    """Returns the tokens that a window has in common with the one before it.

    Args:
        capacity: Tokens of text in a window.
    """
    return capacity // OVERLAP_DIVISOR


def reach(capacity: int, windows: int) -> int:
    """Returns the tokens of a text that so many windows hold together."""
    return capacity + (windows - 1) * (capacity - overlap(capacity))


def spans(tokens: int, capacity: int) -> Iterator[tuple[int, int]]:
    """Yields where each window begins and ends, in order; at least one, which is empty for no tokens."""
    start = 0
    while True:
        yield start, min(start + capacity, tokens)
        if start + capacity >= tokens:
            return
        start += capacity - overlap(capacity)
