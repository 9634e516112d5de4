"""What a session over stdio costs: its start, and its memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmark.embedding.texts import Texts
from benchmark.figures import Bound, Figure, medians, seconds
from benchmark.latency.doors import session
from benchmark.stack import KIB, Memory

MILLISECONDS = 1000.0
MEGABYTE = 1_000_000
RECALLS = 50
"""Of the session whose memory is measured."""


def measure(memory: Memory, texts: Texts, starts: int) -> list[Figure]:
    """Measures the start of sessions against that of an interpreter that does nothing, in turn.

    Args:
        memory: It runs, and has its model loaded.
        texts: Queries.
        starts: Of each kind.
    """
    [query] = texts.short(1)
    _first_recall(memory, query)
    rounds = [(_bare(), _initialize(memory), _first_recall(memory, query)) for _ in range(starts)]
    bare, initialize, recall = (MILLISECONDS * median for median in medians(rounds))
    resident, proportional = (size * KIB / MEGABYTE for size in _kibibytes(memory, texts))
    return [
        Figure("start to the answer to initialize / python -c pass", initialize, "ms", bare, Bound(2)),
        Figure("start to the first recall's answer, repeated query", recall, "ms", bound=Bound(60)),
        Figure("resident memory of a session", resident, "MB", bound=Bound(15)),
        Figure("  its share of pages that others use too counted in part", proportional, "MB"),
    ]


def _bare() -> float:
    return seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))


def _initialize(memory: Memory) -> float:
    started = time.perf_counter()
    with session(memory) as opened:
        opened.begin()
        return time.perf_counter() - started


def _first_recall(memory: Memory, query: str) -> float:
    started = time.perf_counter()
    with session(memory) as opened:
        opened.begin()
        opened.recall(query)
        return time.perf_counter() - started


def _kibibytes(memory: Memory, texts: Texts) -> tuple[int, int]:
    """Returns the resident and the proportional size of a session that has done some work."""
    with session(memory) as opened:
        opened.begin()
        for query in texts.short(RECALLS):
            opened.recall(query)
        sizes = Path(f"/proc/{opened.process.pid}/smaps_rollup").read_text()
    lines = [line.split() for line in sizes.splitlines()]
    found = {words[0]: int(words[1]) for words in lines if words[0] in {"Rss:", "Pss:"}}
    return found["Rss:"], found["Pss:"]
