"""What every MCP door must do, whichever way a session reaches it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import mcp_types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from support.processes import Process

Era = Literal["auto", "legacy"]
Connect = Callable[[Era], Client]

PROTOCOL: dict[Era, str] = {"auto": "2026-07-28", "legacy": "2025-11-25"}
TOOLS = {
    "hippo": [
        "hippo_remember",
        "hippo_recall",
        "hippo_search",
        "hippo_get_entity",
        "hippo_list_recent",
        "hippo_scan",
        "hippo_update",
        "hippo_history",
        "hippo_forget",
        "hippo_undelete",
        "hippo_session_summary",
    ],
    "shodh": ["store_memory", "retrieve_memory", "list_memories", "delete_memory"],
}

MOST_LISTED_BYTES = 12_000
"""Of what a client is told of the tools."""

# What is asked, and the whole text of the refusal.
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("hippo_remember", {}, "content: Field required"),
    ("hippo_remember", {"content": "  \n\t"}, "content: must not be blank"),
    ("hippo_remember", {"content": "c", "bogus": 1}, "bogus: unknown argument"),
    ("hippo_remember", {"content": "c", "tags": ["ok", "a\x00b"]}, "tags[1]: must not have control characters"),
    ("hippo_remember", {"content": "c", "importance": 2}, "importance: must be 0 to 1, is 2"),
    ("hippo_remember", {"content": "c", "created_at": "zzz"}, "created_at: must be ISO 8601"),
    ("hippo_remember", {"content": "x" * 65_537}, "content: must have at most 65536 UTF-8 bytes, has 65537"),
    ("store_memory", {"content": " "}, "content: must not be blank"),
    ("hippo_recall", {"query": " "}, "query: must not be blank"),
    ("hippo_recall", {"query": "q", "limit": 0}, "limit: must be 1 to 100, is 0"),
    ("hippo_recall", {"query": "q", "limit": -1}, "limit: must be 1 to 100, is -1"),
    ("hippo_recall", {"query": "q", "limit": 10**9}, "limit: must be 1 to 100, is 1000000000"),
    ("hippo_recall", {"query": "q", "limit": "x"}, "limit: Input should be a valid integer"),
    ("hippo_recall", {"query": "q", "limit": True}, "limit: must not be a boolean"),
    ("hippo_recall", {"query": "q", "no_surprise_boost": "yes"}, "no_surprise_boost: must be true or false"),
    (
        "hippo_recall",
        {"query": "q", "mode": "fuzzy"},
        "mode: must be one of dense, semantic, keyword, hybrid, is 'fuzzy'",
    ),
    ("hippo_recall", {"query": "q", "tags": [" "]}, "tags[0]: must not be blank"),
    ("hippo_recall", {"query": "q", "oversample_factor": 2}, "oversample_factor: unknown argument"),
    ("hippo_recall", {"query": "q", "max_bytes": 4_095}, "max_bytes: must be 4096 to 1048576, is 4095"),
    ("hippo_search", {"query": "q", "since": "zzz"}, "since: must be ISO 8601"),
    ("hippo_search", {"query": "q", "explain": 1}, "explain: must be true or false"),
    ("hippo_search", {"query": "q", "category": [" "]}, "category[0]: must not be blank"),
    ("hippo_get_entity", {"id": 1, "key": "k"}, "id: exactly one of"),
    ("hippo_get_entity", {"id": 1, "visibility": "gone"}, "visibility: must be one of live, deleted, all, is 'gone'"),
    ("hippo_scan", {"limit": 101}, "limit: must be 1 to 100, is 101"),
    ("hippo_scan", {"n": 1}, "n: unknown argument"),
    ("hippo_update", {"id": 1}, "clear: give at least one field a value, or clear one"),
    ("hippo_update", {"id": 1, "namespace_": "x"}, "namespace_: unknown argument"),
    ("hippo_update", {"id": 1, "content": " "}, "content: must not be blank"),
    ("hippo_history", {"category": "c"}, "key: must not be blank"),
    ("hippo_undelete", {"id": 0}, "id: must be 1 to"),
    ("retrieve_memory", {"query": "q", "n_results": 0}, "n_results: must be 1 to 100, is 0"),
    ("hippo_list_recent", {"n": 0}, "n: must be 1 to 100, is 0"),
    ("hippo_list_recent", {"memory_type": "\x01"}, "memory_type: must not have control characters"),
    ("list_memories", {"page": 0}, "page: must be 1 to"),
    ("hippo_forget", {}, "id: exactly one of id, content_hash, or category with key names the memory"),
    ("hippo_session_summary", {"hours": 0}, "hours: must be more than 0"),
    ("ping", {"bogus": None}, "bogus: unknown argument"),
]


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    """Returns a tool's structured answer, which its text must equal and its schema must describe."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [text] = result.content
    assert isinstance(text, mcp_types.TextContent)
    assert json.loads(text.text) == result.structured_content
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Returns the text of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    [text] = result.content
    assert isinstance(text, mcp_types.TextContent)
    return text.text


