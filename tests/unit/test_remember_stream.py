"""What waits of a stream of memories has bounds, and comes in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.remember import MAX_BATCH, MAX_BATCH_BYTES
from hippovault_gateway.remember_stream import Arrivals


class Client:
    """Sends as many as are read."""

    def __init__(self, number: int, content: str) -> None:
        self._number = number
        self._content = content
        self.sent = 0

    async def requests(self) -> AsyncIterator[pb.StreamRememberRequest]:
        for _ in range(self._number):
            self.sent += 1
            yield pb.StreamRememberRequest(request=pb.RememberRequest(content=f"{self.sent} {self._content}"))


async def reading(client: Client, look: Callable[[Arrivals], AsyncIterator[int]]) -> list[int]:
    """Reads the client's stream while the function takes."""
    arrivals = Arrivals()
    task = asyncio.create_task(arrivals.read(client.requests()))
    taken = [number async for number in look(arrivals)]
    await task
    return taken


@pytest.mark.parametrize(
    ("content", "most"), [("short", MAX_BATCH), ("x" * (MAX_BATCH_BYTES // 4), 4)], ids=["items", "bytes"]
)
def test_no_more_is_read_than_may_wait(content: str, most: int) -> None:
    client = Client(3 * most + 1, content)

    async def look(arrivals: Arrivals) -> AsyncIterator[int]:
        while batch := await arrivals.take():
            assert len(batch) <= most
            for request in batch:
                yield int(request.content.split()[0])
            for _ in range(10 * most):  # As often as the reader could take one.
                await asyncio.sleep(0)
            assert client.sent <= int(batch[-1].content.split()[0]) + most + 1

    assert asyncio.run(reading(client, look)) == list(range(1, 3 * most + 2))
