"""The prediction loss of a text, by the smallest language model that learns from a few texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

HIGHEST_LOSS = 6.0
"""Nats a token at which the loss counts fully."""
CHARACTERS = 64
"""Tokens that might come, seen or not."""


def losses(texts: Sequence[str]) -> list[float]:
    """Returns the mean loss of each text's characters, 0 to 1, by a bigram model of the texts before it."""
    seen: Counter[tuple[str, str]] = Counter()
    before: Counter[str] = Counter()
    found = []
    for text in texts:
        pairs = list(pairwise(" " + text.lower()))
        loss = sum(math.log((before[first] + CHARACTERS) / (seen[first, then] + 1)) for first, then in pairs)
        found.append(min(loss / max(len(pairs), 1) / HIGHEST_LOSS, 1.0))
        seen.update(pairs)
        before.update(first for first, _ in pairs)
    return found
