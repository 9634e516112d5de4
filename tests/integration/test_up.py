"""`hippovault up`, `down`, `status` and `mcp`: a whole memory by one command, any number of them side by side."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hippovault_chassis import locks
from support.command import COMMAND, answer, hippovault
from support.door import Door
from support.processes import environment, start

SECONDS = 60
SERVICES = {"embedding", "storage", "gateway"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, method: str, **parameters: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


def session(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in (INITIALIZE, INITIALIZED, *messages))


def answers(stdout: bytes) -> dict[int, dict[str, Any]]:
    assert stdout.startswith(b"{")
    return {message["id"]: message for message in map(json.loads, stdout.splitlines())}


def draining(log: Path) -> str:
    """Returns when a service began to drain."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    [began] = [line["timestamp"] for line in lines if line["event"] == "draining"]
    return str(began)


@pytest.fixture(scope="module")
def memory(module_home: Path) -> Iterator[Path]:
    """A home whose memory ten doors have started at once."""
    with_tools = [*COMMAND, "mcp", "--tools", "hippo"]
    doors = [
        subprocess.Popen(
            with_tools, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(module_home), cwd="/"
        )
        for _ in range(10)
    ]
    outputs = [door.communicate(session(), timeout=SECONDS)[0] for door in doors]
    try:
        assert [door.returncode for door in doors] == [0] * 10
        for output in outputs:
            assert answers(output)[1]["result"]["serverInfo"]
        yield module_home
    finally:
        hippovault(module_home, "down")


def test_ten_doors_at_once_start_one_memory(memory: Path) -> None:
    assert (memory / "logs" / "up.log").read_text().count("mcpServers") == 1
    status = answer(memory, "status")
    assert status["processes"].keys() == SERVICES
    assert status["pid"] == locks.holder(memory / "run" / "up.lock")


def test_a_session_through_the_door_is_answered_to_its_last_request(memory: Path) -> None:
    remember = {
        "name": "hippo_remember",
        "arguments": {"content": "The gate code is kept by Ines.", "namespace": "door"},
    }
    ended = hippovault(memory, "mcp", stdin=session(call(2, "tools/call", **remember), call(3, "tools/list")))
    assert ended.returncode == 0
    answered = answers(ended.stdout)
    assert answered[2]["result"]["isError"] is False
    names = {tool["name"] for tool in answered[3]["result"]["tools"]}
    assert {"hippo_recall", "hippo_search"} <= names
    recalled = answer(memory, "recall", "who has the code of the gate?", "--namespace", "door")
    assert recalled["hits"][0]["content"] == "The gate code is kept by Ines."


def test_starting_again_says_so_and_changes_nothing(memory: Path) -> None:
    before = answer(memory, "status")
    again = answer(memory, "up", "--detach")
    assert again["already_running"] is True
    elsewhere = hippovault(memory, "up", "--detach", "--http", "127.0.0.1:1")
    assert elsewhere.returncode == 0
    assert b"--http is not used" in elsewhere.stderr
    assert again["pid"] == before["pid"]
    assert again["mcp_http_url"] == before["ping"]["mcp_http_url"]
    assert answer(memory, "status")["processes"] == before["processes"]
    foreground = hippovault(memory, "up")
    assert foreground.returncode == 1
    assert f"running already, pid {before['pid']}" in foreground.stderr.decode()


