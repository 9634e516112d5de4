"""The time that the current request has left, handed on to every call made for it."""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable

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


class _Time:
    """What a request has; in a piece of its own, so that another thread can end it."""

    def __init__(self, ends: float) -> None:
        self.ends = ends

    def end(self) -> None:
        self.ends = -math.inf


_time: contextvars.ContextVar[_Time] = contextvars.ContextVar("deadline")


def start(seconds: float | None, *, stream: bool = False) -> Callable[[], None]:
    """Begins the current request's time.

    Args:
        seconds: What the client allows; None, or more than UNSET_SECONDS, means the default.
        stream: Whether the request sends or is answered a stream.

    Returns:
        What ends the time at once, from any thread: for when the client has gone.
    """
    if seconds is None or seconds > UNSET_SECONDS:
        seconds = STREAM_SECONDS if stream else DEFAULT_SECONDS
    current = _Time(time.monotonic() + min(seconds, STREAM_SECONDS if stream else MAX_SECONDS))
    _time.set(current)
    return current.end


def remaining() -> float:
    """Returns the seconds left, more than 0; DEFAULT_SECONDS outside of any request.

    Raises:
        ServiceError: DEADLINE_EXCEEDED when there are none.
    """
    current = _time.get(None)
    left = DEFAULT_SECONDS if current is None else current.ends - time.monotonic()
    if left <= 0:
        raise ServiceError(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the request's time is up")
    return left


def is_over() -> bool:
    """Tells whether nobody waits any more for what the current request is about."""
    current = _time.get(None)
    return current is not None and current.ends <= time.monotonic()
