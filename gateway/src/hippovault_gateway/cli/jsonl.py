"""JSONL files of memories, read line by line whatever their length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.documents import MemoryInput, parse

MAX_LINE_BYTES = 1024 * 1024
"""More than any memory takes: content and metadata have limits, and JSON writes a byte in at most 6."""


@dataclass(frozen=True)
class Line:
    """A line that is not blank."""

    number: int
    """1 for the first."""
    text: bytes
    """Without what exceeds the limit."""
    end: int
    """Bytes of the file up to the end of this line."""

    def request(self) -> pb.RememberRequest:
        """Returns the request that remembers what the line says.

        Raises:
            ServiceError: INVALID_ARGUMENT naming the member to blame, or `line`.
        """
        if len(self.text) > MAX_LINE_BYTES:
            raise ServiceError.invalid("line", f"must have at most {MAX_LINE_BYTES} bytes")
        try:
            value = json.loads(self.text.decode("utf-8-sig"))
        except json.JSONDecodeError as error:
            raise ServiceError.invalid("line", f"is not JSON: {error.msg} at column {error.colno}") from None
        except UnicodeDecodeError as error:
            raise ServiceError.invalid("line", f"is not UTF-8 at byte {error.start}") from None
        except (ValueError, RecursionError):
            raise ServiceError.invalid("line", "is JSON with a number too long or nested too deeply") from None
        if not isinstance(value, dict):
            raise ServiceError.invalid("line", f"must be a JSON object, is {type(value).__name__}")
        return parse(MemoryInput, value).request()


def lines(file: BinaryIO) -> Iterator[Line]:
    """Yields the lines that are not blank; never holds more than one in memory."""
    number = end = 0
    while text := file.readline(MAX_LINE_BYTES + 1):
        number, end = number + 1, end + len(text)
        piece = text
        while len(piece) > MAX_LINE_BYTES and not piece.endswith(b"\n"):
            piece = file.readline(MAX_LINE_BYTES + 1)
            end += len(piece)
        if not text.isspace():
            yield Line(number, text, end)
