"""The MCP clients that are known: where each keeps its configuration, and which form a server has there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hippovault_gateway.cli.connecting.form import Form
from hippovault_gateway.cli.connecting.jsonc import Jsonc
from hippovault_gateway.cli.connecting.toml import Toml

JSONC, TOML = Jsonc(), Toml()


@dataclass(frozen=True)
class McpClient:
    """An MCP client."""

    user_file: Callable[[], Path]
    """For all of a user's projects."""
    project_file: str = ""
    """For one project, below its directory; "" where the client has none."""
    section: str = "mcpServers"
    """The member of the file that has the servers by name."""
    typed: bool = False
    """Whether a server says that it speaks on stdin and stdout."""
    form: Form = JSONC
    """Of the file."""


def _below(variable: str, default: str, *parts: str) -> Callable[[], Path]:
    """Returns what gives a path below the directory that a variable names, or else below one of the user's home."""
    return lambda: Path(os.environ.get(variable) or Path.home() / default, *parts)


def _application(*parts: str) -> Callable[[], Path]:
    """Returns what gives a path below the directory in which desktop applications keep their settings."""
    if sys.platform == "darwin":
        return lambda: Path.home().joinpath("Library", "Application Support", *parts)
    return _below("XDG_CONFIG_HOME", ".config", *parts)


CLIENTS = {
    "claude-code": McpClient(_below("CLAUDE_CONFIG_DIR", "", ".claude.json"), ".mcp.json", typed=True),
    "claude-desktop": McpClient(_application("Claude", "claude_desktop_config.json")),
    "codex": McpClient(
        _below("CODEX_HOME", ".codex", "config.toml"), ".codex/config.toml", section="mcp_servers", form=TOML
    ),
    "cursor": McpClient(_below("", ".cursor", "mcp.json"), ".cursor/mcp.json"),
    "gemini": McpClient(_below("", ".gemini", "settings.json"), ".gemini/settings.json"),
    "vscode": McpClient(_application("Code", "User", "mcp.json"), ".vscode/mcp.json", section="servers", typed=True),
    "windsurf": McpClient(_below("", ".codeium", "windsurf", "mcp_config.json")),
    "zed": McpClient(
        _below("XDG_CONFIG_HOME", ".config", "zed", "settings.json"), ".zed/settings.json", section="context_servers"
    ),
}
