"""The file form of whole memories: JSON lines, a header and then a line a record.

A line is a `hippovault.storage.v1.MemoryRecord` in protobuf's JSON form, with the names that the contract has: times in
ISO 8601, bytes in base64, metadata as the text that is stored. Empty members are left out.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf import json_format

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis.channels import MAX_REQUEST_BYTES
from hippovault_chassis.errors import ServiceError

FORMAT = "hippovault-memories"
VERSION = 1
MAX_BYTES = 32 * 1024 * 1024
"""Of a line. The store puts at most 3 MiB in a record unless a single value is larger."""
MAX_RECORD_BYTES = MAX_REQUEST_BYTES - 1024
"""Of a record, which travels in a request."""

UNPARSABLE = (json_format.ParseError, ValueError, TypeError, RecursionError, SystemError)
"""What protobuf raises; the last for a member's name with half of a surrogate pair."""

# A text in the place of an object is taken for names of one letter each, which are no members.
_FIELD = re.compile(r"Failed to parse (\w+) field|has no field named \"(\w{2,100})\"")


def header() -> str:
    """Returns the first line of a file."""
    return _dump({"format": FORMAT, "version": VERSION, "made_by": f"hippovault {version('hippovault-chassis')}"})


def is_header(line: bytes) -> bool:
    """Tells whether a file that begins so has whole memories.

    Raises:
        ServiceError: FAILED_PRECONDITION when it does, in a newer version of the form.
    """
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(members, dict) or members.get("format") != FORMAT:
        return False
    if members.get("version") != VERSION:
        message = f"the file has version {members.get('version')} of its form, this program knows {VERSION}"
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "NEWER_FORMAT", message)
    return True


def line(record: pb.MemoryRecord) -> str:
    """Returns a record's line. Its memory's id, which means nothing elsewhere, is left out."""
    members = json_format.MessageToDict(record, preserving_proto_field_name=True)
    for memory in (members.get("memory"), *(part.get("memory") for part in members.get("history", ()))):
        if memory:
            memory.pop("id", None)
    return _dump(members)


def record(text: bytes) -> pb.MemoryRecord:
    """Returns the record of a line.

    Raises:
        ServiceError: INVALID_ARGUMENT naming the member to blame, or `line`; never what it has.
    """
    if len(text) > MAX_BYTES:
        raise ServiceError.invalid("line", f"must have at most {MAX_BYTES} bytes")
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        raise ServiceError.invalid("line", "is not JSON") from None
    if not isinstance(members, dict):
        raise ServiceError.invalid("line", f"must be a JSON object, is {type(members).__name__}")
    try:
        result = json_format.ParseDict(members, pb.MemoryRecord())
    except UNPARSABLE as error:
        field = ".".join(part or unknown for part, unknown in _FIELD.findall(str(error)))
        raise ServiceError.invalid(field or "line", "is unknown, or its value is not of the right type") from None
    if result.ByteSize() > MAX_RECORD_BYTES:  # One that no request takes would end the whole import.
        raise ServiceError.invalid("line", f"must have a record of at most {MAX_RECORD_BYTES} bytes")
    return result


def _dump(members: dict[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
