"""Tells a client that a call which takes long is still under way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from mcp.server.context import ServerRequestContext

INTERVAL_SECONDS = 1.0
"""Between two reports; what is done sooner has none."""


@contextlib.asynccontextmanager
async def reported(context: ServerRequestContext[Any, Any], title: str) -> AsyncIterator[None]:
    """Reports each second that the body takes, if the client asked for it; nothing follows the body's end."""
    if "progress_token" not in (context.meta or {}):
        yield
        return
    reports = asyncio.create_task(_report(context, title))
    try:
        yield
    finally:
        reports.cancel()
        await asyncio.gather(reports, return_exceptions=True)


async def _report(context: ServerRequestContext[Any, Any], title: str) -> None:
    for seconds in itertools.count(1):
        await asyncio.sleep(INTERVAL_SECONDS)
        await context.session.report_progress(seconds, message=f"{title}: {seconds} s so far")
