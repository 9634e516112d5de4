"""What is asked of the service: puts and searches over a corpus."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice

from benchmark.storage.corpus import Corpus
from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.engine import Engine

NAMESPACE = "default"
SHARES = {"half": 2, "tenth": 10, "twentieth": 20, "hundredth": 100, "thousandth": 1000}
"""Tags, each on every n-th memory."""
QUERY_WORDS = 8
SURPRISE = 0.5
BATCH = 500
POLL_SECONDS = 0.02
SETTLE_SECONDS = 300
SETTLED = 0.9
"""Share of the vectors that the code index has once it is ready; the newest may lie beside it."""
SMALLEST_INDEX = 2_000
"""Vectors of a namespace that surely has a code index."""


def puts(corpus: Corpus, first: int = 0) -> Iterator[pb.PutMemoryRequest]:
    """Yields one put a row, as the gateway makes them; `first` is the number of the first."""
    for number, (text, vector) in enumerate(zip(corpus.texts, corpus.vectors, strict=True), first):
        memory = memory_pb2.Memory(namespace=NAMESPACE, content=text, memory_type="observation")
        memory.tags.extend(tag for tag, every in SHARES.items() if number % every == 0)
        memory.surprise.score = memory.surprise.components.embedding_outlier = SURPRISE
        memory.surprise.version = 1
        yield pb.PutMemoryRequest(memory=memory, vectors=vector.tobytes(), model_revision="benchmark")


def batches(corpus: Corpus) -> Iterator[pb.BatchPutMemoriesRequest]:
    """Yields the puts of a corpus, many a request."""
    requests = puts(corpus)
    while batch := list(islice(requests, BATCH)):
        yield pb.BatchPutMemoriesRequest(requests=batch)


def fill(engine: Engine, corpus: Corpus) -> None:
    """Puts a corpus."""
    for batch in batches(corpus):
        engine.put_memories(batch.requests)


def settle(stats: Callable[[], pb.GetStatsResponse]) -> None:
    """Waits until the code index has nearly all vectors, where there are enough: it is brought up in the background."""
    ends = time.monotonic() + SETTLE_SECONDS
    while (now := stats()).vectors >= SMALLEST_INDEX and now.indexed_vectors < SETTLED * now.vectors:
        if time.monotonic() > ends:
            sys.exit(f"the code index has {now.indexed_vectors} of {now.vectors} vectors after {SETTLE_SECONDS} s")
        time.sleep(POLL_SECONDS)


def dense(vector: bytes, k: int, tag: str = "") -> pb.SearchMemoriesRequest:
    """Returns a search by a vector, within a tag where one is given."""
    arm = pb.DenseArm(vector=vector, k=k)
    return pb.SearchMemoriesRequest(namespace=NAMESPACE, dense=arm, filter=_filter(tag))


def keyword(query: str, k: int, tag: str = "") -> pb.SearchMemoriesRequest:
    """Returns a search by words, within a tag where one is given."""
    arm = pb.KeywordArm(query=query, k=k)
    return pb.SearchMemoriesRequest(namespace=NAMESPACE, keyword=arm, filter=_filter(tag))


def question(text: str) -> str:
    """Returns what somebody who remembers a text's beginning would ask."""
    return " ".join(text.split()[:QUERY_WORDS])


def _filter(tag: str) -> memory_pb2.Filter:
    return memory_pb2.Filter(tags_any=[tag] if tag else [])
