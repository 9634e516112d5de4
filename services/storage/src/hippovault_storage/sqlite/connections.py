"""Connections to the file, and what each kind of them needs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import grpc
import sqlite_vec

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import files, query
from hippovault_storage.vault import PLAIN, Vault

ResultT = TypeVar("ResultT")

PAGE_SIZE = 8192
FILE_CIPHER = "chacha20"
"""With Poly1305: every page of an encrypted file proves that nobody changed it."""
BUSY_MILLISECONDS = 5_000
"""How long a lock that another program holds is waited for."""
WRITER_CACHE_KIB = 32_768
READER_CACHE_KIB = 8_192
"""Four times as much makes no search faster: the system has the file's pages, too."""
ENCRYPTED_READER_CACHE_KIB = 65_536
READER_MMAP_BYTES = 512 * 1024**2
"""Files up to this size are mapped by readers: a dense search takes a fifth less time. What is mapped counts as the
process's memory, once for each reader; so larger files are not."""
STEPS_BETWEEN_LOOKS = 100_000
"""Of SQLite's virtual machine, some milliseconds, after which a reader looks whether anybody waits for it still."""
MAX_WAL_BYTES = 64 * 1024 * 1024


class Connection(apsw.Connection):
    """A connection that knows what becomes of the values that go through it."""

    vault: Vault = PLAIN
    _schema_version: int | None = None
    _facts: dict[Callable[[Connection], Any], Any]

    def of_schema(self, read: Callable[[Connection], ResultT]) -> ResultT:
        """Returns what a function reads of the schema; it reads again only once another program has changed that."""
        version = query.value(self, "PRAGMA schema_version")
        if version != self._schema_version:
            self._schema_version, self._facts = version, {}
        if read not in self._facts:
            self._facts[read] = read(self)
        return cast("ResultT", self._facts[read])


def connect(path: Path, vault: Vault = PLAIN, *, read_only: bool = False) -> Connection:
    """Opens the file, with the vector extension; creates it where it is absent and may be written."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    # Without SQLite's own mutex: the writer's thread and the pool give each connection one user at a time.
    # With URIs, in which the name of a copy has the copy's key.
    connection = Connection(str(path), flags=flags | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_URI)
    connection.vault = vault
    if vault.file_key:  # Before anything else, since nothing in the file can be read without.
        query.rows(connection, f"PRAGMA cipher = '{FILE_CIPHER}'; PRAGMA key = \"raw:{vault.file_key.hex()}\"")
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.enable_load_extension(True)  # noqa: FBT003
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)  # noqa: FBT003
    connection.execute("PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY")
    return connection


def connect_as_left(path: Path, vault: Vault = PLAIN) -> Connection:
    """Opens the file so that closing leaves it as it was: what a crash left in its log stays there."""
    left_log = files.has_log(path)
    connection = connect(path, vault)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(left_log))
    return connection


def connect_reader(path: Path, vault: Vault = PLAIN) -> Connection:
    """Opens the file for reading alone."""
    connection = connect(path, vault, read_only=True)
    # An encrypted file cannot be mapped, and its pages cost more to bring into the cache.
    cache = ENCRYPTED_READER_CACHE_KIB if vault.file_key else READER_CACHE_KIB
    mapped = 0 if vault.file_key or path.stat().st_size > READER_MMAP_BYTES else READER_MMAP_BYTES
    query.rows(connection, f"PRAGMA query_only = ON; PRAGMA cache_size = -{cache}; PRAGMA mmap_size = {mapped}")
    connection.set_progress_handler(deadline.is_over, STEPS_BETWEEN_LOOKS)
    return connection


def connect_copy(path: Path, vault: Vault = PLAIN) -> Connection:
    """Opens a file that becomes a copy of another one; nobody needs it after a power failure."""
    connection = connect(path, vault)
    connection.execute("PRAGMA synchronous = OFF")
    connection.set_progress_handler(deadline.is_over, STEPS_BETWEEN_LOOKS)
    return connection


def copying(source: apsw.Connection, target: apsw.Connection) -> apsw.Backup:
    """Begins to copy all pages of a file into a new one, which may be encrypted with another key."""
    # An encrypted file cannot take on the page size of the first page that it gets.
    target.pragma("page_size", source.pragma("page_size"))
    return target.backup("main", source, "main")


def prepare_writer(connection: Connection, path: Path) -> None:
    """Sets what a writing connection needs; a new file gets its page size.

    Raises:
        ServiceError: FAILED_PRECONDITION where the file's place cannot have a write-ahead log, as on a network.
        apsw.ReadOnlyError: The file cannot be written.
    """
    if connection.readonly("main"):  # SQLite makes do with that.
        raise apsw.ReadOnlyError("it could be opened for reading alone")
    connection.transaction_mode = "IMMEDIATE"  # What reads before it writes must not be overtaken in between.
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    if not connection.pragma("application_id"):
        give_number(connection)
    mode = query.value(connection, "PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "NO_WRITE_AHEAD_LOG",
            f"{path} cannot have a write-ahead log where it lies (its journal mode is {mode}); use a local file system",
        )
    query.rows(
        connection,
        f"PRAGMA synchronous = FULL; PRAGMA cache_size = -{WRITER_CACHE_KIB}; PRAGMA secure_delete = ON; "
        f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}",
    )  # What follows a pragma that answers runs only once its answer is fetched.


def give_number(connection: apsw.Connection) -> None:
    """Gives the file a number that no other has, see `pairing`."""
    connection.pragma("application_id", 1 + secrets.randbelow(2**31 - 1))
