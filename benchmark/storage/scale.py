"""A storage process with very many memories: how long it takes, how large it gets, what it finds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmark import stack
from benchmark.figures import Bound, Figure, seconds, timed
from benchmark.storage import workload
from benchmark.storage.corpus import Corpus, varied
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub

K = 10
SECONDS = 600
MEGABYTE = 1_000_000


def measure(home: Path, corpus: Corpus, queries: Corpus, number: int) -> list[Figure]:
    """Fills a storage process with varied copies of a corpus, starts it anew and searches it.

    Args:
        home: For the process.
        corpus: What is varied.
        queries: What is searched for.
        number: Of memories.
    """
    exact = _Nearest(queries)
    with stack.storage(home) as (process, stub):
        build = _fill(stub, _rows(corpus, number), exact)
        built = process.resident_bytes()
    started = time.perf_counter()
    with stack.storage(home) as (process, stub):
        serving = time.perf_counter() - started
        workload.settle(lambda: stub.GetStats(pb.GetStatsRequest(), timeout=SECONDS))
        settled = time.perf_counter() - started
        recall, dense = _search(stub, queries, exact.ids)
        keyword = statistics.median(seconds(partial(_ask, stub, text)) for text in queries.texts)
        resident = process.resident_bytes()
    return [
        Figure("memories put over gRPC, in batches", number / build, "/s"),
        Figure("start of the process until it serves", serving, "s"),
        Figure("start of the process until its code index is there", settled, "s"),
        Figure(f"dense search, recall@{K}", recall, bound=Bound(0.99, at_least=True)),
        Figure("dense search over gRPC, p50", 1000 * dense, "ms"),
        Figure("keyword search over gRPC, p50", 1000 * keyword, "ms"),
        Figure("resident memory after the puts", built / MEGABYTE, "MB", bound=Bound(400)),
        Figure("resident memory after the searches", resident / MEGABYTE, "MB", bound=Bound(400)),
    ]


class _Nearest:
    """The exact nearest of each query, among the rows seen so far. Ids count from 1, as a new store gives them."""

    def __init__(self, queries: Corpus) -> None:
        self._queries = queries.vectors
        self._seen = 0
        self.ids = np.zeros((len(queries), 0), np.int64)
        self._scores = np.zeros((len(queries), 0), np.float32)

    def see(self, rows: Corpus) -> None:
        """Takes note of rows, in the order in which they are put."""
        ids = np.arange(self._seen + 1, self._seen + len(rows) + 1)
        self._seen += len(rows)
        scores = np.hstack([self._scores, self._queries @ rows.vectors.T])
        ids = np.hstack([self.ids, np.broadcast_to(ids, (len(self._queries), len(rows)))])
        best = np.argsort(-scores, axis=1)[:, :K]
        self.ids, self._scores = np.take_along_axis(ids, best, 1), np.take_along_axis(scores, best, 1)


def _rows(corpus: Corpus, number: int) -> Iterator[Corpus]:
    for copy in varied(corpus, -(-number // len(corpus))):
        part = copy[:number]
        number -= len(part)
        yield part


def _fill(stub: StorageServiceStub, copies: Iterator[Corpus], exact: _Nearest) -> float:
    """Puts the rows and returns the seconds that the calls took, without the making of the rows."""
    spent = 0.0
    for copy in copies:
        exact.see(copy)
        for batch in workload.batches(copy):
            spent += seconds(partial(stub.BatchPutMemories, batch, timeout=SECONDS))
    return spent


def _search(stub: StorageServiceStub, queries: Corpus, expected: np.ndarray) -> tuple[float, float]:
    shares, times = [], []
    for vector, ids in zip(queries.vectors, expected, strict=True):
        search = workload.dense(vector.tobytes(), K)
        spent, response = timed(partial(stub.SearchMemories, search, timeout=SECONDS))
        times.append(spent)
        shares.append(len({hit.id for hit in response.hits} & set(ids.tolist())) / len(ids))
    return statistics.fmean(shares), statistics.median(times)


def _ask(stub: StorageServiceStub, text: str) -> None:
    stub.SearchMemories(workload.keyword(workload.question(text), K), timeout=SECONDS)
