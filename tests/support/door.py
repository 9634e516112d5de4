"""A host of the real `hippovault mcp`, with nothing between the test and its standard streams."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.command import COMMAND
from support.processes import environment

SECONDS = 60
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}


class Door:
    """A session.

    Args:
        home: Of the memory.
    """

    def __init__(self, home: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*COMMAND, "mcp"], env=environment(home), cwd="/", stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        """Begins nothing: see `open`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends what still runs."""
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:
            pass

    def open(self) -> Any:
        """Makes the handshake, and returns what it is answered."""
        self.send(0, "initialize", INITIALIZE)
        opened = self.receive()
        self.send_line({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return opened["result"]

    def send_line(self, message: object) -> None:
        """Sends a message."""
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def send(self, request_id: int | str, method: str, params: object) -> None:
        """Sends a request."""
        self.send_line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def send_call(self, request_id: int | str, tool: str, arguments: object) -> None:
        """Sends the call of a tool."""
        self.send(request_id, "tools/call", {"name": tool, "arguments": arguments})

    def receive(self) -> Any:
        """Returns the next message."""
        return json.loads(self._stdout.readline())

    def call(self, tool: str, arguments: object) -> Any:
        """Calls a tool and returns the message that answers it."""
        self.send_call(tool, tool, arguments)
        message = self.receive()
        assert message["id"] == tool
        return message

    def rest(self) -> bytes:
        """Returns what the door still says to the host."""
        return self._stdout.read()

    def close(self) -> None:
        """Says no more."""
        self._stdin.close()

    def end(self) -> int:
        """Says no more, and returns the exit code."""
        self.close()
        return self.process.wait(SECONDS)

    def said(self) -> str:
        """Returns what the door told people, once it has ended."""
        assert self.process.stderr
        return self.process.stderr.read().decode()
