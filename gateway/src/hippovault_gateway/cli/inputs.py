"""Options that several commands have, and what must be checked of them before anything is sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError

Tags = Annotated[list[str] | None, Parameter(name=("--tags", "--tag"))]
Stdin = Annotated[bool, Parameter(name=("-", "--stdin"))]
Hints = Annotated[list[str] | None, Parameter(name=("--hints", "--hint"))]
Names = Annotated[list[str] | None, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Naming:
    """How a memory is named where not by its id."""

    content_hash: Annotated[str, Parameter(name=("--content-hash", "--hash"))] = ""
    """Its content_hash."""
    category: str = ""
    """Its category, with --key."""
    key: str = ""
    """Its key."""
    namespace: str = ""
    """Scope (default: "default")."""

    def values(self, memory_id: int | None) -> dict[str, Any]:
        """Returns the arguments that name a memory, of its id too."""
        return {"id": memory_id, **asdict(self)}


BY_ID = Naming()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Details:
    """What a memory may have besides its content and its names; None is what is not given."""

    tags: Tags = None
    """Labels to filter by; may be repeated."""
    hints: Hints = None
    """Up to 3 wordings of questions that this memory answers; may be repeated. Refused unless the
    memory was started with HIPPOVAULT_HINTS_ENABLED=1."""
    memory_type: str | None = None
    """Such as decision, observation, pattern."""
    importance: float | None = None
    """0 to 1."""
    metadata: str | None = None
    """A JSON object of yours."""
    created_at: str | None = None
    """When it happened, ISO 8601 (default: now)."""
    status: str | None = None
    """Its state in your words, such as open or done."""

    def values(self) -> dict[str, Any]:
        """Returns the arguments that these options are."""
        values = asdict(self)
        check_unicode(values)
        return {**values, "metadata": _metadata(self.metadata)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NewDetails(Details):
    """The same, of a memory that is there already."""

    tags: Tags = None
    """All its tags; may be repeated."""
    hints: Hints = None
    """Up to 3 wordings of questions that this memory answers, all of them; may be repeated.
    Refused unless the memory was started with HIPPOVAULT_HINTS_ENABLED=1."""
    created_at: str | None = None
    """When it happened, ISO 8601."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """Which memories are found at all; all conditions hold together."""

    namespace: str = ""
    """Scope (default: "default")."""
    tags: Tags = None
    """Only memories with any of these tags; may be repeated."""
    tags_all: Names = None
    """Only memories with all of these tags; may be repeated."""
    memory_type: Names = None
    """Only memories of this type; may be repeated."""
    category: Names = None
    """Only memories of this category; may be repeated."""
    status: Names = None
    """Only memories of this status; may be repeated."""
    since: str | None = None
    """Only memories created at this time or later, ISO 8601."""
    before: str | None = None
    """Only memories created before this time, ISO 8601."""

    def values(self) -> dict[str, Any]:
        """Returns the arguments that these options are."""
        values = asdict(self)
        values["memory_types"] = values.pop("memory_type")
        return values


EVERYTHING = Narrowing()
NO_DETAILS = Details()
NO_NEW_DETAILS = NewDetails()


def check_unicode(values: Mapping[str, Any]) -> None:
    """Refuses words of the command line that were no UTF-8: they cannot be sent."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
                raise ServiceError.invalid(name, "must be UTF-8")


def _metadata(text: str | None) -> dict[str, Any] | None:
    """Returns the members of a JSON object; None when it is not given."""
    if text is None:
        return None
    memory_rules.metadata("metadata", text)
    members: dict[str, Any] = json.loads(text or "{}")
    return members


def from_stdin() -> str:
    """Returns the content on stdin, without the line break that ends it."""
    try:
        content = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ServiceError.invalid("content", f"is not UTF-8 at byte {error.start}") from None
    content = content.removesuffix("\n").removesuffix("\r")
    # Before it is sent: a request has its own limit, which would not name the field.
    memory_rules.text("content", content, memory_rules.MAX_CONTENT_BYTES, allowed=memory_rules.LINE_CONTROLS)
    return content
