"""Writes: one at a time, and sixteen callers."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from benchmark import stack
from benchmark.figures import BLOCK, Bound, Figure, medians, seconds, timed
from benchmark.storage import workload
from benchmark.storage.corpus import DIMENSIONS, Corpus
from benchmark.storage.program import opened
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.engine import Engine
from hippovault_storage.sqlite.engine import SqliteEngine

CALLERS = 16
SYNCS = 50
ROUNDS = 5
STORED_BEFORE = 5_000
PUTS_A_WRITE = 5
"""New memories that `measure` takes a write of each kind."""
SECONDS = 60
COMMIT_BYTES = 32 * 1024
"""About what the log gets by one write."""

Puts = Iterator[pb.PutMemoryRequest]
Put = Callable[[pb.PutMemoryRequest], pb.PutMemoryResponse]


def measure(directory: Path, source: Corpus, number: int) -> list[Figure]:
    """Measures `number` writes of each kind, into stores with enough memories for a code index."""
    before = source[: max(len(source) - PUTS_A_WRITE * number, 0)][:STORED_BEFORE]
    stored, raw = directory / "written.db", directory / "raw.db"
    puts = workload.puts(source[len(before) :], len(before))
    with SqliteEngine.open(stored, DIMENSIONS, 1) as engine:
        workload.fill(engine, before)
    shutil.copy(stored, raw)  # Closed, it is whole without its log.
    with SqliteEngine.open(stored, DIMENSIONS, 1) as engine:
        workload.settle(partial(engine.get_stats, pb.GetStatsRequest()))
        figures = [*_single(engine, stored, raw, puts, number), _in_process(engine, puts, number)]
    return [*figures, _over_grpc(directory / "home", puts, number)]


def _single(engine: Engine, stored: Path, copy: Path, puts: Puts, number: int) -> list[Figure]:
    """Compares a put with the raw transaction of the rows that it wrote, a block of each in turn.

    Args:
        engine: Over the file `stored`.
        stored: Where the rows are read from, outside of the clock.
        copy: What `stored` was before, for the raw transaction.
        puts: At least `number` new memories.
        number: Of writes.
    """
    put, raw_write = [], []
    with opened(stored) as reader, opened(copy) as raw:
        for _ in range(0, number, BLOCK):
            ids = []
            for request in list(islice(puts, BLOCK)):
                spent, response = timed(partial(engine.put_memory, request))
                put.append(spent)
                ids.append(response.memory.id)
            raw_write += [seconds(partial(raw.write, rows)) for rows in [reader.read(memory_id) for memory_id in ids]]
    figure = Figure("write of one memory, p50", 1000 * median(put), "ms", 1000 * median(raw_write), Bound(1.5))
    return [
        figure,
        Figure(
            f"fdatasync of {COMMIT_BYTES // 1024} KiB on this disk, p50",
            1000 * _sync_seconds(copy.with_name("log")),
            "ms",
        ),
    ]


def _in_process(engine: Engine, puts: Puts, number: int) -> Figure:
    """Compares the throughput of callers inside the process; `number` writes a round."""
    one, many = _callers(engine.put_memory, puts, number)
    return Figure(f"{CALLERS} callers in the process", many, "/s", one, Bound(3, at_least=True))


def _over_grpc(home: Path, puts: Puts, number: int) -> Figure:
    """Compares the throughput of callers of a storage process."""
    with stack.storage(home) as (_, stub):
        one, many = _callers(lambda put: stub.PutMemory(put, timeout=SECONDS), puts, number)
    return Figure(f"{CALLERS} callers over gRPC, from this process", many, "/s", one)


def _callers(put: Put, puts: Puts, number: int) -> list[float]:
    """Returns how many puts a second one caller gets done, and how many CALLERS do."""
    each = -(-number // ROUNDS)
    return medians([[_throughput(put, puts, each, callers) for callers in (1, CALLERS)] for _ in range(ROUNDS)])


def _throughput(put: Put, puts: Puts, number: int, callers: int) -> float:
    parts = [list(islice(puts, number // callers)) for _ in range(callers)]
    threads = [threading.Thread(target=_put_all, args=(put, part)) for part in parts]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return sum(map(len, parts)) / seconds(run)


def _put_all(put: Put, requests: Iterable[pb.PutMemoryRequest]) -> None:
    for request in requests:
        put(request)


def _sync_seconds(path: Path) -> float:
    """Returns how long the disk takes to keep what is written over the beginning of a file, as a log is."""
    with path.open("wb", 0) as file:
        file.write(bytes(COMMIT_BYTES))
        os.fsync(file.fileno())

        def write() -> None:
            os.pwrite(file.fileno(), os.urandom(COMMIT_BYTES), 0)
            os.fdatasync(file.fileno())

        return median([seconds(write) for _ in range(SYNCS)])
