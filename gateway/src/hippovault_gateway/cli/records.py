"""Lines of an export on their way into a store: whole memories, which its storage service takes as they were."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import BinaryIO

from pydantic import Field

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import record_lines
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import output, store
from hippovault_gateway.cli.importing import MAX_ERRORS_TOLD, LineError
from hippovault_gateway.cli.jsonl import lines
from hippovault_gateway.cli.options import StoreOptions
from hippovault_gateway.documents import Document


class RecordsView(Document):
    """What became of the records of a file."""

    lines: int = 0
    imported: int = 0
    kept: int = 0
    """There already, as new or newer."""
    failed: int = 0
    errors: list[LineError] = Field(default_factory=list)


class _Reader:
    """Turns lines into requests. gRPC takes them on a thread of its own, so a failure of the file is kept, not raised.

    Args:
        source: The lines, the header first.
        advance: Takes the bytes done.

    Raises:
        ServiceError: They are no export, or one of a newer form.
    """

    def __init__(self, source: BinaryIO, advance: Callable[[int], None]) -> None:
        self.view = RecordsView()
        self.failure: OSError | None = None
        self.numbers = array("q")
        """The line of each request."""
        self._lines = lines(source, record_lines.MAX_BYTES)
        self._advance = advance
        self._whole = True
        """Whether the last line that had a memory is a record."""
        header = next(self._lines, None)  # A child that failed gives none, and tells why later.
        if header and not record_lines.is_header(header.text):
            raise ServiceError.invalid("line", "the first is not the header of an export")

    def requests(self) -> Iterator[pb.ImportMemoriesRequest]:
        """Yields the request of every line that has a record."""
        try:
            for line in self._lines:
                yield from self._request(line.number, line.text)
                self._advance(line.end)
        except OSError as error:
            self.failure = error

    def _request(self, number: int, text: bytes) -> Iterator[pb.ImportMemoriesRequest]:
        self.view.lines += 1
        try:
            record = record_lines.record(text)
            if not (self._whole or record.HasField("memory")):  # It must not become history of another memory.
                raise ServiceError.invalid("line", "has more of the memory of a line that failed")
        except ServiceError as error:
            self._whole = False
            self.told(number, error.field, error.message)
            return
        self._whole = True
        self.numbers.append(number)
        yield pb.ImportMemoriesRequest(record=record)

    def told(self, number: int, field: str, message: str) -> None:
        """Notes why a line failed."""
        self.view.failed += 1
        if len(self.view.errors) < MAX_ERRORS_TOLD:
            self.view.errors.append(LineError(line=number, field=field, message=message))


def take_in(
    source: BinaryIO, options: StoreOptions, advance: Callable[[int], None], tell: Callable[[str], None]
) -> RecordsView:
    """Returns what became of the lines of an export.

    Args:
        source: The lines, the header first.
        options: Which memory.
        advance: Takes the bytes done.
        tell: Takes the problem of each line that failed.

    Raises:
        ServiceError: The store failed. What it has stays, and the file may be imported again.
        OSError: The file cannot be read to its end.
    """
    reader = _Reader(source, advance)
    view = reader.view
    with store.connect(options) as stub:
        answer = stub.ImportMemories(reader.requests())
    if reader.failure:
        raise reader.failure
    view.imported, view.kept = answer.imported, answer.kept
    for place, error in answer.errors.items():
        reader.told(reader.numbers[place], error.field, error.message)
    view.failed += answer.failed - len(answer.errors)
    view.errors.sort(key=lambda one: one.line)
    for one in view.errors:
        tell(f"line {one.line}: {one.message}")
    return view


def show(view: RecordsView, *, as_json: bool) -> None:
    """Prints what became of the lines."""
    if as_json:
        output.show_json(view.model_dump())
        return
    lines = output.counted(view.lines, "line")
    output.show_line(f"{lines}: {view.imported} imported, {view.kept} kept, {view.failed} failed")
