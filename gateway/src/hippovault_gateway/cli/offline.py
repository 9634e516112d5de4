"""Commands over a store that nobody serves: restore, encrypt, decrypt. The storage package runs them, as a child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc

from hippovault_chassis.default_home import HOME_VARIABLE
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.locks import holder
from hippovault_gateway.cli.options import DEFAULTS, Options
from hippovault_gateway.local.state import lock_path


def restore(file: Path, /, *, options: Options = DEFAULTS) -> int:
    """Puts a backup in the place of the store, which is kept beside it.

    Args:
        file: The backup; the keys of an encrypted one are beside it.
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    return _run("restore", options, str(file))


def encrypt(file: Path | None = None, /, *, options: Options = DEFAULTS) -> int:
    """Encrypts a store as its settings say.

    Args:
        file: A store that lies elsewhere.
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    return _run("encrypt", options, *([str(file)] if file else []))


def decrypt(file: Path | None = None, /, *, options: Options = DEFAULTS) -> int:
    """Makes an encrypted store readable by everybody who can read its file.

    Args:
        file: A store that lies elsewhere.
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    return _run("decrypt", options, *([str(file)] if file else []))


def _run(name: str, options: Options, *arguments: str) -> int:
    """Runs a module of the storage package, with this process's streams.

    Returns:
        Its exit code.

    Raises:
        ServiceError: The memory runs.
    """
    home = options.layout
    pid = holder(lock_path(home))
    if pid is not None:
        message = f"the memory {home.root} is running, pid {pid}; stop it first with: hippovault down"
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "RUNNING", message)
    command = [sys.executable, "-m", f"hippovault_storage.{name}", *arguments]
    environment = {**os.environ, HOME_VARIABLE: str(home.root)}
    ended = subprocess.run(command, env=environment, check=False)  # noqa: S603  # Our own program.
    return 1 if ended.returncode < 0 else ended.returncode
