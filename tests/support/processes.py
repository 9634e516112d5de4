"""Starts real processes and waits for their readiness datagram, without polling and without sleeping."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30


@dataclass
class Process:
    """A running program that said READY=1."""

    popen: subprocess.Popen[bytes]
    status: str
    """What it told with its readiness: its address."""
    log: Path

    def stop(self) -> int:
        """Asks it to stop, waits, and returns its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(STOP_SECONDS)

    def kibibytes(self, name: str) -> int:
        """What the system says of its memory, such as VmHWM: the most that it ever had."""
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self.popen.kill()
        self.popen.wait(STOP_SECONDS)


def private_variables(home: Path) -> dict[str, str]:
    """Returns the variables that say where a user's data is, all of them within the parent of home."""
    return {"HOME": str(home.parent), "XDG_DATA_HOME": str(home.parent / "xdg"), "HIPPOVAULT_HOME": str(home)}


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns an environment in which nothing outside the test's directory is reached."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HIPPOVAULT_", "PERSEUS_"))}
    return {**kept, **private_variables(home), **(extra or {})}


def launch(
    arguments: Sequence[str], home: Path, log: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts `python -m …` without waiting for anything."""
    with log.open("ab") as log_file:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=environment(home, variables),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
        )


def start(
    arguments: Sequence[str], home: Path, name: str = "process", extra_environment: Mapping[str, str] | None = None
) -> Process:
    """Starts `python -m …` and returns it once it is ready.

    Args:
        arguments: What follows `python -m`, such as `["hippovault_storage"]`.
        home: HIPPOVAULT_HOME; what the test owns is its parent.
        name: Names the log file in the parent of home.
        extra_environment: Further variables.

    Raises:
        AssertionError: It ended or did not become ready; the message has its log.
    """
    notify_path = home.parent / f"{name}.n"
    notify_path.unlink(missing_ok=True)
    log = home.parent / f"{name}.log"
    variables = {**(extra_environment or {}), "NOTIFY_SOCKET": str(notify_path)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(notify_path))
        popen = launch(arguments, home, log, variables)
        notified.settimeout(0.5)
        for _ in range(START_SECONDS * 2):
            try:
                message = notified.recv(4096).decode()
            except TimeoutError:
                if popen.poll() is not None:
                    break
                continue
            lines = dict(line.split("=", 1) for line in message.splitlines())
            return Process(popen, lines.get("STATUS", ""), log)
    popen.kill()
    popen.wait()
    raise AssertionError(f"{arguments} did not become ready:\n{log.read_text()}")
