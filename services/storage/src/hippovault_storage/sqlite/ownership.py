"""One process a file: a lock beside it."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from hippovault_chassis import locks
from hippovault_chassis.errors import ServiceError

DRAIN_SECONDS = 5.0
"""How long a predecessor that is on its way out is waited for."""


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Holds the file's lock while the context lasts.

    Raises:
        ServiceError: Another process holds it; the message tells its id.
    """
    lock = path.with_suffix(".lock")
    waiting = threading.Thread(target=_wait_until_free, args=(lock,), daemon=True)
    waiting.start()
    waiting.join(DRAIN_SECONDS)
    try:
        held = locks.lock_file(lock, f"{path} is open")
    except locks.LockHeldError as error:
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_RUNNING", str(error)) from None
    with held:
        yield


def _wait_until_free(lock: Path) -> None:
    if lock.exists():
        with lock.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH)
