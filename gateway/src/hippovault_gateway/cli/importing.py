"""`hippovault import`: remembers the lines of a file in batches; a bad line does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import failures, output
from hippovault_gateway.cli.client import Client, connect
from hippovault_gateway.cli.jsonl import Line, lines
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.documents import Document
from hippovault_gateway.views import OUTCOMES

BATCH_LINES = 32
"""Few enough that a slow machine embeds them within a request's time, however long they are."""
BATCH_BYTES = 1024 * 1024
"""A request may have 2 MiB, and a single line adds at most one."""
MAX_ERRORS_TOLD = 1000


class LineError(Document):
    """Why a line was not remembered."""

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
            ServiceError: The memory does not answer. The file may be imported again: what is stored is found.
        """
        numbers, requests = [number for number, _ in self._batch], [request for _, request in self._batch]
        self._batch, self._batch_bytes = [], 0
        if not requests:
            return
        answer = self._client.call(self._client.stub.BatchRemember, pb.BatchRememberRequest(requests=requests))
        for number, result in zip(numbers, answer.results, strict=True):
            if result.HasField("error"):
                self._failed(number, result.error.field, result.error.message)
            else:
                outcome = OUTCOMES[result.response.outcome]
                setattr(self.view, outcome, getattr(self.view, outcome) + 1)

    def _failed(self, number: int, field: str, message: str) -> None:
        self.view.failed += 1
        if self.view.failed <= MAX_ERRORS_TOLD:
            self.view.errors.append(LineError(line=number, field=field, message=message))
            self._tell(f"line {number}: {message}")


def import_file(file: Path, /, *, options: ClientOptions = CLIENT_DEFAULTS) -> int:
    """Remembers every line of a JSONL file.

    A line is an object with the member content and, optionally, namespace, category, key, tags, hints, memory_type,
    importance, metadata and created_at. Lines that are wrong are told, and the others go in; a file may be imported
    again.

    Args:
        file: The file.
        options: Which memory, and how to answer.

    Returns:
        1 when a line failed.
    """
    stopped: ServiceError | None = None
    with connect(options) as client, file.open("rb") as source, _progress(file) as (advance, tell):
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
    output.show_line(f"{view.lines} lines: {counts}")
    if stopped:
        output.warn(f"stopped: {stopped.message}")
