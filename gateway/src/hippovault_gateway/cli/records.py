"""Lines of an export on their way into a store: whole memories, which its storage service takes as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from pydantic import Field

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import record_lines
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import output, store
from hippovault_gateway.cli.feeding import Feed, LineError
from hippovault_gateway.cli.jsonl import Line, lines
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


class _Records:
    """Makes requests of lines, of which one may have more of the memory of the line before."""

    def __init__(self) -> None:
        self._whole = True
        """Whether the last line that had a memory is a record."""

    def request(self, line: Line) -> pb.ImportMemoriesRequest:
        """Returns the request of a line.

        Raises:
            ServiceError: It is no record.
        """
        whole, self._whole = self._whole, False
        record = record_lines.record(line.text)
        if not (whole or record.HasField("memory")):  # It must not become history of another memory.
            raise ServiceError.invalid("line", "has more of the memory of a line that failed")
        self._whole = True
        return pb.ImportMemoriesRequest(record=record)


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
        ServiceError: They are no export, or one of a newer form; or the store failed. What it has stays, and the file
            may be imported again.
        OSError: The file cannot be read to its end.
    """
    rest = lines(source, record_lines.MAX_BYTES)
    header = next(rest, None)  # A child that failed gives none, and tells why later.
    if header and not record_lines.is_header(header.text):
        raise ServiceError.invalid("line", "the first is not the header of an export")
    feed = Feed(rest, _Records().request, advance, tell)
    with store.connect(options) as stub:
        answer = stub.ImportMemories(feed.requests())
    if feed.failure:
        raise feed.failure
    for place, error in answer.errors.items():
        feed.refuse(feed.numbers[place], error.field, error.message)
    failed = feed.failed + answer.failed - len(answer.errors)
    return RecordsView(
        lines=feed.lines, imported=answer.imported, kept=answer.kept, failed=failed, errors=feed.errors()
    )


def show(view: RecordsView, *, as_json: bool) -> None:
    """Prints what became of the lines."""
    if as_json:
        output.show_json(view.model_dump())
        return
    lines = output.counted(view.lines, "line")
    output.show_line(f"{lines}: {view.imported} imported, {view.kept} kept, {view.failed} failed")
