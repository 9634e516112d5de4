"""What clients are told of the tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import mcp_types
import pytest

from hippovault_gateway.mcp import tools
from hippovault_gateway.settings import ToolSet

READERS = {
    "hippo_recall",
    "hippo_search",
    "hippo_get_entity",
    "hippo_list_recent",
    "hippo_scan",
    "hippo_history",
    "hippo_session_summary",
    "ping",
    "retrieve_memory",
    "list_memories",
}
DESTROYERS = {"hippo_update", "hippo_forget", "delete_memory"}
HIPPO = {"hippo_remember", "hippo_update", "hippo_forget", "hippo_undelete"} | {
    name for name in READERS if name.startswith("hippo_")
}
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


@pytest.mark.parametrize(
    ("tool_set", "names"), [("hippo", HIPPO | {"ping"}), ("shodh", SHODH | {"ping"}), ("all", HIPPO | {"ping"})]
)
def test_each_tool_is_listed_once_in_a_set(tool_set: ToolSet, names: set[str]) -> None:
    listed = [tool.name for tool in tools.listed(tool_set)]
    assert sorted(listed) == sorted(names)


@every_tool
def test_every_tool_is_described(tool: mcp_types.Tool) -> None:
    assert tool.title
    assert tool.description


@every_tool
def test_an_argument_that_is_listed_is_taken(tool: mcp_types.Tool) -> None:
    declared = tool.input_schema["properties"].keys()
    assert set(tool.input_schema.get("required", [])) <= declared
    assert declared <= tools.of_set("all")[tool.name].arguments.model_fields.keys()


@every_tool
def test_output_schemas_are_objects_without_references(tool: mcp_types.Tool) -> None:
    assert tool.output_schema
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    assert tool.output_schema["type"] == "object"
    for schema in schemas_within(tool.output_schema):
        assert not schema.keys() & {"$ref", "$defs", "anyOf", "oneOf", "allOf"}


@every_tool
def test_annotations_tell_what_a_tool_does(tool: mcp_types.Tool) -> None:
    assert tool.annotations == mcp_types.ToolAnnotations(
        read_only_hint=tool.name in READERS,
        destructive_hint=tool.name in DESTROYERS,
        idempotent_hint=True,
        open_world_hint=False,
    )


def test_an_argument_that_may_be_null_has_one_plain_type() -> None:
    properties = tools.SEARCH.listed().input_schema["properties"]

    assert properties["limit"]["type"] == "integer"
    assert properties["mode"]["enum"] == ["dense", "semantic", "keyword", "hybrid"]


def test_an_answers_schema_declares_what_is_always_there() -> None:
    schema = tools.RECALL.listed().output_schema
    assert schema

    assert schema["required"] == ["hits", "degraded", "omitted_hits"]
    hit = schema["properties"]["hits"]["items"]
    assert hit["required"] == list(hit["properties"]) == ["id", "content", "created_at", "score", "matched_by"]
