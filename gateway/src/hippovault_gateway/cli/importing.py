"""`hippovault import`: takes a file of memories in; what is wrong in it does not stop the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import failures, output
from hippovault_gateway.cli.client import Client, connect
from hippovault_gateway.cli.feeding import Feed, LineError
from hippovault_gateway.cli.jsonl import lines
from hippovault_gateway.cli.options import STORE_DEFAULTS, ClientOptions, StoreOptions
from hippovault_gateway.documents import Document
from hippovault_gateway.views import OUTCOMES

START_BYTES = 256
"""Enough of a file to tell what it is."""
DATABASE = b"SQLite format 3\0"
EXPORT = re.compile(rb'\s*\{\s*"format"\s*:')
"""How files of whole memories begin. What reads them is imported for them alone."""


class ImportView(Document):
    """What became of the lines."""

    lines: int = 0
    created: int = 0
    existed: int = 0
    updated: int = 0
    revived: int = 0
    truncated: int = 0
    """Of these, texts whose end the model was not shown."""
    pending: int = 0
    """Of these, memories whose vectors are still to come."""
    failed: int = 0
    errors: list[LineError] = Field(default_factory=list)


def _count(view: ImportView, feed: Feed[pb.StreamRememberRequest], client: Client) -> None:
    """Remembers the lines of a file in one stream, which waits while the memory is busy; counts what became of them.

    Raises:
        ServiceError: The memory does not answer. The file may be imported again: what is stored is found.
    """
    for place, answer in enumerate(client.stream(client.stub.StreamRemember, feed.requests())):
        result = answer.result
        if result.HasField("error"):
            feed.refuse(feed.numbers[place], result.error.field, result.error.message)
            continue
        outcome = OUTCOMES[result.response.outcome]
        setattr(view, outcome, getattr(view, outcome) + 1)
        view.truncated += result.response.truncated
        view.pending += result.response.memory.pending


def import_file(file: Path, /, *, options: StoreOptions = STORE_DEFAULTS) -> int:
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
        return _remember(source, ClientOptions(home=options.home, json=options.json), advance, tell)


def remember_stdin(options: ClientOptions) -> int:
    """Remembers every line on stdin; returns 1 when one failed."""
    return _remember(sys.stdin.buffer, options, lambda _done: None, output.warn)


def _take_in(
    file: Path,
    source: BufferedReader,
    options: StoreOptions,
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
    source: BinaryIO, options: ClientOptions, advance: Callable[[int], None], tell: Callable[[str], None]
) -> int:
    """Remembers every line; returns 1 when one failed."""
    view, stopped = ImportView(), None
    feed = Feed(lines(source), lambda line: pb.StreamRememberRequest(request=line.request()), advance, tell)
    with connect(options) as client:
        try:
            _count(view, feed, client)
        except ServiceError as error:
            stopped = error
    if feed.failure:
        raise feed.failure
    view.lines, view.failed, view.errors = feed.lines, feed.failed, feed.errors()
    _show(view, stopped, as_json=options.json)
    return 1 if stopped or view.failed else 0


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
    if view.pending:
        output.warn(f"{output.counted(view.pending, 'memory', 'memories')}: {output.PENDING}")
    if view.truncated:
        output.warn(f"{output.counted(view.truncated, 'text')}: {output.TRUNCATED}")
    if stopped:
        output.warn(f"stopped: {stopped.message}")
