"""Searches over a full store, against vec0's scan and FTS5's own ranking."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark.storage import workload
from benchmark.storage.corpus import DIMENSIONS, Corpus
from benchmark.storage.figures import Bound, Figure, medians, seconds
from benchmark.storage.program import opened
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.engine import Engine
from hippovault_storage.sqlite import text
from hippovault_storage.sqlite.engine import SqliteEngine

K = 10
READERS = 4
NEVER_SLOWER = Bound(1)


@dataclass(frozen=True)
class Compared:
    """Of one search: what both took and how much of the baseline's result the service has."""

    service: float
    baseline: float
    overlap: float


def measure(path: Path, stored: Corpus, queries: Corpus) -> list[Figure]:
    """Fills a store, opens it anew and searches it."""
    figures = []
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        spent = seconds(lambda: workload.fill(engine, stored))
        figures.append(Figure("memories put in batches", len(stored) / spent, "/s"))
    started = time.perf_counter()
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        figures.append(Figure("opening the store", time.perf_counter() - started, "s", bound=Bound(1)))
        workload.settle(lambda: engine.get_stats(pb.GetStatsRequest()))
        figures.append(Figure("opening the store until its code index is there", time.perf_counter() - started, "s"))
        return [*figures, *_dense(engine, path, queries), *_keyword(engine, path, queries), *_filtered(engine, queries)]


def _dense(engine: Engine, path: Path, queries: Corpus) -> list[Figure]:
    """Compares the dense arm with vec0's scan of all float32 vectors, which is exact."""
    with opened(path) as program:
        compared = [
            _compare(engine, workload.dense(vector, K), partial(program.nearest, vector, K))
            for vector in (row.tobytes() for row in queries.vectors)
        ]
    recall = Figure(f"dense search, recall@{K}", _overlap(compared), bound=Bound(0.99, at_least=True))
    return [_speed("dense search, p50", compared, Bound(1 / 40)), recall]


def _keyword(engine: Engine, path: Path, queries: Corpus) -> list[Figure]:
    """Compares the keyword arm with FTS5 over all words of the question."""
    questions = [workload.question(each) for each in queries.texts]
    with opened(path) as program:
        compared = [
            _compare(engine, workload.keyword(each, K), partial(program.matching, expression, K))
            for each in questions
            if (expression := _unpruned(each))
        ]
    overlap = Figure(f"keyword search, top-{K} overlap", _overlap(compared), bound=Bound(0.93, at_least=True))
    return [_speed("keyword search, p50", compared, Bound(1 / 5)), overlap]


def _filtered(engine: Engine, queries: Corpus) -> list[Figure]:
    """Compares searches within a tag with the same ones without."""
    vectors = [row.tobytes() for row in queries.vectors]
    questions = [workload.question(each) for each in queries.texts]
    return [
        *_filtered_arm(engine, "dense", lambda tag: [workload.dense(each, K, tag) for each in vectors]),
        *_filtered_arm(engine, "keyword", lambda tag: [workload.keyword(each, K, tag) for each in questions]),
    ]


def _unpruned(question: str) -> str:
    """Returns the FTS5 expression of all words of a question."""
    return " OR ".join(f'"{word}"' for word in text.WORD.findall(question))


def _filtered_arm(
    engine: Engine, arm: str, searches: Callable[[str], Sequence[pb.SearchMemoriesRequest]]
) -> list[Figure]:
    tags = ("", *workload.SHARES)
    rounds = [
        [seconds(lambda: engine.search_memories(search)) for search in same]  # noqa: B023  # Called here.
        for same in zip(*map(searches, tags), strict=True)
    ]
    whole, *parts = (1000 * median for median in medians(rounds))
    return [
        Figure(f"{arm} search within {100 / every:g} %, p50", part, "ms", whole, NEVER_SLOWER)
        for part, every in zip(parts, workload.SHARES.values(), strict=True)
    ]


def _compare(engine: Engine, search: pb.SearchMemoriesRequest, baseline: Callable[[], list[int]]) -> Compared:
    found: list[pb.SearchMemoriesResponse] = []
    expected: list[int] = []
    service = seconds(lambda: found.append(engine.search_memories(search)))
    plain = seconds(lambda: expected.extend(baseline()))
    same = {hit.id for hit in found[0].hits} & set(expected)
    return Compared(service, plain, len(same) / len(expected) if expected else 1.0)


def _speed(name: str, compared: Sequence[Compared], bound: Bound) -> Figure:
    service, baseline = (1000 * median for median in medians([(each.service, each.baseline) for each in compared]))
    return Figure(name, service, "ms", baseline, bound)


def _overlap(compared: Sequence[Compared]) -> float:
    return statistics.fmean(each.overlap for each in compared)
