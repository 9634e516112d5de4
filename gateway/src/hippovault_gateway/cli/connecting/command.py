"""The command."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli.connecting.clients import CLIENTS, McpClient
from hippovault_gateway.cli.connecting.editing import connected, disconnected
from hippovault_gateway.cli.connecting.files import ConfigurationFile, unreadable
from hippovault_gateway.cli.connecting.form import FormError
from hippovault_gateway.cli.options import DEFAULTS, Options
from hippovault_gateway.cli.output import show_json, show_line
from hippovault_gateway.local import mcp_configuration
from hippovault_gateway.settings import ToolSet

ClientName = Literal["claude-code", "claude-desktop", "codex", "cursor", "gemini", "vscode", "windsurf", "zed"]
"""Those of CLIENTS."""


@dataclass(frozen=True)
class Change:
    """What connecting would change, or changed."""

    file: ConfigurationFile
    text: str

    @property
    def needed(self) -> bool:
        """Whether the file does not say it already."""
        return self.text != self.file.text

    def diff(self) -> str:
        """Returns the change for people."""
        before, after = self.file.text.splitlines(keepends=True), self.text.splitlines(keepends=True)
        name = str(self.file.path)
        lines = difflib.unified_diff(before, after, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def connect(
    client: ClientName,
    /,
    *,
    write: bool = False,
    dry_run: bool = False,
    remove: bool = False,
    project: bool = False,
    file: Path | None = None,
    name: str = "hippovault",
    tools: ToolSet = "all",
    options: Options = DEFAULTS,
) -> None:
    """Shows what to put into an MCP client's configuration, or with --write puts it there.

    All else in the file stays as it is, comments too; the file as it was is kept beside it as NAME.bak-TIME. One that
    does not parse is refused. Writing again changes nothing.

    Args:
        client: The client.
        write: Change the file.
        dry_run: Show what --write would change.
        remove: Take the memory out of the file instead.
        project: The file of the project in the working directory, instead of the user's.
        file: Another file of the same form.
        name: What the client calls the memory; two memories need two names.
        tools: The tools that the client is shown.
        options: Which memory, and how to answer.
    """
    memory_rules.text("name", name, memory_rules.MAX_NAME_BYTES)
    known = CLIENTS[client]
    server = {**({"type": "stdio"} if known.typed else {}), **mcp_configuration.server(options.layout.root, tools)}
    path = file or _path(client, known, project=project)
    if not (write or dry_run or remove):
        _show_server(path, known, name, server, options)
        return
    change = _change(path, known, name, None if remove else server)
    backup = change.file.replace(change.text) if write and not dry_run and change.needed else None
    written = write and not dry_run and change.needed
    if options.json:
        show_json(
            {
                "file": str(change.file.path),
                "changed": change.needed,
                "written": written,
                "backup": str(backup) if backup else None,
                "diff": change.diff(),
            }
        )
        return
    if not change.needed:
        show_line(f"nothing to change: {change.file.path} {'does not have' if remove else 'has'} {name} already")
    elif not written:
        show_line(change.diff().removesuffix("\n"))
        show_line("nothing was changed; give --write to change it")
    else:
        kept = f"; as it was it is kept as {backup}" if backup else ""
        show_line(f"{'disconnected' if remove else 'connected'}: {change.file.path}{kept}")
        show_line(f"restart {client}, which reads it when it starts")


def _change(path: Path, client: McpClient, name: str, server: dict[str, Any] | None) -> Change:
    """Returns the change that brings the server in, or for None takes it out."""
    file = ConfigurationFile.read(path)
    try:
        if server is None:
            return Change(file, disconnected(client.form, file.text, client.section, name))
        return Change(file, connected(client.form, file.text, client.section, name, server))
    except FormError as error:
        raise unreadable(file.path, f"is not {client.form.name} as {client.section} needs it: {error}") from None


def _path(name: str, client: McpClient, *, project: bool) -> Path:
    if project and not client.project_file:
        raise ServiceError.invalid("project", f"{name} has no configuration of single projects")
    return Path.cwd() / client.project_file if project else client.user_file()


def _show_server(path: Path, client: McpClient, name: str, server: dict[str, Any], options: Options) -> None:
    if options.json:
        show_json({"file": str(path), "configuration": {client.section: {name: server}}})
        return
    show_line(f"put this into {path}, or run this command again with --write:")
    show_line(client.form.with_member(client.form.empty, client.section, name, server).removesuffix("\n"))
