"""A session over a byte stream: one JSON-RPC message a line, in bounded memory, and no request left unanswered."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from types import TracebackType
from typing import Self

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from hippovault_gateway.mcp import messages

MAX_IN_FLIGHT = 100
"""Requests of one session at a time; further ones wait in the socket."""
MAX_UNREAD_BYTES = 4 * 1024 * 1024
"""Of answers that the client has not taken; while there are more, its further requests wait in the socket."""


class LineStream:
    """Both streams by which the SDK serves a session, directly on a socket.

    Args:
        reader: With messages.MAX_BYTES as its limit.
        writer: Where answers go.
        last_seconds: What the requests under way get once the client has sent its last one.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last_seconds: float) -> None:
        self._reader = reader
        self._writer = writer
        self._last_seconds = last_seconds
        self._in_flight: Counter[str] = Counter()  # Nothing keeps a client from using an id twice.
        self._settled = asyncio.Event()
        writer.transport.set_write_buffer_limits(MAX_UNREAD_BYTES)

    async def line(self) -> bytes:
        """Returns the next line that is not blank; empty at the end.

        Raises:
            Refused: The line is too long; it is passed over.
        """
        beginning = end = b""
        while True:
            try:
                chunk = await self._reader.readuntil()
            except asyncio.LimitOverrunError as error:
                end = await self._reader.readexactly(error.consumed)
                beginning = beginning or end[: messages.END_BYTES]
                continue
            except asyncio.IncompleteReadError as error:
                chunk = error.partial
            except OSError:
                chunk = b""
            if beginning:
                raise messages.too_long(beginning, (end + chunk)[-messages.END_BYTES :])
            if chunk.strip() or not chunk:
                return chunk

    async def receive(self) -> SessionMessage:
        """Returns the next message; a line that is none is answered here.

        Raises:
            anyio.EndOfStream: The client has sent all, and has its answers.
        """
        while True:
            await self._wait_for_fewer_than(MAX_IN_FLIGHT)
            with contextlib.suppress(OSError):  # Reading finds out that the client is gone.
                await self._writer.drain()
            try:
                line = await self.line()
                if not line:
                    break
                message = messages.read(line)
            except messages.Refused as refused:
                await self.refuse(refused)
                continue
            self._note(message)
            return SessionMessage(message)
        # The SDK cancels what is under way when the stream ends.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._last_seconds):
                await self._wait_for_fewer_than(1)
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage, /) -> None:
        """Sends a message.

        Raises:
            anyio.BrokenResourceError: The client is gone.
        """
        message = item.message
        self._writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        try:
            await self._writer.drain()
        except OSError:
            raise anyio.BrokenResourceError from None
        finally:
            if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                self._settle(message.id)

    async def refuse(self, refused: messages.Refused) -> None:
        """Answers what is no message, if the client still listens."""
        with contextlib.suppress(anyio.BrokenResourceError):
            await self.send(SessionMessage(refused.answer))

    async def _wait_for_fewer_than(self, count: int) -> None:
        while self._in_flight.total() >= count:
            self._settled.clear()
            await self._settled.wait()

    def _note(self, message: mcp_types.JSONRPCMessage) -> None:
        if isinstance(message, mcp_types.JSONRPCRequest):
            self._in_flight[str(message.id)] += 1
        elif isinstance(message, mcp_types.JSONRPCNotification) and message.method == "notifications/cancelled":
            # By the protocol it is not answered any more.
            self._settle((message.params or {}).get("requestId"))

    def _settle(self, request_id: object) -> None:
        # The SDK takes 7 and "7" for the same id.
        self._in_flight -= Counter([str(request_id)])
        self._settled.set()

    async def aclose(self) -> None:
        """Does nothing: who accepted the connection closes it."""

    def __aiter__(self) -> Self:
        """Iterates over the messages."""
        return self

    async def __anext__(self) -> SessionMessage:
        """Returns the next message."""
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        """Opens nothing."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Closes nothing."""
