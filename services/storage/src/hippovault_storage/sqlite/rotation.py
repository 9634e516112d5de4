"""Replacing the keys of a store that is in use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import apsw
import grpc
import structlog

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, creation, faults, files, query, records, sealing
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.lockbox import Lockbox
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.writer import Writer
from hippovault_storage.vault import Place, SealingVault, Value, Vault

log = structlog.get_logger()

STEP_PAGES = 256
"""Pages that are copied between two writes: two megabytes."""

Steps = Generator[tuple[int, int], None, None]
"""Work in steps; each tells how much is done, and of how much."""


class Rotation:
    """Replaces the keys of an open store, one replacement at a time.

    A new data key is brought in on a thread of its own, so that it goes on when nobody listens any more.
    """

    def __init__(self, box: Lockbox, writer: Writer, readers: Readers) -> None:
        self._box = box
        self._writer = writer
        self._readers = readers
        self._starting = threading.Lock()
        self._task: _Task | None = None
        if len(box.keyring.data_keys) > 1:
            log.info("going on with the new data key that a former process began to bring in")
            self._start()

    def rotate(self, *, data_key: bool) -> Iterator[pb.RotateKeyResponse]:
        """Wraps the store's keys with the key that its source gives now; brings a new data key in where asked for.

        Raises:
            ServiceError: FAILED_PRECONDITION when the store is not encrypted, the source gives no key, or a new data
                key is being brought in already; DATA_LOSS when values cannot be read, which keep their former key.
        """
        if not self._box.keyring.label:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "NOT_ENCRYPTED",
                f"{self._box.path} is not encrypted; it has no key",
            )
        with self._starting:
            if self._task and not self._task.ended:
                raise ServiceError(
                    grpc.StatusCode.FAILED_PRECONDITION, "ROTATING", "a new data key is being brought in already"
                )
            with faults.told_of_files(self._box.path):
                self._box.read_again()
            task = self._start() if data_key else None
        if task is None:
            yield pb.RotateKeyResponse(key_id=self._box.key_id)
            return
        with faults.told_of_files(self._box.path):
            for done, total in task.follow():
                yield pb.RotateKeyResponse(key_id=self._box.key_id, done=done, total=total)

    def close(self) -> None:
        """Stops what is under way; the next opening goes on with it."""
        if self._task:
            self._task.stop()

    def _start(self) -> _Task:
        self._task = _Task(self._values() if isinstance(self._box.vault, SealingVault) else self._file())
        return self._task

    def _values(self) -> Steps:
        """Seals every value with a new key while others read and write; what they write is sealed with it already."""
        box, vault = self._box, self._box.vault
        assert isinstance(vault, SealingVault)  # noqa: S101  # For the type alone.
        if len(box.keyring.data_keys) == 1:
            box.save(box.keyring.rotated())
            vault.use(box.keyring.sealing_keys())
        unreadable: set[int] = set()
        again = _resealing(vault, unreadable)
        with self._readers.apart() as connection:
            done, total = 0, sealing.total(connection)
        for table in sealing.TABLES:
            seen, last = sealing.CHUNK, records.BEFORE_ALL
            while seen == sealing.CHUNK:
                seen, last = self._writer.run_alone(_chunk(table, last, again))
                done += seen
                yield min(done, total), total
        with self._readers.apart() as connection:
            left = sealing.sealed_otherwise(connection, vault.header)
        if unreadable or left:
            raise ServiceError(
                grpc.StatusCode.DATA_LOSS,
                "VALUE_NOT_AUTHENTIC",
                f"values of {len(unreadable)} memories, such as {min(unreadable, default=0)}, cannot be read and keep "
                "the former data key; restore or purge them and begin again",
            )
        box.save(box.keyring.settled())
        vault.use(box.keyring.sealing_keys())
        yield total, total

    def _file(self) -> Steps:
        """Copies the file under a new key while others read and write, and puts the copy in its place."""
        box, path = self._box, self._box.path
        new = Lockbox(path, box.source, box.keyring.renewed(), box.wrapping)
        copy = creation.begin_copy(path)
        target = connections.connect_copy(copy, new.vault)
        try:
            # From the writer's own connection: SQLite hands on what that writes meanwhile, and need not begin anew.
            copying = self._writer.run_alone(lambda source: connections.copying(source, target))
            copied: int | None = 0
            total = 0
            while copied is not None:
                yield copied, total
                copied, total = self._writer.run_alone(lambda source: _step(source, copying))
            self._exchange(target, copying, new, copy)
        finally:
            # On the thread of the connection that is copied from: ending the copying changes that, too.
            self._writer.run_alone(lambda _: target.close(force=True))
            files.remove(copy)
        yield total, total

    def _exchange(self, target: Connection, copying: apsw.Backup, new: Lockbox, copy: Path) -> None:
        """Puts the copy in the file's place, in a pause of all that reads and writes."""
        box = self._box

        def exchange(source: Connection) -> None:
            _complete(source, target, copying)
            source.close()
            try:
                creation.take_place(new, copy)
            finally:
                self._writer.use(_reopened(box.path, new.vault, box.vault))

        with self._readers.away():
            try:
                self._writer.run_alone(exchange)
            finally:
                if self._writer.vault is new.vault:
                    box.take(new)
                    self._readers.vault = new.vault


