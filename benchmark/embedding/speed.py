"""One caller and many, against the same model called by hand in this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmark.embedding import calls
from benchmark.embedding.calls import Stub
from benchmark.embedding.program import Program
from benchmark.embedding.sizes import Sizes
from benchmark.embedding.texts import Supply, Texts
from benchmark.figures import BLOCK, Bound, Figure, medians, timed
from hippovault.embedding.v1 import embedding_pb2 as pb

TEXTS_A_CALL = 4
ONE_BY_ONE = 4
"""One text at a time is slow: only every so many texts of the others are measured so."""
BATCH_TOKENS = (128, 256, 512, 1024, 4096)
TRIALS = 2
MILLISECONDS = 1000


async def queries(stub: Stub, programs: Sequence[Program], texts: Texts, number: int) -> list[Figure]:
    """Compares a query of a caller who is alone with a direct call, and one from the cache with an empty hop.

    Args:
        stub: The service.
        programs: Ways to call directly, of which the faster counts.
        texts: Queries.
        number: Of them.
    """
    asked = texts.short(number)
    service, cached, hop = [], [], []
    direct: list[list[float]] = [[] for _ in programs]
    for start in range(0, number, BLOCK):
        block = asked[start : start + BLOCK]
        service += [await _seconds(partial(calls.ask, stub, query)) for query in block]
        for seconds, program in zip(direct, programs, strict=True):
            seconds += [timed(partial(program.embed, query))[0] for query in block]
        cached += [await _seconds(partial(calls.ask, stub, query)) for query in block]
        hop += [await _seconds(lambda: stub.GetModel(pb.GetModelRequest())) for _ in block]
    of_service, of_cached, of_hop = (MILLISECONDS * statistics.median(each) for each in (service, cached, hop))
    of_direct = MILLISECONDS * min(map(statistics.median, direct))
    return [
        Figure("query over gRPC, p50; direct", of_service, "ms", of_direct, Bound(1.25)),
        Figure("query from the cache, p50; empty gRPC hop", of_cached, "ms", of_hop),
    ]


@dataclass(frozen=True)
class Way:
    """One way to embed many texts directly."""

    program: Program
    batch_tokens: int
    name: str

    def throughput(self, texts: Sequence[str]) -> float:
        """Returns tokens a second."""
        seconds, tokens = timed(partial(self.program.embed_all, texts, self.batch_tokens))
        return tokens / seconds


async def bulk(stub: Stub, programs: Sequence[Program], texts: Supply, kind: str, sizes: Sizes) -> list[Figure]:
    """Compares many callers with direct batches of the best size, and with one call at a time.

    Args:
        stub: The service.
        programs: One with one inference at a time, which has all threads, and one with several.
        texts: Documents.
        kind: What one of them is.
        sizes: Callers, documents of each round, and rounds.
    """
    best = _best_way(programs, texts(sizes.documents))
    number, callers, few = sizes.documents, sizes.callers, max(1, sizes.documents // ONE_BY_ONE)
    measured = [
        (
            best.throughput(texts(number)),
            await calls.throughput(stub, texts, number, callers),
            await calls.throughput(stub, texts, number, callers, TEXTS_A_CALL),
            await calls.throughput(stub, texts, few),
            max(_alone(program, texts(few)) for program in programs),
        )
        for _ in range(sizes.rounds)
    ]
    direct, ones, fours, one_by_one, directly_alone = medians(measured)
    unit, near = "tokens/s", Bound(0.9, at_least=True)
    return [
        Figure(f"{callers} callers of 1 {kind}; direct in batches", ones, unit, direct, near),
        Figure(f"{callers} callers of {TEXTS_A_CALL} {kind}s; direct in batches", fours, unit, direct, near),
        Figure(f"{callers} callers of 1 {kind}; one call at a time", ones, unit, one_by_one, Bound(3, at_least=True)),
        Figure(f"{kind}s direct in {best.name}; 1 by 1", direct, unit, directly_alone),
    ]


def _best_way(programs: Sequence[Program], texts: Sequence[str]) -> Way:
    """Returns the fastest of some batch sizes, with all threads for one inference or with one for each of several."""
    ways = [
        Way(program, batch_tokens, f"batches of {batch_tokens}, {program.name}")
        for program in programs
        for batch_tokens in BATCH_TOKENS
    ]
    found = [[way.throughput(texts) for way in ways] for _ in range(TRIALS)]
    best = [max(column) for column in zip(*found, strict=True)]
    return ways[best.index(max(best))]


def _alone(program: Program, texts: Sequence[str]) -> float:
    seconds, tokens = timed(partial(program.embed_each, texts))
    return tokens / seconds


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started
