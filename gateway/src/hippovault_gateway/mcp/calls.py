"""The calls of tools that a door has under way, and their end when it closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from hippovault_chassis.errors import ServiceError

LAST_ANSWER_SECONDS = 1
"""What the answer of a call that was ended gets to reach its client."""


class Calls:
    """Gives calls a last deadline, so that every one is answered before the door is gone."""

    def __init__(self) -> None:
        self._running: set[asyncio.Timeout] = set()
        self._ends: float | None = None

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Runs one call.

        Raises:
            ServiceError: UNAVAILABLE; the door closes, and the time that it left is up.
        """
        timeout = asyncio.timeout_at(self._ends)
        self._running.add(timeout)
        try:
            async with timeout:
                yield
        except TimeoutError:
            if timeout.expired():
                raise ServiceError(grpc.StatusCode.UNAVAILABLE, "STOPPING", "the gateway is stopping") from None
            raise
        finally:
            self._running.remove(timeout)

    def end_within(self, seconds: float) -> None:
        """Bounds the calls under way and those still to come."""
        self._ends = asyncio.get_running_loop().time() + seconds
        for timeout in self._running:
            timeout.reschedule(self._ends)
