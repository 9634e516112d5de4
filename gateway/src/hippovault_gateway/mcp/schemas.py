"""JSON Schemas that strict clients take: no references, no unions, nothing that only people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

JsonSchema = dict[str, Any]

NULL = {"type": "null"}
NOISE = ("title", "default", "$defs", "$ref", "anyOf")
WHOLE = 10
"""Levels of nesting, more than there are."""


def of_arguments(model: type[BaseModel]) -> JsonSchema:
    """Returns the schema of what a tool takes: closed, and what may be null is told as what may be left out."""
    return _described(model.model_json_schema(mode="validation"), result=False, levels=WHOLE)


def of_result(model: type[BaseModel], levels: int) -> JsonSchema:
    """Returns the schema of what a tool answers: open, so that a member added later breaks no client.

    Args:
        model: The answer.
        levels: How deep objects are described; a whole memory in every tool would cost each client more of its context
            than all the rest.
    """
    return _described(model.model_json_schema(mode="serialization"), result=True, levels=levels)


def _described(schema: JsonSchema, *, result: bool, levels: int) -> JsonSchema:
    plain = _plain(schema, schema.get("$defs", {}), result=result, levels=levels)
    plain.pop("description", None)  # The class's docstring; the tool has a better one.
    return plain


def _plain(
    schema: Mapping[str, Any], definitions: Mapping[str, JsonSchema], *, result: bool, levels: int
) -> JsonSchema:
    if "$ref" in schema:
        definition = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**definition, "description": "", **schema}
    plain = {name: value for name, value in schema.items() if name not in NOISE and value != ""}

    def inner(part: Mapping[str, Any], levels: int = levels) -> JsonSchema:
        return _plain(part, definitions, result=result, levels=levels)

    if "anyOf" in schema:
        [only] = [option for option in schema["anyOf"] if option != NULL]
        plain = {**inner(only), **plain}
        plain["type"] = [plain["type"], "null"] if result else plain["type"]
    if "items" in schema:
        plain["items"] = inner(schema["items"])
    if plain.get("additionalProperties") is True or (result and plain.get("additionalProperties") is False):
        del plain["additionalProperties"]
    if "properties" in schema:
        if not levels:
            return {"type": "object"}
        plain["properties"] = {name: inner(part, levels - 1) for name, part in schema["properties"].items()}
    return plain
