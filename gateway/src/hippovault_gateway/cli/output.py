"""What people and programs see: tables or one JSON document on stdout, messages on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

INDENT = 2
TRUNCATED = "the text is longer than what the model is shown of it: its end is found by words, not by meaning"
PENDING = "stored without vectors, as the embedding service is away or busy: words find it now, meaning will"
# Control characters but tab and line break, those that turn the direction of text, and lone surrogates.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Returns text in which backslash escapes stand for what a terminal would obey instead of showing it."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number and what it counts; `many` is said of more and of none where it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def show_json(document: Mapping[str, Any]) -> None:
    """Prints one JSON document, in UTF-8 whatever the locale."""
    text = json.dumps(document, ensure_ascii=False, indent=INDENT)
    sys.stdout.flush()
    # A lone surrogate, which a path may have, becomes JSON's own escape.
    sys.stdout.buffer.write(f"{text}\n".encode(errors="backslashreplace"))


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
        table.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in row))
    Console().print(table)


def show_nonempty(columns: Mapping[str, Sequence[str]]) -> None:
    """Prints a table without the columns in which nothing stands; columns are by name, all of one length."""
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    show_table(list(shown), zip(*shown.values(), strict=True))


def show_line(text: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{printable(text)}\n")


def warn(text: str) -> None:
    """Prints a message that is no part of the answer."""
    sys.stderr.write(f"hippovault: {printable(text)}\n")


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
