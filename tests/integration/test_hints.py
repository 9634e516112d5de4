"""Hints through every door: what is refused and what is kept, with their switch on and off."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import grpc
import mcp_types
import pytest
from mcp.client.client import Client

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis import channels
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import app
from hippovault_gateway.servicer import NAME
from support.command import in_process
from support.processes import environment, start
from support.stack import Stack

SECONDS = 60
SWITCH = "HIPPOVAULT_HINTS_ENABLED"
CONTENT = "It binds to 8443."
HINT = "what port does the api listen on"

Remember = Callable[[dict[str, Any]], str]
"""Remembers what a document says; returns the error's text, or "" when it is stored."""


@dataclass
class Gateway:
    """A gateway before the shared store, as a test reaches it."""

    stub: MemoryServiceStub
    mcp_http_url: str
    variables: dict[str, str]

    def listed(self, namespace: str) -> list[memory_pb2.Memory]:
        """What is stored."""
        return list(self.stub.ListMemories(pb.ListMemoriesRequest(namespace=namespace), timeout=SECONDS).memories)

    def found(self, namespace: str, query: str) -> list[memory_pb2.Memory]:
        """What the words of a query find."""
        request = pb.RecallRequest(namespace=namespace, query=query, mode=pb.RECALL_MODE_KEYWORD)
        return [hit.memory for hit in self.stub.Recall(request, timeout=SECONDS).hits]


@pytest.fixture(scope="module")
def on(stack: Stack) -> Iterator[Gateway]:
    """The shared gateway, which accepts hints."""
    with stack.client() as stub:
        yield Gateway(stub, stack.mcp_http_url, environment(stack.home))


@pytest.fixture(scope="module")
def off(stack: Stack) -> Iterator[Gateway]:
    """A second gateway before the same store, which does not."""
    address = f"unix:{stack.home.parent}/off.sock"
    variables = {
        "HIPPOVAULT_GATEWAY_LISTEN": address,
        "HIPPOVAULT_GATEWAY_STORAGE": f"unix:{stack.home}/run/storage.sock",
        "HIPPOVAULT_GATEWAY_EMBEDDING": f"unix:{stack.home}/run/embedding.sock",
        "HIPPOVAULT_GATEWAY_HTTP": "127.0.0.1:0",
    }
    home = stack.home.parent / "off"
    gateway = start(["hippovault_gateway"], home, "off", variables)
    try:
        with channels.sync(address, NAME, ()) as channel:
            yield Gateway(MemoryServiceStub(channel), gateway.status, environment(home, variables))
    finally:
        gateway.stop()


def by_grpc(gateway: Gateway) -> Remember:
    def remember(document: dict[str, Any]) -> str:
        try:
            gateway.stub.Remember(pb.RememberRequest(**document), timeout=SECONDS)
        except grpc.RpcError as error:
            return ServiceError.from_rpc(error, "gateway").message
        return ""

    return remember


def by_mcp(tool: str) -> Callable[[Gateway], Remember]:
    def door(gateway: Gateway) -> Remember:
        async def call(document: dict[str, Any]) -> str:
            async with Client(gateway.mcp_http_url) as client:
                result = await client.call_tool(tool, document)
                if not result.is_error:
                    return ""
                [text] = result.content
                assert isinstance(text, mcp_types.TextContent)
                return text.text.partition(": ")[2]  # Its code comes first.

        return lambda document: anyio.run(call, document)

    return door


@pytest.fixture
def commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Callable[[Gateway], Remember]]:
    """The doors of the command line, run within this process, which spares their start."""

    def run(gateway: Gateway, *arguments: str) -> dict[str, Any]:
        return in_process(gateway.variables, monkeypatch, capsys, warns=True)(*arguments)[1]

    def remember(gateway: Gateway) -> Remember:
        def one(document: dict[str, Any]) -> str:
            hints = [f"--hint={hint}" for hint in document["hints"]]
            shown = run(gateway, "remember", document["content"], "--namespace", document["namespace"], *hints)
            return str(shown.get("error", {"message": ""})["message"])

        return one

    def imported(gateway: Gateway) -> Remember:
        def one(document: dict[str, Any]) -> str:
            file = tmp_path_factory.mktemp("import") / "memories.jsonl"
            file.write_text(json.dumps(document))
            return "".join(error["message"] for error in run(gateway, "import", str(file))["errors"])

        return one

    return {"remember": remember, "import": imported}


