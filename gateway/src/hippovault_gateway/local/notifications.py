"""The parent's end of `hippovault_chassis.notify`: what children say on the datagram socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

MAX_BYTES = 4096


def parse(datagram: bytes) -> tuple[int, str] | None:
    """Returns the process id and the status of a READY datagram; None for any other."""
    lines = datagram.decode(errors="replace").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    pid = values.get("MAINPID", "")
    return (int(pid), values.get("STATUS", "")) if values.get("READY") == "1" and pid.isdigit() else None


def bind(path: Path) -> socket.socket:
    """Returns a datagram socket at the path, in place of one that was left there."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound.bind(str(path))
    return bound


class Notifications:
    """Receives what children say while the event loop runs.

    Args:
        path: Where to listen; NOTIFY_SOCKET of the children.
    """

    def __init__(self, path: Path) -> None:
        self._socket = bind(path)
        self._socket.setblocking(False)  # noqa: FBT003  # Its signature.
        self._statuses: dict[int, asyncio.Future[str]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    def status(self, pid: int) -> asyncio.Future[str]:
        """Returns the status of the process, which is set once it serves."""
        return self._statuses.setdefault(pid, self._loop.create_future())

    def forget(self, pid: int) -> None:
        """Drops a process that was waited for."""
        self._statuses.pop(pid, None)

    def _receive(self) -> None:
        said = parse(self._socket.recv(MAX_BYTES))
        if said and not self.status(said[0]).done():
            self.status(said[0]).set_result(said[1])
