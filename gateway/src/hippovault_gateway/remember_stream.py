"""Remembering a stream: what comes while some memories are embedded and stored is embedded together next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.remember import MAX_BATCH, MAX_BATCH_BYTES, Rememberer


class Streams:
    """Stores memories as they come.

    Args:
        rememberer: Stores them.
    """

    def __init__(self, rememberer: Rememberer) -> None:
        self._rememberer = rememberer

    async def remember(
        self, requests: AsyncIterator[pb.StreamRememberRequest]
    ) -> AsyncIterator[pb.StreamRememberResponse]:
        """Yields what became of each request, in order.

        Raises:
            ServiceError: A service does not answer. What was answered before is stored.
        """
        arrivals = Arrivals()
        reading = asyncio.create_task(arrivals.read(requests))
        try:
            while batch := await arrivals.take():
                for result in await self._rememberer.remember_each(batch):
                    yield pb.StreamRememberResponse(result=result)
            await reading
        finally:
            reading.cancel()


class Arrivals:
    """Requests of one stream that wait for their turn; no more are read than may wait."""

    def __init__(self) -> None:
        self._waiting: list[pb.RememberRequest] = []
        self._bytes = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def read(self, requests: AsyncIterator[pb.StreamRememberRequest]) -> None:
        """Reads to the end of the stream."""
        try:
            async for message in requests:
                async with self._changed:
                    await self._changed.wait_for(self._has_place)
                    self._waiting.append(message.request)
                    self._bytes += message.request.ByteSize()
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._ended = True
                self._changed.notify_all()

    async def take(self) -> list[pb.RememberRequest]:
        """Returns what has come, waiting for one; nothing at the end of the stream."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or self._ended)
            taken, self._waiting, self._bytes = self._waiting, [], 0
            self._changed.notify_all()
            return taken

    def _has_place(self) -> bool:
        return len(self._waiting) < MAX_BATCH and self._bytes < MAX_BATCH_BYTES