@contextmanager
def suspended(process: Process) -> Iterator[None]:
    """Lets a process do nothing while the context lasts, so that what it is asked stays under way."""
    process.popen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.popen.pid, os.WSTOPPED)  # Until then it may still answer.
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)


class DoorTests:
    """Tests of one door; a subclass's module has the fixture `connect`."""

    @pytest.fixture(params=PROTOCOL)
    def era(self, request: pytest.FixtureRequest) -> Era:
        era: Era = request.param
        return era

    @pytest.fixture
    def namespace(self, request: pytest.FixtureRequest) -> str:
        return f"{type(self).__name__} {request.node.name}"

    async def test_a_session_of_each_era_tells_what_it_is(self, connect: Connect, era: Era) -> None:
        async with connect(era) as client:
            assert client.protocol_version == PROTOCOL[era]
            assert "hippo_recall" in (client.instructions or "")
            listed = (await client.list_tools()).tools

        assert [tool.name for tool in listed] == [*TOOLS["hippo"], "ping"]

    async def test_a_memory_is_remembered_recalled_listed_summed_up_and_forgotten(
        self, connect: Connect, era: Era, namespace: str
    ) -> None:
        content = "The deploy key of the staging cluster lives in the blue vault."
        async with connect(era) as client:
            stored = await answer(
                client, "hippo_remember",
                content=content, namespace=namespace, tags=["ops"], memory_type="decision", status="open",
            )  # fmt: skip
            again = await answer(client, "hippo_remember", content=content, namespace=namespace, tags=["keys"])
            recalled = await answer(client, "hippo_recall", query="where is the deploy key?", namespace=namespace)
            listed = await answer(client, "hippo_list_recent", namespace=namespace)
            summed_up = await answer(client, "hippo_session_summary", namespace=namespace, hours=1)
            rehearsed = await answer(
                client, "hippo_forget", id=stored["memory"]["id"], namespace=namespace, dry_run=True
            )
            forgotten = await answer(client, "hippo_forget", id=stored["memory"]["id"], namespace=namespace)
            nothing = await answer(client, "hippo_recall", query="where is the deploy key?", namespace=namespace)

        assert (stored["outcome"], again["outcome"]) == ("created", "existed")
        assert [hit["content"] for hit in recalled["hits"]] == [content]
        assert recalled["hits"][0]["tags"] == ["ops", "keys"]
        assert recalled["hits"][0]["status"] == "open"
        assert (listed["total"], listed["memories"]) == (1, [again["memory"]])
        assert summed_up["by_type"] == {"decision": 1}
        assert rehearsed == {"ids": [stored["memory"]["id"]], "deleted": 1, "dry_run": True}
        assert forgotten == {"ids": [stored["memory"]["id"]], "deleted": 1, "dry_run": False}
        assert nothing["hits"] == []

    async def test_the_shodh_names_take_their_own_parameters(self, connect: Connect, era: Era, namespace: str) -> None:
        async with connect(era) as client:
            for number in range(3):
                stored = await answer(
                    client,
                    "store_memory",
                    content=f"Fact number {number} about otters.",
                    metadata={"tags": "a,b", "type": "note"},
                    client_hostname="laptop",
                    namespace=namespace,
                )
            found = await answer(client, "retrieve_memory", query="otters", n_results=2, namespace=namespace)
            second = await answer(client, "list_memories", page=2, page_size=2, tag="a", namespace=namespace)
            none = await answer(client, "list_memories", memory_type="other", namespace=namespace)
            deleted = await answer(
                client, "delete_memory", content_hash=stored["memory"]["content_hash"], namespace=namespace
            )

        assert stored["memory"]["tags"] == ["a", "b"]
        assert stored["memory"]["memory_type"] == "note"
        assert stored["memory"]["metadata"]["hostname"] == "laptop"
        assert len(found["hits"]) == 2
        assert [memory["content"] for memory in second["memories"]] == ["Fact number 0 about otters."]
        assert (second["total"], none["total"], deleted["deleted"]) == (3, 0, 1)

    async def test_a_key_names_what_changes(self, connect: Connect, namespace: str) -> None:
        named = {"category": "host", "key": "port", "namespace": namespace}
        async with connect("auto") as client:
            await answer(client, "hippo_remember", content="The port is 80.", **named)
            updated = await answer(client, "hippo_remember", content="The port is 443.", **named)
            await answer(client, "hippo_forget", **named)
            gone = await refusal(client, "hippo_forget", **named)

        assert (updated["outcome"], updated["memory"]["version"]) == ("updated", 2)
        assert gone.startswith("NOT_FOUND: key: ")

    async def test_a_memory_is_read_changed_looked_back_on_and_brought_back(
        self, connect: Connect, era: Era, namespace: str
    ) -> None:
        named = {"category": "host", "key": "port", "namespace": namespace}
        async with connect(era) as client:
            await answer(client, "hippo_remember", content="The port is 80.", tags=["net"], **named)
            await answer(client, "hippo_remember", content="The cat is called Ada.", namespace=namespace)
            changed = await answer(client, "hippo_update", content="The port is 443.", status="live", **named)
            read = await answer(client, "hippo_get_entity", **named)
            before = await answer(client, "hippo_get_entity", as_of=changed["memory"]["created_at"], **named)
            past = await answer(client, "hippo_history", **named)
            scanned = await answer(client, "hippo_scan", category=["host"], status="live", namespace=namespace)
            await answer(client, "hippo_forget", **named)
            gone = await refusal(client, "hippo_get_entity", **named)
            deleted = await answer(client, "hippo_get_entity", visibility="deleted", **named)
            back = await answer(client, "hippo_undelete", **named)

        assert (changed["changed"], changed["memory"]["version"]) == (True, 2)
        assert read["memory"] == changed["memory"]
        assert (read["memory"]["tags"], read["memory"]["status"]) == (["net"], "live")
        assert before["memory"]["content"] == "The port is 80."
        assert [one["memory"]["content"] for one in past["versions"]] == ["The port is 443.", "The port is 80."]
        assert scanned["memories"] == [read["memory"]]
        assert gone.startswith("NOT_FOUND: key: ")
        assert "deleted_at" in deleted["memory"]
        assert back == {"ids": [read["memory"]["id"]], "undeleted": 1, "dry_run": False}

    async def test_a_search_filters_and_explains(self, connect: Connect, era: Era, namespace: str) -> None:
        async with connect(era) as client:
            for category in ("red", "blue"):
                await answer(
                    client, "hippo_remember", content=f"The {category} boat leaks.", category=category,
                    created_at=f"20{len(category)}0-01-01", namespace=namespace,
                )  # fmt: skip
            asked = {"query": "which boat leaks?", "namespace": namespace}
            [brief] = (await answer(client, "hippo_search", category=["red"], **asked))["hits"]
            explained = await answer(client, "hippo_search", before="2035-01-01", explain=True, **asked)
            none = await answer(client, "hippo_search", category=["red"], since="2035-01-01", **asked)
            recalled = await answer(client, "hippo_recall", **asked)

        assert brief["content"] == "The red boat leaks."
        assert "dense_rank" not in brief
        [hit] = explained["hits"]
        assert hit["content"] == brief["content"]
        assert {"relevance", "decay", "dense_rank", "keyword_rank", "keyword_score", "surprise_score"} <= hit.keys()
        assert hit["matched_by"] == ["content", "dense"]
        assert "times_ms" in explained
        assert none["hits"] == []
        assert len(recalled["hits"]) == 2
        assert recalled["hits"][0].keys() == brief.keys()

    async def test_pages_follow_their_token(self, connect: Connect, namespace: str) -> None:
        async with connect("auto") as client:
            for number in range(3):
                await answer(client, "hippo_remember", content=f"Page {number}", namespace=namespace)
            first = await answer(client, "hippo_list_recent", limit=2, namespace=namespace)
            rest = await answer(
                client, "hippo_list_recent", n=2, page_token=first["next_page_token"], namespace=namespace
            )

        contents = [memory["content"] for page in (first, rest) for memory in page["memories"]]
        assert contents == ["Page 2", "Page 1", "Page 0"]
        assert rest["next_page_token"] == ""

    async def test_ping_tells_of_the_services(self, connect: Connect, era: Era) -> None:
        async with connect(era) as client:
            told = await answer(client, "ping")

        assert {service["name"]: service["serving"] for service in told["services"]} == {
            "embedding": True,
            "storage": True,
        }

    async def test_what_is_wrong_is_refused_by_name_and_nothing_is_stored(
        self, connect: Connect, era: Era, namespace: str
    ) -> None:
        async with connect(era) as client:
            for tool, arguments, expected in REFUSALS:
                scoped = arguments if tool == "ping" else {**arguments, "namespace": namespace}
                text = await refusal(client, tool, **scoped)
                assert text.startswith(f"INVALID_ARGUMENT: {expected}"), tool
            listed = await answer(client, "hippo_list_recent", namespace=namespace)

        assert listed["total"] == 0

    async def test_an_unknown_memory_is_not_found(self, connect: Connect, era: Era, namespace: str) -> None:
        async with connect(era) as client:
            texts = [
                await refusal(client, "hippo_forget", id=2**62, namespace=namespace),
                await refusal(client, "delete_memory", content_hash="0" * 64, namespace=namespace),
            ]

        assert [text.partition(":")[0] for text in texts] == ["NOT_FOUND", "NOT_FOUND"]
        assert texts[0].startswith("NOT_FOUND: id: ")
        assert texts[1].startswith("NOT_FOUND: content_hash: ")

    async def test_an_error_tells_programs_its_reason(self, connect: Connect) -> None:
        async with connect("auto") as client:
            result = await client.call_tool("hippo_recall", {"query": "q", "limit": 0})

        assert (result.meta or {})["hippovault/error"] == {
            "code": "INVALID_ARGUMENT",
            "reason": "INVALID_FIELD",
            "field": "limit",
        }

    async def test_an_unknown_tool_is_an_error_of_the_protocol(self, connect: Connect, era: Era) -> None:
        async with connect(era) as client:
            with pytest.raises(MCPError, match="Unknown tool: hippo_fly") as caught:
                await client.call_tool("hippo_fly", {})

        assert caught.value.error.code == mcp_types.INVALID_PARAMS

    async def test_calls_of_one_session_run_at_once(self, connect: Connect, era: Era, namespace: str) -> None:
        async with connect(era) as client:
            stored = await asyncio.gather(
                *(
                    answer(client, "hippo_remember", content=f"Parallel fact {number}", namespace=namespace)
                    for number in range(20)
                )
            )
            recalled = await asyncio.gather(
                *(
                    answer(client, "hippo_recall", query=f"Parallel fact {number}", namespace=namespace, mode="keyword")
                    for number in range(20)
                )
            )

        assert len({result["memory"]["id"] for result in stored}) == 20
        assert [len(result["hits"]) for result in recalled] == [10] * 20


