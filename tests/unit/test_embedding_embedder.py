"""What becomes of the texts of a call before they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.backend import Options, Piece, Prepared, Row
from hippovault_embedding.batcher import Batcher, Limits
from hippovault_embedding.cache import EmbeddingCache
from hippovault_embedding.embedder import PORTION_CHARACTERS, Embedder
from hippovault_embedding.model import ModelFacts
from hippovault_embedding.residency import Residency

DIMENSIONS = 1024
WINDOWS = 64


@dataclass
class Windows:
    """A backend that makes as many windows of each text as may be, and notes which texts it saw at a time."""

    portions: list[Sequence[str]] = field(default_factory=list)

    async def facts(self) -> ModelFacts:
        return ModelFacts("m", "1", DIMENSIONS, 256)

    def load(self) -> None:
        pass

    def unload(self) -> None:
        pass

    async def prepare(self, texts: Sequence[str], options: Options) -> list[Prepared]:
        self.portions.append(texts)
        return [Prepared([Piece((1,), 1)] * options.max_windows, options.max_windows) for _ in texts]

    async def run(self, pieces: Sequence[Piece]) -> list[Row]:
        return [Row(bytes(4 * DIMENSIONS)) for _ in pieces]


def embedder(backend: Windows) -> Embedder:
    batcher = Batcher("m", backend.run, asyncio.Semaphore(1), Limits(450, 64, 65_536))
    residency = Residency("m", backend.load, backend.unload, 0)
    return Embedder("m", backend, residency, batcher, EmbeddingCache(0))


async def test_texts_are_prepared_in_portions_and_in_order() -> None:
    backend = Windows()
    texts = [f"{number}" * (PORTION_CHARACTERS // 3) for number in range(8)]
    embedded = await embedder(backend).embed(texts, Options())
    assert len(embedded.embeddings) == len(texts)
    assert [text for portion in backend.portions for text in portion] == texts
    assert len(backend.portions) > 1


async def test_an_answer_that_becomes_too_large_is_refused_before_the_rest_is_prepared() -> None:
    backend = Windows()
    fitting = MAX_ANSWER_BYTES // (4 * DIMENSIONS * WINDOWS)
    texts = [f"{number:03}" + "x" * PORTION_CHARACTERS for number in range(10 * fitting)]
    with pytest.raises(ServiceError, match="or more bytes, an answer 3145728 at most"):
        await embedder(backend).embed(texts, Options(max_windows=WINDOWS))
    assert backend.portions == [[text] for text in texts[: fitting + 1]]
