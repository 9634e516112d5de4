"""The doors to a memory, each with the client by which it is asked.

The raw clients write a request, read its answer, and do no more than that. The official ones are what most hosts use;
their own time is not the memory's.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmark.stack import HIPPOVAULT, Memory
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway.mcp.tools import RECALL
from hippovault_gateway.servicer import NAME

SECONDS = 60
PROTOCOL = "2025-11-25"
INITIALIZE = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": PROTOCOL,
}


@dataclass(frozen=True)
class Door:
    """A way to ask."""

    name: str
    recall: Callable[[str], Awaitable[object]]
    """Asks a question, and returns when its answer is there."""
    limit: float | None = None
    """Milliseconds that a recall may take beside the embedding of its query."""


class Doors:
    """All doors, open while the context lasts.

    Args:
        memory: That they lead to.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._open = AsyncExitStack()
        self.all: list[Door] = []

    async def __aenter__(self) -> Self:
        """Opens them."""
        self.stub = memory_service_pb2_grpc.MemoryServiceStub(
            self._open.enter_context(channels.sync(self._memory.target, NAME, ()))
        )
        command = StdioServerParameters(command=str(HIPPOVAULT), args=["mcp"], env=dict(self._memory.environment))
        raw = self._open.enter_context(session(self._memory))
        raw.begin()
        self.all = [
            Door("gRPC", self._grpc, limit=3),
            Door("MCP stdio, raw client", _awaited(raw.recall), limit=4),
            Door("MCP over HTTP, raw client", _awaited(self._http()), limit=6),
            Door("MCP stdio, official client", await self._official(Client(stdio_client(command)))),
            Door("MCP over HTTP, official client", await self._official(Client(self._memory.http_url))),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes them."""
        await self._open.aclose()

    async def _grpc(self, query: str) -> pb.RecallResponse:
        return self.stub.Recall(pb.RecallRequest(query=query), timeout=SECONDS)

    def _http(self) -> Callable[[str], object]:
        url = urlsplit(self._memory.http_url)
        connection = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
        self._open.callback(connection.close)

        def answer(body: str) -> bytes:
            connection.request("POST", url.path, body, HEADERS)
            return connection.getresponse().read()

        def recall(query: str) -> Any:
            body = json.dumps(_call(query))
            try:
                return _checked(json.loads(answer(body)))
            except ConnectionError:  # It was idle for so long that the server closed it.
                connection.close()
                return _checked(json.loads(answer(body)))

        return recall

    async def _official(self, client: Client) -> Callable[[str], Awaitable[object]]:
        opened = await self._open.enter_async_context(client)

        async def recall(query: str) -> Any:
            result = await opened.call_tool(RECALL.name, {"query": query})
            if result.is_error:
                raise RuntimeError(str(result.content))
            return result.structured_content

        return recall


class Session:
    """A process `hippovault mcp` and its host, which writes a line and reads one.

    Args:
        process: The door.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin  # noqa: S101  # For the type.
        assert process.stdout  # noqa: S101
        self.process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    def begin(self) -> None:
        """Makes the handshake."""
        self._ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def recall(self, query: str) -> Any:
        """Returns the answer to a question."""
        return _checked(self._ask(_call(query)))

    def _ask(self, message: dict[str, Any]) -> Any:
        self._say(message)
        return json.loads(self._stdout.readline())

    def _say(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()


@contextmanager
def session(memory: Memory) -> Iterator[Session]:
    """A session over stdio while the context lasts, its process started and nothing said yet."""
    with subprocess.Popen(
        [HIPPOVAULT, "mcp"], env=memory.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield Session(process)


def _awaited(recall: Callable[[str], object]) -> Callable[[str], Awaitable[object]]:
    async def awaited(query: str) -> object:
        return recall(query)

    return awaited


def _call(query: str) -> dict[str, Any]:
    parameters = {"name": RECALL.name, "arguments": {"query": query}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}


def _checked(answer: Any) -> Any:
    if answer["result"].get("isError"):
        raise RuntimeError(str(answer["result"]["content"]))
    return answer["result"]["structuredContent"]
