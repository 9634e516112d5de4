"""One process of this program at a time has a store, and begins by ending what another could not."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import grpc

from hippovault_chassis import locks
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import backup, files, replacing

PATIENCE_SECONDS = 2.0
"""How long a predecessor that is on its way out is waited for; a supervisor waits for it by itself."""


def own(path: Path) -> IO[str]:
    """Returns the lock beside the file, which lets one process in.

    What a kill left is put right: copies for backups are removed, a restored file takes its place.

    Raises:
        ServiceError: Another process holds it, and the message tells its id; or its directory cannot be written.
    """
    try:
        lock = locks.lock_file(path.with_suffix(".lock"), f"{path} is open", PATIENCE_SECONDS)
    except locks.LockHeldError as error:
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_RUNNING", str(error)) from None
    except OSError as error:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "READ_ONLY",
            f"{path} cannot be opened, since the directory {path.parent} cannot be written ({error.strerror}); "
            "see to its owner, its mode and its file system",
        ) from error
    try:
        backup.clear(path)
        replacing.finish(path)
        files.beside(files.keys(path), files.NEW).unlink(missing_ok=True)
    except BaseException:
        lock.close()
        raise
    return lock
