"""Servers that open one after another and drain at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest

from hippovault_gateway.doors import Doors

SECONDS = 10


@asynccontextmanager
async def server(name: str, drained: asyncio.Barrier) -> AsyncIterator[str]:
    """Drains once the others do; must be left by the task that entered it."""
    with anyio.CancelScope():
        yield name
        await drained.wait()


async def open_and_leave(*servers: AbstractAsyncContextManager[str]) -> list[str]:
    async with asyncio.timeout(SECONDS), Doors() as doors:
        return [await doors.open(one) for one in servers]


@asynccontextmanager
async def taken(name: str) -> AsyncIterator[str]:
    if name:
        raise OSError("the address is taken")
    yield name


@asynccontextmanager
async def broken(name: str) -> AsyncIterator[str]:
    yield name
    raise OSError("it broke")


async def test_all_drain_at_the_same_time() -> None:
    drained = asyncio.Barrier(3)

    assert await open_and_leave(*(server(name, drained) for name in "abc")) == ["a", "b", "c"]


async def test_where_one_cannot_open_the_others_drain_and_its_error_is_raised() -> None:
    drained = asyncio.Barrier(3)
    with pytest.raises(OSError, match="the address is taken"):
        await asyncio.gather(open_and_leave(server("a", drained), server("b", drained), taken("c")), drained.wait())


async def test_where_one_cannot_drain_the_others_do_and_its_error_is_raised() -> None:
    drained = asyncio.Barrier(2)
    with pytest.raises(OSError, match="it broke"):
        await asyncio.gather(open_and_leave(broken("a"), server("b", drained)), drained.wait())
