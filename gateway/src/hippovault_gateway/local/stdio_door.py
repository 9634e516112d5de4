"""MCP over stdio: carries bytes between the host that started this process and the gateway's Unix socket.

Every session of every host holds one such process, so it imports the least that does it: no pathlib, no asyncio, no
gRPC and no MCP SDK, which understands the bytes in the gateway.
"""
# ruff: noqa: PTH103, PTH110, PTH123

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

from hippovault_chassis.default_home import CONFIG_FILE, given_home

TOOL_SETS = ("hippo", "shodh", "all")
CHUNK_BYTES = 65_536
STDIN, STDOUT = 0, 1


def plain_arguments(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Reads the command line where that takes no parser.

    Returns:
        Home and tool set; None when anything but these two flags and HIPPOVAULT_HOME has a say, or something is wrong.
    """
    values = {"--home": "", "--tools": "all"}
    words = [word for argument in arguments for word in argument.split("=", 1)]
    flags, given = words[::2], words[1::2]
    if len(flags) != len(given) or not values.keys() >= set(flags):
        return None
    values.update(zip(flags, given, strict=True))
    home = given_home(values["--home"])
    configured = os.path.exists(f"{home}/{CONFIG_FILE}") or any(
        name.startswith("HIPPOVAULT_MCP_") for name in os.environ
    )
    return None if configured or values["--tools"] not in TOOL_SETS else (home, values["--tools"])


def run(home: str, tools: str) -> int:
    """Serves the host on stdin and stdout until it or the gateway ends.

    Args:
        home: Of the memory, which is started when it does not run.
        tools: The tool set that the host is shown.

    Returns:
        The exit code.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        gateway = _connected(home) or _started(home)
    except OSError as error:
        sys.stderr.write(f"hippovault mcp: the memory {home} cannot be started: {error}\n")
        return 1
    if gateway is None:
        sys.stderr.write(f"hippovault mcp: the memory {home} does not answer and could not be started\n")
        return 1
    gateway.sendall(f'{{"hippovault_tools":"{tools}"}}\n'.encode())
    host_is_done = threading.Event()
    threading.Thread(target=_carry_requests, args=(gateway, host_is_done), daemon=True).start()
    _carry_answers(gateway)
    if host_is_done.is_set():
        return 0
    sys.stderr.write("hippovault mcp: the gateway ended the connection\n")
    return 1


def socket_path(home: str) -> str:
    """Returns what `Home.socket("mcp")` is."""
    return f"{home}/run/mcp.sock"


def _connected(home: str) -> socket.socket | None:
    gateway = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        gateway.connect(socket_path(home))
    except OSError:
        gateway.close()
        return None
    return gateway


def _started(home: str) -> socket.socket | None:
    """Starts the memory and connects; of several doors that want to at once, one starts it and the others wait."""
    import fcntl
    import subprocess

    os.umask(0o077)
    os.makedirs(f"{home}/run", exist_ok=True)
    with open(f"{home}/run/door.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gateway = _connected(home)
        if gateway is None:
            command = [sys.executable, "-P", "-m", "hippovault_gateway.cli", "up", "--detach", "--home", home]
            subprocess.run(  # noqa: S603  # Our own program.
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
            )
            gateway = _connected(home)
        return gateway


def _carry_requests(gateway: socket.socket, host_is_done: threading.Event) -> None:
    with contextlib.suppress(OSError):  # The other direction finds out, and ends the process.
        while chunk := os.read(STDIN, CHUNK_BYTES):
            gateway.sendall(chunk)
        host_is_done.set()
        gateway.shutdown(socket.SHUT_WR)


def _carry_answers(gateway: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The gateway broke off, or the host reads no more.
        while chunk := gateway.recv(CHUNK_BYTES):
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(STDOUT, rest) :]


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
