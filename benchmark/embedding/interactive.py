"""How long queries take while others load documents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from benchmark.embedding import calls
from benchmark.embedding.calls import Stub
from benchmark.embedding.sizes import Sizes
from benchmark.embedding.speed import MILLISECONDS, TEXTS_A_CALL
from benchmark.embedding.texts import Texts
from benchmark.figures import Bound, Figure

ROUNDS = 4
SEED = 5


async def measure(stub: Stub, texts: Texts, sizes: Sizes) -> list[Figure]:
    """Asks queries with nothing else to do and during a bulk load, in turn.

    Args:
        stub: The service.
        texts: Queries and documents.
        sizes: Queries of each, their rate, and callers of the load.
    """
    idle: list[float] = []
    loaded: list[float] = []
    random = np.random.default_rng(SEED)
    for _ in range(ROUNDS):
        pauses = random.exponential(1 / sizes.rate, -(-sizes.queries // ROUNDS))
        idle += await _ask(stub, texts, pauses.tolist())
        load = asyncio.create_task(calls.keep_asking(stub, texts.documents, sizes.callers, TEXTS_A_CALL))
        loaded += await _ask(stub, texts, pauses.tolist())
        if load.done():
            await load  # It can only have failed.
        load.cancel()
        await asyncio.wait([load])
    of_idle, of_loaded = (MILLISECONDS * np.percentile(each, (50, 99), method="higher") for each in (idle, loaded))
    during = f"{sizes.callers} callers of {TEXTS_A_CALL} texts"
    return [
        Figure(f"query during {during}, p50; idle", of_loaded[0], "ms", of_idle[0]),
        Figure(f"query during {during}, p99 of {len(loaded)}; idle", of_loaded[1], "ms", of_idle[1], Bound(3)),
    ]


async def _ask(stub: Stub, texts: Texts, pauses: Sequence[float]) -> list[float]:
    """Returns the seconds from the moment at which each query was due, whether or not those before were answered."""
    queries = texts.short(len(pauses))
    start = time.perf_counter()

    async def one(query: str, due: float) -> float:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await calls.ask(stub, query)
        return time.perf_counter() - due

    moments = start + np.cumsum(pauses)
    return await asyncio.gather(*map(one, queries, moments.tolist()))
