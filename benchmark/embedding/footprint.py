"""Memory and processor time of a process that embeds nothing, has the model loaded, and has let go of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmark import stack
from benchmark.embedding import calls
from benchmark.embedding.calls import Stub
from benchmark.embedding.sizes import Sizes
from benchmark.embedding.speed import MILLISECONDS, TEXTS_A_CALL
from benchmark.embedding.texts import Texts
from benchmark.figures import Bound, Figure
from benchmark.stack import Process
from hippovault.embedding.v1 import embedding_pb2 as pb

LONG_SHARE = 8
"""One document in so many is a long one."""
MEGABYTE = 1_000_000
POLL_SECONDS = 0.1
SPARE = 1.25
"""How much longer the model stays than the time of which the processor time is measured."""
NOTHING = Bound(1)
"""Milliseconds a second: gRPC looks for something to do now and then."""


async def measure(home: Path, texts: Texts, sizes: Sizes) -> list[Figure]:
    """Loads a model, works, and waits until it is unloaded.

    Args:
        home: For the process.
        texts: Documents.
        sizes: Documents, an eighth of which are long ones, callers, and the time without a call.
    """
    with stack.embedding(home, "--idle-seconds", str(SPARE * sizes.idle)) as process:
        async with calls.opened(process) as stub:
            await stub.GetModel(pb.GetModelRequest())
            before, idle_before = process.resident_bytes(), await _idle_share(process, sizes.idle)
            load_seconds = await _load(stub)
            loaded = process.resident_bytes()
            await asyncio.gather(*(calls.embed(stub, [texts.long()]) for _ in range(sizes.documents // LONG_SHARE)))
            await calls.throughput(stub, texts.documents, sizes.documents, sizes.callers, TEXTS_A_CALL)
            worked, idle_loaded = process.resident_bytes(), await _idle_share(process, sizes.idle)
            await unloaded(stub)
            after = process.resident_bytes()
            reload_seconds, peak = await _load(stub), process.peak_bytes()
    return [
        _memory("resident memory before the first call", before, Bound(80)),
        _memory("resident memory with the model loaded", loaded),
        _memory("resident memory after work", worked),
        _memory("resident memory, peak", peak),
        _memory("resident memory added, after unloading", after - before, Bound(40)),
        Figure("load of the model", MILLISECONDS * load_seconds, "ms"),
        Figure("load of the model, again", MILLISECONDS * reload_seconds, "ms"),
        Figure("idle processor time before the first call", MILLISECONDS * idle_before, "ms/s", bound=NOTHING),
        Figure("idle processor time with the model loaded", MILLISECONDS * idle_loaded, "ms/s", bound=NOTHING),
    ]


async def unloaded(stub: Stub) -> None:
    """Waits until the model has left memory."""
    loaded = True
    while loaded:
        await asyncio.sleep(POLL_SECONDS)
        loaded = (await stub.GetModel(pb.GetModelRequest())).loaded


async def _load(stub: Stub) -> float:
    """Returns the seconds that loading takes."""
    response = await stub.Warm(pb.WarmRequest())
    return response.load_time.ToTimedelta().total_seconds()


async def _idle_share(process: Process, seconds: float) -> float:
    """Returns the share of a core that the process uses while nobody calls it."""
    before = process.cpu_seconds()
    await asyncio.sleep(seconds)
    return (process.cpu_seconds() - before) / seconds


def _memory(name: str, size: int, bound: Bound | None = None) -> Figure:
    return Figure(name, size / MEGABYTE, "MB", bound=bound)
