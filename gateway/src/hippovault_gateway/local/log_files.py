"""Log files of the local processes: bounded at each start, and quoted where a start fails."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 4 * 1024 * 1024
"""A log that is longer when its process starts becomes `<name>.log.1`, in place of the one before."""
TAIL_BYTES = 4096
TAIL_LINES = 8


def open_log(path: Path) -> BinaryIO:
    """Opens a log for appending."""
    if path.exists() and path.stat().st_size > MAX_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return path.open("ab")


def tail(path: Path, start: int = 0, lines: int = TAIL_LINES) -> str:
    """Returns the last lines of a log that stand at or after the byte `start`."""
    with path.open("rb") as log:
        log.seek(max(start, path.stat().st_size - TAIL_BYTES))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
