"""`hippovault connect`: the memory in the configuration of real clients' forms, and out of it again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from hippovault_gateway.cli.connecting.clients import CLIENTS
from hippovault_gateway.cli.connecting.command import ClientName
from support.command import Run, hippovault, in_process, in_terminal
from support.processes import environment
from support.stack import Stack

DESKTOP = "Library/Application Support" if sys.platform == "darwin" else ".config"
FILES = {
    "claude-code": (".claude.json", "mcpServers"),
    "claude-desktop": (f"{DESKTOP}/Claude/claude_desktop_config.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "vscode": (f"{DESKTOP}/Code/User/mcp.json", "servers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": (".config/zed/settings.json", "context_servers"),
}
PROJECT_FILES = {
    "claude-code": ".mcp.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "vscode": ".vscode/mcp.json",
    "zed": ".zed/settings.json",
}
INITIALIZE: Mapping[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def user(home: Path) -> Path:
    """The home directory of the user."""
    return home.parent


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs connect within this process; returns exit code and JSON document."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    one = in_process(environment(home), monkeypatch, capsys)
    return lambda *arguments: one("connect", *arguments)


def loaded(file: Path) -> dict[str, Any]:
    text = file.read_text()
    members: dict[str, Any] = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return members


def test_every_client_is_known_to_the_command() -> None:
    assert set(get_args(ClientName)) == set(CLIENTS) == set(FILES)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_connected_once_and_disconnected(run: Run, user: Path, home: Path, client: str) -> None:
    path, section = FILES[client]
    file = user / path
    code, would = run(client, "--dry-run", "--write")
    assert (code, would["file"], would["changed"], would["written"]) == (0, str(file), True, False)
    assert not file.exists()
    assert run(client)[1]["configuration"][section].keys() == {"hippovault"}
    assert not file.exists()
    _, done = run(client, "--write")
    assert (done["written"], done["backup"], done["diff"]) == (True, None, would["diff"])
    server = loaded(file)[section]["hippovault"]
    assert (server["args"], server["env"]) == (["mcp"], {"HIPPOVAULT_HOME": str(home)})
    assert Path(server["command"]).is_absolute()
    assert server.get("type") == ("stdio" if client in {"claude-code", "vscode"} else None)
    before = file.read_bytes()
    _, again = run(client, "--write")
    assert (again["changed"], again["written"], again["diff"], file.read_bytes()) == (False, False, "", before)
    assert run(client, "--remove")[1]["written"] is False
    assert file.read_bytes() == before
    _, removed = run(client, "--remove", "--write")
    assert Path(removed["backup"]).read_bytes() == before
    assert loaded(file).get(section, {}) == {}
    assert run(client, "--remove", "--write")[1]["changed"] is False


@pytest.mark.parametrize("client", CLIENTS)
def test_a_project_has_a_configuration_of_its_own(
    run: Run, tmp_path: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, done = run(client, "--project", "--write")
    if client not in PROJECT_FILES:
        assert (code, done["error"]["field"]) == (1, "project")
        return
    assert done["file"] == str(tmp_path / PROJECT_FILES[client])
    assert "hippovault" in loaded(tmp_path / PROJECT_FILES[client])[FILES[client][1]]


def test_what_is_written_starts_a_door_to_this_memory(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    assert hippovault(stack.home, "connect", "cursor", "--file", str(file), "--write").returncode == 0
    server = json.loads(file.read_text())["mcpServers"]["hippovault"]
    others = {name: value for name, value in environment(stack.home).items() if name != "HIPPOVAULT_HOME"}
    ended = subprocess.run(
        [server["command"], *server["args"]],
        input=f"{json.dumps(INITIALIZE)}\n".encode(),
        env={**others, **server["env"]},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "hippovault"


def test_the_tools_and_the_name_are_chosen(run: Run, user: Path) -> None:
    run("gemini", "--write", "--tools", "shodh", "--name", "work")
    run("gemini", "--write")
    servers = loaded(user / ".gemini/settings.json")["mcpServers"]
    assert servers["work"]["args"] == ["mcp", "--tools", "shodh"]
    assert servers["hippovault"]["args"] == ["mcp"]


def test_all_else_stays_byte_by_byte(run: Run, user: Path) -> None:
    file = user / ".config/zed/settings.json"
    file.parent.mkdir(parents=True)
    text = (
        b'\xef\xbb\xbf// Mine.\r\n{\r\n    "theme": "One", /* dark */\r\n'
        b'    "context_servers": {\r\n        "a": {"command": "b"}, // the first\r\n    },\r\n}\r\n'
    )
    file.write_bytes(text)
    file.chmod(0o640)
    _, done = run("zed", "--write")
    after = file.read_bytes()
    assert Path(done["backup"]).read_bytes() == text
    assert after.startswith(text[: text.index(b'"a"')])
    assert b'"hippovault": {\r\n            "command"' in after
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    run("zed", "--remove", "--write")
    assert file.read_bytes() == text


def test_a_link_stays_a_link(run: Run, user: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}")
    (user / ".cursor").mkdir()
    (user / ".cursor/mcp.json").symlink_to(kept)
    _, done = run("cursor", "--write")
    assert (user / ".cursor/mcp.json").is_symlink()
    assert "hippovault" in loaded(kept)["mcpServers"]
    assert (done["file"], Path(done["backup"]).parent) == (str(kept), tmp_path)


def test_links_in_a_circle_are_told(run: Run, tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    code, refused = run("cursor", "--write", "--file", str(circle))
    assert (code, refused["error"]["reason"]) == (1, "OS_ERROR")
    assert str(circle) in refused["error"]["message"]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\udcff", "x" * 257])
@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_a_name_that_no_client_could_show_is_refused(run: Run, user: Path, client: str, name: str) -> None:
    code, refused = run(client, "--write", "--name", name)
    assert (code, refused["error"]["field"]) == (1, "name")
    assert not (user / FILES[client][0]).exists()


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", b'{"mcpServers": {'),
        ("cursor", b'{"mcpServers": []}'),
        ("cursor", b"\xff\xfe{}"),
        ("codex", b"[mcp_servers\n"),
    ],
)
@pytest.mark.parametrize("extra", [[], ["--remove"], ["--dry-run"]], ids=" ".join)
def test_a_file_that_does_not_parse_is_refused_by_its_name(
    run: Run, user: Path, client: str, text: bytes, extra: list[str]
) -> None:
    file = user / FILES[client][0]
    file.parent.mkdir()
    file.write_bytes(text)
    code, refused = run(client, "--write", *extra)
    assert (code, refused["error"]["reason"]) == (1, "CONFIGURATION_UNREADABLE")
    assert refused["error"]["message"].startswith(f"{file}: ")
    assert os.listdir(file.parent) == [file.name]  # noqa: PTH208  # Names alone.
    assert file.read_bytes() == text


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_regular_file_is_neither_read_nor_replaced(
    run: Run, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    file, link = tmp_path / "mcp.json", tmp_path / "link.json"
    make(file)
    link.symlink_to(file)
    kind = file.stat().st_mode
    for path in (file, link):
        code, refused = run("cursor", "--write", "--file", str(path))
        assert (code, refused["error"]["reason"]) == (1, "CONFIGURATION_UNREADABLE")
        assert refused["error"]["message"].startswith(f"{file}: is no regular file; nothing was changed")
    assert file.stat().st_mode == kind


def test_a_file_that_somebody_else_changes_meanwhile_is_left_alone(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = user / ".claude.json"
    file.write_text("{}")
    fsync = os.fsync

    def changed_before(descriptor: int) -> None:
        file.write_text('{"theirs": 1}')
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", changed_before)
    code, refused = run("claude-code", "--write")
    assert (code, refused["error"]["reason"]) == (1, "CONFIGURATION_CHANGED")
    assert file.read_text() == '{"theirs": 1}'
    assert not list(user.glob(".*.json.*[!Z]"))


def test_an_empty_file_is_like_none(run: Run, user: Path) -> None:
    (user / ".claude.json").write_text("\n")
    run("claude-code", "--write")
    assert loaded(user / ".claude.json")["mcpServers"].keys() == {"hippovault"}


def test_people_see_what_to_paste_and_what_would_change(home: Path) -> None:
    shown = hippovault(home, "connect", "cursor").stdout.decode()
    assert shown.startswith(
        f"put this into {home.parent}/.cursor/mcp.json, or run this command again with --write:\n{{"
    )
    code, diff = in_terminal(home, "connect", "cursor", "--dry-run")
    assert code == 0
    assert '+    "hippovault": {' in diff
    assert "nothing was changed; give --write to change it" in diff
    unknown = hippovault(home, "connect", "emacs", "--json")
    assert (unknown.returncode, json.loads(unknown.stdout)["error"]["reason"]) == (2, "USAGE")
