"""Lines of a file on their way into a stream, and what is told of those that fail."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli.jsonl import Line
from hippovault_gateway.documents import Document

RequestT = TypeVar("RequestT")

MAX_ERRORS_TOLD = 1000


class LineError(Document):
    """Why a line was not taken in."""

    line: int
    field: str
    message: str


class Feed(Generic[RequestT]):
    """Makes requests of lines. gRPC takes them on a thread of its own, so a failure of the file is kept, not raised.

    Args:
        lines: Of the file.
        made: Makes a line's request; raises ServiceError where the line is wrong.
        advance: Takes the bytes done.
        tell: Takes the problem of each line that fails.
    """

    def __init__(
        self,
        lines: Iterable[Line],
        made: Callable[[Line], RequestT],
        advance: Callable[[int], None],
        tell: Callable[[str], None],
    ) -> None:
        self.lines = 0
        self.failed = 0
        self.failure: OSError | None = None
        self.numbers = array("q")
        """The line of each request."""
        self._lines = lines
        self._made = made
        self._advance = advance
        self._tell = tell
        self._errors: list[LineError] = []
        self._telling = threading.Lock()

    def requests(self) -> Iterator[RequestT]:
        """Yields the request of every line that has one."""
        try:
            for line in self._lines:
                self.lines += 1
                try:
                    request = self._made(line)
                except ServiceError as error:
                    self.refuse(line.number, error.field, error.message)
                    continue
                self.numbers.append(line.number)
                yield request
                self._advance(line.end)
        except OSError as error:
            self.failure = error

    def refuse(self, number: int, field: str, message: str) -> None:
        """Notes why a line failed; from any thread."""
        with self._telling:
            self.failed += 1
            if len(self._errors) < MAX_ERRORS_TOLD:
                self._errors.append(LineError(line=number, field=field, message=message))
                self._tell(f"line {number}: {message}")

    def errors(self) -> list[LineError]:
        """Returns the first lines that failed, in order; what the memory refuses is told late."""
        return sorted(self._errors, key=lambda one: one.line)
