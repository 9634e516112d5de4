"""A pool of connections that read."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import structlog

from hippovault_chassis import deadline
from hippovault_storage.capacity import MAX_READS, Places
from hippovault_storage.sqlite import connections, faults
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import PLAIN, Vault

log = structlog.get_logger()

MAX_APART = 8
"""Connections beside the pool at a time; further ones wait."""


class Readers:
    """Lends connections to one reader each at a time.

    Args:
        path: The file.
        number: Connections, and so reads that run at the same time.
        vault: What the values go through.
    """

    def __init__(self, path: Path, number: int, vault: Vault = PLAIN) -> None:
        self._path = path
        self._number = number
        self.vault = vault
        """What the values go through in connections that are opened from now on."""
        self._gathering = threading.Lock()  # Two who gather all connections would wait for each other.
        self._apart = threading.BoundedSemaphore(MAX_APART)
        self._places = Places(MAX_READS, "read")
        # Last in, first out: the connection used last has the warmest cache. None when there will be no more.
        self._idle: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(number):
            self._idle.put(self._connect())

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Lends a connection inside a transaction: all that is read through it is of one moment.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when too many reads wait; DEADLINE_EXCEEDED when no connection gets free
                in the request's time; UNAVAILABLE once this pool is closed; a failure of the file.
        """
        self._places.take()
        try:
            connection = self._take()
            try:
                with faults.told_in_use(self._path):
                    connection.execute("BEGIN")
                    yield connection
            finally:
                self._put_back(connection)
        finally:
            self._places.give_back()

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """Lends a connection beside the pool, outside of any transaction, for what reads long.

        Meanwhile the file is the same: none with another key takes its place.

        Raises:
            ServiceError: DEADLINE_EXCEEDED when others read apart for longer than the request's time; a failure of the
                file.
        """
        if not self._apart.acquire(timeout=deadline.remaining()):
            raise faults.late()
        try:
            with faults.told_in_use(self._path), contextlib.closing(self._connect()) as connection:
                yield connection
        finally:
            self._apart.release()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Has the file closed; who would read waits meanwhile."""
        with self._gathering:
            for _ in range(MAX_APART):
                self._apart.acquire()
            lent = [self._idle.get() for _ in range(self._number)]
            for connection in lent:
                if connection is not None:
                    connection.close(force=True)
            try:
                yield
            finally:
                for connection in lent:
                    self._idle.put(self._reconnected(connection))
                self._apart.release(MAX_APART)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Has nobody of the pool read meanwhile; who would waits."""
        with self._gathering:
            lent = [self._idle.get() for _ in range(self._number)]
            try:
                yield
            finally:
                for connection in lent:
                    self._idle.put(connection)

    def close(self) -> None:
        """Closes every connection, waiting for those that are lent."""
        for _ in range(self._number):
            connection = self._idle.get()
            if connection is not None:
                connection.close(force=True)
        self._idle.put(None)

    def _connect(self) -> Connection:
        return connections.connect_reader(self._path, self.vault)

    def _reconnected(self, closed: Connection | None) -> Connection | None:
        try:
            return None if closed is None else self._connect()
        except apsw.Error:  # Then the next reader gets this one, and its error.
            return closed

    def _take(self) -> Connection:
        try:
            connection = self._idle.get(timeout=deadline.remaining())
        except queue.Empty:
            raise faults.late() from None
        if connection is None:
            self._idle.put(None)  # For the next one who waits.
            raise faults.closed()
        return connection

    def _put_back(self, connection: Connection) -> None:
        try:
            connection = self._clean(connection)
        finally:
            self._idle.put(connection)

    def _clean(self, connection: Connection) -> Connection:
        """Returns the connection outside of any transaction; another in its place when that fails."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error as error:
            log.warning("a connection for reading is broken and replaced", error=type(error).__name__)
            with contextlib.suppress(apsw.Error):  # Then the next reader gets this one, and its error.
                replacement = self._connect()
                connection.close(force=True)
                return replacement
        return connection
