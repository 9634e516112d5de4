"""The small programs of the local runtime: what they import, how they are told which memory, what hosts are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from hippovault_chassis import locks, settings
from hippovault_chassis.home import Home
from hippovault_gateway.cli.app import app
from hippovault_gateway.cli.options import Options
from hippovault_gateway.local import log_files, mcp_configuration, notifications, state, stdio_door, stdio_session
from hippovault_gateway.mcp import messages, tools
from hippovault_gateway.settings import GatewaySettings, ToolSet
from support.command import hippovault


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "HIPPOVAULT_HOME", "HIPPOVAULT_MCP_TOOLS"):
        monkeypatch.delenv(name, raising=False)


def imported_by(module: str) -> set[str]:
    program = f"import {module}, sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout.split()
    )


def test_the_stdio_door_imports_no_more_than_it_needs() -> None:
    slow = {"typing", "collections", "contextlib", "socket", "threading", "json", "re", "enum", "pathlib", "subprocess"}
    assert not imported_by("hippovault_gateway.local.stdio_door") & slow


def test_the_supervisor_imports_no_grpc_and_no_parser() -> None:
    heavy = {"grpc", "mcp", "cyclopts", "pydantic", "numpy", "structlog"}
    assert not imported_by("hippovault_gateway.local.supervisor") & heavy


def test_commands_import_neither_doors_nor_the_application() -> None:
    heavy = {"mcp", "mcp_types", "starlette", "hippovault.storage.v1", "hippovault.embedding.v1"}
    own = {f"hippovault_gateway.{name}" for name in ("mcp", "application", "clients", "recall", "remember")}
    for module in ("memories", "importing", "lifecycle"):
        assert not imported_by(f"hippovault_gateway.cli.{module}") & (heavy | own)


def test_the_door_reads_plain_command_lines_by_itself(tmp_path: Path) -> None:
    default = str(tmp_path / ".local/share/hippovault")
    assert stdio_door.plain_arguments([]) == (default, "all")
    assert stdio_door.plain_arguments(["--tools", "hippo"]) == (default, "hippo")
    assert stdio_door.plain_arguments(["--home=/x=y", "--tools=shodh"]) == ("/x=y", "shodh")


@pytest.mark.parametrize(("variable", "arguments"), [("", []), ("", ["--home", ""]), (None, ["--home="])])
def test_an_empty_home_is_the_default_one_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, arguments: list[str]
) -> None:
    if variable is not None:
        monkeypatch.setenv("HIPPOVAULT_HOME", variable)
    default = tmp_path / ".local/share/hippovault"
    _, bound, _ = app.parse_args(["status", *arguments])
    assert bound.arguments.get("options", Options()).layout.root == default
    assert settings.load(GatewaySettings, "gateway", arguments).layout.root == default
    assert stdio_door.plain_arguments(arguments) == (str(default), "all")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--tools"], ["--tools", "bogus"], ["--bogus", "x"], ["x"], ["--tools", "all", "x"]]
)
def test_other_command_lines_are_left_to_the_parser(arguments: list[str]) -> None:
    assert stdio_door.plain_arguments(arguments) is None


def test_settings_from_elsewhere_are_left_to_the_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hippovault.toml").touch()
    assert stdio_door.plain_arguments(["--home", str(tmp_path)]) is None
    monkeypatch.setenv("HIPPOVAULT_MCP_TOOLS", "hippo")
    assert stdio_door.plain_arguments([]) is None


def test_the_door_knows_what_the_gateway_knows(tmp_path: Path) -> None:
    assert get_args(ToolSet) == stdio_door.TOOL_SETS
    assert stdio_door.socket_path(str(tmp_path)) == str(Home(tmp_path).socket("mcp"))
    assert stdio_door.MAX_LINE_BYTES == messages.MAX_BYTES
    assert stdio_door.END_BYTES == messages.END_BYTES
    assert {tool.name for tool in tools.TOOLS if tool.read_only} == stdio_session.READ_ONLY


def test_hosts_are_given_an_absolute_command_and_the_home_where_it_is_not_the_default(tmp_path: Path) -> None:
    [server] = mcp_configuration.document(tmp_path / "other")["mcpServers"].values()
    assert Path(server["command"]).is_absolute()
    assert server["args"][-1] == "mcp"
    assert server["env"] == {"HIPPOVAULT_HOME": str(tmp_path / "other")}
    [server] = mcp_configuration.document(tmp_path / ".local/share/hippovault")["mcpServers"].values()
    assert "env" not in server


def test_a_lock_tells_who_holds_it_and_a_probe_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert locks.holder(path) is None
    program = (
        "import sys; from pathlib import Path; from hippovault_chassis.locks import lock_file\n"
        "lock = lock_file(Path(sys.argv[1]), 'it is held'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        assert locks.holder(path) == other.pid
        with pytest.raises(locks.LockHeldError, match=rf"it is held by another process already \(pid {other.pid}"):
            locks.lock_file(path, "it is held")
        other.communicate()
    assert locks.holder(path) is None
    locks.lock_file(path, "it is held").close()


def test_a_long_log_is_set_aside_once(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    for _ in range(3):
        with log_files.open_log(log) as file:
            file.write(b"x" * (log_files.MAX_BYTES + 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1"]


def test_the_tail_of_a_log_begins_where_it_is_told(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert log_files.tail(log, lines=2) == "line 998\nline 999"
    start = log.stat().st_size
    assert log_files.tail(log, start) == ""


@pytest.mark.parametrize("datagram", [b"", b"READY=1", b"MAINPID=3", b"READY=1\nMAINPID=x", b"\xff=\n\n"])
def test_datagrams_that_tell_no_readiness_are_passed_over(datagram: bytes) -> None:
    assert notifications.parse(datagram) is None


def test_readiness_has_a_process_and_a_status() -> None:
    assert notifications.parse(b"READY=1\nMAINPID=3\nSTATUS=unix:/x=y") == (3, "unix:/x=y")


@pytest.mark.parametrize("text", ["", '{"gateway": {"pi'])
def test_a_state_file_that_was_cut_short_tells_of_nothing(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    home.create()
    state.state_path(home).write_text(text)
    assert state.read_serving(home) == {}


def test_a_door_whose_home_cannot_be_written_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    ended = hippovault(home, "mcp", "--home", str(home), stdin=b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n')
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"hippovault mcp: the memory ")
    [refused] = map(json.loads, ended.stdout.splitlines())
    assert refused["id"] == 7
    assert "cannot be started" in refused["error"]["message"]
    assert b"Traceback" not in ended.stderr


def test_a_host_that_asks_nothing_starts_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ended = hippovault(home, "mcp")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert not home.exists()


def test_a_configuration_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "hippovault.toml").mkdir(parents=True)
    ended = hippovault(home, "list", "--home", str(home))
    assert ended.returncode != 0
    assert b"Traceback" not in ended.stderr
    assert b"hippovault.toml" in ended.stderr
