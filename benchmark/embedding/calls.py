"""Calls of the service, by one caller and by many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from benchmark.embedding.texts import Supply
from benchmark.stack import Process
from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis import channels
from hippovault_embedding.servicer import NAME

if TYPE_CHECKING:  # Only the stubs of types know it.
    from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceAsyncStub

Stub: TypeAlias = "EmbeddingServiceAsyncStub"

SECONDS = 120


@asynccontextmanager
async def opened(process: Process) -> AsyncIterator[Stub]:
    """The service of a process, by a channel such as the gateway has."""
    async with channels.aio(process.target, NAME, ()) as channel:
        yield EmbeddingServiceStub(channel)


async def embed(
    stub: Stub, texts: Sequence[str], input_type: pb.InputType.ValueType = pb.INPUT_TYPE_DOCUMENT
) -> pb.EmbedResponse:
    """Embeds texts by one call."""
    return await stub.Embed(pb.EmbedRequest(texts=texts, input_type=input_type), timeout=SECONDS)


async def ask(stub: Stub, query: str) -> pb.EmbedResponse:
    """Embeds a query."""
    return await embed(stub, [query], pb.INPUT_TYPE_QUERY)


async def keep_asking(stub: Stub, texts: Supply, callers: int, texts_a_call: int) -> None:
    """Has so many callers embed documents, each its next call when it has the answer to the last, until cancelled."""

    async def caller() -> None:
        while True:
            await embed(stub, texts(texts_a_call))

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


async def throughput(stub: Stub, texts: Supply, number: int, callers: int = 1, texts_a_call: int = 1) -> float:
    """Returns the tokens a second that callers get embedded while all of them are at work.

    Args:
        stub: The service.
        texts: Documents.
        number: That the measured time takes; the first call of each caller goes before.
        callers: Each makes its next call when it has the answer to the last.
        texts_a_call: Of one call.
    """
    calls = max(1, number // texts_a_call)
    answers: list[tuple[float, int]] = []

    async def caller() -> None:
        while len(answers) < callers + calls:
            response = await embed(stub, texts(texts_a_call))
            answers.append((time.perf_counter(), sum(info.token_count for info in response.texts)))

    await asyncio.gather(*(caller() for _ in range(callers)))
    begun = answers[callers - 1][0]
    measured = answers[callers : callers + calls]
    return sum(tokens for _, tokens in measured) / (measured[-1][0] - begun)
