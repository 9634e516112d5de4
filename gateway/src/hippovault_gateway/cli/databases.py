"""Databases that other programs read and write, by way of the storage package, which runs as a child."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

import grpc

from hippovault_chassis.default_home import HOME_VARIABLE
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.home import Home
from hippovault_gateway.cli.backup import new_file

MODULE = "hippovault_storage.shodh"


@contextmanager
def read(file: Path, home: Home) -> Iterator[BinaryIO]:
    """Yields the memories of a database as lines of an export; the file stays as it is.

    Raises:
        ServiceError: It cannot be read; told once the lines that it could give were taken.
    """
    with _child(home, "read", str(file.absolute())) as child:
        yield cast("BinaryIO", child.stdout)


def write(file: Path, lines: Iterable[bytes], home: Home) -> None:
    """Makes a new database of the lines of an export; under its name it is whole or not there.

    Raises:
        ServiceError: It is there already, or could not be made.
        OSError: It cannot be written.
    """
    with new_file(file) as target, tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}-") as directory:
        made = Path(directory) / "memories.db"
        with _child(home, "write", str(made.absolute())) as child:
            _feed(cast("IO[bytes]", child.stdin), lines)
        with made.open("rb") as source:
            shutil.copyfileobj(source, target)


def _feed(stdin: IO[bytes], lines: Iterable[bytes]) -> None:
    try:
        stdin.writelines(lines)
        stdin.close()
    except BrokenPipeError:  # The child ended before the lines did; its exit code and last words tell why.
        return


@contextmanager
def _child(home: Home, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the storage package's module while the context lasts.

    Raises:
        ServiceError: It failed; the message is its own.
    """
    command = [sys.executable, "-m", MODULE, *arguments, "--log-level", "error"]
    environment = {**os.environ, HOME_VARIABLE: str(home.root)}
    with tempfile.TemporaryFile() as words:
        with subprocess.Popen(  # noqa: S603  # Our own program.
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words
        ) as child:
            try:
                yield child
                for stream in (child.stdin, child.stdout):  # It must not wait for us while we wait for it.
                    cast("IO[bytes]", stream).close()
            except BaseException:
                child.kill()
                raise
            child.wait()
        if child.returncode:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "DATABASE_FAILED", last or "the child was killed")
