"""The prediction loss of a text, by the smallest language model that there is."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

HIGHEST_LOSS = 6.0
"""Nats a word at which the loss counts fully."""
VOCABULARY = 10_000
"""Words that might come, seen or not."""


def losses(texts: Sequence[str]) -> list[float]:
    """Returns the mean loss of each text's words, 0 to 1, by a unigram model of the texts before it."""
    seen: Counter[str] = Counter()
    found = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        total = seen.total() + VOCABULARY
        loss = sum(-math.log((seen[word] + 1) / total) for word in words) / max(len(words), 1)
        found.append(min(loss / HIGHEST_LOSS, 1.0))
        seen.update(words)
    return found
