"""Texts with their vectors: a data set's, or made ones where there is none."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from hippovault_embedding.backend import Options
from hippovault_embedding.model import default_model
from hippovault_embedding.session import ModelSession
from hippovault_embedding.tokenizer import ModelTokenizer

Vectors = NDArray[np.float32]

DIMENSIONS = 384
BATCH = 8
HASH_DIGITS = 12
SEED = 3
VOCABULARY = 20_000
MEAN_WORDS = 27
TOPICS = 200
SPREAD = 0.7
"""Of made vectors around their topic's, whose length is 1."""
DRIFT = 0.5
"""How far the vector of a varied text is from the original's, before both have length 1."""


@dataclass(frozen=True)
class Corpus:
    """Rows of texts and vectors."""

    texts: list[str]
    vectors: Vectors

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.texts)

    def __getitem__(self, rows: slice) -> Corpus:
        """Some of the rows."""
        return Corpus(self.texts[rows], self.vectors[rows])


def load(dataset: Path, cache: Path) -> Corpus:
    """Reads gzip JSON lines of `{"text": …}`, each text once, and embeds them as the embedding service would.

    Args:
        dataset: The file.
        cache: A directory. Embedding takes a quarter of a second a hundred texts, so vectors are kept here.
    """
    with gzip.open(dataset, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    digest = hashlib.sha256(dataset.read_bytes()).hexdigest()[:HASH_DIGITS]
    kept = cache / f"vectors_{digest}_{default_model().revision}.npy"
    if not kept.exists():
        cache.mkdir(exist_ok=True)
        np.save(kept, _embed(texts))
    vectors = np.load(kept)
    first = list({text: row for row, text in reversed(list(enumerate(texts)))}.values())[::-1]
    return Corpus([texts[row] for row in first], vectors[first])


def made(number: int) -> Corpus:
    """Returns texts of random words, as frequent as Zipf says, and vectors around random topics."""
    random = np.random.default_rng(SEED)
    words = np.array([f"w{rank:x}" for rank in range(VOCABULARY)])
    weights = 1 / np.arange(1, VOCABULARY + 1)
    lengths = random.poisson(MEAN_WORDS, number) + 1
    chosen = random.choice(words, lengths.sum(), p=weights / weights.sum())
    texts = [f"{row} {' '.join(part)}" for row, part in enumerate(np.split(chosen, lengths.cumsum()[:-1]))]
    topics = _noise(random, TOPICS)
    return Corpus(texts, _unit(topics[random.integers(TOPICS, size=number)] + SPREAD * _noise(random, number)))


def varied(corpus: Corpus, copies: int) -> Iterator[Corpus]:
    """Yields the corpus, then varied copies of it: halves of two texts joined, vectors moved by DRIFT."""
    yield corpus
    for copy in range(1, copies):
        random = np.random.default_rng(SEED + copy)
        others = random.permutation(len(corpus))
        texts = [_joined(text, corpus.texts[other], copy) for text, other in zip(corpus.texts, others, strict=True)]
        yield Corpus(texts, _unit(corpus.vectors + DRIFT * _noise(random, len(corpus))))


def _joined(text: str, other: str, copy: int) -> str:
    head, tail = text.split(), other.split()
    return " ".join([*head[: len(head) // 2 + 1], *tail[len(tail) // 2 :], str(copy)])


def _embed(texts: list[str]) -> Vectors:
    tokenizer, session = ModelTokenizer(default_model()), ModelSession(default_model(), threads=1)
    vectors = np.empty((len(texts), DIMENSIONS), "<f4")
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    starts = range(0, len(texts), BATCH)
    for start in track(starts, "embed", console=Console(stderr=True)):
        rows = by_length[start : start + BATCH]
        pieces = [tokenizer.prepare(texts[row], Options()).pieces[0] for row in rows]
        encoded = b"".join(row.vector for row in session.run(pieces))
        vectors[rows] = np.frombuffer(encoded, "<f4").reshape(len(rows), DIMENSIONS)
    return vectors


def _noise(random: np.random.Generator, rows: int) -> Vectors:
    """Returns random vectors of length about 1."""
    noise: Vectors = random.standard_normal((rows, DIMENSIONS), np.float32) / np.float32(DIMENSIONS**0.5)
    return noise


def _unit(vectors: Vectors) -> Vectors:
    scaled: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")
    return scaled
