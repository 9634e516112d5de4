"""What a running memory tells about itself in its home: who runs it, and which processes serve."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from hippovault_chassis.home import Home

BEHIND_GATEWAY = ("embedding", "storage")
GATEWAY = "gateway"


class Serving(TypedDict):
    """A process that serves."""

    pid: int
    address: str
    """Where it serves: of the gateway the URL of MCP over HTTP, where there is one."""
    since: str
    """ISO 8601, UTC."""


def lock_path(home: Home) -> Path:
    """Returns the lock that the supervisor holds."""
    return home.run / "up.lock"


def state_path(home: Home) -> Path:
    """Returns the file that tells which processes serve, by name."""
    return home.run / "processes.json"


def write_serving(home: Home, serving: Mapping[str, Serving]) -> None:
    """Replaces what was told; a reader sees the old or the new, never a part."""
    path = state_path(home)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(serving))
    fresh.replace(path)


def read_serving(home: Home) -> dict[str, Serving]:
    """Returns the processes that serve; meaningful only while the supervisor holds its lock."""
    try:
        serving: dict[str, Serving] = json.loads(state_path(home).read_text())
    except (FileNotFoundError, ValueError):  # Or cut short, as a full disk or a lost machine leaves it.
        return {}
    return serving
