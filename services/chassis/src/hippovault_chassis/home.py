"""Where a memory lives: every path below HIPPOVAULT_HOME, private to its owner."""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from hippovault_chassis.default_home import CONFIG_FILE, default_home

# sun_path holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
MAX_SOCKET_PATH_BYTES = 103
TARGET_SYNTAX = frozenset("%?#,")
"""What gRPC reads as syntax in the path of a `unix:` target."""
PRIVATE_DIRECTORY_MODE = 0o700
PRIVATE_UMASK = 0o077


@dataclass(frozen=True)
class Home:
    """The directory of one memory. Two homes are two memories."""

    root: Path

    def __post_init__(self) -> None:
        """Checks that the path can be written into a message, a target or a file.

        Raises:
            ServiceError: It is not UTF-8.
        """
        try:
            str(self.root).encode()
        except UnicodeEncodeError:
            problem = f"HIPPOVAULT_HOME: {str(self.root)!a} must be UTF-8"
            raise _error("INVALID_ARGUMENT", "HOME_NOT_UTF8", problem) from None

    @property
    def data(self) -> Path:
        """Databases."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """Sockets, locks and process state."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.root / "logs"

    def socket(self, name: str) -> Path:
        """Returns the path of a Unix socket.

        Raises:
            ServiceError: The path is longer than the system allows, or has what gRPC takes for syntax.
        """
        path = self.run / f"{name}.sock"
        syntax = sorted(set(str(path)) & TARGET_SYNTAX)
        if syntax:
            raise _error(
                "INVALID_ARGUMENT",
                "HOME_NOT_A_TARGET",
                f"HIPPOVAULT_HOME: {self.root} must not have any of {' '.join(syntax)}",
            )
        length = len(os.fsencode(path))
        if length > MAX_SOCKET_PATH_BYTES:
            raise _error(
                "INVALID_ARGUMENT",
                "HOME_TOO_LONG",
                f"HIPPOVAULT_HOME: the socket path {path} has {length} bytes, at most {MAX_SOCKET_PATH_BYTES} may be",
            )
        return path

    def command(self, words: str) -> str:
        """Returns the command line of a `hippovault` command over this memory, which is named where it must be."""
        named = "" if self.root == Path(default_home()) else f" --home {shlex.quote(str(self.root))}"
        return f"hippovault {words}{named}"

    def create(self) -> None:
        """Makes the directories, readable by their owner alone, and the process's new files too.

        A root that holds anything else keeps its mode: it may be the user's own home directory.

        Raises:
            ServiceError: Others may write to such a root, and so could replace what is ours.
        """
        os.umask(PRIVATE_UMASK)
        self.root.mkdir(parents=True, exist_ok=True)
        ours = (self.data, self.run, self.logs)
        if all(path in {*ours, self.root / CONFIG_FILE} for path in self.root.iterdir()):
            self.root.chmod(PRIVATE_DIRECTORY_MODE)
        self._check_writers()
        for directory in ours:
            directory.mkdir(exist_ok=True)
            directory.chmod(PRIVATE_DIRECTORY_MODE)

    def _check_writers(self) -> None:
        mode = stat.S_IMODE(self.root.stat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _error(
                "FAILED_PRECONDITION",
                "HOME_NOT_PRIVATE",
                f"HIPPOVAULT_HOME: {self.root} has other content and mode {mode:04o}, so that others may write to it; "
                "name a directory that is new, or remove their right",
            )


def _error(code: str, reason: str, message: str) -> Exception:
    # Only here: gRPC would triple the memory of the supervisor, which needs paths alone.
    import grpc

    from hippovault_chassis.errors import ServiceError

    return ServiceError(grpc.StatusCode[code], reason, message)