DOORS = ("grpc", "hippo_remember", "store_memory", "remember", "import")


@pytest.fixture(params=DOORS)
def door(
    request: pytest.FixtureRequest, commands: dict[str, Callable[[Gateway], Remember]]
) -> Callable[[Gateway], Remember]:
    doors = {
        "grpc": by_grpc,
        "hippo_remember": by_mcp("hippo_remember"),
        "store_memory": by_mcp("store_memory"),
        **commands,
    }
    return doors[request.param]


@pytest.fixture
def namespace() -> str:
    return uuid.uuid4().hex


BAD: list[tuple[list[Any], str]] = [
    (["a", "b", "c", "d"], "hints: must be at most 3, are 4"),
    (["fine", "   "], "hints[1]: must not be blank"),
    (["x" * 201], "hints[0]: must have at most 200 UTF-8 bytes, has 201"),
    (["語" * 67], "hints[0]: must have at most 200 UTF-8 bytes, has 201"),
    (["a\x01b"], "hints[0]: must not have control characters, has U+0001 at position 1"),
]


@pytest.mark.parametrize("switched", ["on", "off"])
def test_what_is_wrong_with_hints_is_told_whether_or_not_they_are_accepted(
    request: pytest.FixtureRequest, door: Callable[[Gateway], Remember], namespace: str, switched: str
) -> None:
    gateway: Gateway = request.getfixturevalue(switched)
    remember = door(gateway)
    for hints, problem in BAD:
        told = remember({"namespace": namespace, "content": CONTENT, "hints": hints})
        assert told == problem
    assert gateway.listed(namespace) == []


@pytest.mark.parametrize("hints", [["a", 1], [None], [["a"]], {"a": "b"}, "one text", 7])
def test_hints_that_are_no_texts_are_refused(
    on: Gateway, commands: dict[str, Callable[[Gateway], Remember]], namespace: str, hints: object
) -> None:
    document = {"namespace": namespace, "content": CONTENT, "hints": hints}
    for remember in (by_mcp("hippo_remember")(on), commands["import"](on)):
        assert remember(document).startswith("hints")
    assert on.listed(namespace) == []


def test_with_the_switch_off_the_whole_write_is_refused_by_the_switchs_name(
    off: Gateway, door: Callable[[Gateway], Remember], namespace: str
) -> None:
    remember = door(off)
    assert SWITCH in remember({"namespace": namespace, "content": CONTENT, "hints": [HINT]})
    assert off.listed(namespace) == []
    assert remember({"namespace": namespace, "content": CONTENT, "hints": []}) == ""
    assert [memory.content for memory in off.listed(namespace)] == [CONTENT]


def test_hints_are_stored_trimmed_and_their_words_find_the_memory(
    on: Gateway, door: Callable[[Gateway], Remember], namespace: str
) -> None:
    longest = "y" * 200
    assert door(on)({"namespace": namespace, "content": CONTENT, "hints": [f" {HINT}\u2003", longest]}) == ""
    [memory] = on.found(namespace, "port")
    assert (memory.content, list(memory.hints)) == (CONTENT, [HINT, longest])
    assert on.listed(namespace) == [memory]


