"""Starts the supervisor or the stdio door, in place of this process or beside it, and stops the supervisor."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from hippovault_chassis import notify
from hippovault_chassis.drain import STOP_SECONDS
from hippovault_chassis.home import Home
from hippovault_chassis.locks import holder
from hippovault_gateway.local import log_files, notifications
from hippovault_gateway.local.child import StartError, describe
from hippovault_gateway.local.state import lock_path

POLL_SECONDS = 0.05
SAID_LINES = 30
"""Of a supervisor that ended: its message, which quotes the log of the service to blame."""


@dataclass(frozen=True)
class Started:
    """A supervisor that runs detached."""

    pid: int
    http_url: str
    """Of MCP over HTTP; "" when it is off, or when somebody else started the memory."""
    already_running: bool


def become_supervisor(home: Home, start_seconds: float, environment: Mapping[str, str], *, as_json: bool) -> NoReturn:
    """Replaces this process by the supervisor, which a terminal or systemd then owns."""
    command = _command(home, start_seconds, as_json=as_json)
    os.execve(command[0], command, environment)  # noqa: S606  # No shell is wanted.


def become_door(home: Home, tools: str) -> NoReturn:
    """Replaces this process by the stdio door, which keeps nothing of what the command line took to read."""
    command = [sys.executable, "-P", "-m", "hippovault_gateway.local.stdio_door", str(home.root), tools]
    os.execv(command[0], command)  # noqa: S606  # No shell is wanted.


def start_detached(home: Home, start_seconds: float, environment: Mapping[str, str]) -> Started:
    """Starts the supervisor in a session of its own and waits until the memory serves; of several at once, one starts.

    Raises:
        StartError: It ended instead; the message is its own.
    """
    with (home.run / "start.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        pid = holder(lock_path(home))
        if pid is not None:
            return Started(pid, "", already_running=True)
        return _start_detached(home, start_seconds, environment)


def _start_detached(home: Home, start_seconds: float, environment: Mapping[str, str]) -> Started:
    log, ready_socket = home.logs / "up.log", home.socket("up")
    try:
        with notifications.bind(ready_socket) as notified, log_files.open_log(log) as output:
            start = output.tell()
            process = subprocess.Popen(  # noqa: S603  # Our own program.
                _command(home, start_seconds, as_json=False),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home.root,
                env={**environment, notify.VARIABLE: str(ready_socket)},
                start_new_session=True,
            )
            status = _ready(notified, process)
    finally:
        ready_socket.unlink(missing_ok=True)
    if status is None:
        said = log_files.tail(log, start, lines=SAID_LINES).removeprefix("hippovault up: ")
        raise StartError(said or f"the supervisor {describe(process.returncode)}, see {log}")
    return Started(process.pid, status, already_running=False)


def stop(home: Home) -> int | None:
    """Stops the memory and waits until it is down.

    Returns:
        The id that the supervisor had; None when there was none.

    Raises:
        TimeoutError: It did not end in time.
    """
    pid = holder(lock_path(home))
    if pid is None:
        return None
    os.kill(pid, signal.SIGTERM)
    seconds = 2 * STOP_SECONDS + 5  # The gateway, then the services behind it, then the supervisor itself.
    ends = time.monotonic() + seconds
    while holder(lock_path(home)) == pid:
        if time.monotonic() > ends:
            raise TimeoutError(f"the memory {home.root} (pid {pid}) did not stop within {seconds:g} s")
        time.sleep(POLL_SECONDS)
    return pid


def _command(home: Home, start_seconds: float, *, as_json: bool) -> list[str]:
    module = ["-P", "-m", "hippovault_gateway.local.supervisor"]
    return [sys.executable, *module, str(home.root), str(start_seconds), "json" if as_json else "text"]


def _ready(notified: socket.socket, process: subprocess.Popen[bytes]) -> str | None:
    """Returns the status that the process tells; None when it ends. It bounds its start by itself."""
    notified.settimeout(POLL_SECONDS)
    while process.poll() is None:
        try:
            said = notifications.parse(notified.recv(notifications.MAX_BYTES))
        except TimeoutError:
            continue
        if said and said[0] == process.pid:
            return said[1]
    return None
