"""`python -m hippovault_storage.shodh read|write FILE`: a database as other programs have it, from and to lines.

The lines are those of an export, see `record_lines`.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import grpc

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import process, record_lines
from hippovault_chassis.errors import ServiceError
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import faults, files, query, schema
from hippovault_storage.sqlite.connections import connect
from hippovault_storage.sqlite.engine import SqliteEngine

USAGE = "usage: python -m hippovault_storage.shodh read|write FILE [the storage service's settings]"
ATTEMPTS = 5
"""To copy a file that another program writes to meanwhile."""


def main() -> None:
    """Does with the file of the second argument what the first says; what follows are the service's settings."""
    command, file = ([*sys.argv[1:3], "", ""])[:2]
    if command not in COMMANDS or not file or file.startswith("-"):
        sys.exit(USAGE)
    process.run("storage", StorageSettings, functools.partial(COMMANDS[command], Path(file)), sys.argv[3:])


def read(file: Path, settings: StorageSettings) -> None:
    """Writes the memories of a file to stdout. They are adopted in a copy of it; the file is left alone.

    Raises:
        ServiceError: It is no database of memories.
    """
    file = file.resolve()  # Its log lies beside it, and not beside a link to it.
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / file.name
        _copy(file, copy)
        with _told_of(file, copy):
            with SqliteEngine.open(copy, _dimensions(copy) or settings.dimensions, 1) as engine:
                _print(record_lines.header())
                for answer in engine.export_memories(pb.ExportMemoriesRequest()):
                    _print(record_lines.line(answer.record))
            sys.stdout.flush()


def write(file: Path, settings: StorageSettings) -> None:
    """Makes a file of the lines of stdin.

    Raises:
        ServiceError: A line is wrong. What there is of the file is of no use then.
        FileExistsError: It is there already.
    """
    file.touch(files.MODE, exist_ok=False)
    with SqliteEngine.open(file, settings.dimensions, 1) as engine:
        result = engine.import_memories(_requests(sys.stdin.buffer))
    for place, error in sorted(result.errors.items()):
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT, error.reason, f"record {place + 1}: {error.message}", field=error.field
        )


def _requests(source: BinaryIO) -> Iterator[pb.ImportMemoriesRequest]:
    if not record_lines.is_header(source.readline(record_lines.MAX_BYTES)):
        raise ServiceError.invalid("line", "the first is not the header of an export")
    while line := source.readline(record_lines.MAX_BYTES + 1):
        yield pb.ImportMemoriesRequest(record=record_lines.record(line))


def _copy(file: Path, copy: Path) -> None:
    """Copies a database with what its log or journal has.

    Raises:
        ServiceError: Another program writes to it.
    """
    parts = [(files.beside(file, ending), files.beside(copy, ending)) for ending in ("", files.LOG, files.JOURNAL)]
    for _ in range(ATTEMPTS):
        before = [_state(source) for source, _ in parts]
        for source, target in parts:
            target.unlink(missing_ok=True)
            if source == file or source.exists():
                shutil.copyfile(source, target)
        if before == [_state(source) for source, _ in parts]:
            return
    raise ServiceError(
        grpc.StatusCode.ABORTED, "IN_USE", f"{file} is written to by another program; end that program first"
    )


def _state(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _dimensions(copy: Path) -> int:
    """Returns the length of a file's vectors; 0 where it has no table of them.

    Raises:
        ServiceError: It is no database, or has no memories.
    """
    schema.check_file(copy)
    with faults.told_at_open(copy), closing(connect(copy)) as connection:
        if not query.value(connection, "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = 'memories')"):
            message = f"{copy} has no table of memories"
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_SCHEMA", message)
        return schema.dimensions(connection)


@contextmanager
def _told_of(file: Path, copy: Path) -> Iterator[None]:
    """Names the file, and what would lie beside it, in errors of its copy."""
    try:
        yield
    except ServiceError as error:
        raise ServiceError(
            error.code, error.reason, faults.without_remedy(error.message).replace(str(copy.parent), str(file.parent))
        ) from error


def _print(line: str) -> None:
    sys.stdout.buffer.write(f"{line}\n".encode())


COMMANDS: dict[str, Callable[[Path, StorageSettings], None]] = {"read": read, "write": write}


if __name__ == "__main__":
    main()
