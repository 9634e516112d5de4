"""Connections to the file, and what each kind of them needs."""

from __future__ import annotations

from pathlib import Path

import apsw
import grpc
import sqlite_vec

from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import query

PAGE_SIZE = 8192
BUSY_MILLISECONDS = 5_000
"""How long a lock that another program holds is waited for."""
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 32_768
READER_MMAP_BYTES = 2 * 1024**3
"""What of the file readers map into memory instead of copying it: a dense search takes a quarter less time."""
MAX_WAL_BYTES = 64 * 1024 * 1024


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


def connect_reader(path: Path) -> apsw.Connection:
    """Opens the file for reading alone."""
    connection = connect(path, read_only=True)
    query.rows(
        connection,
        f"PRAGMA query_only = ON; PRAGMA cache_size = -{READER_CACHE_KIB}; PRAGMA mmap_size = {READER_MMAP_BYTES}",
    )
    return connection


def prepare_writer(connection: apsw.Connection, path: Path) -> None:
    """Sets what a writing connection needs; a new file gets its page size.

    Raises:
        ServiceError: FAILED_PRECONDITION where the file's place cannot have a write-ahead log, as on a network.
    """
    connection.transaction_mode = "IMMEDIATE"  # What reads before it writes must not be overtaken in between.
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    mode = query.value(connection, "PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "NO_WRITE_AHEAD_LOG",
            f"{path} cannot have a write-ahead log where it lies (its journal mode is {mode}); use a local file system",
        )
    query.rows(
        connection,
        f"PRAGMA synchronous = FULL; PRAGMA cache_size = -{WRITER_CACHE_KIB}; PRAGMA secure_delete = FAST; "
        f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}",
    )  # What follows a pragma that answers runs only once its answer is fetched.
