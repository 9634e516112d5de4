"""The one writer: a connection on a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from hippovault_chassis import deadline
from hippovault_storage.capacity import MAX_WRITES, Places
from hippovault_storage.sqlite import faults
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import Vault

ResultT = TypeVar("ResultT")

LINGER_SECONDS = 0.0005
"""How long the next write is waited for while a group is smaller than the one before; a lone caller is not kept."""
IDLE_SECONDS = 0.01
"""How long no write comes before the follower catches up."""

CHECKPOINT_PAGES = 4_000
"""Pages that the log takes on before they are moved into the file; hot ones are in it many times and move once."""


@dataclass(frozen=True)
class _Write:
    work: Callable[[Connection], Any]
    result: Future[Any]
    alone: bool = False


class Follower(Protocol):
    """Keeps in step what is derived from the rows and lies outside of the file."""

    def listen(self, connection: Connection) -> None:
        """Called with each connection that is going to write."""

    def before_commit(self) -> None:
        """Called when all is written and no reader sees it yet; it may still be rolled back."""

    @property
    def is_behind(self) -> bool:
        """Whether there is anything to catch up with."""

    def catch_up(self, connection: Connection, *, idle: bool) -> None:
        """Called between transactions, when those who wrote are answered; it may leave work until it is idle."""


class Writer:
    """Runs writes one after another on one thread.

    Writes that wait together share one transaction, and so one fsync (group commit). One that fails before it has
    written anything leaves the others be; if one fails later, all are undone and run again, each in a transaction of
    its own. Savepoints would do too, but each makes FTS5 write out a segment of its index.

    The log is moved into the file between groups, when nobody waits for what was just committed; so does the follower
    catch up.

    Args:
        connection: Used by this writer's thread alone from now on.
        path: Its file, for errors.
        follower: Is told of each transaction, on this writer's thread.
    """

    def __init__(self, connection: Connection, path: Path, follower: Follower) -> None:
        self._follower = follower
        self._path = path
        self._places = Places(MAX_WRITES, "write")
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._open = True
        self._last = threading.Lock()
        self.use(connection)
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Runs the work in a transaction, perhaps more than once, and returns its result once that is on disk.

        Raises:
            ServiceError: What the work raised; RESOURCE_EXHAUSTED when too many writes wait; DEADLINE_EXCEEDED when
                the request's time ends first, in which case the write may still happen; a failure of the file.
        """
        time_left = deadline.remaining()
        result = self.submit(work)
        with faults.told_in_use(self._path):
            try:
                return result.result(time_left)
            except TimeoutError:
                result.cancel()
                raise faults.late() from None

    def run_alone(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Runs the work once, between writes and outside of any transaction, and returns its result.

        It needs no place among the writes, nor does a request's time end it.

        Raises:
            ServiceError: UNAVAILABLE once this writer is closed; a failure of the file; what the work raised.
        """
        result: Future[ResultT] = Future()
        self._put(_Write(work, result, alone=True))
        with faults.told_in_use(self._path):
            return result.result()

    def use(self, connection: Connection) -> None:
        """Takes another connection from now on; to be called on this writer's thread, by what is run alone."""
        self._connection = connection
        self._log_pages = self._moved_pages = 0
        connection.set_wal_hook(self._note_log)
        self._follower.listen(connection)

    @property
    def vault(self) -> Vault:
        """What the values of the present connection go through."""
        return self._connection.vault

    def submit(self, work: Callable[[Connection], ResultT]) -> Future[ResultT]:
        """Puts the work in line; what it raises stays as it is.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when too many writes wait; UNAVAILABLE once this writer is closed.
        """
        self._places.take()
        result: Future[ResultT] = Future()
        result.add_done_callback(lambda _: self._places.give_back())
        self._put(_Write(work, result))
        return result

    def _put(self, write: _Write) -> None:
        with self._last:  # Nothing may come into line after what ends it.
            if self._open:
                self._queue.put(write)
                return
        write.result.cancel()
        raise faults.closed()

    def close(self) -> None:
        """Ends the thread once all writes are done, and closes the connection."""
        with self._last:
            self._open = False
            self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        group: list[_Write | None] = []
        while None not in group:
            group = self._gather(len(group))
            writes = [write for write in group if write and write.result.set_running_or_notify_cancel()]
            if together := [write for write in writes if not write.alone]:
                self._commit(together)
            for write in writes:
                if write.alone:
                    self._perform(write)
            self._checkpoint()
            self._follower.catch_up(self._connection, idle=False)

    def _next(self) -> _Write | None:
        if self._follower.is_behind:
            with contextlib.suppress(queue.Empty):
                return self._queue.get(timeout=IDLE_SECONDS)
            self._follower.catch_up(self._connection, idle=True)
        return self._queue.get()

    def _gather(self, expected: int) -> list[_Write | None]:
        """Takes what waits. Callers that were answered together come back one by one: they shall be one group again."""
        group = [self._next()]
        while True:
            try:
                group.append(self._queue.get(timeout=LINGER_SECONDS if len(group) < expected else 0))
            except queue.Empty:
                return group

    def _perform(self, write: _Write) -> None:
        outcomes: list[tuple[Any, Exception | None]] = []
        try:
            outcomes.append((write.work(self._connection), None))
        except Exception as error:  # noqa: BLE001  # The caller gets it.
            outcomes.append((None, error))
        self._follower.before_commit()  # It has committed what it wrote.
        _resolve([write], outcomes)

    def _commit(self, group: list[_Write]) -> None:
        try:
            self._roll_back()
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:  # Such as a lock of another program, which would hold up each alone as well.
            _resolve(group, [(None, error)] * len(group))
            return
        try:
            outcomes = [self._attempt(write.work) for write in group]
            self._follower.before_commit()
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  # The callers get it.
            outcomes = [(None, error)]
            with contextlib.suppress(apsw.Error):  # The callers are owed the first error; the next group tries again.
                self._roll_back()
        if len(outcomes) == len(group):
            _resolve(group, outcomes)
            return
        for write in group:
            self._commit([write])

    def _attempt(self, work: Callable[[Connection], Any]) -> tuple[Any, Exception | None]:
        before = self._connection.total_changes()
        try:
            return work(self._connection), None
        except Exception as error:
            if self._connection.total_changes() != before or not self._connection.in_transaction:
                raise
            return None, error

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:  # noqa: ARG002  # SQLite gives them.
        """Takes note of the log's length; in place of SQLite's own hook, which would move the log inside a commit."""
        if pages < self._log_pages:  # It began anew.
            self._moved_pages = 0
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        if self._log_pages - self._moved_pages >= CHECKPOINT_PAGES:
            self._moved_pages = self._log_pages
            with contextlib.suppress(apsw.Error):  # What is committed is on disk in the log; a later one tries again.
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _resolve(group: list[_Write], outcomes: list[tuple[Any, Exception | None]]) -> None:
    for write, (value, failure) in zip(group, outcomes, strict=True):
        if failure is None:
            write.result.set_result(value)
        else:
            write.result.set_exception(failure)
