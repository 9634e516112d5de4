"""Another file in the database's place, whole before and after, whenever the process is killed.

The new file and its keys come to lie beside the database under names of their own. Once the first bears the name of one
that is ready, the change is decided, and whoever next takes the lock carries it out: the former files go aside
(`.arriving-`), then the new ones take their place (`.arrived-`). Each step may be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hippovault_chassis import durability
from hippovault_storage.sqlite import files

COPYING, ARRIVING, ARRIVED, REPLACED = ".copying-", ".arriving-", ".arrived-", ".replaced-"
DISCARDING = "discarding-"
"""Begins a mark of which nothing is kept."""


def replace(path: Path, copy: Path, mark: str) -> None:
    """Puts the copy in the database's place, and keeps what is there, unless the mark begins with DISCARDING.

    Args:
        path: The database; may be absent.
        copy: A database that is on disk in the same directory; its keys, if any, beside it with the ending files.KEYS.
        mark: Ends the names of what is kept, which are of nothing else.
    """
    arriving = files.beside(path, ARRIVING + mark)
    keys = files.beside(copy, files.KEYS)
    if keys.exists():
        keys.rename(files.beside(path, ARRIVED + mark + files.KEYS))
    copy.rename(arriving)
    durability.sync(path.parent)
    finish(path)


def finish(path: Path) -> None:
    """Carries out what was decided, and removes what was not."""
    for arriving in path.parent.glob(f"{path.name}{ARRIVING}*"):
        mark = arriving.name.removeprefix(path.name + ARRIVING)
        _put_aside(path, mark)
        arriving.rename(files.beside(path, ARRIVED + mark))
        durability.sync(path.parent)
    for arrived in path.parent.glob(f"{path.name}{ARRIVED}*"):
        if not arrived.name.endswith(files.KEYS):
            _take_place(path, arrived)
    for unneeded in (COPYING, ARRIVED, REPLACED + DISCARDING):
        for left in path.parent.glob(f"{path.name}{unneeded}*"):
            left.unlink()


@contextmanager
def discarding(path: Path) -> Iterator[None]:
    """Where the context fails, leaves no copy that it made: one may have what the database has in plain."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # The next opening does it; what failed first is what is told.
            finish(path)
        raise


def _put_aside(path: Path, mark: str) -> None:
    kept = files.beside(path, REPLACED + mark)
    for ending in (files.LOG, files.JOURNAL, ""):
        if files.beside(path, ending).exists():
            files.beside(path, ending).rename(files.beside(kept, ending))
    if files.keys(path).exists():
        files.keys(path).rename(files.beside(kept, files.KEYS))
    files.beside(path, files.INDEX).unlink(missing_ok=True)
    durability.sync(path.parent)


def _take_place(path: Path, arrived: Path) -> None:
    keys = files.beside(arrived, files.KEYS)
    if keys.exists():
        keys.replace(files.keys(path))
    arrived.replace(path)
    durability.sync(path.parent)