class _Task:
    """Runs steps on a thread of its own."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._progress = (0, 0)
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self.ended = False
        self._thread = threading.Thread(target=self._run, name="rotation")
        self._thread.start()

    def follow(self) -> Iterator[tuple[int, int]]:
        """Yields how far it is, whenever that changes, until it has ended.

        Raises:
            ServiceError: What it ended with; DEADLINE_EXCEEDED when the request's time ends first: it goes on.
        """
        seen = (0, 0)
        while True:
            with self._changed:
                while not self.ended and self._progress == seen:
                    self._changed.wait(deadline.remaining())
                ended, seen = self.ended, self._progress
            if ended and self._error:
                raise self._error
            yield seen
            if ended:
                return

    def stop(self) -> None:
        """Ends it after its present step."""
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        try:
            for progress in self._steps:
                if self._stopping:
                    break
                with self._changed:
                    self._progress = progress
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001  # Whoever follows gets it.
            log.warning("a new data key could not be brought in", error=type(error).__name__)
            self._error = error
        finally:
            self._steps.close()
            with self._changed:
                self.ended = True
                self._changed.notify_all()


def _resealing(vault: SealingVault, unreadable: set[int]) -> sealing.Change:
    """Returns what seals a value with the present key; it leaves what it cannot open, and notes the memory."""

    def again(place: Place, column: str, value: Value, table: str) -> Value:
        if vault.is_current(value):
            return value
        try:
            return vault.seal(place, column, vault.open(place, column, value, table=table))
        except ServiceError:
            unreadable.add(place.memory_id)
            return value

    return again


def _chunk(table: sealing.Table, last: int, change: sealing.Change) -> Callable[[Connection], tuple[int, int]]:
    def work(connection: Connection) -> tuple[int, int]:
        with connection:
            result = sealing.seal_chunk(connection, table, last, change)
        return result  # noqa: RET504  # For mypy a context may swallow an exception.

    return work


def _step(source: Connection, copying: apsw.Backup) -> tuple[int | None, int]:
    """Copies some pages.

    Returns:
        How many pages are copied, of how many; None when the rest is small. That is left for the end: what is written
        after the last page was copied would not be handed on.
    """
    copied, total = copying.page_count - copying.remaining, int(source.pragma("page_count"))
    if total - copied <= STEP_PAGES:
        return None, total
    copying.step(STEP_PAGES)
    return copying.page_count - copying.remaining, total


def _complete(source: Connection, target: Connection, copying: apsw.Backup) -> None:
    """Copies the rest, and makes both files that need no log."""
    copying.step(-1)
    copying.finish()
    query.rows(target, "PRAGMA journal_mode = DELETE")
    connections.give_number(target)
    target.close()
    source.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _reopened(path: Path, *vaults: Vault) -> Connection:
    """Returns a connection through the vault that has the key of the file."""
    if not path.exists():  # A new one would be made. The next opening finds the file under another name.
        raise apsw.CantOpenError(f"{path} is missing; start again")
    for vault in vaults:
        connection = connections.connect(path, vault)
        try:
            connections.prepare_writer(connection, path)
        except apsw.NotADBError:
            connection.close()
        else:
            return connection
    raise apsw.NotADBError(f"{path} can be read with none of its keys")
