"""Processes of the benchmark's own, in a temporary home: the whole memory, or a service alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis import channels
from hippovault_storage.servicer import NAME as STORAGE

HIPPOVAULT = Path(sys.executable).parent / "hippovault"
READY_SECONDS = 600
STOP_SECONDS = 60
KIB = 1024
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Memory:
    """A memory that runs.

    Args:
        environment: Of commands over it.
        http_url: Of MCP over HTTP; "" when that is off.
    """

    environment: Mapping[str, str]
    http_url: str

    @property
    def target(self) -> str:
        """The gRPC target of MemoryService."""
        return self.service("gateway")

    def service(self, name: str) -> str:
        """Returns the gRPC target of one of the processes."""
        return f"unix:{self.environment['HIPPOVAULT_HOME']}/run/{name}.sock"


@contextmanager
def running(variables: Mapping[str, str]) -> Iterator[Memory]:
    """Runs `hippovault up` while the context lasts.

    Args:
        variables: Environment of the processes, beside this one's.
    """
    with tempfile.TemporaryDirectory(prefix="hv-") as directory:
        environment = {**os.environ, **variables, "HIPPOVAULT_HOME": f"{directory}/home"}
        up = [str(HIPPOVAULT), "up", "--detach", "--json"]
        started = subprocess.run(up, env=environment, check=True, stdout=subprocess.PIPE)
        try:
            yield Memory(environment, json.loads(started.stdout)["mcp_http_url"])
        finally:
            subprocess.run([HIPPOVAULT, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def memory(variables: Mapping[str, str]) -> Iterator[str]:
    """Runs `hippovault up` without MCP over HTTP while the context lasts.

    Args:
        variables: Environment of the processes, beside this one's.

    Yields:
        The gRPC target of MemoryService.
    """
    with running({**variables, "HIPPOVAULT_GATEWAY_HTTP": "off"}) as started:
        yield started.target


@dataclass(frozen=True)
class Process:
    """A process that serves. What is told of it here only Linux tells.

    Args:
        target: The gRPC target.
        process_id: Of the system.
    """

    target: str
    process_id: int

    def resident_bytes(self) -> int:
        """Returns its resident memory, pages of mapped files included."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """Returns the most resident memory that it ever had."""
        return self._status("VmHWM")

    def cpu_seconds(self) -> float:
        """Returns the processor time of its threads."""
        schedules = Path(f"/proc/{self.process_id}/task").glob("*/schedstat")
        return sum(int(schedule.read_text().split()[0]) for schedule in schedules) / NANOSECONDS

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        line = next(line for line in lines if line.startswith(f"{name}:"))
        return int(line.split()[1]) * KIB


@contextmanager
def storage(home: Path) -> Iterator[tuple[Process, StorageServiceStub]]:
    """Runs `python -m hippovault_storage` while the context lasts."""
    with _process("storage", home) as process, channels.sync(process.target, STORAGE, ()) as channel:
        yield process, StorageServiceStub(channel)


@contextmanager
def embedding(home: Path, *flags: str) -> Iterator[Process]:
    """Runs `python -m hippovault_embedding` with these flags while the context lasts."""
    with _process("embedding", home, *flags) as process:
        yield process


@contextmanager
def _process(name: str, home: Path, *flags: str) -> Iterator[Process]:
    environment = {**os.environ, "HIPPOVAULT_HOME": str(home)}
    command = [sys.executable, "-m", f"hippovault_{name}", *flags]
    with (home.parent / f"{name}.log").open("ab") as log:
        popen = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    target = f"unix:{home / 'run' / f'{name}.sock'}"
    try:
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(READY_SECONDS)
        yield Process(target, popen.pid)
    finally:
        popen.terminate()
        popen.wait(STOP_SECONDS)
