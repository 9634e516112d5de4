"""What clients are told of the tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import mcp_types
import pytest

from hippovault_gateway.mcp import tools
from hippovault_gateway.settings import ToolSet

HIPPO = {"hippo_remember", "hippo_recall", "hippo_list_recent", "hippo_forget", "hippo_session_summary"}
SHODH = {"store_memory", "retrieve_memory", "list_memories", "delete_memory"}
LISTED = [tool.listed() for tool in tools.TOOLS]

every_tool = pytest.mark.parametrize("tool", LISTED, ids=lambda tool: tool.name)


def schemas_within(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields the schema and every one inside it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for part in inner:
        if isinstance(part, dict):
            yield from schemas_within(part)


@pytest.mark.parametrize(
    ("tool_set", "names"),
    [("hippo", HIPPO | {"ping"}), ("shodh", SHODH | {"ping"}), ("all", HIPPO | SHODH | {"ping"})],
)
def test_a_set_narrows_the_tools_and_ping_is_in_each(tool_set: ToolSet, names: set[str]) -> None:
    assert set(tools.of_set(tool_set)) == names


@every_tool
def test_input_schemas_suit_strict_clients(tool: mcp_types.Tool) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    assert tool.input_schema["type"] == "object"
    assert tool.input_schema["additionalProperties"] is False
    for schema in schemas_within(tool.input_schema):
        assert not schema.keys() & {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "default"}
        assert isinstance(schema["type"], str)
        assert all(isinstance(value, str) for value in schema.get("enum", []))


@every_tool
def test_every_tool_and_argument_is_described(tool: mcp_types.Tool) -> None:
    assert tool.title
    assert tool.description
    for name, schema in tool.input_schema["properties"].items():
        assert schema.get("description"), name


@every_tool
def test_output_schemas_are_objects_without_references(tool: mcp_types.Tool) -> None:
    assert tool.output_schema
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    assert tool.output_schema["type"] == "object"
    for schema in schemas_within(tool.output_schema):
        assert not schema.keys() & {"$ref", "$defs", "anyOf", "oneOf", "allOf"}


@every_tool
def test_annotations_tell_what_a_tool_does(tool: mcp_types.Tool) -> None:
    writes = tool.name in {"hippo_remember", "store_memory", "hippo_forget", "delete_memory"}
    deletes = tool.name in {"hippo_forget", "delete_memory"}
    assert tool.annotations == mcp_types.ToolAnnotations(
        read_only_hint=not writes, destructive_hint=deletes, idempotent_hint=True, open_world_hint=False
    )


def test_an_argument_that_may_be_null_has_one_plain_type() -> None:
    properties = tools.RECALL.listed().input_schema["properties"]

    assert properties["limit"]["type"] == "integer"
    assert properties["mode"]["enum"] == ["dense", "semantic", "keyword", "hybrid"]


def test_a_result_that_may_be_null_says_so() -> None:
    schema = tools.REMEMBER.listed().output_schema
    assert schema

    assert schema["properties"]["memory"]["properties"]["importance"]["type"] == ["number", "null"]


@pytest.mark.parametrize(("tool_set", "most"), [("hippo", 11_000), ("all", 16_000)])
def test_the_list_leaves_room_in_a_clients_context(tool_set: ToolSet, most: int) -> None:
    listed = [tool.listed() for tool in tools.of_set(tool_set).values()]

    assert len(mcp_types.ListToolsResult(tools=listed).model_dump_json(by_alias=True, exclude_none=True)) < most
