"""MCP over a Unix socket: what `hippovault mcp` pumps its standard input and output to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast, get_args

import mcp_types
import pydantic_core
from mcp.server.lowlevel import Server

from hippovault_chassis import addresses
from hippovault_chassis.drain import GRACE_SECONDS
from hippovault_chassis.interceptors import told
from hippovault_gateway.application import Application
from hippovault_gateway.mcp import messages, server
from hippovault_gateway.mcp.calls import LAST_ANSWER_SECONDS, Calls
from hippovault_gateway.mcp.lines import LineStream
from hippovault_gateway.settings import ToolSet

BACKLOG = 100
MAX_SESSIONS = 512
"""At a time; a further connection is closed at once."""
PREAMBLE_SECONDS = 10.0
"""What a connection gets for its first line."""
PREAMBLE_KEY = "hippovault_tools"
"""Member of the first line, `{"hippovault_tools":"all"}`: the set of tools that the client wants."""


@contextlib.asynccontextmanager
async def socket_door(application: Application, path: Path) -> AsyncIterator[None]:
    """Serves a session a connection while the context lasts; leaving it answers what was asked.

    Args:
        application: What the memory can do.
        path: Of the socket; its owner alone may connect.

    Raises:
        ServiceError: Another process serves this path.
    """
    with contextlib.ExitStack() as stack:
        lock = addresses.lock_socket(f"{addresses.UNIX}{path}")
        if lock is not None:
            stack.enter_context(lock)
        listener = stack.enter_context(_listener(path))
        stack.callback(path.unlink, missing_ok=True)
        sessions = _Sessions(application)
        listening = await asyncio.start_unix_server(
            sessions.serve, sock=listener, limit=messages.MAX_BYTES, backlog=BACKLOG
        )
        try:
            yield
        finally:
            listening.close()
            await sessions.drain()


def _listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # Left by a process that was killed; the lock says that none is alive.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener


class _Sessions:
    def __init__(self, application: Application) -> None:
        self._calls = Calls()
        self._servers: dict[ToolSet, Server[Any]] = {
            tool_set: server.build(application, self._calls, tool_set) for tool_set in get_args(ToolSet)
        }
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if len(self._open) >= MAX_SESSIONS:
            writer.close()
            return
        self._open[task] = writer
        try:
            await self._session(LineStream(reader, writer, server.CALL_SECONDS))
        except Exception as error:  # noqa: BLE001  # One session's end must not be another's.
            told(error, "mcp session")
        finally:
            del self._open[task]
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def drain(self) -> None:
        self._calls.end_within(GRACE_SECONDS)
        for writer in self._open.values():
            with contextlib.suppress(OSError):  # The client is gone already.
                writer.get_extra_info("socket").shutdown(socket.SHUT_RD)
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=GRACE_SECONDS + LAST_ANSWER_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _session(self, stream: LineStream) -> None:
        try:
            async with asyncio.timeout(PREAMBLE_SECONDS):
                line = await stream.line()
            if not line:
                return
            chosen = self._servers[_tool_set(line)]
        except messages.Refused as refused:
            await stream.refuse(refused)
            return
        except TimeoutError:
            return
        await chosen.run(stream, stream, chosen.create_initialization_options())


def _tool_set(line: bytes) -> ToolSet:
    """Returns the set that the first line of a connection chooses.

    Raises:
        Refused: It chooses none.
    """
    try:
        [(key, chosen)] = pydantic_core.from_json(line).items()
    except (ValueError, AttributeError):
        key, chosen = "", ""
    if key != PREAMBLE_KEY or chosen not in get_args(ToolSet):
        raise messages.Refused(
            mcp_types.INVALID_REQUEST,
            f'Invalid request: the first line must be {{"{PREAMBLE_KEY}":…}} with one of {get_args(ToolSet)}',
            messages.find_id(line),
        )
    return cast("ToolSet", chosen)
