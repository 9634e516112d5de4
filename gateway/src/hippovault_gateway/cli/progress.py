"""How far a long command is, shown on stderr where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows a bar while the context lasts.

    Yields:
        What takes how many are done, and of how many; None where nobody knows.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
