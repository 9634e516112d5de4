"""A memory's metadata: the caller's JSON object, in which `_hippo.surprise` mirrors the surprise.

Other programs that know these files read the surprise there. Only this module writes it, so no caller can forge it.
"""

from __future__ import annotations

import json
import math
from typing import Any

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis.errors import ServiceError

RESERVED = "_hippo"
SURPRISE = "surprise"
COMPONENTS = ("embedding_outlier", "engagement", "explicit")
MAX_VERSION = 2**31 - 1
NUMBERS = (float, int)
"""What JSON numbers become; a bool is none."""


def sealed(text: str, surprise: memory_pb2.Surprise | None) -> str:
    """Returns metadata whose `_hippo.surprise` is the given one, or absent.

    Args:
        text: A JSON object, or "".
        surprise: What is stored with the memory.

    Returns:
        A JSON object, or "" for an empty one; byte for byte the given text where it has no `_hippo`.

    Raises:
        ServiceError: INVALID_ARGUMENT when the text is no JSON object, its numbers within the range of a double.
    """
    members = _members(text)
    if members is None:
        raise ServiceError.invalid("metadata", "must be a JSON object, its numbers within the range of a double")
    if surprise is None and RESERVED not in members:
        return text if members else ""
    if surprise is not None:
        members[RESERVED] = {**_others(members), SURPRISE: _surprise_members(surprise)}
    elif isinstance(members[RESERVED], dict):
        members[RESERVED] = _others(members)
    return _dump(members)


def replaced(stored: str, given: str, surprise: memory_pb2.Surprise | None) -> str:
    """Returns the given metadata in place of the stored one, of which what others keep under `_hippo` survives.

    Args:
        stored: The metadata of a memory, or "".
        given: A JSON object, or "".
        surprise: What is stored with the memory from now on.

    Returns:
        See `sealed`.
    """
    kept = _others(_members(stored) or {})
    members = _members(given)
    if kept and members is not None:
        members[RESERVED] = {**kept, **_others(members)}
        given = _dump(members)
    return sealed(given, surprise)


def read(text: str | None) -> tuple[str, memory_pb2.Surprise | None]:
    """Returns stored metadata and the surprise in it.

    Args:
        text: What the file has; another program may have written anything.

    Returns:
        The text as it is, or "" when it is no JSON object or an empty one; the surprise, or None when there is none.
    """
    members = _members(text or "")
    if not members:
        return "", None
    reserved = members.get(RESERVED)
    stored = reserved.get(SURPRISE) if isinstance(reserved, dict) else None
    return text or "", _surprise(stored) if isinstance(stored, dict) else None


def _others(members: dict[str, Any]) -> dict[str, Any]:
    """Returns what stands under `_hippo` beside the surprise."""
    reserved = members.get(RESERVED)
    return {name: value for name, value in reserved.items() if name != SURPRISE} if isinstance(reserved, dict) else {}


def _members(text: str) -> dict[str, Any] | None:
    try:
        value = STRICT.decode(text) if text else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


STRICT = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
"""Takes no NaN, and no number that would become infinite: neither can be told as JSON."""


COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _dump(members: dict[str, Any]) -> str:
    text = COMPACT.encode(members)
    try:
        text.encode()
    except UnicodeEncodeError:  # An escaped lone surrogate, which can be kept as an escape only.
        return json.dumps(members, allow_nan=False, separators=(",", ":"))
    return text


def _surprise_members(surprise: memory_pb2.Surprise) -> dict[str, Any]:
    parts = surprise.components
    components: dict[str, float | None] = {name: getattr(parts, name) for name in COMPONENTS}
    components["prediction_loss"] = parts.prediction_loss if parts.HasField("prediction_loss") else None
    return {"score": surprise.score, "components": components, "version": surprise.version}


def _surprise(members: dict[str, Any]) -> memory_pb2.Surprise | None:
    score, version, parts = _number(members.get("score")), members.get("version"), members.get("components")
    if score is None:
        return None
    read = parts.get if isinstance(parts, dict) else {}.get
    return memory_pb2.Surprise(
        score=score,
        components=memory_pb2.SurpriseComponents(
            embedding_outlier=_number(read("embedding_outlier")) or 0,
            engagement=_number(read("engagement")) or 0,
            explicit=_number(read("explicit")) or 0,
            prediction_loss=_number(read("prediction_loss")),
        ),
        # Another program's version is text of its own.
        version=version if type(version) is int and 0 <= version <= MAX_VERSION else 0,
    )


def _number(value: Any) -> float | None:
    try:
        return value if type(value) in NUMBERS and math.isfinite(value) else None
    except OverflowError:  # An integer beyond a double.
        return None
