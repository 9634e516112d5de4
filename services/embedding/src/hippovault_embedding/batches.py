"""How the texts of a request are cut into inferences."""

from __future__ import annotations

from collections.abc import Sequence

MAX_TEXTS = 8
MAX_TOKENS = 450
"""Padding included. Larger batches fall out of the processor's caches and take longer a text."""


def plan(lengths: Sequence[int]) -> list[list[int]]:
    """Returns batches of indices, shortest texts first, so that a batch has texts of like length and little padding.

    Args:
        lengths: Tokens of each text. A text of more than MAX_TOKENS gets a batch of its own.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # In this order the newcomer is the longest, which all are padded to.
        if batches and _fits(len(batches[-1]) + 1, lengths[index]):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _fits(texts: int, longest: int) -> bool:
    return texts <= MAX_TEXTS and texts * longest <= MAX_TOKENS
