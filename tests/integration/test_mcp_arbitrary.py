"""Whatever JSON a client sends to a tool, a resource or a prompt, it gets an answer, or an error that says so.

HIPPOVAULT_TEST_CALLS sets how many calls are tried of each, at random, in place of the same few in every run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import mcp_types
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hippovault_gateway.limits import MAX_ANSWER_BYTES
from hippovault_gateway.mcp import resources, tools
from hippovault_gateway.mcp.prompts import PROMPTS
from integration.mcp_support import RawSession
from support.stack import Stack

CALLS = int(os.environ.get("HIPPOVAULT_TEST_CALLS", "0"))
"""0: the same few in every run."""
FEW = 50
DEFAULT_BYTES = 32_768
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "ABORTED"}
TOOLS = tools.of_set("all")
LIKELY = {"content": "arbitrary", "query": "arbitrary", "id": 1, "memory_type": "note"}

pytestmark = pytest.mark.timeout(0 if CALLS else 120)

arbitrary = settings(
    deadline=None,
    derandomize=not CALLS,
    max_examples=CALLS or FEW,
    phases=(Phase.generate, Phase.shrink) if CALLS else (Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
special = st.sampled_from(
    ["default", "a,b", "keyword", "all", "2026-01-31", " ", "\x00", "🦛" * 9, 0, -1, 5, 4096, 10**9, 10**30, 0.5]
)
values = st.recursive(
    scalars | special,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def session(stack: Stack) -> Iterator[RawSession]:
    with RawSession(stack.home / "run" / "mcp.sock") as session:
        yield session


def check(message: Any, tool: tools.Tool, arguments: Any) -> None:
    """Checks that an answer is an answer, or an error that says so, and that what must be refused is."""
    schema = tool.listed().input_schema
    refused = not isinstance(arguments, dict | None) or (
        isinstance(arguments, dict)
        and (
            not arguments.keys() <= schema["properties"].keys()
            or any(arguments.get(name) is None for name in schema.get("required", []))
        )
    )
    if "error" in message:
        assert message["error"]["code"] == mcp_types.INVALID_PARAMS
    elif message["result"].get("isError"):
        assert message["result"]["content"][0]["text"].partition(":")[0] in REFUSED
        assert "structuredContent" not in message["result"]
    else:
        assert not refused
        document = message["result"]["structuredContent"]
        jsonschema.validate(document, tool.listed().output_schema)
        [content] = message["result"]["content"]
        assert json.loads(content["text"]) == document
        assert len(content["text"].encode()) <= int((arguments or {}).get("max_bytes") or DEFAULT_BYTES)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_any_arguments_of_a_tool_are_answered_or_refused(session: RawSession, tool: tools.Tool) -> None:
    names = st.sampled_from([*tool.arguments.model_fields, "bogus"])
    likely = {name: LIKELY[name] for name in tool.arguments.model_fields if name in LIKELY}
    some = st.dictionaries(names, values, max_size=4).map(lambda drawn: {**likely, "namespace": "arbitrary", **drawn})
    if "namespace" not in tool.arguments.model_fields:
        some = st.dictionaries(names, values, max_size=1)

    @arbitrary
    @given(arguments=some | some | some | values)
    def run(arguments: Any) -> None:
        check(session.call(tool.name, arguments), tool, arguments)

    run()


@arbitrary
@given(
    uri=st.one_of(
        values,
        st.text().map(lambda text: f"memory://{text}"),
        st.tuples(st.text(max_size=5), st.integers() | st.sampled_from([*resources.LISTS])).map(
            lambda parts: f"memory://{parts[0]}/{parts[1]}"
        ),
    )
)
def test_any_uri_is_read_or_refused(session: RawSession, uri: Any) -> None:
    session.send("read", "resources/read", {"uri": uri})
    message = session.receive()

    if "error" in message:
        assert message["error"]["code"] in {mcp_types.INVALID_PARAMS, -32002}
    else:
        [contents] = message["result"]["contents"]
        assert contents["uri"] == uri
        assert len(contents["text"].encode()) <= MAX_ANSWER_BYTES


@arbitrary
@given(
    name=st.sampled_from([*PROMPTS, "bogus"]),
    arguments=values | st.dictionaries(st.sampled_from(["topic", "decision", "hours", "bogus"]), st.text(), max_size=3),
)
def test_any_arguments_of_a_prompt_are_answered_or_refused(session: RawSession, name: str, arguments: Any) -> None:
    session.send("prompt", "prompts/get", {"name": name, "arguments": arguments})
    message = session.receive()

    if "error" in message:
        assert message["error"]["code"] == mcp_types.INVALID_PARAMS
    else:
        assert message["result"]["messages"][0]["content"]["text"]
