"""What may enter a session: JSON-RPC messages. Anything else is answered with an error, never with silence."""

from __future__ import annotations

import json
import re
from typing import Any

import mcp_types
import pydantic_core
from pydantic import ValidationError

MAX_BYTES = 4 * 1024 * 1024
"""In one message: a memory of the largest size, each of its characters escaped, fits several times."""
END_BYTES = 256
"""Of the beginning and of the end of a text that is no JSON, where an id is looked for."""

_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")\s*'
# Only the outermost object's own member: its first ones, or its last one.
_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"[,}]")
_LAST = re.compile(rb",\s*" + _ID + rb"\}\s*$")

RequestId = int | str


class Refused(Exception):  # noqa: N818  # It is an answer more than an error.
    """A text that is no message.

    Args:
        code: JSON-RPC error code.
        message: What is wrong, without quoting the text.
        request_id: The id found in it; None where there is none to find.
    """

    def __init__(self, code: int, message: str, request_id: RequestId | None) -> None:
        super().__init__(message)
        self.answer = mcp_types.JSONRPCError(
            jsonrpc="2.0", id=request_id, error=mcp_types.ErrorData(code=code, message=message)
        )


def read(text: bytes) -> mcp_types.JSONRPCMessage:
    """Returns the message.

    Raises:
        Refused: It is not JSON in valid Unicode, or not one JSON-RPC message.
    """
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        problem = f"Parse error: {error}; a message is JSON in UTF-8, without lone surrogates"
        raise Refused(mcp_types.PARSE_ERROR, problem, find_id(text)) from None
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        message = None
    # A request whose id is of a wrong type would pass for a notification, and be dropped.
    if message is None or (isinstance(message, mcp_types.JSONRPCNotification) and "id" in value):
        raise Refused(
            mcp_types.INVALID_REQUEST,
            "Invalid request: not one JSON-RPC 2.0 request, notification or response; an id is text or an integer",
            _checked_id(value),
        )
    return message


def too_long(beginning: bytes, end: bytes) -> Refused:
    """Returns the refusal of a message over MAX_BYTES, of which only both ends were kept."""
    return Refused(
        mcp_types.INVALID_REQUEST,
        f"Invalid request: the message has more than {MAX_BYTES} bytes",
        _id_at_ends(beginning, end),
    )


def find_id(text: bytes) -> RequestId | None:
    """Returns the id of a request that cannot be parsed; None where there is none to find."""
    try:
        # More lenient than what it is for: surrogates pass, and invalid bytes are replaced.
        value = json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return _id_at_ends(text[:END_BYTES], text[-END_BYTES:])
    return _checked_id(value)


def _id_at_ends(beginning: bytes, end: bytes) -> RequestId | None:
    found = _FIRST.match(beginning) or _LAST.search(end)
    if found is None:
        return None
    try:
        return _checked_id({"id": json.loads(found[1])})
    except ValueError:
        return None


def _checked_id(value: Any) -> RequestId | None:
    request_id = value.get("id") if isinstance(value, dict) else None
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    try:
        str(request_id).encode()
    except ValueError:  # A lone surrogate, or more digits than Python prints.
        return None
    return request_id
