"""Both kinds of servers: deadlines, errors of every kind of method, and health while all threads are busy."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import DoubleValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault_chassis import deadline, serving
from hippovault_chassis.errors import ServiceError

NAME = "test.Service"
SECONDS = 20
SECRET = "the vault is blue"
KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


def service(handlers: Mapping[str, Any]) -> serving.Service:
    """A service whose methods are named after what they are, such as `unary_stream`."""

    def handler(name: str, behaviour: Any) -> Any:
        make = getattr(grpc, f"{'_'.join(name.split('_')[:2])}_rpc_method_handler")
        return make(behaviour, Empty.FromString, DoubleValue.SerializeToString)

    def add(servicer: Mapping[str, Any], server: Any) -> None:
        methods = {name: handler(name, behaviour) for name, behaviour in servicer.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, methods),))

    return serving.Service(NAME, handlers, add)


def method(channel: Any, kind: str) -> Any:
    """The client's side of a method."""
    return getattr(channel, kind)(f"/{NAME}/{kind}", Empty.SerializeToString, DoubleValue.FromString)


def argument(kind: str) -> Any:
    """One request, as this kind takes it."""
    return Empty() if kind.startswith("unary") else iter([Empty(), Empty()])


@contextmanager
def sync_channel(home: Path, handlers: Mapping[str, Any], **options: Any) -> Iterator[grpc.Channel]:
    """A client of a server with threads."""
    home.mkdir(exist_ok=True)
    with (
        serving.sync_server(f"unix:{home}/s", [service(handlers)], **{"threads": 2, **options}) as address,
        grpc.insecure_channel(address) as channel,
    ):
        yield channel


@asynccontextmanager
async def aio_channel(home: Path, handlers: Mapping[str, Any]) -> AsyncIterator[grpc.aio.Channel]:
    """A client of a server of coroutines."""
    home.mkdir(exist_ok=True)
    async with (
        serving.aio_server(f"unix:{home}/s", [service(handlers)]) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


DEADLINES = [(None, 29, 30), (7, 6, 7), (250, 249, 250), (3_000, 299, 300)]


@pytest.fixture
def remaining() -> Callable[..., DoubleValue]:
    return lambda _request, _context: DoubleValue(value=deadline.remaining())


@pytest.mark.parametrize(("timeout", "least", "most"), DEADLINES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_to_threads_has_its_clients_time_or_the_default(
    home: Path, kind: str, timeout: float | None, least: float, most: float
) -> None:
    def unary(_argument: object, _context: object) -> DoubleValue:
        return DoubleValue(value=deadline.remaining())

    def stream(_argument: object, _context: object) -> Iterator[DoubleValue]:
        yield DoubleValue(value=deadline.remaining())

    with sync_channel(home, {kind: stream if kind.endswith("stream") else unary}) as channel:
        answer = method(channel, kind)(argument(kind), timeout=timeout)
        value = (next(answer) if kind.endswith("stream") else answer).value
    assert least < value <= most
