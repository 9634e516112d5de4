"""The servers of the gateway, which open one after another and drain at the same time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Doors:
    """Keeps servers open while the context lasts; leaving it drains them all at once, each by its own rule."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._open: list[asyncio.Task[None]] = []

    async def open(self, door: AbstractAsyncContextManager[T]) -> T:
        """Enters a server's context.

        Returns:
            What the context yields.

        Raises:
            Exception: What entering it raises.
        """
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # A task of its own, since some contexts have to be left by the task that entered them.
        task = asyncio.create_task(self._hold(door, entered))
        self._open.append(task)
        both: set[asyncio.Future[Any]] = {entered, task}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            self._open.remove(task)
            await task
        return entered.result()

    async def _hold(self, door: AbstractAsyncContextManager[T], entered: asyncio.Future[T]) -> None:
        async with door as yielded:
            entered.set_result(yielded)
            await self._closing.wait()

    async def __aenter__(self) -> Self:
        """Opens nothing yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drains the servers."""
        self._closing.set()
        for result in await asyncio.gather(*self._open, return_exceptions=True):
            if result is not None:
                raise result
