"""What the encryption of the whole file costs: the same writes and searches on two stores, one encrypted."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from benchmark.figures import BLOCK, Bound, Figure, seconds
from benchmark.storage import workload
from benchmark.storage.corpus import DIMENSIONS, Corpus
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.engine import Engine
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import Encryption

K = 10
READERS = 4
CACHED_MEMORIES = 5_000
"""So few that the caches hold all that is searched."""
KEY_BYTES = 32

Action = Callable[[], object]


def measure(directory: Path, source: Corpus, queries: Corpus, number: int) -> list[Figure]:
    """Compares `number` writes, and cached searches, of an encrypted store with those of a plain one."""
    key = directory / "key"
    key.touch(0o600)
    key.write_bytes(base64.b64encode(os.urandom(KEY_BYTES)))
    encryption = Encryption("file", KeySource(key))
    with (
        SqliteEngine.open(directory / "plain.db", DIMENSIONS, READERS) as plain,
        SqliteEngine.open(directory / "encrypted.db", DIMENSIONS, READERS, encryption) as encrypted,
    ):
        compare = partial(_compare, plain, encrypted)
        writes = compare(
            "write", lambda engine: [partial(engine.put_memory, put) for put in workload.puts(source[:number])]
        )
        for engine in (plain, encrypted):
            workload.fill(engine, source[number:CACHED_MEMORIES])
            workload.settle(partial(engine.get_stats, pb.GetStatsRequest()))
        near = [workload.dense(vector.tobytes(), K) for vector in queries.vectors]
        words = [workload.keyword(workload.question(text), K) for text in queries.texts]
        return [
            writes,
            compare("cached dense search", lambda engine: [partial(engine.search_memories, each) for each in 2 * near]),
            compare(
                "cached keyword search", lambda engine: [partial(engine.search_memories, each) for each in 2 * words]
            ),
        ]


def _compare(plain: Engine, encrypted: Engine, name: str, actions: Callable[[Engine], Sequence[Action]]) -> Figure:
    spent: list[list[float]] = [[], []]
    both = actions(plain), actions(encrypted)
    for start in range(0, len(both[0]), BLOCK):
        for times, same in zip(spent, both, strict=True):
            times += [seconds(action) for action in same[start : start + BLOCK]]
    plainly, encryptedly = (1000 * median(times) for times in spent)
    return Figure(f"{name}, whole file encrypted, p50", encryptedly, "ms", plainly, Bound(1.3))
