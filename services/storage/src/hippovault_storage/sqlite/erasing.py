"""Erasing what rows leave behind once they are removed, so that no byte of it stays in the file or its log.

SQLite overwrites removed rows with zeros (`secure_delete`). But a word index keeps the words of what was removed until
its segments are merged; what lay free in the file when it was opened may have been another program's, who overwrites
nothing; and the log has pages as they were before. These are erased in steps, between which other writes run. From the
removal on `hippo_state` says that it is to be done, so that it is done after a crash as well.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TypeVar

import apsw
import grpc
import structlog

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, faults, foreign, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.writer import Writer

log = structlog.get_logger()
ResultT = TypeVar("ResultT")

MERGED_PAGES = 500
"""Of a word index that one step writes."""
ZEROED_PAGES = 1_000
"""Free pages that one step takes."""
PAUSE_SECONDS = 0.2
"""Between two tries to empty the log, which long reads such as an export prevent."""

MARK = "erasing"
"""In `hippo_state`: its value is another one after each removal."""
ZEROS = "zeros"
"""In `hippo_state`: begins the names of what takes the free pages."""
SOME_CHANGES = 2
"""FTS5 makes one change or none when there is nothing left to merge."""


def mark(connection: Connection) -> None:
    """Notes that something is to be erased, in the transaction that removes it."""
    connection.execute("REPLACE INTO hippo_state (name, value) VALUES (?, random())", (MARK,))


class Eraser:
    """Erases on a thread of its own, one after another.

    Args:
        writer: Runs the steps.
        readers: Must not read while the log is emptied.
    """

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._closing = threading.Event()
        self._zeroed = False
        self._pool = ThreadPoolExecutor(1, "eraser")

    def erase(self) -> None:
        """Returns when all that was removed before this call is erased.

        Raises:
            ServiceError: DEADLINE_EXCEEDED when the request's time ends first, and the erasing goes on; UNAVAILABLE
                when the store closes, and it goes on at the next opening; a failure of the file.
        """
        try:
            self._begin().result(deadline.remaining())
        except CancelledError:
            raise faults.closed() from None
        except TimeoutError:
            raise ServiceError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "STILL_ERASING",
                "the memories are gone; their bytes are still being erased, which goes on",
            ) from None

    def resume(self) -> None:
        """Begins to erase what was removed and nobody waits for, as before the store was opened."""
        self._begin().add_done_callback(_log_failure)

    def close(self) -> None:
        """Ends the thread after its present step."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)

    def _begin(self) -> Future[None]:
        try:
            return self._pool.submit(self._run)
        except RuntimeError:  # It takes no more.
            raise faults.closed() from None

    def _run(self) -> None:
        marked = self._writer.run_alone(_marked)
        if marked is None:
            return
        for index in self._writer.run_alone(foreign.word_indexes):
            self._merge(index)
        if not self._zeroed:
            self._zero_free_pages()
            self._zeroed = True
        while not (self._writer.run_alone(_empty_log) or self._empty_log_in_peace()):
            self._pause()
        self._step(lambda connection: _unmark(connection, marked))

    def _step(self, work: Callable[[Connection], ResultT]) -> ResultT:
        if self._closing.is_set():
            raise faults.closed()
        return self._writer.run_alone(lambda connection: _in_transaction(connection, work))

    def _empty_log_in_peace(self) -> bool:
        """Where many read, there may never be a moment at which nobody does."""
        with self._readers.still():
            return self._writer.run_alone(_empty_log)

    def _pause(self) -> None:
        if self._closing.wait(PAUSE_SECONDS):
            raise faults.closed()

    def _merge(self, index: str) -> None:
        """Merges all segments into one, without the words of what was removed."""
        pages = -MERGED_PAGES  # A negative number makes all segments the input of one merge, which others continue.
        while self._step(lambda connection, pages=pages: _merge_some(connection, index, pages)):  # type: ignore[misc]
            pages = MERGED_PAGES

    def _zero_free_pages(self) -> None:
        """Takes every free page, and gives them back overwritten."""
        self._step(_give_back)
        while self._step(_take_free_pages):
            pass
        while self._step(_give_back):
            pass


def _in_transaction(connection: Connection, work: Callable[[Connection], ResultT]) -> ResultT:
    with contextlib.ExitStack() as transaction:
        transaction.enter_context(connection)
        return work(connection)


def _marked(connection: Connection) -> int | None:
    value: int | None = query.value(connection, "SELECT value FROM hippo_state WHERE name = ?", (MARK,))
    return value


def _unmark(connection: Connection, value: int) -> None:
    connection.execute("DELETE FROM hippo_state WHERE name = ? AND value = ?", (MARK, value))


def _merge_some(connection: Connection, index: str, pages: int) -> bool:
    before = connection.total_changes()
    connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    return connection.total_changes() - before >= SOME_CHANGES


def _take_free_pages(connection: Connection) -> bool:
    free = int(connection.pragma("freelist_count"))
    size = min(free, ZEROED_PAGES) * int(connection.pragma("page_size"))
    if free:
        connection.execute("INSERT INTO hippo_state (name, value) VALUES (? || random(), zeroblob(?))", (ZEROS, size))
    return bool(free)


def _give_back(connection: Connection) -> bool:
    taken = "SELECT name FROM hippo_state WHERE name GLOB ? || '*' LIMIT 1"
    connection.execute(f"DELETE FROM hippo_state WHERE name = ({taken})", (ZEROS,))
    return bool(connection.changes())


def _empty_log(connection: Connection) -> bool:
    """Moves the log into the file and cuts it off; returns whether it did, which readers may prevent."""
    connection.set_busy_timeout(0)  # Other writes shall not wait for the readers.
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    finally:
        connection.set_busy_timeout(connections.BUSY_MILLISECONDS)
    return True


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()):
        log.warning("what purged memories left is not erased yet; it is tried again", error=type(error).__name__)
