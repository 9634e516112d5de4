"""What people and programs see: tables or one JSON document on stdout, messages on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

INDENT = 2


def show_json(document: Mapping[str, Any]) -> None:
    """Prints one JSON document, in UTF-8 whatever the locale."""
    text = json.dumps(document, ensure_ascii=False, indent=INDENT)
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode())


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; its last column gets the room that is left. What stands in it is text, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in columns[:-1]:
        table.add_column(name, overflow="fold")
    table.add_column(columns[-1], overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    Console().print(table)


def show_line(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{text}\n")


def warn(text: str) -> None:
    """Prints a message that is no part of the answer."""
    sys.stderr.write(f"hippovault: {text}\n")


def fail(error: Mapping[str, str], *, as_json: bool) -> None:
    """Tells why a command failed: people on stderr, programs in the document that they wait for.

    Args:
        error: code, reason, message, field.
        as_json: Whether a program asks.
    """
    if as_json:
        show_json({"error": error})
    else:
        warn(error["message"])
