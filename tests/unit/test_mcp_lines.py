"""The bounds of a session over a byte stream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import mcp_types
import pytest
from mcp.shared.message import SessionMessage

from hippovault_gateway.mcp import lines

SECONDS = 10
SILENCE_SECONDS = 0.2


class Session:
    """A session's stream, and the client's end of its socket."""

    def __init__(self, stream: lines.LineStream, client: socket.socket) -> None:
        self.stream, self.client = stream, client

    def ask(self, request_id: int) -> None:
        request = {"jsonrpc": "2.0", "id": request_id, "method": "ping"}
        self.client.sendall(json.dumps(request).encode() + b"\n")

    async def received(self, seconds: float = SECONDS) -> SessionMessage:
        async with asyncio.timeout(seconds):
            return await self.stream.receive()

    async def nothing_is_received(self) -> None:
        with pytest.raises(TimeoutError):
            await self.received(SILENCE_SECONDS)


def answer(request_id: int, size: int) -> SessionMessage:
    return SessionMessage(mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request_id, result={"text": "x" * size}))


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    ours, client = socket.socketpair()
    client.settimeout(0)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    try:
        yield Session(lines.LineStream(reader, writer, SECONDS), client)
    finally:
        client.close()
        writer.transport.abort()
        await asyncio.sleep(0)  # In which the transport closes its socket.


async def test_no_request_is_taken_while_many_answers_are_unread(session: Session) -> None:
    sending = asyncio.create_task(session.stream.send(answer(1, lines.MAX_UNREAD_BYTES + 2**20)))
    await asyncio.sleep(0)
    session.ask(2)
    await session.nothing_is_received()

    async with asyncio.timeout(SECONDS):
        while not sending.done():
            await asyncio.get_running_loop().sock_recv(session.client, 2**20)
    assert isinstance((await session.received()).message, mcp_types.JSONRPCRequest)


async def test_requests_of_the_same_id_count_each(session: Session) -> None:
    for _ in range(lines.MAX_IN_FLIGHT + 1):
        session.ask(1)
    for _ in range(lines.MAX_IN_FLIGHT):
        await session.received()
    await session.nothing_is_received()

    await session.stream.send(answer(1, 1))
    await session.received()
    await session.nothing_is_received()
