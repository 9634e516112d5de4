"""What to paste into an MCP host."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from hippovault_chassis.default_home import HOME_VARIABLE, default_home


def server(home: Path, tools: str = "all") -> dict[str, Any]:
    """Returns how a host starts the stdio door."""
    command, *arguments = _command()
    narrowed = [] if tools == "all" else ["--tools", tools]
    started: dict[str, Any] = {"command": command, "args": [*arguments, "mcp", *narrowed]}
    if home != Path(default_home()):
        started["env"] = {HOME_VARIABLE: str(home)}
    return started


def document(home: Path) -> dict[str, Any]:
    """Returns the `mcpServers` object for the stdio door."""
    return {"mcpServers": {"hippovault": server(home)}}


def text(home: Path, http_url: str, *, as_json: bool) -> str:
    """Returns the configuration for people, or as one JSON object with the member `mcp_http_url` besides."""
    if as_json:
        return json.dumps({**document(home), "mcp_http_url": http_url}, indent=2) + "\n"
    http = f"MCP over HTTP: {http_url}\n" if http_url else ""
    return f"MCP configuration (stdio):\n{json.dumps(document(home), indent=2)}\n{http}"


def _command() -> list[str]:
    """Returns the installed `hippovault`, by its absolute path: hosts have another PATH."""
    beside = Path(sys.executable).with_name("hippovault")
    found = str(beside) if beside.exists() else shutil.which("hippovault")
    return [found] if found else [sys.executable, "-P", "-m", "hippovault_gateway.cli"]
