"""Where MCP over HTTP is served when no setting says so: at the same address after every start.

A client's URL must never come to mean another memory. So only the default home takes the well-known port, and any other
home keeps the free port that it was given first.
"""

from __future__ import annotations

from pathlib import Path

from hippovault_chassis.default_home import default_home
from hippovault_chassis.home import Home

WELL_KNOWN = "127.0.0.1:7465"
ANY = "127.0.0.1:0"


def candidates(home: Home, wanted: str) -> list[str]:
    """Returns the addresses to try, in order; the last must be served.

    Args:
        home: The memory.
        wanted: What the setting says; "" when it says nothing.
    """
    if wanted:
        return [wanted]
    well_known = [WELL_KNOWN] if home.root == Path(default_home()) else []
    kept = _file(home)
    return [*well_known, *(kept.read_text().split() if kept.exists() else []), ANY]


def keep(home: Home, wanted: str, address: str) -> None:
    """Notes the address that is served, for the next start, unless it was asked for."""
    if not wanted:
        _file(home).write_text(f"{address}\n")


def _file(home: Home) -> Path:
    return home.run / "mcp-http.address"
