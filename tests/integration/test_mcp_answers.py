"""Answers that would be too long, resources, prompts, and the reports of calls that take long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from hippovault_gateway.mcp import budget
from hippovault_gateway.mcp.progress import INTERVAL_SECONDS
from integration.mcp_support import PROTOCOL, Era, RawSession, answer, refusal, suspended
from support.stack import Stack

LONG = 'The otter said "hello" to the 🦛.' + "\n" * 50_000 + "End."
"""With few words, which are embedded soon."""
SMALL = 4_096


@pytest.fixture(params=PROTOCOL)
def era(request: pytest.FixtureRequest) -> Era:
    era: Era = request.param
    return era


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


async def read(client: Client, uri: str) -> Any:
    """Returns the JSON document that a resource is."""
    [contents] = (await client.read_resource(uri)).contents
    assert isinstance(contents, mcp_types.TextResourceContents)
    assert (contents.uri, contents.mime_type) == (uri, "application/json")
    return json.loads(contents.text)


async def test_a_long_memory_is_previewed_and_can_be_had_whole(stack: Stack, namespace: str) -> None:
    async with Client(stack.mcp_http_url) as client:
        stored = await answer(client, "hippo_remember", content=LONG, namespace=namespace)
        number, size = stored["memory"]["id"], len(LONG.encode())
        [hit] = (await answer(client, "hippo_recall", query="otter", namespace=namespace, max_bytes=SMALL))["hits"]
        part = await answer(client, "hippo_get_entity", id=number, namespace=namespace)
        whole = await answer(client, "hippo_get_entity", id=number, namespace=namespace, max_bytes=200_000)

        for shown in (stored["memory"], hit, part["memory"]):
            assert (shown["id"], shown["content_bytes"], shown["cut"]) == (number, size, ["content"])
            assert LONG.startswith(shown["content"])
        assert "hippo_get_entity" in part["note"]
        [other] = (await answer(client, "list_memories", namespace=namespace, max_bytes=SMALL))["memories"]
        noted = await answer(client, "retrieve_memory", query="otter", namespace=namespace, max_bytes=SMALL)
        assert other["cut"] == ["content"]
        assert "hippo" not in noted["note"]
        assert 30_000 < budget.size(part) <= 32_768
        assert max(budget.size(stored), budget.size(hit)) <= SMALL
        assert (whole["memory"]["content"], "note" in whole) == (LONG, False)
        assert (await read(client, f"memory://{namespace}/{number}"))["content"] == LONG


async def test_hits_that_do_not_fit_are_counted(stack: Stack, namespace: str) -> None:
    async with Client(stack.mcp_http_url) as client:
        for number in range(30):
            await answer(client, "hippo_remember", content=f"Otter {number} " + "\n" * 500, namespace=namespace)
        found = await answer(client, "hippo_recall", query="otter", namespace=namespace, limit=30, max_bytes=SMALL)

        assert 5 < len(found["hits"]) < 30
        assert len(found["hits"]) + found["omitted_hits"] == 30
        assert budget.size(found) <= SMALL


@pytest.mark.parametrize(
    ("tool", "name"), [("hippo_scan", "memories"), ("hippo_list_recent", "memories"), ("hippo_history", "versions")]
)
async def test_pages_that_do_not_fit_are_shorter_and_skip_nothing(
    stack: Stack, namespace: str, tool: str, name: str
) -> None:
    async with Client(stack.mcp_http_url) as client:
        keyed = {"category": "c", "key": "k"} if tool == "hippo_history" else {}
        for number in range(25):
            await answer(client, "hippo_remember", content=f"{number} " + "\n" * 500, namespace=namespace, **keyed)
        seen: list[int] = []
        token, pages = "", 0
        while token or not pages:
            page = await answer(client, tool, namespace=namespace, limit=25, page_token=token, max_bytes=SMALL, **keyed)
            assert budget.size(page) <= SMALL
            assert len(page[name]) + page.get(f"omitted_{name}", 0) == 25 - len(seen)
            seen += [int(item.get("memory", item)["content"].split()[0]) for item in page[name]]
            token, pages = page["next_page_token"], pages + 1

        assert seen == list(range(24, -1, -1))
        assert pages > 2


async def test_who_counts_pages_is_told_what_did_not_fit(stack: Stack, namespace: str) -> None:
    async with Client(stack.mcp_http_url) as client:
        for number in range(12):
            await answer(client, "hippo_remember", content=f"{number} " + "\n" * 500, namespace=namespace)
        page = await answer(client, "list_memories", namespace=namespace, page=1, page_size=10, max_bytes=SMALL)
        rest = await answer(
            client, "list_memories", namespace=namespace, page_size=10, page_token=page["next_page_token"]
        )

    assert len(page["memories"]) + page["omitted_memories"] == 10
    assert budget.size(page) <= SMALL
    seen = [memory["content"].split()[0] for memory in [*page["memories"], *rest["memories"]]]
    assert seen == [str(number) for number in range(11, -1, -1)][: len(seen)]
    assert "omitted_memories" not in rest


async def test_a_write_that_is_repeated_with_its_request_id_is_done_once(stack: Stack, namespace: str) -> None:
    named = {"category": "door", "key": "colour", "namespace": namespace}
    async with Client(stack.mcp_http_url) as client:
        for _ in range(2):
            stored = await answer(client, "hippo_remember", content="It is red.", request_id="a", **named)
        for _ in range(2):
            updated = await answer(client, "hippo_update", content="It is blue.", request_id="b", **named)
        for _ in range(2):
            forgotten = await answer(client, "hippo_forget", request_id="c", **named)
        for _ in range(2):
            back = await answer(client, "hippo_undelete", request_id="d", **named)
        other = await refusal(client, "hippo_remember", content="It is green.", request_id="a", **named)
        past = await answer(client, "hippo_history", **named)

    assert (stored["outcome"], updated["memory"]["version"]) == ("created", 2)
    assert forgotten["ids"] == back["ids"] == [stored["memory"]["id"]]
    assert other.startswith("INVALID_ARGUMENT: request_id: ")
    assert {one["memory"]["content"] for one in past["versions"]} == {"It is red.", "It is blue."}


async def test_the_resources_are_listed_and_read(stack: Stack, era: Era, namespace: str) -> None:
    async with Client(stack.mcp_http_url, mode=era) as client:
        stored = await answer(client, "hippo_remember", content="A résumé.", namespace=namespace, tags=["a", "b"])
        await answer(client, "hippo_remember", content="A note.", namespace=namespace, tags=["b"], memory_type="note")
        listed = (await client.list_resources()).resources
        [template] = (await client.list_resource_templates()).resource_templates
        for resource in listed:
            await read(client, resource.uri)
        scope = namespace.replace("[", "%5B").replace("]", "%5D")
        memory = await read(client, f"memory://{scope}/{stored['memory']['id']}")
        recent = await read(client, f"memory://{scope}/recent")
        tags = await read(client, f"memory://{scope}/tags")
        stats = await read(client, f"memory://{scope}/stats")

    assert [resource.uri for resource in listed] == ["memory://recent", "memory://tags", "memory://stats"]
    assert all(resource.title and resource.description for resource in listed)
    assert template.title
    assert template.description
    assert template.uri_template == "memory://{namespace}/{id}"
    assert memory["content"] == "A résumé."
    assert [one["content"] for one in recent["memories"]] == ["A note.", "A résumé."]
    assert tags == {"tags": {"b": 2, "a": 1}}
    assert stats["namespace"] == {"total_memories": 2, "by_type": {"": 1, "note": 1}}
    assert stats["live_memories"] >= 2


@pytest.mark.parametrize(
    "uri",
    [
        "memory://nowhere/1", "memory://default/0", "memory://default/9223372036854775808", "memory://default/one",
        "memory://default/1/2", "memory://default/1?a=b", "memory://default", "memory://", "file:///etc/passwd",
        "memory://%ff/1", "memory://[/1", "", "recent", "memory://default/\u0661",
    ],
)  # fmt: skip
async def test_a_resource_that_is_not_there_is_an_error_of_the_protocol(stack: Stack, era: Era, uri: str) -> None:
    async with Client(stack.mcp_http_url, mode=era) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)

    error = caught.value.error
    assert error.code == {"auto": mcp_types.INVALID_PARAMS, "legacy": -32002}[era]
    assert error.message.startswith("NOT_FOUND: ")
    assert error.data["uri"] == uri


async def test_the_prompts_are_listed_and_filled_in(stack: Stack, era: Era, namespace: str) -> None:
    async with Client(stack.mcp_http_url, mode=era) as client:
        await answer(client, "hippo_remember", content="The otter lives in the harbour.", namespace=namespace)
        listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        texts = {}
        for name, arguments in {
            "recall_context": {"topic": "otter"}, "remember_decision": {"decision": "Feed it."},
            "session_review": {"hours": "2"},
        }.items():  # fmt: skip
            [message] = (await client.get_prompt(name, {**arguments, "namespace": namespace})).messages
            assert isinstance(message.content, mcp_types.TextContent)
            texts[name] = message.content.text

    assert listed.keys() == texts.keys()
    assert all(prompt.title and prompt.description for prompt in listed.values())
    assert [(one.name, one.required) for one in listed["recall_context"].arguments or []] == [
        ("topic", True),
        ("namespace", False),
    ]
    assert all(one.description for prompt in listed.values() for one in prompt.arguments or [])
    assert "The otter lives in the harbour." in texts["recall_context"]
    assert "hippo_remember" in texts["remember_decision"]
    assert '"total_memories":1' in texts["session_review"]


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("fly", {}, "Unknown prompt: fly"),
        ("recall_context", {}, "topic: Field required"),
        ("recall_context", {"topic": " "}, "query: must not be blank"),
        ("session_review", {"hours": "zzz"}, "hours: Input should be a valid number"),
        ("session_review", {"bogus": "1"}, "bogus: unknown argument"),
        ("session_review", {"namespace": "a\x00b"}, "namespace: must not have control characters"),
        ("remember_decision", {"decision": " "}, "decision: must not be blank"),
        ("remember_decision", {"decision": "x" * 65_537}, "decision: must have at most 65536 UTF-8 bytes, has 65537"),
        ("remember_decision", {"decision": "d", "reason": "a\x00b"}, "reason: must not have control characters"),
        ("remember_decision", {"decision": "d", "namespace": "a\x00b"}, "namespace: must not have control"),
    ],
)
async def test_a_prompt_that_cannot_be_filled_in_is_refused(
    stack: Stack, name: str, arguments: dict[str, str], problem: str
) -> None:
    async with Client(stack.mcp_http_url) as client:
        with pytest.raises(MCPError, match=problem) as caught:
            await client.get_prompt(name, arguments)

        assert caught.value.error.code == mcp_types.INVALID_PARAMS


async def test_a_call_that_takes_long_is_reported_where_the_client_asks(stack: Stack, era: Era) -> None:
    reports: list[tuple[float, str | None]] = []
    reported = asyncio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        reports.append((progress, message))
        reported.set()

    async with Client(stack.mcp_http_url, mode=era) as client:
        with suspended(stack.processes["storage"]):
            call = asyncio.create_task(client.call_tool("hippo_list_recent", {}, progress_callback=report))
            await asyncio.wait_for(reported.wait(), 20 * INTERVAL_SECONDS)
        result = await call

    assert not result.is_error
    assert reports[0] == (1.0, "List recent memories: 1 s so far")
    assert [done for done, _ in reports] == list(range(1, len(reports) + 1))


def test_what_was_not_asked_to_be_reported_is_not(stack: Stack) -> None:
    with RawSession(stack.home / "run" / "mcp.sock") as session:
        with suspended(stack.processes["storage"]):
            session.send("reported", "tools/call", {"name": "ping", "_meta": {"progressToken": "t"}})
            session.send("silent", "tools/call", {"name": "ping", "_meta": {}})
            session.send("wrong", "tools/call", {"name": "ping", "_meta": {"progressToken": True}})
            first = session.receive()
        rest = [session.receive()]
        while len({message.get("id") for message in rest} - {None}) < 3:
            rest.append(session.receive())

    reports = [message for message in [first, *rest] if "id" not in message]
    assert {message["method"] for message in reports} == {"notifications/progress"}
    assert {message["params"]["progressToken"] for message in reports} == {"t"}
