"""JSONL files of memories, read line by line whatever their length."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pydantic_core import from_json

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
            # Unlike the standard library's parser, this one refuses lone surrogates and NaN.
            value = from_json(self.text.removeprefix(BOM_UTF8), allow_inf_nan=False)
        except ValueError as error:
            problem = str(error).replace("at line 1 column", "at column")
            raise ServiceError.invalid("line", f"is not JSON: {problem}") from None
        if not isinstance(value, dict):
            raise ServiceError.invalid("line", f"must be a JSON object, is {type(value).__name__}")
        return parse(MemoryInput, value).request()


def lines(file: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yields the lines that are not blank; never holds more than one in memory.

    Args:
        file: The file.
        limit: Bytes of a line; of what has more, one more is kept.
    """
    number = end = 0
    while text := file.readline(limit + 1):
        number, end = number + 1, end + len(text)
        piece = text
        while len(piece) > limit and not piece.endswith(b"\n"):
            piece = file.readline(limit + 1)
            end += len(piece)
        if not text.isspace():
            yield Line(number, text, end)
