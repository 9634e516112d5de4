"""A gateway that is asked to stop while calls hang in a service that is stuck."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.drain import GRACE_SECONDS, STOP_SECONDS
from hippovault_chassis.errors import ServiceError
from integration.mcp_support import RawSession
from support.processes import Process
from support.stack import running

SECONDS = 60
CHUNK = 65_536
STOPPING = "UNAVAILABLE: the gateway is stopping"
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hippo_list_recent","arguments":{}}}'


@contextmanager
def stuck(process: Process) -> Iterator[None]:
    process.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)


@contextmanager
def http_call(url: str) -> Iterator[socket.socket]:
    """A call that the gateway is known to have begun with: it asks for the body only then."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(CALL)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((str(parts.hostname), parts.port or 0), SECONDS) as connection:
        connection.sendall(head.encode())
        assert connection.recv(CHUNK).startswith(b"HTTP/1.1 100 ")
        connection.sendall(CALL)
        yield connection


def test_calls_that_hang_at_every_door_are_ended_together_and_answered(home: Path) -> None:
    with running(home) as stack, stack.client() as client:
        client.ListMemories(pb.ListMemoriesRequest(), timeout=SECONDS)  # Connects the gateway to storage.
        with (
            stuck(stack.processes["storage"]),
            RawSession(home / "run" / "mcp.sock") as session,
            http_call(stack.mcp_http_url) as connection,
        ):
            over_grpc = client.ListMemories.future(pb.ListMemoriesRequest(), timeout=SECONDS)
            with pytest.raises(grpc.RpcError):  # Refused, after what was sent before it on the same connection.
                client.ListMemories(pb.ListMemoriesRequest(page_size=0), timeout=SECONDS)
            session.send_line(CALL)
            session.send(2, "ping", {})
            assert session.receive()["id"] == 2
            begun = time.monotonic()
            assert stack.processes["gateway"].stop() == 0
            assert GRACE_SECONDS <= time.monotonic() - begun < STOP_SECONDS
            error = over_grpc.exception()
            assert isinstance(error, grpc.RpcError)
            assert ServiceError.from_rpc(error, "gateway").code is grpc.StatusCode.UNAVAILABLE
            assert session.receive()["result"]["content"][0]["text"] == STOPPING
            assert STOPPING.encode() in connection.recv(CHUNK)
        log = stack.processes["gateway"].log.read_text()
    assert {json.loads(line)["level"] for line in log.splitlines()} == {"info"}
