"""What a memory may be: the one validator, used at every door and again by storage.

Each function raises ServiceError INVALID_ARGUMENT naming the field, the limit and the value's size, never its text
unless it had to be one of few names.
"""

from __future__ import annotations

import functools
import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2 as pb
from hippovault_chassis.errors import ServiceError

DEFAULT_NAMESPACE = "default"

FIELDS = (
    "content",
    "category",
    "key",
    "memory_type",
    "status",
    "tags",
    "hints",
    "importance",
    "metadata",
    "created_at",
)
"""Of a memory, what a caller may set besides its namespace."""

MAX_CONTENT_BYTES = 65_536
MAX_QUERY_BYTES = 8_192
MAX_NAME_BYTES = 256
"""For namespace, category, key, memory_type and status."""
MAX_TAGS = 32
MAX_TAG_BYTES = 128
MAX_HINTS = 3
MAX_HINT_BYTES = 200
MAX_METADATA_BYTES = 16_384
MAX_METADATA_DEPTH = 64
MAX_REQUEST_ID_BYTES = 128
MAX_SHOWN = 100
"""Characters of a name that somebody else gave and that an error repeats."""
SURROGATE = re.compile("[\ud800-\udfff]")

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
"""Unicode's category Cc, which never grows."""
LINE_CONTROLS = frozenset("\t\n\r")
"""Control characters that running text may have."""


def normalise(memory: pb.Memory) -> None:
    """Checks what a caller may set and brings it to its stored form, in place.

    Names, tags and hints are trimmed, tags lose repetitions, an empty namespace becomes the default one. Content stays
    byte for byte: identity is the exact bytes.
    """
    memory.namespace = namespace(memory.namespace)
    for field in FIELDS:
        _normalise_field(memory, field)


def update(memory: pb.Memory, mask: FieldMask, allowed: Sequence[str] = FIELDS) -> None:
    """Checks what an update sets and brings it to its stored form, in place; what the mask leaves out is not looked at.

    Args:
        memory: Has the new values.
        mask: Names the fields that are set.
        allowed: What it may name.
    """
    if not mask.paths:
        raise ServiceError.invalid("update_mask", "must name the fields that are set, at least one")
    for index, field in enumerate(mask.paths):
        choice(f"update_mask.paths[{index}]", field, allowed)
        if field == "created_at" and not memory.HasField("created_at"):
            raise ServiceError.invalid(field, "must be given, since a memory has a time")
        if field in FIELDS:
            _normalise_field(memory, field)


def _normalise_field(memory: pb.Memory, field: str) -> None:
    match field:
        case "content":
            text(field, memory.content, MAX_CONTENT_BYTES, allowed=LINE_CONTROLS)
        case "tags":
            memory.tags[:] = tags(field, memory.tags)
        case "hints":
            memory.hints[:] = hints(field, memory.hints)
        case "importance":
            fraction(field, memory.importance)
        case "metadata":
            metadata(field, memory.metadata)
        case "created_at":
            timestamp(field, memory.created_at)
        case _:
            setattr(memory, field, _name(field, getattr(memory, field)))


def namespace(value: str) -> str:
    """Returns the namespace, trimmed; the default one for an empty one."""
    return _name("namespace", value) or DEFAULT_NAMESPACE


def _name(field: str, value: str) -> str:
    """Returns a name, trimmed; it may be empty."""
    value = value.strip()
    if value:
        text(field, value, MAX_NAME_BYTES)
    return value


def text(field: str, value: str, limit: int, *, allowed: frozenset[str] = frozenset()) -> None:
    """Checks one text: not blank, at most `limit` UTF-8 bytes, no control characters but the allowed ones."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ServiceError.invalid(field, "must be valid Unicode, without lone surrogates") from None
    if size > limit:
        raise ServiceError.invalid(field, f"must have at most {limit} UTF-8 bytes, has {size}")
    if is_blank(value):
        raise ServiceError.invalid(field, "must not be blank")
    control = _controls_but(allowed).search(value)
    if control:
        found = f"U+{ord(control[0]):04X} at position {control.start()}"
        raise ServiceError.invalid(field, f"must not have control characters, has {found}")


@functools.cache
def _controls_but(allowed: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{''.join(character for character in CONTROLS if character not in allowed)}]")


def reference(field: str, value: pb.MemoryRef) -> None:
    """Checks that a reference names a memory, and brings its key to its stored form, in place."""
    if value.WhichOneof("ref") is None:
        raise ServiceError.invalid(field, "must name a memory by id, content_hash or entity")
    if value.HasField("entity"):
        entity = value.entity
        entity.category, entity.key = entity.category.strip(), entity.key.strip()
        text(f"{field}.entity.key", entity.key, MAX_NAME_BYTES)


def request_id(value: str) -> str:
    """Returns the caller's name for a write; it may be empty."""
    if value:
        text("request_id", value, MAX_REQUEST_ID_BYTES)
    return value


