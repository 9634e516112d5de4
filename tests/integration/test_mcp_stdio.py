"""MCP over stdio: `hippovault mcp`, and the Unix socket that it carries the bytes to."""

from __future__ import annotations

import json
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import mcp_types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from hippovault_gateway.mcp import messages, socket_door
from integration.mcp_support import (
    MOST_LISTED_BYTES,
    PROTOCOL,
    TOOLS,
    Connect,
    DoorTests,
    Era,
    RawSession,
    answer,
    suspended,
)
from support.processes import Process, environment, start
from support.stack import Stack

COMMAND = str(Path(sys.executable).with_name("hippovault"))
GIVEN_UP_SECONDS = 0.5


def door(stack: Stack, era: Era, *options: str) -> Client:
    parameters = StdioServerParameters(command=COMMAND, args=["mcp", *options], env=environment(stack.home))
    return Client(stdio_client(parameters), mode=era)


@pytest.fixture
def connect(stack: Stack) -> Connect:
    return lambda era: door(stack, era)


@pytest.fixture
def path(stack: Stack) -> Path:
    return stack.home / "run" / "mcp.sock"


@pytest.fixture
def session(path: Path) -> Iterator[RawSession]:
    with RawSession(path) as session:
        yield session


class TestStdio(DoorTests):
    """All that a door must do."""

    @pytest.mark.parametrize("tool_set", ["hippo", "shodh"])
    async def test_the_option_narrows_what_is_listed_and_what_can_be_called(
        self, stack: Stack, era: Era, tool_set: str
    ) -> None:
        async with door(stack, era, "--tools", tool_set) as client:
            listed = (await client.list_tools()).tools
            other = "store_memory" if tool_set == "hippo" else "hippo_remember"
            with pytest.raises(Exception, match=f"Unknown tool: {other}"):
                await client.call_tool(other, {"content": "c"})

        assert [tool.name for tool in listed] == [*TOOLS[tool_set], "ping"]


@pytest.mark.parametrize("tool_set", ["hippo", "shodh", "all"])
def test_the_list_leaves_room_in_a_clients_context(path: Path, tool_set: str) -> None:
    with RawSession(path, tool_set) as session:
        session.send(1, "tools/list", {})
        line = session.lines.readline()

    assert len(json.loads(line)["result"]["tools"]) >= 5
    assert len(line) < MOST_LISTED_BYTES


def test_a_lone_surrogate_is_answered_and_the_session_lives_on(session: RawSession) -> None:
    call = b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"hippo_remember","arguments":%s}}'
    session.send_line(call % b'{"content":"a \\ud83d b"}')
    refused = session.receive()

    assert (refused["id"], refused["error"]["code"]) == (5, mcp_types.PARSE_ERROR)
    assert "surrogate" in refused["error"]["message"]
    assert "result" in session.call("ping", {})


def test_a_line_that_is_too_long_is_answered_and_passed_over(session: RawSession) -> None:
    session.send_call(6, "hippo_remember", {"content": "x" * messages.MAX_BYTES})
    refused = session.receive()

    assert (refused["id"], refused["error"]["code"]) == (6, mcp_types.INVALID_REQUEST)
    assert "result" in session.call("ping", {})


def test_a_line_just_short_enough_reaches_the_tool(session: RawSession) -> None:
    answer = session.call("hippo_remember", {"content": "x" * (messages.MAX_BYTES - 200)})

    assert "content: must have at most 65536 UTF-8 bytes" in answer["result"]["content"][0]["text"]


def test_what_was_asked_is_answered_after_the_client_has_sent_its_last_byte(session: RawSession) -> None:
    for number in range(200):
        session.send_call(number, "hippo_recall", {"query": "last words", "mode": "keyword"})
    session.socket.shutdown(socket.SHUT_WR)
    answers = [json.loads(line) for line in session.lines]

    assert sorted(answer["id"] for answer in answers) == list(range(200))
    assert not any(answer["result"].get("isError") for answer in answers)


