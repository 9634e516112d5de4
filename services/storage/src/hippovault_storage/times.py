"""Instants as the drop-in tables keep them: seconds since 1970 as a double, and ISO 8601 text in UTC."""

from __future__ import annotations

import functools
import math
import time
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

MICROSECOND = 1e-6
MICROSECONDS = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_SECONDS = -62_135_596_800
MAX_SECONDS = 253_402_300_799
"""The years 1 to 9999, as Timestamp has them."""


def now() -> float:
    """Returns the present, to the microsecond."""
    return time.time_ns() // 1000 / MICROSECONDS


def later(present: float, *past: float) -> float:
    """Returns the present, or the next instant after every past one where the clock stands or went back."""
    following = (max((_microseconds(value) + 1) / MICROSECONDS, math.nextafter(value, math.inf)) for value in past)
    return max([present, *following])


def seconds(value: Timestamp) -> float:
    """Returns the instant to the microsecond (of the years 1700 to 2240; further off a double is coarser)."""
    return (value.seconds * MICROSECONDS + value.nanos // 1000) / MICROSECONDS


def timestamp(value: float) -> Timestamp:
    """Returns the instant, see `fill`."""
    result = Timestamp()
    fill(result, value)
    return result


def fill(message: Timestamp, value: float) -> None:
    """Sets the instant; one outside the years 1 to 9999, which another program may have written, to their edge."""
    microseconds = _microseconds(value)
    message.seconds = microseconds // MICROSECONDS
    message.nanos = microseconds % MICROSECONDS * 1000


@functools.lru_cache(maxsize=16)
def iso(value: float) -> str:
    """Returns ISO 8601 text."""
    return (EPOCH + timedelta(microseconds=_microseconds(value))).isoformat(timespec="microseconds")[:-6] + "Z"


def _microseconds(value: float) -> int:
    if not MIN_SECONDS <= value <= MAX_SECONDS:
        value = min(max(value, MIN_SECONDS), MAX_SECONDS)
    return round(value * MICROSECONDS)
