"""A session through `hippovault mcp` while the gateway, or what stands behind it, ends and comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from hippovault_chassis.home import Home
from hippovault_gateway.local.state import read_serving
from integration.mcp_support import PROTOCOL, Era, RawSession, answer
from support.command import COMMAND, hippovault
from support.door import Door
from support.processes import environment, start

UP_WHILE_STOPPING = """
import contextlib, os, signal, sys
from hippovault_gateway.cli import app
from hippovault_gateway.local import launcher

storage, start_detached = int(sys.argv[1]), launcher.start_detached

def start(*given):
    started = start_detached(*given)
    with contextlib.suppress(ProcessLookupError):
        os.kill(storage, signal.SIGCONT)
    return started

launcher.start_detached = start
sys.exit(app.run(sys.argv[2:]))
"""
"""Lets the storage process stop once the first look has found a supervisor."""


@pytest.fixture(scope="module")
def memory(module_home: Path) -> Iterator[Path]:
    """The home of a memory that runs."""
    assert hippovault(module_home, "up", "--detach", "--http", "off").returncode == 0
    yield module_home
    hippovault(module_home, "down")


def official(home: Path, era: Era) -> Client:
    command, *arguments = COMMAND
    parameters = StdioServerParameters(command=command, args=[*arguments, "mcp"], env=environment(home))
    return Client(stdio_client(parameters), mode=era)


def kill(home: Path, name: str, number: int = signal.SIGKILL) -> None:
    """Sends a signal to a process of the memory; one that it ends is started again by the supervisor."""
    os.kill(read_serving(Home(home))[name]["pid"], number)


@contextmanager
def suspended(home: Path, name: str) -> Iterator[None]:
    """Keeps what a process is asked under way."""
    kill(home, name, signal.SIGSTOP)
    try:
        yield
    finally:
        kill(home, name, signal.SIGCONT)


@pytest.mark.parametrize("era", PROTOCOL)
async def test_a_session_of_each_era_outlives_its_gateway(memory: Path, era: Era) -> None:
    fact = f"Ines keeps the keys of {era}."
    async with official(memory, era) as client:
        stored = await answer(client, "hippo_remember", content=fact, namespace=era)
        kill(memory, "gateway")
        listed = await answer(client, "hippo_list_recent", namespace=era)
        again = await answer(client, "hippo_remember", content=fact, namespace=era)

    assert listed["memories"] == [stored["memory"]]
    assert again["outcome"] == "existed"


def test_what_was_under_way_is_asked_again_or_refused_by_its_id(memory: Path) -> None:
    with Door(memory) as door:
        door.open()
        with suspended(memory, "storage"):
            door.send_call("read", "hippo_list_recent", {})
            door.send_call("write", "hippo_remember", {"content": "Told in vain, or not."})
            door.send_call(
                "named", "hippo_remember", {"content": "Told once.", "request_id": "n", "namespace": "named"}
            )
            door.send("ping", "ping", {})
            assert door.receive()["id"] == "ping"  # By now the calls, which came first, wait for the storage.
            door.close()
            kill(memory, "gateway")
            refused = door.receive()
        answered = {message["id"]: message["result"] for message in (door.receive(), door.receive())}

        assert refused["id"] == "write"
        assert "may have carried it out" in refused["error"]["message"]
        assert {request_id: result["isError"] for request_id, result in answered.items()} == {
            "read": False,
            "named": False,
        }
        assert answered["named"]["structuredContent"]["outcome"] == "created"
        assert door.end() == 0
        assert door.rest() == b""


def test_a_session_begins_without_the_embedder(memory: Path) -> None:
    with suspended(memory, "embedding"), Door(memory) as door:
        assert door.open()["serverInfo"]["name"] == "hippovault"
        door.send("tools", "tools/list", {})
        assert door.receive()["result"]["tools"]
        assert door.call("hippo_list_recent", {})["result"]["isError"] is False
        assert door.end() == 0


def test_a_line_that_is_too_long_is_refused_by_its_id_and_the_session_lives_on(memory: Path) -> None:
    with Door(memory) as door:
        door.open()
        door.send_call("long", "hippo_remember", {"content": "x" * 10_000_000})
        refused = door.receive()
        listed = door.call("hippo_list_recent", {})

    assert refused["id"] == "long"
    assert "more than 4194304 bytes" in refused["error"]["message"]
    assert listed["result"]["isError"] is False


def test_a_memory_that_is_asked_for_while_it_stops_is_started_again(memory: Path) -> None:
    storage = read_serving(Home(memory))["storage"]["pid"]
    os.kill(storage, signal.SIGSTOP)  # Until `up` has found the supervisor.
    with RawSession(memory / "run" / "mcp.sock") as session:
        down = subprocess.Popen([*COMMAND, "down"], env=environment(memory), stdout=subprocess.DEVNULL)
        assert session.lines.read() == b""
    command = [sys.executable, "-c", UP_WHILE_STOPPING, str(storage), "up", "--detach", "--http", "off", "--json"]
    up = subprocess.run(command, env=environment(memory), capture_output=True, text=True, check=False)

    assert down.wait() == 0
    assert json.loads(up.stdout)["already_running"] is False, up.stdout + up.stderr
    with Door(memory) as door:
        assert door.open()["serverInfo"]["name"] == "hippovault"


def test_when_the_memory_is_gone_all_that_was_asked_is_refused_and_the_door_says_so(home: Path) -> None:
    gateway = start(["hippovault_gateway"], home, "gateway", {"HIPPOVAULT_GATEWAY_HTTP": "off"})
    with Door(home) as door:
        door.open()
        gateway.kill()
        lock = home / "run" / "up.lock"
        lock.mkdir()  # Nothing can be started any more.
        door.send_call("first", "hippo_list_recent", {})
        door.send_call("second", "hippo_remember", {"content": "c"})
        refused = [door.receive(), door.receive()]

        assert door.process.wait(60) == 1
        assert door.rest() == b""
        assert [message["id"] for message in refused] == ["first", "second"]
        assert all("could not be started" in message["error"]["message"] for message in refused)
        assert f"hippovault mcp: the memory {home} does not answer and could not be started" in door.said()
