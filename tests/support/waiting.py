"""Waiting for what happens in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 60
PAUSE_SECONDS = 0.01


def until(happened: Callable[[], bool]) -> None:
    """Returns once it has happened, and fails when it does not."""
    deadline = time.monotonic() + SECONDS
    pause = threading.Event()
    while not happened():
        assert time.monotonic() < deadline
        pause.wait(PAUSE_SECONDS)
