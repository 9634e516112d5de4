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
from hippovault_gateway.cli.output import show_json
from hippovault_gateway.local.state import lock_path


def restore(file: Path, /, *, sha256: str = "", accept_damage: bool = False, options: Options = DEFAULTS) -> int:
    """Puts a backup in the place of the store, which is kept beside it.

    Args:
        file: The backup; the keys of an encrypted one are beside it.
        sha256: The SHA-256 that it must have, as backup told it (default: any).
        accept_damage: Take it even when something in it is wrong.
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    damage = ["--accept-damage"] if accept_damage else []
    return _run("restore", options, str(file.absolute()), f"--sha256={sha256}", *damage)


def encrypt(*, options: Options = DEFAULTS) -> int:
    """Encrypts the store as the storage service's settings say.

    Args:
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    return _run("encrypt", options)


def decrypt(*, options: Options = DEFAULTS) -> int:
    """Makes an encrypted store one that is not.

    Args:
        options: Which memory, and how to answer.

    Returns:
        0 when it is done.
    """
    return _run("decrypt", options)


def _run(name: str, options: Options, *arguments: str) -> int:
    """Runs a module of the storage package; people see its streams as they are.

    Returns:
        Its exit code.

    Raises:
        ServiceError: The memory runs; or the module failed, and a program asks.
    """
    home = options.layout
    pid = holder(lock_path(home))
    if pid is not None:
        message = f"the memory {home.root} is running, pid {pid}; stop it first with: {home.command('down')}"
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "RUNNING", message)
    command = [sys.executable, "-m", f"hippovault_storage.{name}", *arguments]
    environment = {**os.environ, HOME_VARIABLE: str(home.root)}
    ended = subprocess.run(  # noqa: S603  # Our own program.
        command, env=environment, capture_output=options.json, text=True, check=False
    )
    if options.json:
        if ended.returncode:
            raise _failed(name, ended.stderr)
        show_json({"messages": ended.stdout.splitlines()})
    return 1 if ended.returncode else 0


def _failed(name: str, told: str) -> ServiceError:
    """Returns what the module told last, after what it may have logged."""
    problem = (told.splitlines() or [""])[-1].removeprefix("hippovault-storage: ")
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, f"{name.upper()}_FAILED", problem)
