"""How long a recall takes at each door, of queries that were asked before and of others; and where that time goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from google.protobuf.duration_pb2 import Duration

from benchmark.embedding.texts import Texts
from benchmark.figures import BLOCK, Bound, Figure, seconds
from benchmark.latency.doors import SECONDS, Door, Doors
from hippovault.embedding.v1 import embedding_pb2
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.mcp import budget
from hippovault_gateway.mcp.tools import RECALL
from hippovault_gateway.settings import GatewaySettings

MILLISECONDS = 1000.0
IN_TURN = ("embed", "search", "fuse", "rerank")
"""The stages that follow each other, as RecallTimes has them."""
WITHIN_SEARCH = ("keyword", "dense", "late_interaction")


async def repeated(doors: Sequence[Door], texts: Texts, number: int) -> list[Figure]:
    """Measures queries whose embeddings are cached, so that all of it is beside the embedding."""
    queries = texts.short(BLOCK)
    await _in_turn(doors, lambda: queries, BLOCK)
    p50s = await _in_turn(doors, lambda: queries, number)
    return [
        Figure(f"repeated query, {door.name}", p50, "ms", bound=Bound(door.limit) if door.limit else None)
        for door, p50 in zip(doors, p50s, strict=True)
    ]


async def fresh(doors: Sequence[Door], texts: Texts, number: int, embedding: EmbeddingServiceStub) -> list[Figure]:
    """Measures queries that nobody asked before, beside their embedding alone."""

    async def embed(query: str) -> object:
        request = embedding_pb2.EmbedRequest(texts=[query], input_type=embedding_pb2.INPUT_TYPE_QUERY)
        return embedding.Embed(request, timeout=SECONDS)

    asked = [Door("the embedding alone", embed), *doors]
    p50s = await _in_turn(asked, lambda: texts.short(BLOCK), number)
    return [Figure(f"fresh query, {door.name}", p50, "ms") for door, p50 in zip(asked, p50s, strict=True)]


def stages(doors: Doors, texts: Texts, number: int) -> list[Figure]:
    """Measures the stages of repeated queries by gRPC, what the door adds to them, and the embedding of fresh ones."""
    queries = texts.short(BLOCK)
    first = [_asked(doors, query)[1] for query in queries]
    taken = [_asked(doors, query) for _ in range(-(-number // BLOCK)) for query in queries]
    answers = [answer for _, answer in taken]
    door = [whole - sum(_milliseconds(answer, name) for name in IN_TURN) for whole, answer in taken]
    return [
        Figure("embed, fresh", _p50(first, "embed"), "ms"),
        Figure("embed, repeated", _p50(answers, "embed"), "ms"),
        Figure("search, with the hop to storage", _p50(answers, "search"), "ms"),
        *(Figure(f"  {name.replace('_', ' ')}", _p50(answers, name), "ms") for name in WITHIN_SEARCH),
        Figure("fuse", _p50(answers, "fuse"), "ms"),
        Figure("rerank", _p50(answers, "rerank"), "ms"),
        Figure("door, gRPC", statistics.median(door), "ms"),
        Figure("serialise, gRPC", _median(answers, pb.RecallResponse.SerializeToString), "ms"),
        Figure("serialise, MCP", _median(answers, _serialised), "ms"),
    ]


async def _in_turn(doors: Sequence[Door], queries: Callable[[], list[str]], number: int) -> list[float]:
    """Returns the p50 of each door in milliseconds; a block of each is asked in turn."""
    taken: list[list[float]] = [[] for _ in doors]
    for _ in range(-(-number // BLOCK)):
        for door, milliseconds in zip(doors, taken, strict=True):
            milliseconds += [await _recall(door, query) for query in queries()]
    return [statistics.median(milliseconds) for milliseconds in taken]


async def _recall(door: Door, query: str) -> float:
    started = time.perf_counter()
    await door.recall(query)
    return MILLISECONDS * (time.perf_counter() - started)


def _asked(doors: Doors, query: str) -> tuple[float, pb.RecallResponse]:
    started = time.perf_counter()
    answer = doors.stub.Recall(pb.RecallRequest(query=query), timeout=SECONDS)
    return MILLISECONDS * (time.perf_counter() - started), answer


def _milliseconds(answer: pb.RecallResponse, stage: str) -> float:
    duration: Duration = getattr(answer.times, stage)
    return duration.ToNanoseconds() / 1e6


def _p50(answers: Sequence[pb.RecallResponse], stage: str) -> float:
    return statistics.median(_milliseconds(answer, stage) for answer in answers)


def _median(answers: Sequence[pb.RecallResponse], serialise: Callable[[pb.RecallResponse], object]) -> float:
    return MILLISECONDS * statistics.median(seconds(partial(serialise, answer)) for answer in answers)


def _serialised(answer: pb.RecallResponse) -> str:
    """Returns what hippo_recall answers: its document, and the same once more as text."""
    document = RECALL.view.of(answer).model_dump(mode="json", exclude_defaults=True)
    budget.fit(document, GatewaySettings.mcp_answer_bytes)
    return budget.encoded({"text": budget.encoded(document), "structured": document})
