"""Connections to the file: one that writes, on a thread of its own, and a pool of those that read."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw
import grpc
import sqlite_vec
import structlog

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.faults import told

log = structlog.get_logger()

ResultT = TypeVar("ResultT")

PAGE_SIZE = 8192
BUSY_MILLISECONDS = 5_000
"""How long a lock that another program holds is waited for."""
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 32_768
MAX_WAL_BYTES = 64 * 1024 * 1024
MAX_PENDING_WRITES = 96
"""Fewer than the server's threads, so that reads and health are answered while writes are stuck."""


def connect(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """Opens the file, with the vector extension; creates it where it is absent and may be written."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    # Without SQLite's own mutex: the writer's thread and the pool give each connection one user at a time.
    connection = apsw.Connection(str(path), flags=flags | apsw.SQLITE_OPEN_NOMUTEX)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.enable_load_extension(True)  # noqa: FBT003
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)  # noqa: FBT003
    connection.execute("PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY")
    return connection


def prepare_writer(connection: apsw.Connection) -> None:
    """Sets what a writing connection needs; a new file gets its page size."""
    query.rows(
        connection,
        f"PRAGMA page_size = {PAGE_SIZE}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
        f"PRAGMA cache_size = -{WRITER_CACHE_KIB}; PRAGMA secure_delete = FAST; "
        f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}",
    )  # What follows a pragma that answers runs only once its answer is fetched.


@dataclass(frozen=True)
class _Write:
    work: Callable[[apsw.Connection], Any]
    result: Future[Any]


class Writer:
    """Runs writes one after another on one thread.

    Writes that wait together share one transaction, and so one fsync (group commit). One that fails before it has
    written anything leaves the others be; if one fails later, all are undone and run again, each in a transaction of
    its own. Savepoints would do too, but each makes FTS5 write out a segment of its index.

    Args:
        connection: Used by this writer's thread alone from now on.
        path: Its file, for errors.
    """

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._pending = threading.BoundedSemaphore(MAX_PENDING_WRITES)
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def run(self, work: Callable[[apsw.Connection], ResultT]) -> ResultT:
        """Runs the work in a transaction, perhaps more than once, and returns its result once that is on disk.

        Raises:
            ServiceError: What the work raised; RESOURCE_EXHAUSTED when too many writes wait; DEADLINE_EXCEEDED when
                the request's time ends first, in which case the write may still happen; a failure of the file.
        """
        if not self._pending.acquire(blocking=False):
            raise ServiceError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "TOO_MANY_WRITES",
                f"{MAX_PENDING_WRITES} writes are waiting already; try again later",
            )
        try:
            result: Future[ResultT] = Future()
            self._queue.put(_Write(work, result))
            with told(self._path):
                return _awaited(result)
        finally:
            self._pending.release()

    def close(self) -> None:
        """Ends the thread once all writes are done, and closes the connection."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        ended = False
        while not ended:
            group = [self._queue.get()]
            while not self._queue.empty():
                group.append(self._queue.get())
            ended = None in group
            self._commit([write for write in group if write and write.result.set_running_or_notify_cancel()])

    def _commit(self, group: list[_Write]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:  # Such as a lock of another program, which would hold up each alone as well.
            _resolve(group, [(None, error)] * len(group))
            return
        try:
            outcomes = [self._attempt(write.work) for write in group]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  # The callers get it.
            self._roll_back()
            outcomes = [(None, error)]
        if len(outcomes) == len(group):
            _resolve(group, outcomes)
            return
        for write in group:
            self._commit([write])

    def _attempt(self, work: Callable[[apsw.Connection], Any]) -> tuple[Any, Exception | None]:
        before = self._connection.total_changes()
        try:
            return work(self._connection), None
        except Exception as error:
            if self._connection.total_changes() != before or not self._connection.in_transaction:
                raise
            return None, error

    def _roll_back(self) -> None:
        # A rollback that fails has rolled back all the same, and the callers are owed the first error.
        with contextlib.suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


class Readers:
    """A pool of reading connections.

    Args:
        connections: Used by this pool alone from now on.
        path: Their file, for errors.
    """

    def __init__(self, connections: list[apsw.Connection], path: Path) -> None:
        self._path = path
        self._size = len(connections)
        # Last in, first out: the connection used last has the warmest cache.
        self._idle: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        for connection in connections:
            connection.execute(f"PRAGMA query_only = ON; PRAGMA cache_size = -{READER_CACHE_KIB}")
            self._idle.put(connection)

    @contextmanager
    def borrow(self) -> Iterator[apsw.Connection]:
        """Lends a connection inside a transaction: all that is read through it is of one moment.

        Raises:
            ServiceError: DEADLINE_EXCEEDED when none gets free in the request's time; a failure of the file.
        """
        try:
            connection = self._idle.get(timeout=deadline.remaining())
        except queue.Empty:
            raise _late() from None
        try:
            with told(self._path):
                connection.execute("BEGIN")
                yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._idle.put(connection)

    def close(self) -> None:
        """Closes every connection, waiting for those that are lent."""
        for _ in range(self._size):
            self._idle.get().close()


def _resolve(group: list[_Write], outcomes: list[tuple[Any, Exception | None]]) -> None:
    for write, (value, failure) in zip(group, outcomes, strict=True):
        if failure is None:
            write.result.set_result(value)
        else:
            write.result.set_exception(failure)


def _awaited(result: Future[ResultT]) -> ResultT:
    try:
        return result.result(timeout=deadline.remaining())
    except TimeoutError:
        result.cancel()
        raise _late() from None


def _late() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the request's time ended while it waited"
    )
