"""The three real processes, started one by one, in a home of the test's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway.servicer import NAME
from support.processes import Process, start

SERVICES = ("embedding", "storage", "gateway")


@dataclass
class Stack:
    """A running memory."""

    home: Path
    processes: dict[str, Process]
    environment: Mapping[str, str]

    @property
    def mcp_http_url(self) -> str:
        """Where MCP over HTTP is served."""
        return self.processes["gateway"].status

    def restart(self, name: str) -> None:
        """Starts a process that was stopped or killed."""
        self.processes[name] = start([f"hippovault_{name}"], self.home, name, self.environment)

    @contextmanager
    def client(self) -> Iterator[memory_service_pb2_grpc.MemoryServiceStub]:
        """A gRPC client of the gateway."""
        with channels.sync(f"unix:{self.home / 'run' / 'gateway.sock'}", NAME, ()) as channel:
            yield memory_service_pb2_grpc.MemoryServiceStub(channel)


@contextmanager
def running(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Runs the three processes while the context lasts."""
    variables = {"HIPPOVAULT_GATEWAY_HTTP": "127.0.0.1:0", **(environment or {})}
    with ExitStack() as cleanup:
        stack = Stack(home, {}, variables)
        for name in SERVICES:
            stack.restart(name)
            cleanup.callback(_end, stack, name)
        yield stack


def _end(stack: Stack, name: str) -> None:
    process = stack.processes[name]
    if process.popen.poll() is None:
        process.stop()
