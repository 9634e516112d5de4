"""MCP over Streamable HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp_types
import pytest
from mcp.client.client import Client

from hippovault_gateway.http_address import WELL_KNOWN
from hippovault_gateway.mcp import messages
from integration.mcp_support import MOST_LISTED_BYTES, Connect, DoorTests, answer, refusal
from support.processes import Process, start
from support.stack import Stack

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"ping","arguments":{}}}'


@pytest.fixture
def connect(stack: Stack) -> Connect:
    return lambda era: Client(stack.mcp_http_url, mode=era)


@pytest.fixture
def url(stack: Stack) -> str:
    return stack.mcp_http_url


def asked(
    url: str, body: bytes = PING, headers: Mapping[str, str] | None = None, *, method: str = "POST", path: str = "/mcp"
) -> tuple[int, bytes]:
    """Sends one request with nothing between the test and the bytes, and returns status and body."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request(method, path, body, {**HEADERS, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()


class TestHttp(DoorTests):
    """All that a door must do."""


def test_a_client_that_never_shook_hands_is_served(url: str) -> None:
    status, body = asked(url)

    assert (status, json.loads(body)["id"]) == (200, 3)


def test_the_list_leaves_room_in_a_clients_context(url: str) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    request = {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    status, body = asked(url, json.dumps(request).encode(), headers)

    assert (status, len(json.loads(body)["result"]["tools"])) == (200, 12)
    assert len(body) < MOST_LISTED_BYTES


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_lone_surrogate_is_answered_as_at_the_socket(url: str, version: str) -> None:
    call = b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hippo_remember","arguments":%s}}'
    status, body = asked(url, call % b'{"content":"a \\ud83d b"}', {"MCP-Protocol-Version": version})
    refused = json.loads(body)

    assert (status, refused["id"], refused["error"]["code"]) == (400, 5, mcp_types.PARSE_ERROR)
    assert "surrogate" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("body", "request_id", "code"),
    [
        (b"junk", None, mcp_types.PARSE_ERROR),
        (b"", None, mcp_types.PARSE_ERROR),
        (b"\xff", None, mcp_types.PARSE_ERROR),
        (b"[" + PING + b"]", None, mcp_types.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, mcp_types.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":8,"method":"ping","params":[]}', 8, mcp_types.INVALID_REQUEST),
    ],
)
def test_a_body_that_is_no_message_is_answered(url: str, body: bytes, request_id: object, code: int) -> None:
    status, text = asked(url, body)
    refused: Any = json.loads(text)

    assert (status, refused["id"], refused["error"]["code"]) == (400, request_id, code)


def test_a_body_that_is_too_long_is_refused(url: str) -> None:
    status, _ = asked(url, b" " * (messages.MAX_BYTES + 1))

    assert status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Origin": "http://localhost:3000"}, 200),
    ],
)
def test_a_page_from_elsewhere_gets_nothing(url: str, headers: dict[str, str], status: int) -> None:
    assert asked(url, headers=headers)[0] == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_there_is_no_stream_and_no_session_to_delete(url: str, method: str) -> None:
    assert asked(url, method=method)[0] == 405


def test_health_tells_serving_and_no_more(url: str) -> None:
    assert asked(url, method="GET", path="/health") == (200, b"serving")


@pytest.mark.parametrize("path", ["/", "/mcp/", "/docs", "/health/"])
def test_there_is_nothing_else(url: str, path: str) -> None:
    assert asked(url, method="GET", path=path)[0] in {307, 404, 405}


@pytest.fixture(scope="module")
def lonely(module_home: Path) -> Iterator[Process]:
    """A gateway without the services behind it, in the default home, whose well-known port is taken."""
    host, port = WELL_KNOWN.split(":")
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # Whoever has it takes it from the gateway as well.
            other.bind((host, int(port)))
            other.listen()
        default_home, data = module_home.with_name("hippovault"), str(module_home.parent)
        gateway = start(["hippovault_gateway"], default_home, "gateway", {"XDG_DATA_HOME": data})
        yield gateway
        gateway.stop()


def test_a_taken_port_is_passed_by_when_none_was_asked_for(lonely: Process) -> None:
    assert urlsplit(lonely.status).hostname == "127.0.0.1"
    assert urlsplit(lonely.status).netloc != WELL_KNOWN


def test_another_home_leaves_the_well_known_port_alone_and_keeps_its_own(home: Path) -> None:
    first = start(["hippovault_gateway"], home, "gateway")
    assert first.stop() == 0
    second = start(["hippovault_gateway"], home, "gateway")
    assert second.stop() == 0
    assert second.status == first.status
    assert urlsplit(first.status).netloc != WELL_KNOWN


def test_a_taken_port_that_was_asked_for_is_an_error(lonely: Process, home: Path) -> None:
    taken = urlsplit(lonely.status).netloc
    with pytest.raises(AssertionError, match=f"http: {taken} is in use"):
        start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": taken})


def test_a_bind_that_is_not_loopback_is_refused(home: Path) -> None:
    with pytest.raises(AssertionError, match=r"http: '0\.0\.0\.0:0' is open to the network"):
        start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": "0.0.0.0:0"})


def test_health_tells_that_a_service_is_down(lonely: Process) -> None:
    assert asked(lonely.status, method="GET", path="/health") == (503, b"not serving")


async def test_a_service_that_is_down_is_told_by_its_name(lonely: Process) -> None:
    async with Client(lonely.status) as client:
        text = await refusal(client, "hippo_list_recent")

    assert text.startswith("UNAVAILABLE: the storage service")
    assert lonely.popen.poll() is None


async def test_clients_outlive_a_restart_of_the_gateway(home: Path) -> None:
    first = start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": "127.0.0.1:0"})
    async with Client(first.status, mode="auto") as modern, Client(first.status, mode="legacy") as legacy:
        before = [await answer(client, "ping") for client in (modern, legacy)]
        first.kill()
        address = {"HIPPOVAULT_GATEWAY_HTTP": urlsplit(first.status).netloc}
        second = start(["hippovault_gateway"], home, "gateway", address)
        after = [await answer(client, "ping") for client in (modern, legacy)]
    second.stop()

    assert [told["mcp_http_url"] for told in before + after] == [first.status] * 4
