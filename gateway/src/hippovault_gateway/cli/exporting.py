"""`hippovault export`: every memory with all that belongs to it, as lines or as a file for other programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import record_lines
from hippovault_gateway.cli import databases, store
from hippovault_gateway.cli.backup import new_file
from hippovault_gateway.cli.options import STORE_DEFAULTS, StoreOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, warn
from hippovault_gateway.cli.progress import bar

STDOUT = "-"
DATABASE = ".db"

Target = Annotated[str, Parameter(allow_leading_hyphen=True)]
Write = Callable[[Iterable[str]], None]


def export(
    file: Target, /, *, namespace: str = "", without_vectors: bool = False, options: StoreOptions = STORE_DEFAULTS
) -> None:
    """Writes every memory, live and deleted, with its hints, history and vectors, into a new file.

    The file is JSON lines, which import takes back with nothing lost but the ids: they are new. One whose name ends in
    .db is a database as mcp-memory-service and claude-hippo read it, with new ids too. Neither is encrypted, even where
    the store is.

    Args:
        file: The file, or - for stdout.
        namespace: Only memories of this scope (default: all).
        without_vectors: Leave out what only the same model can use.
        options: Which memory, and how to answer.
    """
    request = pb.ExportMemoriesRequest(namespace=namespace, without_vectors=without_vectors)
    count = 0
    with store.connect(options) as stub, bar("export") as show, _writing(file, options) as write:

        def lines() -> Iterator[str]:
            nonlocal count
            yield record_lines.header()
            for answer in stub.ExportMemories(request):
                yield record_lines.line(answer.record)
                count += answer.record.HasField("memory")
                show(count, None)

        write(lines())
    exported = f"exported: {counted(count, 'memory', 'memories')}"
    if file == STDOUT:
        warn(exported)
    elif options.json:
        show_json({"file": file, "memories": count})
    else:
        show_line(f"{exported} into {file}")


@contextmanager
def _writing(file: str, options: StoreOptions) -> Iterator[Write]:
    """Yields what takes the lines; a file is whole and on disk when the context ends, and else not there."""
    if file == STDOUT:
        yield lambda lines: sys.stdout.buffer.writelines(_encoded(lines))
    elif Path(file).suffix == DATABASE:
        yield lambda lines: databases.write(Path(file), _encoded(lines), options.layout)
    else:
        with new_file(Path(file)) as target:
            yield lambda lines: target.writelines(_encoded(lines))


def _encoded(lines: Iterable[str]) -> Iterator[bytes]:
    return (f"{line}\n".encode() for line in lines)
