"""Whether the log beside a database is its own.

SQLite takes any sound log for that of the file beside it: the log of another one, left there when a file was copied
into a database's place, would be written into it. So every file has a number of its own in its header, where SQLite
keeps a place for one (`application_id`), and nearly every log has a newer copy of the header.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import apsw
import grpc

from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import files, schema

NUMBER_AT, NUMBER_BYTES = 68, 4
MAX_CHECK_SECONDS = 2.0
LOOK_STEPS = 1_000
"""Of SQLite's virtual machine, after which the time is looked at."""


def check(connection: apsw.Connection, path: Path) -> None:
    """Looks at an open file whose log was left by a process that was killed, before anything is written to the file.

    Raises:
        ServiceError: The log is another file's, or the pages of file and log do not make a database.
    """
    in_file, in_log = _number(path), connection.pragma("application_id")
    if in_file and in_log and in_file != in_log:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "FOREIGN_LOG",
            f"{files.beside(path, files.LOG)} is the log of another database than {path}; "
            "move it away, back to the database that it belongs to",
        )
    ends = time.monotonic() + MAX_CHECK_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > ends, LOOK_STEPS)
    try:
        # A large store must be up again soon; what is wrong further on is told where it is met.
        with contextlib.suppress(apsw.InterruptError):
            schema.check_pages(connection, path)
    finally:
        connection.set_progress_handler(None)


def _number(path: Path) -> int:
    """Returns the number in the file itself; 0 for none, or where the header is encrypted."""
    with path.open("rb") as file:
        header = file.read(schema.HEADER_BYTES)
    if not header.startswith(schema.MAGIC):
        return 0
    return int.from_bytes(header[NUMBER_AT : NUMBER_AT + NUMBER_BYTES], "big", signed=True)
