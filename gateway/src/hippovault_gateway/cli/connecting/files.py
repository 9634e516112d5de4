"""Configuration files of other programs: read, and replaced whole, with what they were kept beside them."""

from __future__ import annotations

import os
import stat
import tempfile
from codecs import BOM_UTF8
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import grpc

from hippovault_chassis import durability
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli.backup import new_file


@dataclass(frozen=True)
class ConfigurationFile:
    """A file as it was read."""

    path: Path
    """What a symbolic link leads to, where the file is one."""
    stored: bytes | None
    """None where it is not there."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads it, if it is there.

        Raises:
            ServiceError: It is a directory, a device or a pipe.
        """
        path = Path(os.path.realpath(path))  # Path.resolve raises no OSError for links in a circle.
        return cls(path, _bytes(path))

    @property
    def text(self) -> str:
        """What it says; nothing where it is not there.

        Raises:
            ServiceError: It is not UTF-8.
        """
        try:
            return (self.stored or b"").removeprefix(BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            raise unreadable(self.path, f"not UTF-8 at byte {error.start}") from None

    def replace(self, text: str) -> Path | None:
        """Replaces it in one step; who reads it sees the old or the new.

        Returns:
            Where it is kept as it was; None where it was not there.

        Raises:
            ServiceError: Somebody else changed it since it was read.
            OSError: It cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        mark = BOM_UTF8 if (self.stored or b"").startswith(BOM_UTF8) else b""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        fresh = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(mark + text.encode())
                file.flush()
                os.fsync(file.fileno())
            if self.stored is not None:
                fresh.chmod(stat.S_IMODE(self.path.stat().st_mode))
            backup = self._backup()
            self._check_unchanged()
            fresh.replace(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        durability.sync(self.path.parent)
        return backup

    def _check_unchanged(self) -> None:
        if _bytes(self.path) != self.stored:
            message = f"{self.path} was changed by another program just now; run this again"
            raise ServiceError(grpc.StatusCode.ABORTED, "CONFIGURATION_CHANGED", message)

    def _backup(self) -> Path | None:
        if self.stored is None:
            return None
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self.path.with_name(f"{self.path.name}.bak-{now}")
        with new_file(path) as file:
            file.write(self.stored)
        return path


def unreadable(path: Path, problem: str) -> ServiceError:
    """Returns the error over a file that is not what it should be."""
    message = f"{path}: {problem}; nothing was changed. Put it right, or move it away"
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "CONFIGURATION_UNREADABLE", message)


def _bytes(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):  # To read a pipe may wait for ever, to replace a device ends it.
            raise unreadable(path, "is no regular file")
        return path.read_bytes()
    return None