def query(field: str, value: str) -> None:
    """Checks the text of a search."""
    text(field, value, MAX_QUERY_BYTES, allowed=LINE_CONTROLS)


def search_filter(value: pb.Filter) -> None:
    """Checks a filter and brings its names to their stored form, in place."""
    value.tags_any[:] = tags("filter.tags_any", value.tags_any)
    value.tags_all[:] = tags("filter.tags_all", value.tags_all)
    for field in ("memory_types", "categories", "statuses"):
        names = getattr(value, field)
        names[:] = [name.strip() for name in names]
        within(f"filter.{field}", len(names), 0, MAX_TAGS)
        for index, name in enumerate(names):
            text(f"filter.{field}[{index}]", name, MAX_NAME_BYTES)
    timestamp("filter.created_since", value.created_since)
    timestamp("filter.created_before", value.created_before)


def is_blank(value: str) -> bool:
    """Tells whether nothing of the text is visible: white space and format characters alone."""
    return all(character.isspace() or unicodedata.category(character) == "Cf" for character in value)


def tags(field: str, values: Iterable[str]) -> list[str]:
    """Returns the tags trimmed, each once, in the order given."""
    distinct: dict[str, None] = {}
    for index, value in enumerate(values):
        name = f"{field}[{index}]"
        tag = value.strip()
        text(name, tag, MAX_TAG_BYTES)
        if "," in tag:
            raise ServiceError.invalid(name, "must not have a comma, which separates tags in the drop-in table")
        distinct[tag] = None
    if len(distinct) > MAX_TAGS:
        raise ServiceError.invalid(field, f"must be at most {MAX_TAGS}, are {len(distinct)}")
    return list(distinct)


def hints(field: str, values: Iterable[str]) -> list[str]:
    """Returns the hints trimmed, in the order given."""
    trimmed = [value.strip() for value in values]
    if len(trimmed) > MAX_HINTS:
        raise ServiceError.invalid(field, f"must be at most {MAX_HINTS}, are {len(trimmed)}")
    for index, hint in enumerate(trimmed):
        text(f"{field}[{index}]", hint, MAX_HINT_BYTES)
    return trimmed


def fraction(field: str, value: float) -> None:
    """Checks a number of 0 to 1."""
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ServiceError.invalid(field, f"must be 0 to 1, is {value:g}")


def within(field: str, value: int, low: int, high: int) -> int:
    """Returns the value when it is in the range, ends included."""
    if not low <= value <= high:
        raise ServiceError.invalid(field, f"must be {low} to {high}, is {value}")
    return value


def choice(field: str, value: str, allowed: Collection[str]) -> str:
    """Returns the value when it is one of the names."""
    if value not in allowed:
        raise ServiceError.invalid(field, f"must be one of {', '.join(allowed)}, is {value[:MAX_SHOWN]!r}")
    return value


def timestamp(field: str, value: Timestamp) -> None:
    """Checks an instant of the years 1 to 9999."""
    try:
        value.ToDatetime()
    except (ValueError, OverflowError):
        raise ServiceError.invalid(field, "must lie in the years 1 to 9999") from None


def metadata(field: str, value: str) -> None:
    """Checks a JSON object in text form; empty means none."""
    if not value:
        return
    size = len(value.encode())
    if size > MAX_METADATA_BYTES:
        raise ServiceError.invalid(field, f"must have at most {MAX_METADATA_BYTES} UTF-8 bytes as JSON, has {size}")
    try:
        parsed = json.loads(value, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise ServiceError.invalid(field, "must be a JSON object, its numbers within the range of a double") from None
    if not isinstance(parsed, dict):
        raise ServiceError.invalid(field, f"must be a JSON object, is {type(parsed).__name__}")
    if not is_plain(parsed):
        raise ServiceError.invalid(
            field, f"must have at most {MAX_METADATA_DEPTH} levels and valid Unicode, without lone surrogates"
        )


def is_plain(value: object, levels: int = MAX_METADATA_DEPTH) -> bool:
    """Tells whether parsed JSON can be told to every client: nested in bounds, its texts valid Unicode."""
    if isinstance(value, str):
        return not SURROGATE.search(value)
    if isinstance(value, dict):
        return levels > 0 and all(is_plain(part, levels - 1) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return levels > 0 and all(is_plain(part, levels - 1) for part in value)
    return True


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError
    return value
