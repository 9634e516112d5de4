"""Completes memories whose vectors are to come: embeds and scores them beside all else, a few at a time.

They were stored while the embedder was away, or another program wrote them. They are embedded as documents are, so
that queries go before them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import grpc
import structlog

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import deadline, interceptors
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import embedding
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedder import EmbeddedMemory, Embedder, Texts
from hippovault_gateway.scoring import Scorer

log = structlog.get_logger()

NAME = "backfill"
PORTION = 8
"""Memories that are read and embedded together: they hold up a remembered one for as long."""
PORTION_SECONDS = 120.0
SHORTEST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""After a failure; each pause is twice the one before."""
ROUND_SECONDS = 60.0
"""How often it is looked whether others than this process have left anything."""
MAX_GIVEN_UP = 10_000
BEFORE_ALL = -(2**63)
"""An id that is before all others."""
State = tuple[int, ...]
"""Tells whether a memory is as it was."""


class Backfill:
    """Goes through what lacks vectors, one round after another.

    Args:
        services: The services behind the gateway.
        embedder: Embeds them.
        scorer: Scores what has no surprise yet.
    """

    def __init__(self, services: Services, embedder: Embedder, scorer: Scorer) -> None:
        self._services = services
        self._embedder = embedder
        self._scorer = scorer
        self._woken = asyncio.Event()
        self._after = BEFORE_ALL
        self._pause = 0.0
        self._given_up: dict[int, State] = {}

    def wake(self) -> None:
        """Says that there is something to do."""
        self._woken.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Works while the context lasts."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                is_through = await self._round()
            except Exception as error:  # noqa: BLE001  # It has to go on, whatever fails.
                await self._rest(interceptors.told(error, NAME))
                continue
            if is_through:
                self._pause = 0.0
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), ROUND_SECONDS)

    async def _round(self) -> bool:
        """Completes what is left; returns whether that was all. The next round passes over what this one fails at."""
        began, completed = self._after, 0
        while portion := await self._next():
            self._after = portion[-1].id
            completed += await self._complete(portion)
        self._after = BEFORE_ALL
        if completed:
            log.info("embedded memories that were pending", count=completed)
        return began == BEFORE_ALL

    async def _rest(self, error: ServiceError) -> None:
        if not self._pause:
            log.warning("pending memories have to wait", code=error.code.name, reason=error.reason)
        self._pause = min(max(2 * self._pause, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(self._pause)

    async def _next(self) -> Sequence[memory_pb2.Memory]:
        deadline.start(PORTION_SECONDS)
        lacking = storage_pb2.ListUnembeddedRequest(
            page_size=PORTION, after_id=self._after, token_encoding=await self._embedder.token_encoding()
        )
        return (await call(self._services.storage.ListUnembedded, lacking, STORAGE)).memories

    async def _complete(self, portion: Sequence[memory_pb2.Memory]) -> int:
        """Embeds, scores and completes memories; returns how many."""
        memories = [memory for memory in portion if self._given_up.get(memory.id) != _state(memory)]
        completed = 0
        embedded = await self._embedded([Texts.of(memory) for memory in memories])
        for memory, result in zip(memories, embedded, strict=True):
            try:
                written = await self._write(memory, result)
            except ServiceError as error:
                if error.code in embedding.AWAY or error.code is grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                log.warning("a memory cannot be embedded", id=memory.id, code=error.code.name, reason=error.reason)
                written = False
            completed += written
            if not written:  # Of what the model sees no token in, there is nothing to write.
                self._give_up(memory)
        return completed

    async def _embedded(self, texts: Sequence[Texts]) -> list[EmbeddedMemory | ServiceError]:
        """Embeds together; one by one where the embedder fails at them and does not tell at which."""
        try:
            return await self._embedder.memories(texts)
        except ServiceError as error:
            if error.code in embedding.AWAY:
                raise
            if len(texts) == 1:
                return [error]
        return [result for each in texts for result in await self._embedded([each])]

    async def _write(self, memory: memory_pb2.Memory, embedded: EmbeddedMemory | ServiceError) -> bool:
        if isinstance(embedded, ServiceError):
            raise embedded
        if embedded.content and memory.pending and not memory.HasField("surprise"):
            memory.surprise.CopyFrom(await self._scorer.score(memory, embedded.content))
        embed = storage_pb2.EmbedMemoryRequest(memory=memory)
        embedded.add_to(embed)
        return (await call(self._services.storage.EmbedMemory, embed, STORAGE)).written

    def _give_up(self, memory: memory_pb2.Memory) -> None:
        """Takes note of a memory that cannot be completed, so that it is not tried again while it stays as it is."""
        if len(self._given_up) == MAX_GIVEN_UP:
            self._given_up.clear()
        self._given_up[memory.id] = _state(memory)


def _state(memory: memory_pb2.Memory) -> State:
    return memory.version, memory.pending, *map(hash, memory.hints)