def test_a_last_line_needs_no_line_break(session: RawSession) -> None:
    session.socket.sendall(b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
    session.socket.shutdown(socket.SHUT_WR)

    assert session.receive() == {"jsonrpc": "2.0", "id": 9, "result": {}}
    assert session.lines.read() == b""


def test_a_cancelled_call_does_not_hold_the_session(session: RawSession) -> None:
    session.send_call(1, "hippo_recall", {"query": "cancelled"})
    session.send_line(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    session.socket.shutdown(socket.SHUT_WR)

    # The answer may have been on its way already.
    assert [json.loads(line)["id"] for line in session.lines] in ([], [1])


def test_a_session_outlives_a_call_that_is_cancelled_under_way(stack: Stack, session: RawSession) -> None:
    with suspended(stack.processes["storage"]):
        session.send_call(1, "hippo_recall", {"query": "cancelled", "mode": "keyword"})
        session.send(2, "ping", {})
        assert session.receive()["id"] == 2  # By now the call, which came first, waits for the storage.
        session.send_line(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
        session.send(3, "tools/list", {})
        answered = session.receive()

    assert (answered["id"], "result" in answered) == (3, True)
    assert "result" in session.call("ping", {})


@pytest.mark.parametrize("era", PROTOCOL)
async def test_a_client_that_gives_up_a_call_goes_on_with_its_session(stack: Stack, connect: Connect, era: Era) -> None:
    async with connect(era) as client:
        with suspended(stack.processes["storage"]), anyio.move_on_after(GIVEN_UP_SECONDS) as given_up:
            await client.call_tool("hippo_recall", {"query": "given up", "mode": "keyword"})
        recalled = await answer(client, "hippo_recall", query="asked again")

    assert given_up.cancelled_caught
    assert recalled["mode"] == "hybrid"


@pytest.mark.parametrize(
    "line",
    [b'{"hippovault_tools":"bogus"}', b'{"hippovault_tools":{}}', b"[]", b"junk", b'{"hippovault_tools":"all","a":1}'],
)
def test_a_first_line_that_chooses_no_tools_is_refused(path: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(line + b"\n")
        with connection.makefile("rb") as lines:
            [refused] = [json.loads(text) for text in lines]

    assert refused["error"]["code"] == mcp_types.INVALID_REQUEST
    assert "hippovault_tools" in refused["error"]["message"]


def test_a_client_that_breaks_off_disturbs_no_other(stack: Stack, path: Path, session: RawSession) -> None:
    for _ in range(5):
        with RawSession(path) as rude:
            rude.send_call(1, "hippo_recall", {"query": "never read"})
            rude.socket.sendall(b"junk\n" * 10_000)

    assert "result" in session.call("ping", {})
    assert b"unhandled" not in stack.processes["gateway"].log.read_bytes()


def test_more_sessions_than_there_may_be_are_closed(home: Path) -> None:
    path = home / "run" / "mcp.sock"
    with lonely_gateway(home), ExitStack() as held:
        for _ in range(socket_door.MAX_SESSIONS):
            held.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        with socket.socket(socket.AF_UNIX) as refused:
            # A socket with a timeout does not wait for a place among those that are not accepted yet.
            refused.connect(str(path))
            refused.settimeout(socket_door.PREAMBLE_SECONDS / 2)
            assert refused.recv(1) == b""


def test_a_connection_that_says_nothing_is_closed(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(2 * socket_door.PREAMBLE_SECONDS)
        silent.connect(str(path))
        assert silent.recv(1) == b""


def test_an_unknown_name_is_repeated_in_part_only(session: RawSession) -> None:
    unknown_tool = session.call("t" * 10_000, {})
    unknown_argument = session.call("ping", {"a" * 10_000: 1})

    assert "t" * 100 in json.dumps(unknown_tool)
    assert "a" * 100 in json.dumps(unknown_argument)
    assert max(len(json.dumps(one)) for one in (unknown_tool, unknown_argument)) < 1000


def test_only_the_owner_may_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.binary(min_size=1, max_size=300).filter(lambda line: b"\n" not in line and line.strip()))
def test_any_line_is_answered(session: RawSession, line: bytes) -> None:
    session.send_line(line)
    refused = session.receive()

    assert "error" in refused
    assert "result" in session.call("ping", {})


@contextmanager
def lonely_gateway(home: Path) -> Iterator[Process]:
    """A gateway without the services behind it."""
    gateway = start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": "off"})
    try:
        yield gateway
    finally:
        if gateway.popen.poll() is None:
            gateway.stop()


@pytest.fixture(scope="module")
def lonely(module_home: Path) -> Iterator[Process]:
    """One that tests share, and none of them stops."""
    with lonely_gateway(module_home) as gateway:
        yield gateway


@pytest.mark.parametrize("address", ["off", "127.0.0.1:0"])
def test_a_second_gateway_leaves_the_first_ones_socket_alone(lonely: Process, module_home: Path, address: str) -> None:
    with pytest.raises(AssertionError, match=rf"already \(pid {lonely.popen.pid}") as caught:
        start(["hippovault_gateway"], module_home, "second", {"HIPPOVAULT_GATEWAY_HTTP": address})

    assert "Traceback" not in str(caught.value)

    with RawSession(module_home / "run" / "mcp.sock") as session:
        assert "result" in session.call("ping", {})


@pytest.mark.parametrize("address", ["off", "127.0.0.1:0"])
def test_a_gateway_whose_socket_is_taken_by_a_file_says_so_and_no_more(home: Path, address: str) -> None:
    run = home / "run"
    run.mkdir(mode=0o700, parents=True)
    (run / "gateway.sock").touch()
    with pytest.raises(AssertionError, match=r"\nhippovault-gateway: .*gateway\.sock cannot be bound") as caught:
        start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": address})

    assert "Traceback" not in str(caught.value)


def test_a_service_that_is_down_is_told_by_its_name(lonely: Process, module_home: Path) -> None:
    with RawSession(module_home / "run" / "mcp.sock") as session:
        recalled = session.call("hippo_recall", {"query": "q", "mode": "dense"})
        listed = session.call("hippo_list_recent", {})

    assert recalled["result"]["content"][0]["text"].startswith("UNAVAILABLE: the embedding service")
    assert listed["result"]["content"][0]["text"].startswith("UNAVAILABLE: the storage service")
    assert lonely.popen.poll() is None


def test_a_gateway_that_stops_answers_what_was_asked(home: Path) -> None:
    path = home / "run" / "mcp.sock"
    with lonely_gateway(home) as gateway, RawSession(path) as session:
        session.send_call(1, "hippo_list_recent", {})
        session.send_call(2, "ping", {})
        assert gateway.stop() == 0
        answers = [json.loads(line) for line in session.lines]

    assert sorted(answer["id"] for answer in answers) == [1, 2]
    assert not path.exists()
