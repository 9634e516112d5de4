"""kill -9 of each process of a memory, and of the supervisor: what was acknowledged is there, and all comes back."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis.errors import ServiceError
from support.command import answer, hippovault
from support.door import Door

SECONDS = 30.0
NAMESPACE = "kill"
SERVICES = ("embedding", "storage", "gateway")
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"test","version":"1"}}}\n'
)


@pytest.fixture(scope="module")
def stopped_at_last(module_home: Path) -> Iterator[Path]:
    yield module_home
    hippovault(module_home, "down")


@pytest.fixture
def memory(stopped_at_last: Path) -> Path:
    """The home of a memory that runs; where the test before ended it, it is started again."""
    answer(stopped_at_last, "up", "--detach", "--http", "off")
    return stopped_at_last


def status(home: Path) -> dict[str, Any]:
    """How the memory is once the supervisor knows of all; of one that was restarted it hears after clients do."""
    for _ in range(100):
        shown = answer(home, "status")
        assert shown["processes"].keys() == set(SERVICES)
        if all(one["state"] == "serving" for one in shown["processes"].values()):
            return shown
    raise AssertionError("the supervisor does not know of all")


def deaths(home: Path, name: str) -> int:
    """How often the supervisor saw a service being killed."""
    return (home / "logs" / "up.log").read_text().count(f"the {name} service was ended by signal 9")


@contextmanager
def client(home: Path) -> Iterator[memory_service_pb2_grpc.MemoryServiceStub]:
    with grpc.insecure_channel(f"unix:{home}/run/gateway.sock") as channel:
        yield memory_service_pb2_grpc.MemoryServiceStub(channel)


def wait_for_end(descriptor: int, seconds: float = SECONDS) -> None:
    ended, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    assert ended


def kill(pid: int) -> None:
    """Ends a process and returns once it has ended."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(descriptor)


def recall(home: Path, query: str) -> pb.RecallResponse:
    """Asks as a patient client does: again while a service is not there, which must be said by its name."""
    request = pb.RecallRequest(namespace=NAMESPACE, query=query, mode=pb.RECALL_MODE_DENSE, no_surprise_boost=True)
    for _ in range(1000):
        with client(home) as memory:
            try:
                return memory.Recall(request, timeout=SECONDS, wait_for_ready=True)
            except grpc.RpcError as failure:
                error = ServiceError.from_rpc(failure, "gateway")
                assert error.code is grpc.StatusCode.UNAVAILABLE
                assert any(f"the {name} service" in error.message for name in SERVICES)
    raise AssertionError("it did not come back")


@pytest.mark.parametrize("name", SERVICES)
def test_a_killed_process_comes_back_and_nothing_acknowledged_is_lost(memory: Path, name: str) -> None:
    before, seen = status(memory), deaths(memory, name)
    fact = f"What was told just before the {name} process died."
    answer(memory, "remember", fact, "--namespace", NAMESPACE)
    kill(before["processes"][name]["pid"])
    found = recall(memory, fact)
    assert found.hits[0].memory.content == fact
    after = f"What was told after the {name} process came back."
    assert answer(memory, "remember", after, "--namespace", NAMESPACE)["outcome"] == "created"
    assert recall(memory, after).hits[0].memory.content == after
    # Once, by the same supervisor, and it alone.
    assert deaths(memory, name) == seen + 1
    now = status(memory)
    assert {other for other in SERVICES if now["processes"][other] != before["processes"][other]} == {name}
    assert now["pid"] == before["pid"]
    assert now["ping"]["live_memories"] == before["ping"]["live_memories"] + 2


@pytest.mark.parametrize(("name", "command"), [("gateway", ["remember", "Told soon."]), ("storage", ["verify"])])
def test_a_command_waits_for_the_process_that_it_asks(memory: Path, name: str, command: list[str]) -> None:
    kill(status(memory)["processes"][name]["pid"])
    answer(memory, *command)


def test_sessions_go_on_with_the_gateway_that_the_supervisor_starts(memory: Path) -> None:
    with Door(memory) as idle, Door(memory) as door:
        idle.open()
        door.open()
        kill(status(memory)["processes"]["gateway"]["pid"])
        assert door.call("ping", {})["result"]["isError"] is False
        following = hippovault(memory, "mcp", stdin=INITIALIZE)
        assert idle.call("ping", {})["result"]["isError"] is False
        assert (door.end(), idle.end()) == (0, 0)
    assert (following.returncode, following.stderr) == (0, b"")
    assert b'"serverInfo"' in following.stdout


def test_a_session_starts_the_memory_again_that_ended_with_its_supervisor(memory: Path) -> None:
    with Door(memory) as door:
        door.open()
        answer(memory, "down")
        assert door.call("ping", {})["result"]["isError"] is False
        assert door.end() == 0
    assert status(memory)["pid"]


def test_after_the_supervisor_was_killed_a_new_one_takes_over(memory: Path) -> None:
    before = status(memory)
    orphans = [os.pidfd_open(one["pid"]) for one in before["processes"].values()]
    kill(before["pid"])
    started = answer(memory, "up", "--detach", "--http", "off")
    assert started["already_running"] is False
    for orphan in orphans:
        wait_for_end(orphan, seconds=0)
    fresh = status(memory)
    assert fresh["pid"] == started["pid"] != before["pid"]
    assert fresh["ping"]["live_memories"] == before["ping"]["live_memories"]
    for name in SERVICES:
        assert "Traceback" not in (memory / "logs" / f"{name}.log").read_text()


def test_without_its_supervisor_a_memory_ends_by_itself(memory: Path) -> None:
    before = status(memory)
    orphans = [os.pidfd_open(one["pid"]) for one in before["processes"].values()]
    kill(before["pid"])
    for orphan in orphans:
        wait_for_end(orphan)
    ended = hippovault(memory, "status")
    assert ended.returncode == 1
    assert b"not running" in ended.stdout
