"""Texts of which none comes twice, so that no cache helps: a data set's, or made ones where there is none."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.model import default_model

SEED = 4
MADE = 5_000
MEDIAN_WORDS = 25
SPREAD = 0.6
"""Of the logarithm of a made text's length."""
SHORTEST_WORD = 3
SHORT_WORDS = 10
LONG_DOCUMENTS = 24
"""In a long text: several windows of a model."""


Supply = Callable[[int], list[str]]
"""Gives so many texts."""


class Texts:
    """An endless supply.

    Args:
        source: What is given first; later rounds add their number to each text.
    """

    def __init__(self, source: Sequence[str]) -> None:
        self._next = _rounds(source)

    def documents(self, number: int) -> list[str]:
        """Returns texts as the source has them."""
        return list(itertools.islice(self._next, number))

    def short(self, number: int) -> list[str]:
        """Returns the beginnings of texts."""
        return [" ".join(text.split()[:SHORT_WORDS]) for text in self.documents(number)]

    def long(self) -> str:
        """Returns a text beyond a model's window."""
        return " ".join(self.documents(LONG_DOCUMENTS))


def load(dataset: Path) -> Texts:
    """Reads gzip JSON lines of `{"text": …}`; what no memory may be is left out."""
    with gzip.open(dataset, "rt", encoding="utf-8") as lines:
        found = [text for line in lines if _allowed(text := json.loads(line)["text"])]
    return Texts(_shuffled(found))


def made() -> Texts:
    """Returns texts of random words that the model knows, as frequent as Zipf says."""
    random = np.random.default_rng(SEED)
    vocabulary = json.loads(default_model().tokenizer.path.read_text())["model"]["vocab"]
    words = np.array([word for word in vocabulary if word.isalpha() and len(word) >= SHORTEST_WORD])
    weights = 1 / np.arange(1, len(words) + 1)
    lengths = random.lognormal(np.log(MEDIAN_WORDS), SPREAD, MADE).astype(int) + 1
    chosen = random.choice(words, lengths.sum(), p=weights / weights.sum())
    return Texts([" ".join(part) for part in np.split(chosen, lengths.cumsum()[:-1])])


def _allowed(text: str) -> bool:
    try:
        memory_rules.text("text", text, memory_rules.MAX_CONTENT_BYTES, allowed=memory_rules.LINE_CONTROLS)
    except ServiceError:
        return False
    return True


def _shuffled(texts: Sequence[str]) -> list[str]:
    """Returns each text once; a file often stands in the order of its sources."""
    unlike = list(dict.fromkeys(texts))
    return [unlike[place] for place in np.random.default_rng(SEED).permutation(len(unlike))]


def _rounds(source: Sequence[str]) -> Iterator[str]:
    yield from source
    for number in itertools.count(2):
        yield from (f"{text} {number}" for text in source)