def by_tool(gateway: Gateway, tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The hits that a tool finds."""

    async def call() -> list[dict[str, Any]]:
        async with Client(gateway.mcp_http_url) as client:
            found = (await client.call_tool(tool, arguments)).structured_content
            assert found
            hits: list[dict[str, Any]] = found["hits"]
            return hits

    return anyio.run(call)


@pytest.mark.parametrize(
    ("query", "mode", "found"),
    [
        ("which port", "keyword", ["hint"]),
        ("8443", "keyword", ["content"]),
        ("is port 8443 bound", "hybrid", ["content", "hint", "dense"]),
        ("which port", "dense", ["dense"]),
    ],
)
def test_every_door_tells_what_a_hit_was_matched_by(
    on: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    namespace: str,
    query: str,
    mode: str,
    found: list[str],
) -> None:
    on.stub.Remember(pb.RememberRequest(namespace=namespace, content=CONTENT, hints=[HINT]), timeout=SECONDS)
    run = in_process(on.variables, monkeypatch, capsys)
    [by_command] = run("recall", query, "--namespace", namespace, "--mode", mode)[1]["hits"]
    arguments = {"query": query, "namespace": namespace, "mode": mode}
    [by_own] = by_tool(on, "hippo_recall", arguments)
    [by_alias] = by_tool(on, "retrieve_memory", arguments)
    number = pb.RecallMode.Value(f"RECALL_MODE_{mode.upper()}")
    request = pb.RecallRequest(namespace=namespace, query=query, mode=number)
    [hit] = on.stub.Recall(request, timeout=SECONDS).hits
    assert [f"MATCHED_BY_{name.upper()}" for name in found] == [
        memory_pb2.MatchedBy.Name(each) for each in hit.matched_by
    ]
    assert by_command["matched_by"] == by_own["matched_by"] == by_alias["matched_by"] == found


def test_a_table_marks_the_hits_that_hints_found(
    on: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], namespace: str
) -> None:
    for content, hints in ((CONTENT, [HINT]), ("The port is old.", [])):
        on.stub.Remember(pb.RememberRequest(namespace=namespace, content=content, hints=hints), timeout=SECONDS)
    for name, value in on.variables.items():
        monkeypatch.setenv(name, value)

    def table(query: str) -> list[str]:
        app.run(["recall", query, "--namespace", namespace, "--mode", "keyword"])
        return [line for line in capsys.readouterr().out.splitlines() if line.strip()]

    heading, _, *rows = table("port")
    assert " hint " in heading
    assert {row.split()[-1]: "yes" in row for row in rows} == {"8443.": True, "old.": False}
    assert " hint " not in table("8443")[0]


def test_null_hints_are_none(off: Gateway, commands: dict[str, Callable[[Gateway], Remember]], namespace: str) -> None:
    for remember in (by_mcp("hippo_remember")(off), commands["import"](off)):
        assert remember({"namespace": namespace, "content": CONTENT, "hints": None}) == ""
    [memory] = off.listed(namespace)
    assert list(memory.hints) == []


def test_the_switch_rules_what_is_accepted_and_changes_no_result(on: Gateway, off: Gateway, namespace: str) -> None:
    on.stub.Remember(pb.RememberRequest(namespace=namespace, content=CONTENT, key="k", hints=[HINT]), timeout=SECONDS)
    ref = memory_pb2.MemoryRef(entity=memory_pb2.EntityKey(key="k"))
    get = pb.GetMemoryRequest(namespace=namespace, ref=ref)
    for mode in (pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_DENSE, pb.RECALL_MODE_HYBRID):
        recall = pb.RecallRequest(namespace=namespace, query="which port", mode=mode, no_surprise_boost=True)
        first, second = (gateway.stub.Recall(recall, timeout=SECONDS).hits for gateway in (on, off))
        assert [hit.memory.hints for hit in first] == [[HINT]]
        assert [(hit.memory, hit.score, hit.keyword) for hit in first] == [
            (hit.memory, hit.score, hit.keyword) for hit in second
        ]
    assert on.listed(namespace) == off.listed(namespace) == [on.stub.GetMemory(get, timeout=SECONDS).memory]
    assert off.stub.GetMemory(get, timeout=SECONDS).memory.hints == [HINT]


def test_with_the_switch_off_a_put_still_clears_hints(on: Gateway, off: Gateway, namespace: str) -> None:
    on.stub.Remember(pb.RememberRequest(namespace=namespace, content=CONTENT, key="k", hints=[HINT]), timeout=SECONDS)
    off.stub.Remember(pb.RememberRequest(namespace=namespace, content=CONTENT, key="k"), timeout=SECONDS)
    assert on.found(namespace, "port") == []