class RawSession:
    """A session of JSON-RPC lines over a Unix socket, with nothing between the test and the bytes.

    Args:
        path: Of the socket.
        tools: Set of tools asked for.
    """

    def __init__(self, path: Path, tools: str = "all") -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")
        self.send_line(json.dumps({"hippovault_tools": tools}).encode())

    def __enter__(self) -> Self:
        """Opens the session by the handshake."""
        client = {"name": "test", "version": "0"}
        start = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.send(0, "initialize", start)
        assert "result" in self.receive()
        self.send_line(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Breaks the connection off."""
        self.lines.close()
        self.socket.close()

    def send_line(self, line: bytes) -> None:
        """Sends any bytes as a line."""
        self.socket.sendall(line + b"\n")

    def send(self, request_id: int | str, method: str, params: object) -> None:
        """Sends a request."""
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.send_line(json.dumps(request).encode())

    def send_call(self, request_id: int | str, tool: str, arguments: object) -> None:
        """Sends the call of a tool."""
        self.send(request_id, "tools/call", {"name": tool, "arguments": arguments})

    def receive(self) -> Any:
        """Returns the next message."""
        return json.loads(self.lines.readline())

    def call(self, tool: str, arguments: object) -> Any:
        """Calls a tool and returns the message that answers it."""
        self.send_call("call", tool, arguments)
        message = self.receive()
        assert message["id"] == "call"
        return message
