"""MCP over stdio: carries lines between the host that started this process and the gateway's Unix socket.

Every session of every host holds one such process, so it imports the least that does it: no pathlib, no asyncio, no
gRPC and no MCP SDK, which understands the lines in the gateway. When a gateway ends, the session goes on with the next.
"""
# ruff: noqa: PTH103, PTH110, PTH123

from __future__ import annotations

import _socket  # The module socket takes longer than all of this.
import os
import select
import sys
import time

from hippovault_chassis.default_home import CONFIG_FILE, given_home
from hippovault_gateway.local.stdio_session import Session

TYPE_CHECKING = False  # To import it takes longer, too.
if TYPE_CHECKING:
    from collections.abc import Sequence

TOOL_SETS = ("hippo", "shodh", "all")
CHUNK_BYTES = 65_536
MAX_LINE_BYTES = 4 * 1024 * 1024
"""What the gateway takes. Of a longer line both ends are kept, by which it refuses it and finds its id."""
END_BYTES = 256
RESTART_SECONDS = 3.0
"""What a gateway that ended gets to come back by itself; then the memory is started, which waits for one that runs."""
START_SECONDS = 30
"""What each process of the memory gets until it serves."""
PAUSE_SECONDS = 0.05
INTERRUPTED = 130
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
    """Serves the host on stdin and stdout until it has ended and has its answers, or the memory is gone.

    Args:
        home: Of the memory, which is started when it does not run.
        tools: The tool set that the host is shown.

    Returns:
        The exit code.
    """
    door = Door(home, tools)
    try:
        door.serve()
    except GoneError as error:
        sys.stderr.write(f"hippovault mcp: {error}\n")
        return 1
    except OSError:  # The host reads no more.
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def socket_path(home: str) -> str:
    """Returns what `Home.socket("mcp")` is."""
    return f"{home}/run/mcp.sock"


class GoneError(Exception):
    """The memory does not answer and cannot be started."""


class Door:
    """One session.

    Args:
        home: Of the memory.
        tools: The tool set that the host is shown.
    """

    def __init__(self, home: str, tools: str) -> None:
        self._home = home
        self._first_line = f'{{"hippovault_tools":"{tools}"}}\n'.encode()
        self._session = Session()
        self._host_speaks = True
        self._gateway: _socket.socket | None = None
        self._patience = 0.0
        self._from_host, self._from_gateway = Lines(), Lines()
        self._to_gateway = b""

    def serve(self) -> None:
        """Returns when the host has ended and has its answers.

        Raises:
            GoneError: The memory is gone; what was asked has been refused.
            OSError: The host reads no more.
        """
        try:
            while self._host_speaks or self._gateway:
                self._carry()
        except GoneError as error:
            self._read_all()
            self._tell(self._session.refused(str(error)))
            raise

    def _carry(self) -> None:
        """Waits until one side can be served, and serves it."""
        gateway = [self._gateway.fileno()] if self._gateway else []
        host = [STDIN] if self._host_speaks and not self._to_gateway else []
        # The gateway first: nothing should be sent to one that has ended.
        readable, writable, _ = select.select([*gateway, *host], gateway if self._to_gateway else [], [])
        for source in readable:
            (self._ask if source == STDIN else self._answer)()
        if writable:
            self._send()

    def _ask(self) -> None:
        lines = self._read()
        try:
            if lines and not self._gateway:
                self._connect()
        finally:
            self._session.asked(lines)
        self._to_gateway += lines
        self._send()

    def _read(self) -> bytes:
        """Returns the next lines of the host."""
        piece = os.read(STDIN, CHUNK_BYTES)
        self._host_speaks = bool(piece)
        return self._from_host.add(piece) if piece else self._from_host.last()

    def _read_all(self) -> None:
        """Takes note of what the host asked meanwhile."""
        while self._host_speaks and select.select([STDIN], [], [], 0)[0]:
            self._session.asked(self._read())

    def _send(self) -> None:
        if not self._gateway:
            return
        try:
            while self._to_gateway:
                self._to_gateway = self._to_gateway[self._gateway.send(self._to_gateway) :]
            if not self._host_speaks:
                self._gateway.shutdown(_socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self._resume()

    def _answer(self) -> None:
        try:
            piece = self._gateway.recv(CHUNK_BYTES) if self._gateway else b""
        except OSError:
            piece = b""
        if not piece:
            self._resume()
            return
        lines = self._from_gateway.add(piece)
        self._tell(self._session.for_host(lines))
        self._session.answered(lines)

    def _tell(self, lines: bytes) -> None:
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(STDOUT, rest) :]

    def _resume(self) -> None:
        """Goes on without the gateway, which ended; with another one as soon as there is something to ask."""
        if self._gateway:
            self._gateway.close()
        self._gateway, self._to_gateway, self._from_gateway = None, b"", Lines()
        self._tell(self._session.lost())
        if self._session.waits():
            time.sleep(PAUSE_SECONDS)
            self._connect()

    def _connect(self) -> None:
        """Connects to the gateway, and tells it what the one before it knew."""
        self._gateway = _connected(self._home, self._patience) or _started(self._home)
        self._gateway.setblocking(False)  # noqa: FBT003  # Its signature.
        self._patience = RESTART_SECONDS
        self._to_gateway = self._first_line + self._session.resumption()


class Lines:
    """Puts lines together from the pieces in which they come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, piece: bytes) -> bytes:
        """Returns the lines that are whole now."""
        end = piece.rfind(b"\n") + 1
        whole = bytes(self._rest) + piece[:end] if end else b""
        if end:
            self._rest.clear()
        self._rest += piece[end:]
        del self._rest[MAX_LINE_BYTES:-END_BYTES]
        return whole

    def last(self) -> bytes:
        """Returns what stands after the last line break, as a line."""
        return bytes(self._rest) + b"\n" if self._rest else b""


def _connected(home: str, patience: float = 0.0) -> _socket.socket | None:
    """Returns a connection to the gateway; None when there is none within the given seconds."""
    ends = time.monotonic() + patience
    while True:
        gateway = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            gateway.connect(socket_path(home))
        except OSError:
            gateway.close()
        else:
            return gateway
        if time.monotonic() >= ends:
            return None
        time.sleep(PAUSE_SECONDS)


def _started(home: str) -> _socket.socket:
    """Starts the memory and connects; of several doors that want to at once, one starts it and the others wait.

    Raises:
        GoneError: It cannot be started, or does not answer all the same.
    """
    import fcntl

    command = [sys.executable, "-P", "-m", "hippovault_gateway.cli", "up", "--detach", "--home", home]
    try:
        os.umask(0o077)
        os.makedirs(f"{home}/run", exist_ok=True)
        with open(f"{home}/run/door.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            gateway = _connected(home) or _after([*command, "--start-timeout", str(START_SECONDS)], home)
    except OSError as error:
        raise GoneError(f"the memory {home} cannot be started: {error}") from None
    if not gateway:
        raise GoneError(f"the memory {home} does not answer and could not be started")
    return gateway


def _after(command: list[str], home: str) -> _socket.socket | None:
    """Returns a connection to the gateway once the command has ended."""
    nothing = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (STDIN, STDOUT)]
    os.waitpid(os.posix_spawn(command[0], command, os.environ, file_actions=nothing), 0)
    return _connected(home)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
