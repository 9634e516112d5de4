"""`hippovault import`: takes a file of memories in; what is wrong in it does not stop the rest."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import grpc
from pydantic import Field

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import failures, output
from hippovault_gateway.cli.client import Client, connect
from hippovault_gateway.cli.jsonl import Line, lines
from hippovault_gateway.cli.options import IMPORT_DEFAULTS, ImportOptions, WriteOptions
from hippovault_gateway.documents import Document
from hippovault_gateway.views import OUTCOMES

BATCH_LINES = 32
"""Few enough that a slow machine embeds them within a request's time, with BATCH_BYTES however long they are."""
BATCH_BYTES = 64 * 1024
"""In which the last line may begin. Every part of a long text is embedded."""
PATIENCE_SECONDS = 600.0
"""How long a batch is sent again to a memory that is too busy for it."""
MAX_ERRORS_TOLD = 1000
START_BYTES = 256
"""Enough of a file to tell what it is."""
DATABASE = b"SQLite format 3\0"
EXPORT = re.compile(rb'\s*\{\s*"format"\s*:')
"""How files of whole memories begin. What reads them is imported for them alone."""


class LineError(Document):
    """Why a line was not taken in."""

    line: int
    field: str
    message: str


class ImportView(Document):
    """What became of the lines."""

    lines: int = 0
    created: int = 0
    existed: int = 0
    updated: int = 0
    revived: int = 0
    truncated: int = 0
    """Of these, texts whose end the model was not shown."""
    failed: int = 0
    errors: list[LineError] = Field(default_factory=list)


class Importer:
    """Collects lines, sends them in batches, and counts.

    Args:
        client: The memory.
        tell: Is called with the problem of each line that fails.
    """

    def __init__(self, client: Client, tell: Callable[[str], None]) -> None:
        self.view = ImportView()
        self._client = client
        self._tell = tell
        self._batch: list[tuple[int, pb.RememberRequest]] = []
        self._batch_bytes = 0

    def add(self, line: Line) -> None:
        """Takes a line, and sends the batch that it fills."""
        self.view.lines += 1
        try:
            self._batch.append((line.number, line.request()))
        except ServiceError as error:
            self._failed(line.number, error.field, error.message)
        self._batch_bytes += len(line.text)
        if len(self._batch) == BATCH_LINES or self._batch_bytes > BATCH_BYTES:
            self.send()

    def send(self) -> None:
        """Sends what was collected.

        Raises:
            ServiceError: The memory does not answer, or is busy for long. The file may be imported again: what
                is stored is found.
        """
        numbers, requests = [number for number, _ in self._batch], [request for _, request in self._batch]
        self._batch, self._batch_bytes = [], 0
        if not requests:
            return
        answer = self._remembered(pb.BatchRememberRequest(requests=requests))
        for number, result in zip(numbers, answer.results, strict=True):
            if result.HasField("error"):
                self._failed(number, result.error.field, result.error.message)
            else:
                outcome = OUTCOMES[result.response.outcome]
                setattr(self.view, outcome, getattr(self.view, outcome) + 1)
                self.view.truncated += result.response.truncated

    def _remembered(self, request: pb.BatchRememberRequest) -> pb.BatchRememberResponse:
        """Returns the answer to a batch, which is sent again for as long as the memory says when to."""
        ends, pause = time.monotonic() + PATIENCE_SECONDS, 0.0
        while True:
            try:
                return self._client.call(self._client.stub.BatchRemember, request)
            except ServiceError as error:
                # Of a memory that said that it is busy, a missing answer says the same.
                pause = error.retry_seconds or (pause if error.code is grpc.StatusCode.DEADLINE_EXCEEDED else 0.0)
                if not pause or time.monotonic() + pause > ends:
                    raise
                time.sleep(pause)

    def _failed(self, number: int, field: str, message: str) -> None:
        self.view.failed += 1
        if self.view.failed <= MAX_ERRORS_TOLD:
            self.view.errors.append(LineError(line=number, field=field, message=message))
            self._tell(f"line {number}: {message}")


def import_file(file: Path, /, *, options: ImportOptions = IMPORT_DEFAULTS) -> int:
    """Takes in a file of memories: lines to remember, an export, or a database of another program.

    A line to remember is an object with the member content and, optionally, namespace, category, key, tags, hints,
    memory_type, status, importance, metadata and created_at. What export wrote, and the databases of
    mcp-memory-service and claude-hippo, come in as they are, with hints, history and vectors, under new ids; where a
    memory is there already, the one that was changed last stays, under the id there. What is wrong is told, and the
    rest goes in; a file may be imported again.

    Args:
        file: The file.
        options: Which memory, and how to answer.

    Returns:
        1 when anything failed.
    """
    with file.open("rb") as source, _progress(file) as (advance, tell):
        start = source.peek(START_BYTES)
        if start.startswith(DATABASE) or EXPORT.match(start):
            return _take_in(file, source, options, advance, tell)
        return _remember(source, options, advance, tell)


def remember_stdin(options: WriteOptions) -> int:
    """Remembers every line on stdin; returns 1 when one failed."""
    seconds = max(options.timeout, IMPORT_DEFAULTS.timeout)
    given = ImportOptions(home=options.home, json=options.json, timeout=seconds)
    return _remember(sys.stdin.buffer, given, lambda _done: None, output.warn)


def _take_in(
    file: Path,
    source: BufferedReader,
    options: ImportOptions,
    advance: Callable[[int], None],
    tell: Callable[[str], None],
) -> int:
    """Takes whole memories in; returns 1 when one failed."""
    from hippovault_gateway.cli import databases, records

    if source.peek(START_BYTES).startswith(DATABASE):
        with databases.read(file, options.layout) as lines_of_it:
            view = records.take_in(lines_of_it, options, lambda _done: None, tell)
    else:
        view = records.take_in(source, options, advance, tell)
    records.show(view, as_json=options.json)
    return 1 if view.failed else 0


def _remember(
    source: BinaryIO, options: ImportOptions, advance: Callable[[int], None], tell: Callable[[str], None]
) -> int:
    """Remembers every line; returns 1 when one failed."""
    stopped: ServiceError | None = None
    with connect(options) as client:
        importer = Importer(client, tell)
        try:
            for line in lines(source):
                importer.add(line)
                advance(line.end)
            importer.send()
        except ServiceError as error:
            stopped = error
    importer.view.errors.sort(key=lambda one: one.line)  # What the memory refuses is told a batch later.
    _show(importer.view, stopped, as_json=options.json)
    return 1 if stopped or importer.view.failed else 0


@contextmanager
def _progress(file: Path) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Shows a bar on stderr where that is a terminal.

    Yields:
        What takes the bytes done, and what prints a message above the bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TimeRemainingColumn
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        yield (lambda _done: None), output.warn
        return
    columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("import", total=file.stat().st_size or None)
        yield (
            (lambda done: progress.update(task, completed=done)),
            lambda text: console.print(Text(output.printable(text))),
        )


def _show(view: ImportView, stopped: ServiceError | None, *, as_json: bool) -> None:
    if as_json:
        error = {"error": failures.document(stopped)} if stopped else {}
        output.show_json({**view.model_dump(), **error})
        return
    counts = ", ".join(f"{getattr(view, name)} {name}" for name in (*OUTCOMES.values(), "failed"))
    output.show_line(f"{output.counted(view.lines, 'line')}: {counts}")
    if view.truncated:
        output.warn(f"{output.counted(view.truncated, 'text')}: {output.TRUNCATED}")
    if stopped:
        output.warn(f"stopped: {stopped.message}")
