"""What is logged when connections cannot be accepted, as when the process has no file descriptors left."""

from __future__ import annotations

import asyncio
from typing import Any

QUIET_SECONDS = 1.0
ACCEPT_ERROR = "socket.accept()"
"""Beginning of what asyncio says; it says so for each waiting connection, many times a second."""


class AcceptErrors:
    """An event loop's exception handler that lets at most one failed accept a second into the log."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs as the loop would."""
        if str(context.get("message", "")).startswith(ACCEPT_ERROR):
            if loop.time() < self._quiet_until:
                return
            self._quiet_until = loop.time() + QUIET_SECONDS
        loop.default_exception_handler(context)
