"""Lock files: who holds what, across processes. Imports little, since every small process needs it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

PROBE_SECONDS = 0.2
"""How long a lock may be taken for what passes by itself: a probe, or a holder that has yet to tell its id."""
PAUSE_SECONDS = 0.01


class LockHeldError(OSError):
    """Another process holds the lock; the message tells its id."""


def lock_file(path: Path, what: str, patience: float = PROBE_SECONDS) -> IO[str]:
    """Takes an exclusive lock and writes this process's id into the file.

    Args:
        path: The lock file; made when absent, never deleted (deleting it would let two holders in).
        what: What the lock stands for, for the error, such as `unix:/x is served`.
        patience: Seconds to wait for a holder to let go.

    Returns:
        The lock, held until it is closed or the process ends.

    Raises:
        LockHeldError: Another process holds it.
    """
    handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    ends = time.monotonic() + patience
    while not _try_lock(handle, fcntl.LOCK_EX):
        if time.monotonic() > ends:
            handle.close()
            pid = holder(path) or "unknown"
            raise LockHeldError(f"{what} by another process already (pid {pid}, lock {path})")
        time.sleep(PAUSE_SECONDS)
    # In this order a reader finds an id at any moment: it reads the first line only.
    os.truncate(handle.fileno(), os.pwrite(handle.fileno(), f"{os.getpid()}\n".encode(), 0))
    return handle


def holder(path: Path) -> int | None:
    """Returns the id of the process that holds the lock; None when nobody does."""
    try:
        handle = path.open()
    except FileNotFoundError:
        return None
    ends = time.monotonic() + PROBE_SECONDS
    with handle:
        while not _try_lock(handle, fcntl.LOCK_SH):
            handle.seek(0)
            written = handle.readline().strip()
            if written.isdigit():
                return int(written)
            if time.monotonic() > ends:
                raise OSError(f"{path} is locked, but does not tell by whom")
            time.sleep(PAUSE_SECONDS)
    return None


def _try_lock(handle: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
