"""A copy of the whole store as it is at one moment, checked, and sent in pieces."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import apsw
import grpc

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite import connections, files, query
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.verifying import pages

STEP_PAGES = 1_024
CHUNK_BYTES = 1024 * 1024
COPY = ".backup-"
"""What the names of copies have after the database's name."""


def parts(path: Path, readers: Readers) -> Iterator[pb.BackupResponse]:
    """Yields a header, the copy's bytes in chunks, and a trailer; the copy lies beside the file meanwhile.

    Raises:
        ServiceError: DATA_LOSS when the store is damaged; DEADLINE_EXCEEDED when nobody waits any more.
    """
    copy = path.with_name(f"{path.name}{COPY}{uuid.uuid4().hex}")
    try:
        copy.touch(files.MODE)
        yield pb.BackupResponse(header=_taken(path, copy, readers))
        yield from _sent(copy)
    finally:
        files.remove(copy)


def clear(path: Path) -> None:
    """Removes copies that a kill left."""
    for copy in path.parent.glob(f"{path.name}{COPY}*"):
        copy.unlink(missing_ok=True)


def _taken(path: Path, copy: Path, readers: Readers) -> pb.BackupHeader:
    """Makes the copy, and returns what it is."""
    with readers.apart() as source, contextlib.closing(connections.connect_copy(copy, source.vault)) as target:
        keys = _begin(source, path)
        header = pb.BackupHeader(encryption=source.vault.encryption, keys=keys, taken_at=times.timestamp(times.now()))
        _copy(source, target)
        _check(path, target)
        header.schema_version = target.pragma("user_version")
        header.memories = query.value(target, "SELECT count(*) FROM memories")
    header.name = f"{path.stem}-{header.taken_at.ToDatetime():%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}{path.suffix}"
    header.size_bytes = copy.stat().st_size
    return header


def _begin(source: apsw.Connection, path: Path) -> bytes:
    """Fixes the moment, and returns the file of keys as it was then; another one may take its place at any time."""
    while True:
        before = files.read_keys(path)
        source.execute("BEGIN")
        query.value(source, "PRAGMA user_version")  # The moment is that of the first read.
        if files.read_keys(path) == before:
            return before
        source.execute("ROLLBACK")


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    # The source stays in its transaction, so that writes do not make the copying begin anew.
    with connections.copying(source, target) as copying:
        while not copying.done:
            deadline.remaining()
            copying.step(STEP_PAGES)
    query.rows(target, "PRAGMA journal_mode = DELETE")  # One file that needs no other.
    connections.give_number(target)


def _check(path: Path, target: apsw.Connection) -> None:
    problems = pages.damages(target)
    if problems:
        raise ServiceError(
            grpc.StatusCode.DATA_LOSS,
            "CORRUPT",
            f"{path} is damaged, and so would be its backup; `{command('verify')}` tells more (SQLite: {problems[0]})",
        )


def _sent(copy: Path) -> Iterator[pb.BackupResponse]:
    digest = hashlib.sha256()
    with copy.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            deadline.remaining()
            digest.update(chunk)
            yield pb.BackupResponse(chunk=chunk)
    yield pb.BackupResponse(trailer=pb.BackupTrailer(sha256=digest.hexdigest()))
