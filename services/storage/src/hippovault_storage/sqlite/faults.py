"""What a caller is told when the store cannot do what it asks: always a failure, never an empty answer."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import grpc

from hippovault_chassis import deadline
from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError

FULL = {errno.ENOSPC, errno.EDQUOT}
NOTHING_SAID = "not an error"
"""SQLite's text where its connection has none, as while it copies."""
VECTOR_FAILURE = re.compile("chunk|blob|sqlite-vec")
"""sqlite-vec tells that it cannot read its tables as an error of the statement, in words like these."""

# google.rpc.Code gives a full file system as an example of RESOURCE_EXHAUSTED.
FAULTS: dict[type[apsw.Error], tuple[grpc.StatusCode, str, str]] = {
    apsw.FullError: (grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL", "cannot grow: the disk is full; free some space"),
    apsw.ReadOnlyError: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "READ_ONLY",
        "cannot be written; see to the file's mode, its directory's, and the file system's",
    ),
    apsw.PermissionsError: (grpc.StatusCode.FAILED_PRECONDITION, "PERMISSION", "cannot be accessed"),
    apsw.CorruptError: (grpc.StatusCode.DATA_LOSS, "CORRUPT", "is damaged{remedy}"),
    apsw.NotADBError: (grpc.StatusCode.DATA_LOSS, "NOT_A_DATABASE", "is not a readable SQLite database"),
    apsw.BusyError: (grpc.StatusCode.UNAVAILABLE, "LOCKED", "is locked by another program"),
    apsw.LockedError: (grpc.StatusCode.UNAVAILABLE, "LOCKED", "is locked by another program"),
    apsw.IOError: (
        grpc.StatusCode.UNAVAILABLE,
        "DISK_ERROR",
        "cannot be read or written; see to the disk, and to quotas and limits",
    ),
    apsw.CantOpenError: (grpc.StatusCode.UNAVAILABLE, "CANNOT_OPEN", "cannot be opened"),
}


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turns SQLite's errors over the file into ServiceError that names it; others are ours, and stay as they are."""
    try:
        yield
    except tuple(FAULTS) as error:
        code, reason, problem = FAULTS[type(error)]
        said = "" if str(error) == NOTHING_SAID else f" (SQLite: {error})"
        raise ServiceError(code, reason, f"{path} {problem.format(remedy=_remedy())}{said}") from error


@contextmanager
def told_of_files(path: Path) -> Iterator[None]:
    """Turns the system's errors over files beside the store's into ServiceError."""
    try:
        yield
    except OSError as error:
        code, reason, problem = FAULTS[apsw.FullError if error.errno in FULL else apsw.IOError]
        raise ServiceError(code, reason, f"{error.filename or path} {problem} ({error.strerror})") from error


@contextmanager
def told_in_use(path: Path) -> Iterator[None]:
    """As `told`, and of what was whole when the store was opened."""
    try:
        with told(path):
            yield
    except apsw.Error as error:
        if deadline.is_over():  # The reading was stopped; sqlite-vec makes an error of its own of that.
            raise late() from error
        if not VECTOR_FAILURE.search(str(error)):
            raise
        raise damaged(path, f"sqlite-vec: {error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:  # Neither tells the text.
        raise damaged(path, f"a text in it: {error}") from error


@contextmanager
def told_at_open(path: Path) -> Iterator[None]:
    """As `told`, and of tables that are not as this program made them: statements over those fail."""
    try:
        with told(path):
            yield
    except json.JSONDecodeError as error:  # Of another program's there are none that are not looked at first.
        raise damaged(path, f"a text in it: {error}") from error
    except (apsw.SQLError, UnicodeDecodeError) as error:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_SCHEMA", f"{path} is not as this program makes it ({error})"
        ) from error


def late() -> ServiceError:
    """Returns the failure of a request whose time ended."""
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the request's time ended before its answer"
    )


def damaged(path: Path, problem: str) -> ServiceError:
    """Returns the failure of a file whose parts do not fit each other."""
    return ServiceError(grpc.StatusCode.DATA_LOSS, "CORRUPT", f"{path} is damaged{_remedy()} ({problem})")


def without_remedy(message: str) -> str:
    """Returns what is told of a damaged file that is no store: its own commands do not help it."""
    return message.replace(_remedy(), "")


def _remedy() -> str:
    return f"; `{command('verify')}` tells what is wrong, `{command('restore')}` puts a backup in its place"


def closed() -> ServiceError:
    """Returns the failure of a request that comes after the end."""
    return ServiceError(grpc.StatusCode.UNAVAILABLE, "CLOSED", "the store is closing")
