"""How near vectors are to those of sentence-transformers, which the tests have for some texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmark.embedding import calls
from benchmark.embedding.calls import Stub
from benchmark.figures import Bound, Figure

DIRECTORY = Path(__file__).parents[2] / "tests" / "data" / "embedding"
ARRAY = "minilm"


async def measure(stub: Stub) -> list[Figure]:
    """Compares the default model."""
    texts = json.loads((DIRECTORY / "texts.json").read_text())
    with np.load(DIRECTORY / "reference.npz") as arrays:
        expected = arrays[ARRAY]
    vectors = np.frombuffer((await calls.embed(stub, texts)).vectors, "<f4").reshape(expected.shape)
    least = float((vectors * expected).sum(axis=1).min())
    name = f"cosine to sentence-transformers, least of {len(texts)}"
    return [Figure(name, least, bound=Bound(0.99, at_least=True))]
