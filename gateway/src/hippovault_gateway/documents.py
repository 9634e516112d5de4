"""JSON objects that somebody else wrote: MCP arguments, options of commands, lines of JSONL files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from hippovault.memory.v1 import memory_service_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError

DocumentT = TypeVar("DocumentT", bound="Document")


class Document(BaseModel):
    """A JSON object that has the declared members and no other."""

    # Built when first used: a command uses few of these classes.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class Input(Document):
    """A document that somebody else wrote."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _booleans_apart(cls, value: object, info: ValidationInfo) -> object:
        # Pydantic would take true for 1 and "yes" for true. That it takes "10" for 10 is right: agents send it.
        wanted = cls.model_fields[str(info.field_name)].annotation is bool
        if isinstance(value, bool) is wanted:
            return value
        raise PydanticCustomError("boolean", "must be true or false" if wanted else "must not be a boolean")


def parse(document: type[DocumentT], value: Mapping[str, Any]) -> DocumentT:
    """Returns the checked document.

    Raises:
        ServiceError: INVALID_ARGUMENT naming the first member that is unknown, missing or of another type.
    """
    try:
        return document.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")[
            : memory_rules.MAX_SHOWN
        ]
        message = "unknown argument" if problem["type"] == "extra_forbidden" else problem["msg"]
        raise ServiceError.invalid(field or "arguments", message) from None


def _split_tags(value: object) -> object:
    """Takes `"a,b"` for `["a", "b"]`; a string must never be taken letter by letter."""
    return [tag for tag in value.split(",") if tag.strip()] if isinstance(value, str) else value


def _none_is_empty(value: object) -> object:
    return [] if value is None else value


def _text_is_one(value: object) -> object:
    """Takes `"a"` for `["a"]`: names may have commas."""
    return [value] if isinstance(value, str) else value


def _none_is_no_members(value: object) -> object:
    return {} if value is None else value


def _text_of_time(value: object) -> object:
    """Takes seconds since 1970 as well; they become text, which `timestamp` reads."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(value)


Tags = Annotated[list[str], BeforeValidator(_split_tags), BeforeValidator(_none_is_empty)]
Texts = Annotated[list[str], BeforeValidator(_none_is_empty)]
Names = Annotated[list[str], BeforeValidator(_text_is_one), BeforeValidator(_none_is_empty)]
Time = Annotated[str, BeforeValidator(_text_of_time)]


def timestamp(field: str, value: str) -> Timestamp:
    """Returns the instant that ISO 8601 text names; without a zone it is UTC.

    Raises:
        ServiceError: INVALID_ARGUMENT when it names none.
    """
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ServiceError.invalid(field, "must be ISO 8601, such as 2026-01-31T12:00:00Z") from None
    result = Timestamp()
    try:
        result.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # Its zone moves it out.
        raise ServiceError.invalid(field, "must lie in the years 1 to 9999") from None
    return result


class Details(Input):
    """What a memory may have besides its content and its names."""

    tags: Tags = []
    hints: Texts = []
    """Up to 3 questions that it answers."""
    memory_type: str = ""
    """Such as decision."""
    importance: float | None = None
    """0 to 1."""
    metadata: Annotated[dict[str, Any], BeforeValidator(_none_is_no_members)] = {}
    created_at: Time | None = None
    """When it happened, ISO 8601."""
    status: str = ""
    """Such as open or done."""

    def details(self) -> dict[str, Any]:
        """Returns the fields of a message that has them.

        Raises:
            ServiceError: INVALID_ARGUMENT for what cannot cross the wire.
        """
        return {
            "tags": self.tags,
            "hints": self.hints,
            "memory_type": self.memory_type,
            "importance": self.importance,
            "metadata": dump_metadata(self.metadata),
            "created_at": None if self.created_at is None else timestamp("created_at", self.created_at),
            "status": self.status,
        }


class _Named(Input):
    content: str
    namespace: str = ""
    category: str = ""
    """A group of your choice."""
    key: str = ""
    """Your name for it in the category; remembering it again updates it."""


class MemoryInput(Details, _Named):
    """What can be remembered: the arguments of `hippo_remember` and a line of a JSONL file."""

    def request(self) -> memory_service_pb2.RememberRequest:
        """Returns the request that remembers it.

        Raises:
            ServiceError: INVALID_ARGUMENT for what cannot cross the wire; the rest is the application's to check.
        """
        return memory_service_pb2.RememberRequest(
            namespace=self.namespace, content=self.content, category=self.category, key=self.key, **self.details()
        )


def dump_metadata(value: dict[str, Any]) -> str:
    """Returns metadata as JSON text; "" for none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) if value else ""
        text.encode()
    except (ValueError, RecursionError):
        raise ServiceError.invalid("metadata", "must be JSON: finite numbers, valid Unicode") from None
    return text


MODES: dict[str, memory_service_pb2.RecallMode.ValueType] = {
    "dense": memory_service_pb2.RECALL_MODE_DENSE,
    "semantic": memory_service_pb2.RECALL_MODE_DENSE,
    "keyword": memory_service_pb2.RECALL_MODE_KEYWORD,
    "hybrid": memory_service_pb2.RECALL_MODE_HYBRID,
}
"""Names of the recall modes; `semantic` is an alias."""


def mode_value(name: str) -> memory_service_pb2.RecallMode.ValueType:
    """Returns the mode of that name.

    Raises:
        ServiceError: INVALID_ARGUMENT when there is none.
    """
    return MODES[memory_rules.choice("mode", name, MODES)]


def mode_name(value: memory_service_pb2.RecallMode.ValueType) -> str:
    """Returns the name of a mode that was used."""
    return next(name for name, mode in MODES.items() if mode == value)