def test_the_configuration_that_is_printed_starts_a_session(memory: Path) -> None:
    server = answer(memory, "up", "--detach")["mcpServers"]["hippovault"]
    assert server["env"] == {"HIPPOVAULT_HOME": str(memory)}
    ended = subprocess.run(
        [server["command"], *server["args"]],
        input=session(),
        env={**server["env"], "PATH": "/nowhere"},
        cwd="/",
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    assert answers(ended.stdout)[1]["result"]["serverInfo"]


def test_the_first_run_shows_a_memory_at_work_any_number_of_times(memory: Path) -> None:
    program = Path(__file__).parents[2] / "tools" / "first_run.py"
    for outcome in ("created", "existed"):
        ended = subprocess.run(
            [sys.executable, str(program)],
            env=environment(memory),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert f"{outcome}: memory" in ended.stdout
        assert "PostgreSQL" in ended.stdout.split("hippovault recall")[1]
        assert '"mcpServers"' in ended.stdout
        assert ended.stderr == ""


def test_everything_below_home_is_the_owners_alone(memory: Path) -> None:
    for path in [memory, *memory.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        # A socket's x bit means nothing; group and others must have none.
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, path
        assert path.is_socket() or mode == expected, path


def test_two_homes_are_two_memories(memory: Path, home: Path) -> None:
    answer(memory, "remember", "Only the first memory knows this.", "--namespace", "two")
    (home / "nested").mkdir(parents=True)
    other = home / "nested"
    try:
        started = answer(other, "up", "--detach", "--http", "127.0.0.1:0")
        assert started["already_running"] is False
        assert started["mcp_http_url"] != answer(memory, "status")["ping"]["mcp_http_url"]
        assert answer(other, "list", "--namespace", "two")["total"] == 0
        assert answer(memory, "list", "--namespace", "two")["total"] == 1
    finally:
        stopped = answer(other, "down")
    assert stopped == {"stopped": True, "pid": started["pid"]}
    assert hippovault(other, "status").returncode == 1
    assert answer(memory, "status")["processes"].keys() == SERVICES


def test_stopping_what_does_not_run_is_no_error(home: Path) -> None:
    home.mkdir()
    assert answer(home, "down") == {"stopped": False, "pid": None}
    assert b"is not running" in hippovault(home, "down").stdout


def test_up_in_the_foreground_stops_its_children_in_order_and_itself(home: Path) -> None:
    key = {"HIPPOVAULT_STORAGE_KEY": "secret"}
    supervisor = start(["hippovault_gateway.cli", "up", "--http", "off"], home, "up", key)
    processes = answer(home, "status")["processes"]
    environments = {name: Path(f"/proc/{told['pid']}/environ").read_bytes() for name, told in processes.items()}
    assert [name for name, variables in environments.items() if b"secret" in variables] == ["storage"]
    ends = {name: os.pidfd_open(told["pid"]) for name, told in processes.items()}
    printed = supervisor.log.read_text()
    supervisor.popen.send_signal(signal.SIGINT)
    assert supervisor.popen.wait(SECONDS) == 0
    ended = {name for name, descriptor in ends.items() if select.select([descriptor], [], [], 0)[0]}
    assert ended == SERVICES
    assert '"mcpServers"' in printed
    assert "HTTP" not in printed
    # The services behind the gateway were not asked before it had ended.
    drained = {name: draining(home / "logs" / f"{name}.log") for name in SERVICES}
    assert drained["gateway"] < min(drained["embedding"], drained["storage"])


@pytest.mark.parametrize(
    ("configured", "arguments", "expected"),
    [
        ("", ["--http", "0.0.0.0:80"], [b"the gateway service ended", b"gateway.log", b"open to the network"]),
        ("[storage]\nbogus = 1\n", [], [b"the storage service ended", b"storage.log", b"bogus"]),
    ],
)
def test_a_service_that_does_not_start_is_named_with_its_log(
    home: Path, configured: str, arguments: list[str], expected: list[bytes]
) -> None:
    home.mkdir()
    (home / "hippovault.toml").write_text(configured)
    ended = hippovault(home, "up", "--detach", *arguments)
    assert ended.returncode == 1
    for part in expected:
        assert part in ended.stderr
    assert ended.stdout == b""
    assert hippovault(home, "down").stdout.endswith(b"is not running\n")
    for name in SERVICES:
        assert locks.holder(home / "run" / f"{name}.lock") is None


def test_a_home_too_deep_for_sockets_is_refused_by_name(home: Path) -> None:
    home.mkdir()
    deep = home / ("d" * 100)
    ended = hippovault(deep, "up", "--detach")
    assert ended.returncode == 1
    assert b"HIPPOVAULT_HOME" in ended.stderr
    door = hippovault(deep, "mcp", stdin=session())
    assert door.returncode == 1
    assert answers(door.stdout)[1]["error"]["message"].endswith("could not be started")
    assert b"HIPPOVAULT_HOME" in door.stderr


def test_the_supervisor_and_the_door_are_small(memory: Path) -> None:
    def resident_megabytes(pid: int) -> float:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    assert resident_megabytes(answer(memory, "status")["pid"]) < 35
    with Door(memory) as door:
        door.open()
        door.call("hippo_remember", {"content": "x" * 60_000, "namespace": "small"})
        for _ in range(5):
            door.call("hippo_list_recent", {"namespace": "small"})
        assert resident_megabytes(door.process.pid) < 15
        assert door.end() == 0
