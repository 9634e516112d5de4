"""Where a memory's home is, before anything heavier than `os` is imported.

The stdio door asks too, and pathlib would cost every session 5 ms and 1.3 MB.
"""
# ruff: noqa: PTH109, PTH111, PTH117, PTH118

from __future__ import annotations

import os

HOME_VARIABLE = "HIPPOVAULT_HOME"
CONFIG_FILE = "hippovault.toml"


def default_home() -> str:
    """Returns the XDG data directory's `hippovault`."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.local/share"), "hippovault")


def given_home(flag: str = "") -> str:
    """Returns the absolute home that the flag names, else the environment, else the default one."""
    home = flag or os.environ.get(HOME_VARIABLE) or default_home()
    return os.path.join(os.getcwd(), os.path.expanduser(home))
