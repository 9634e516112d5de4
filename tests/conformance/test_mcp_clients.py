"""Other people's MCP programs, which are installed as node_programs.py says: the official conformance suite, the
inspector's command, and both lines of the TypeScript SDK.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance import node_programs
from conformance.node_programs import Node
from support.processes import environment
from support.stack import Stack

pytestmark = pytest.mark.timeout(node_programs.INSTALL_SECONDS + node_programs.SECONDS)

HIPPOVAULT = str(Path(sys.executable).with_name("hippovault"))
INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SUITES = {
    "2025-11-25": [],
    "2026-07-28": ["--requirements", "2026-07-28"],
}
PASSED = {
    "2025-11-25": {
        "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection",
        "server-sse-multiple-streams",
    },
    "2026-07-28": {
        "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection", "server-sse-multiple-streams",
        "sep-2164-resource-not-found", "caching", "http-header-validation",
        "input-required-result-missing-input-response", "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params", "input-required-result-validate-input",
        "tasks-status-notifications",
    },
}  # fmt: skip
"""Scenarios of which no check fails. The others call the tools, prompts and resources of an example server that the
suite describes, such as `test_simple_text`, or what a server may leave out.
"""
OF_THE_EXAMPLE = re.compile(
    r"Unknown (tool|prompt): |[Nn]ot testable|tool' not found|Method not found|uri: must be one of memory://|"
    r"InputRequiredResult"
)
NOT_SCORED = ("tasks-",)
"""Scenarios of an extension."""


@pytest.fixture(scope="module")
def node() -> Node:
    return node_programs.installed()


@pytest.mark.parametrize("version", SUITES)
def test_the_conformance_suite_passes_as_far_as_it_needs_no_example(
    node: Node, stack: Stack, tmp_path: Path, version: str
) -> None:
    program = f"node_modules/conformance-{version}/dist/index.js"
    ended = node.run(program, "server", "--url", stack.mcp_http_url, "--output-dir", str(tmp_path), *SUITES[version])
    failed: dict[str, list[str]] = {}
    for path in tmp_path.glob("server-*/checks.json"):
        scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", path.parent.name)
        checks = [check for check in json.loads(path.read_text()) if check["status"] == "FAILURE"]
        failed[scenario] = [check.get("errorMessage", check["id"]) for check in checks]

    assert failed, ended.stderr
    assert {scenario for scenario, messages in failed.items() if not messages} == PASSED[version]
    unexplained = {
        scenario: [message for message in messages if not OF_THE_EXAMPLE.search(message)]
        for scenario, messages in failed.items()
        if not scenario.startswith(NOT_SCORED)
    }
    assert not any(unexplained.values()), unexplained


def inspected(node: Node, target: Sequence[str], *arguments: str) -> Any:
    """Returns what the inspector's command prints."""
    ended = node.run(INSPECTOR, "--cli", *target, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("door", ["stdio", "http"])
def test_the_inspector_lists_calls_and_reads(node: Node, stack: Stack, door: str) -> None:
    # The inspector takes no empty value, such as make's own variables may have.
    given = [f"{name}={value}" for name, value in environment(stack.home).items() if value]
    settings = [word for setting in given for word in ("-e", setting)]
    target = {"stdio": [*settings, HIPPOVAULT, "mcp"], "http": [stack.mcp_http_url, "--transport", "http"]}[door]
    scope = f"namespace=inspector-{door}"
    listed = node.run(INSPECTOR, "--cli", *target, "--method", "tools/list", "--strict")
    call = ("--method", "tools/call", "--tool-name")
    stored = inspected(node, target, *call, "hippo_remember", "--tool-arg", scope, "content=A heron.", 'tags=["bird"]')
    found = inspected(node, target, *call, "hippo_recall", "--tool-arg", scope, "query=heron")
    recent = inspected(node, target, "--method", "resources/read", "--uri", f"memory://inspector-{door}/recent")
    prompts = inspected(node, target, "--method", "prompts/list")

    assert listed.returncode == 0, listed.stderr
    assert "Issue:" not in listed.stderr  # Of a schema that some model's provider does not take.
    assert len(json.loads(listed.stdout)["tools"]) == 12
    assert stored["structuredContent"]["memory"]["tags"] == ["bird"]
    assert [hit["content"] for hit in found["structuredContent"]["hits"]] == ["A heron."]
    assert json.loads(recent["contents"][0]["text"])["memories"][0]["content"] == "A heron."
    assert len(prompts["prompts"]) == 3


@pytest.mark.parametrize("door", ["stdio", "http"])
@pytest.mark.parametrize("sdk", ["sdk", "client-legacy", "client"])
def test_a_typescript_client_gets_what_it_asks_for(node: Node, stack: Stack, sdk: str, door: str) -> None:
    namespace = f"{sdk}-{door}"
    target = {"stdio": [HIPPOVAULT, "mcp"], "http": [stack.mcp_http_url]}[door]
    ended = node.run("session.mjs", sdk, namespace, *target, variables=environment(stack.home))
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)

    content = "A heron stands in the harbour."
    assert len(told["tools"]) == 12
    assert told["remembered"]["outcome"] == "created"
    assert [hit["content"] for hit in told["recalled"]["hits"]] == [content]
    assert told["explained"]["hits"][0]["dense_rank"] == 1
    assert (told["updated"]["changed"], told["updated"]["memory"]["status"]) == (True, "seen")
    assert len(told["history"]["versions"]) == 1
    assert told["refused"]["isError"] is True
    assert told["refused"]["content"][0]["text"].startswith("INVALID_ARGUMENT: query: ")
    assert "Unknown tool: hippo_fly" in told["unknown"]["message"]
    assert told["resources"] == ["memory://recent", "memory://tags", "memory://stats"]
    assert told["templates"] == ["memory://{namespace}/{id}"]
    assert told["memory"]["content"] == content
    assert "NOT_FOUND" in told["nothing"]["message"]
    assert told["prompts"] == ["recall_context", "remember_decision", "session_review"]
    assert content in told["prompt"][0]["content"]["text"]
