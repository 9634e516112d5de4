"""The time that the current request has left, handed on to every call made for it."""

from __future__ import annotations

import contextvars
import time

import grpc

from hippovault_chassis.errors import ServiceError

DEFAULT_SECONDS = 30.0
"""What a request gets whose client set no deadline."""
MAX_SECONDS = 300.0
"""What a request gets at most."""
STREAM_SECONDS = 86_400.0
"""What a request gets, by default and at most, that sends or is answered a stream: it may be a whole store."""
UNSET_SECONDS = 365 * 86_400.0
"""More than this is no deadline: servers with threads tell a missing one as an instant in the far future."""

_ends: contextvars.ContextVar[float] = contextvars.ContextVar("deadline")


def start(seconds: float | None, *, stream: bool = False) -> None:
    """Begins the current request's time.

    Args:
        seconds: What the client allows; None, or more than UNSET_SECONDS, means the default.
        stream: Whether the request sends or is answered a stream.
    """
    if seconds is None or seconds > UNSET_SECONDS:
        seconds = STREAM_SECONDS if stream else DEFAULT_SECONDS
    _ends.set(time.monotonic() + min(seconds, STREAM_SECONDS if stream else MAX_SECONDS))


def remaining() -> float:
    """Returns the seconds left, more than 0.

    Raises:
        ServiceError: DEADLINE_EXCEEDED when there are none.
    """
    left = _ends.get(time.monotonic() + DEFAULT_SECONDS) - time.monotonic()
    if left <= 0:
        raise ServiceError(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the request's time is up")
    return left
