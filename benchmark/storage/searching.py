"""Searches over a full store, against vec0's scan and FTS5's own ranking."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark.figures import BLOCK, Bound, Figure, medians, seconds, timed
from benchmark.storage import workload
from benchmark.storage.corpus import DIMENSIONS, Corpus
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


Pair = tuple[pb.SearchMemoriesRequest, Callable[[], list[int]]]
"""What the service is asked, and what gives the baseline's result."""


def measure(path: Path, stored: Corpus, queries: Corpus) -> list[Figure]:
    """Fills a store, opens it anew and searches it."""
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        spent = seconds(partial(workload.fill, engine, stored))
    started = time.perf_counter()
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        opening = time.perf_counter() - started
        workload.settle(lambda: engine.get_stats(pb.GetStatsRequest()))
        settling = time.perf_counter() - started
        return [
            Figure("memories put in batches", len(stored) / spent, "/s"),
            Figure("opening the store", opening, "s", bound=Bound(1)),
            Figure("opening the store until its code index is there", settling, "s"),
            *_dense(engine, path, queries),
            *_keyword(engine, path, queries),
            *_filtered(engine, queries),
        ]


def _dense(engine: Engine, path: Path, queries: Corpus) -> list[Figure]:
    """Compares the dense arm with vec0's scan of all float32 vectors, which is exact."""
    with opened(path) as program:
        vectors = [row.tobytes() for row in queries.vectors]
        compared = _compare(
            engine, [(workload.dense(vector, K), partial(program.nearest, vector, K)) for vector in vectors]
        )
    recall = Figure(f"dense search, recall@{K}", _overlap(compared), bound=Bound(0.99, at_least=True))
    return [_speed("dense search, p50", compared, Bound(1 / 40)), recall]


def _keyword(engine: Engine, path: Path, queries: Corpus) -> list[Figure]:
    """Compares the keyword arm with FTS5 over all words of the question; unbounded, over all but its stop words."""
    questions = [question for question in map(workload.question, queries.texts) if text.match_expression(question)]
    with opened(path) as program:
        searches = [workload.keyword(question, K) for question in questions]
        unpruned, without_stop_words = (
            _compare(engine, [(search, partial(program.matching, words, K)) for search, words in pairs])
            for pairs in (
                zip(searches, map(_all_words, questions), strict=True),
                zip(searches, map(text.match_expression, questions), strict=True),
            )
        )
        of_baselines = [
            _shared(*(program.matching(words, K) for words in (text.match_expression(question), _all_words(question))))
            for question in questions
        ]
    return [
        _speed("keyword search, p50", unpruned, Bound(1 / 5)),
        Figure(f"keyword search, top-{K} overlap", _overlap(unpruned), bound=Bound(0.93, at_least=True)),
        _speed("against FTS5 without stop words, p50", without_stop_words),
        Figure(f"against FTS5 without stop words, top-{K} overlap", _overlap(without_stop_words)),
        Figure(f"FTS5 without stop words against all words, top-{K} overlap", statistics.fmean(of_baselines)),
    ]


def _filtered(engine: Engine, queries: Corpus) -> list[Figure]:
    """Compares searches within a tag with the same ones without."""
    vectors = [row.tobytes() for row in queries.vectors]
    questions = [workload.question(each) for each in queries.texts]
    return [
        *_filtered_arm(engine, "dense", lambda tag: [workload.dense(each, K, tag) for each in vectors]),
        *_filtered_arm(engine, "keyword", lambda tag: [workload.keyword(each, K, tag) for each in questions]),
    ]


def _all_words(question: str) -> str:
    """Returns the FTS5 expression of all words of a question."""
    return " OR ".join(f'"{word}"' for word in text.WORD.findall(question))


def _filtered_arm(
    engine: Engine, arm: str, searches: Callable[[str], Sequence[pb.SearchMemoriesRequest]]
) -> list[Figure]:
    searches_by_tag = [searches(tag) for tag in ("", *workload.SHARES)]
    spent: list[list[float]] = [[] for _ in searches_by_tag]
    for start in range(0, len(searches_by_tag[0]), BLOCK):
        for times, same in zip(spent, searches_by_tag, strict=True):
            times += [seconds(partial(engine.search_memories, search)) for search in same[start : start + BLOCK]]
    whole, *parts = (1000 * statistics.median(times) for times in spent)
    return [
        Figure(f"{arm} search within {100 / every:g} %, p50", part, "ms", whole, NEVER_SLOWER)
        for part, every in zip(parts, workload.SHARES.values(), strict=True)
    ]


def _compare(engine: Engine, pairs: Sequence[Pair]) -> list[Compared]:
    compared = []
    for start in range(0, len(pairs), BLOCK):
        block = pairs[start : start + BLOCK]
        services = [timed(partial(engine.search_memories, search)) for search, _ in block]
        baselines = [timed(baseline) for _, baseline in block]
        for (service, response), (baseline, ids) in zip(services, baselines, strict=True):
            compared.append(Compared(service, baseline, _shared([hit.id for hit in response.hits], ids)))
    return compared


def _shared(found: Sequence[int], ids: Sequence[int]) -> float:
    return len({*found} & {*ids}) / len(ids) if ids else 1.0


def _speed(name: str, compared: Sequence[Compared], bound: Bound | None = None) -> Figure:
    service, baseline = (1000 * median for median in medians([(each.service, each.baseline) for each in compared]))
    return Figure(name, service, "ms", baseline, bound)


def _overlap(compared: Sequence[Compared]) -> float:
    return statistics.fmean(each.overlap for each in compared)
