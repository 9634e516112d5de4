"""JSON Schemas that strict clients take: no references, no unions, nothing that only people read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

JsonSchema = dict[str, Any]

NULL = {"type": "null"}
NOISE = ("title", "default", "$defs", "$ref", "anyOf")
WHOLE = 10
"""Levels of nesting, more than there are."""


def of_arguments(model: type[BaseModel], shown: Collection[str] = ()) -> JsonSchema:
    """Returns the schema of what a tool takes: closed, and what may be null is told as what may be left out.

    Args:
        model: The arguments.
        shown: Those that are told of; all when empty.
    """
    return _only(_described(model.model_json_schema(mode="validation"), result=False, levels=WHOLE), shown)


def of_result(model: type[BaseModel], levels: int, shown: Collection[str] = ()) -> JsonSchema:
    """Returns the schema of what a tool answers: open, so that a member added later breaks no client.

    Args:
        model: The answer.
        levels: How deep objects are described; a whole memory in every tool would cost each client more of its context
            than all the rest.
        shown: The members that are told of; all when empty.
    """
    return _only(_described(model.model_json_schema(mode="serialization"), result=True, levels=levels), shown)


def _only(schema: JsonSchema, shown: Collection[str]) -> JsonSchema:
    if shown:
        schema["properties"] = {name: schema["properties"][name] for name in shown}
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name in shown]
    return schema


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
        # Of an answer only what is always there: the rest would cost each client's context, and tells itself.
        names = schema.get("required", []) if result else schema["properties"]
        plain["properties"] = {name: inner(schema["properties"][name], levels - 1) for name in names}
    return plain
