"""The `hippovault` commands that messages name, over the memory to which this process belongs."""

from __future__ import annotations

from hippovault_chassis.home import Home


class _Own:
    home: Home | None = None


def belong_to(home: Home) -> None:
    """Has commands name this home from now on, where they must."""
    _Own.home = home


def command(words: str) -> str:
    """Returns the command line; where the process belongs to no memory, it is one over the default one."""
    return _Own.home.command(words) if _Own.home else f"hippovault {words}"
