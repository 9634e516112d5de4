"""Metrics and log lines that every process tells of its calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import prometheus_client
import pytest
import structlog
from google.protobuf.wrappers_pb2 import StringValue

from hippovault.memory.v1.memory_pb2 import Memory
from hippovault.storage.v1.storage_pb2 import PutMemoryRequest
from hippovault_chassis import metrics, serving
from hippovault_chassis.errors import ServiceError
from support.metrics import LISTEN, address, scrape
from support.processes import STOP_SECONDS, Process, environment, start
from support.waiting import until

SECONDS = 20
TESTS = Path(__file__).parent.parent
SECRET = "the vault is blue"  # noqa: S105
SERVICES = [
    # A method that succeeds with an empty request, and one that refuses it.
    ("embedding", "hippovault.embedding.v1.EmbeddingService", "GetModel", "Embed"),
    ("storage", "hippovault.storage.v1.StorageService", "GetStats", "PutMemory"),
    ("gateway", "hippovault.memory.v1.MemoryService", "Ping", "Recall"),
]


@contextlib.contextmanager
def running(home: Path, name: str, *flags: str, **variables: str) -> Iterator[Process]:
    """One of the three processes."""
    process = start([f"hippovault_{name}", *flags], home, name, {"HIPPOVAULT_GATEWAY_HTTP": "off", **variables})
    try:
        yield process
    finally:
        process.kill()


def ask(channel: grpc.Channel, service: str, method: str, request: bytes = b"") -> grpc.StatusCode:
    """Calls a method and returns how that ended."""
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{service}/{method}")
    return call.future(request, timeout=SECONDS).code()


def lines(process: Process, event: str) -> list[dict[str, Any]]:
    """What the process logged of this kind."""
    told = (json.loads(line) for line in process.log.read_text().splitlines())
    return [line for line in told if line["event"] == event]


@pytest.mark.parametrize(("name", "service", "good", "bad"), SERVICES)
def test_calls_are_told_by_method_and_code(home: Path, name: str, service: str, good: str, bad: str) -> None:
    with running(home, name, *LISTEN) as process:
        target = f"unix:{home / 'run' / name}.sock"
        with grpc.insecure_channel(target) as channel:
            codes = [ask(channel, service, method) for method in (good, bad, bad)]
        assert codes == [grpc.StatusCode.OK, *[grpc.StatusCode.INVALID_ARGUMENT] * 2]
        told = scrape(process)
        for method, code, times in ((good, "OK", 1), (bad, "INVALID_ARGUMENT", 2)):
            called = {"grpc_service": service, "grpc_method": method}
            assert told.value("grpc_server_handled_total", **called) == times
            assert told.value("grpc_server_handled_total", **called, grpc_code=code) == times
            assert told.value("grpc_server_handling_seconds_count", **called) == times
            assert told.value("grpc_server_handling_seconds_bucket", **called, le="10.0") == times
            assert told.value("grpc_server_in_flight", **called) == 0
        assert told.value("process_resident_memory_bytes") > 1e7
        failed = lines(process, "call failed")
        assert [(each["method"], each["code"], each["reason"], each["level"]) for each in failed] == [
            (f"/{service}/{bad}", "INVALID_ARGUMENT", "INVALID_FIELD", "info")
        ] * 2
        assert all(0 < each["seconds"] < SECONDS for each in failed)


def test_nothing_of_a_request_reaches_a_log_or_a_metric(home: Path) -> None:
    request = PutMemoryRequest(
        memory=Memory(namespace="hidden", content=SECRET, category="x" * 1000, key=SECRET, tags=[SECRET, "\0hidden"])
    )
    with running(home, "storage", *LISTEN, "--log-level", "debug") as process:
        with grpc.insecure_channel(process.status) as channel:
            code = ask(channel, "hippovault.storage.v1.StorageService", "PutMemory", request.SerializeToString())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert len(lines(process, "call failed")) == 1
        for text in (process.log.read_text(), scrape(process).text):
            assert SECRET not in text
            assert "hidden" not in text


@pytest.mark.parametrize(("name", "service", "method"), [each[:3] for each in SERVICES[:2]])  # One of each kind.
def test_no_call_of_a_burst_is_dropped_without_a_word(home: Path, name: str, service: str, method: str) -> None:
    with running(home, name), grpc.insecure_channel(f"unix:{home / 'run' / name}.sock") as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{service}/{method}")
        call(b"", timeout=SECONDS)
        calls = [call.future(b"", timeout=SECONDS) for _ in range(3000)]
        codes = {each.code() for each in calls}
        assert grpc.StatusCode.OK in codes
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_unknown_methods_and_health_make_no_series(home: Path) -> None:
    with running(home, "storage", *LISTEN) as process:
        with grpc.insecure_channel(process.status) as channel:
            for service, method in (
                ("made.up.Service", "X"),
                (SERVICES[1][1], "MadeUp"),
                ("grpc.health.v1.Health", "Check"),
            ):
                ask(channel, service, method)
        assert "grpc_server_handled_total{" not in scrape(process).text


# Where they are served


def test_they_are_off_by_default(home: Path) -> None:
    with running(home, "embedding") as process:
        assert not lines(process, "serving metrics")


def test_they_are_on_by_a_variable(home: Path) -> None:
    with running(home, "embedding", HIPPOVAULT_EMBEDDING_METRICS_LISTEN="[::1]:0") as process:
        assert address(process).startswith("[::1]:")
        assert scrape(process).value("process_open_fds") > 0


def test_a_taken_port_is_a_plain_error_at_start(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "hippovault_embedding", "--metrics-listen", listen]
        ended = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=STOP_SECONDS, check=False
        )
    assert ended.returncode == 1
    problem = f"metrics_listen: {listen} cannot be bound: Address already in use; choose another port"
    assert ended.stderr == f"hippovault-embedding: {problem}\n"


@pytest.mark.parametrize(
    ("listen", "problem"),
    [("0.0.0.0:0", "is open to the network"), ("127.0.0.1", "is not host:port"), ("unix:/tmp/m", "is not host:port")],
)
def test_another_address_is_refused(listen: str, problem: str) -> None:
    with pytest.raises(ServiceError, match=f"metrics_listen: '{listen}' {problem}"):
        metrics.listen(listen)


def test_connections_that_are_silent_or_break_are_ended(home: Path) -> None:
    process = start(["support.short_patience", *LISTEN], home, "embedding", {"PYTHONPATH": str(TESTS)})
    try:
        host, _, port = address(process).rpartition(":")
        connections = [socket.create_connection((host, int(port)), timeout=SECONDS) for _ in range(8)]
        for connection, sent in zip(connections, (b"", b"GET /metrics HT", b"GET / HTTP/1.1\r\nX: ") * 2, strict=False):
            connection.sendall(sent)
        for connection in connections[6:]:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        for connection in connections[:6]:
            with connection:
                assert connection.recv(1) == b""
        assert scrape(process).value("process_open_fds") > 0
        assert all(line.startswith("{") for line in process.log.read_text().splitlines())
    finally:
        process.kill()


# How calls end, on both kinds of server


NAME = "test.Ending"
KINDS = ["unary_unary", "unary_stream"]
ENDINGS = [
    ("answer", "OK", ""),
    ("refuse", "RESOURCE_EXHAUSTED", "TOO_BUSY"),
    ("abort", "NOT_FOUND", "NOT_FOUND"),
    ("break", "INTERNAL", "INTERNAL"),
    ("wait", "CANCELLED", "CANCELLED"),
    ("wait shortly", "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"),
]
SHORT_SECONDS = 0.3


def act(what: str) -> StringValue:
    if what == "refuse":
        raise ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_BUSY", SECRET)
    if what == "break":
        raise ValueError(SECRET)
    return StringValue(value="answer")


def threaded(request: StringValue, context: grpc.ServicerContext) -> StringValue:
    if request.value == "abort":
        context.abort(grpc.StatusCode.NOT_FOUND, SECRET)
    if request.value.startswith("wait"):
        gone = threading.Event()
        context.add_callback(gone.set)
        assert gone.wait(SECONDS)
        raise grpc.RpcError  # As reading on from the client would.
    return act(request.value)


async def coroutine(request: StringValue, context: grpc.aio.ServicerContext[Any, Any]) -> StringValue:
    if request.value == "abort":
        await context.abort(grpc.StatusCode.NOT_FOUND, SECRET)
    if request.value.startswith("wait"):
        await asyncio.get_running_loop().create_future()
    return act(request.value)


def threaded_stream(request: StringValue, context: grpc.ServicerContext) -> Iterator[StringValue]:
    yield threaded(request, context)


async def coroutine_stream(
    request: StringValue, context: grpc.aio.ServicerContext[Any, Any]
) -> AsyncIterator[StringValue]:
    yield await coroutine(request, context)


def service(methods: Mapping[str, Any]) -> serving.Service:
    """A service whose methods are named after their kinds."""

    def add(servicer: Mapping[str, Any], server: Any) -> None:
        handlers = {
            kind: getattr(grpc, f"{kind}_rpc_method_handler")(
                behaviour, StringValue.FromString, StringValue.SerializeToString
            )
            for kind, behaviour in servicer.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))

    return serving.Service(NAME, methods, add)


def told(metric: str, kind: str, **labels: str) -> float:
    """What this process's own metrics say of a method."""
    labels |= {"grpc_service": NAME, "grpc_method": kind}
    return prometheus_client.REGISTRY.get_sample_value(metric, labels) or 0


def begin(channel: grpc.Channel, kind: str, what: str) -> Any:
    """Starts a call."""
    method = getattr(channel, kind)(f"/{NAME}/{kind}", StringValue.SerializeToString, StringValue.FromString)
    seconds = SHORT_SECONDS if what.endswith("shortly") else SECONDS
    start_call = method if kind.endswith("stream") else method.future
    return start_call(StringValue(value=what), timeout=seconds)


def check_ending(channel: grpc.Channel, kind: str, what: str, code: str, reason: str) -> None:
    """Makes a call, ends it, and checks what is told of it."""
    before = told("grpc_server_handled_total", kind, grpc_code=code)
    with structlog.testing.capture_logs() as logged:
        call = begin(channel, kind, what)
        if what == "wait":
            until(lambda: told("grpc_server_in_flight", kind) == 1)
            call.cancel()
        elif kind.endswith("stream"):
            threading.Thread(target=_read, args=(call,)).start()
        until(lambda: told("grpc_server_handled_total", kind, grpc_code=code) == before + 1)
        assert call.code().name == code
        until(lambda: told("grpc_server_in_flight", kind) == 0)
        if reason:
            until(lambda: any(line["event"] == "call failed" for line in logged))
    failed = [line for line in logged if line["event"] == "call failed"]
    assert [(line["code"], line["reason"]) for line in failed] == ([(code, reason)] if reason else [])
    assert SECRET not in str(logged)


def _read(answers: Any) -> None:
    with contextlib.suppress(grpc.RpcError):
        list(answers)


def test_every_end_of_a_threaded_call_is_told(home: Path) -> None:
    methods = {"unary_unary": threaded, "unary_stream": threaded_stream}
    with serving.sync_server(f"unix:{home.parent}/s", [service(methods)], 2) as target:
        for kind in KINDS:
            for ending in ENDINGS:
                _check(target, kind, *ending)


async def test_every_end_of_a_coroutine_is_told(home: Path) -> None:
    methods = {"unary_unary": coroutine, "unary_stream": coroutine_stream}
    async with serving.aio_server(f"unix:{home.parent}/s", [service(methods)]) as target:
        for kind in KINDS:
            for ending in ENDINGS:
                await asyncio.to_thread(_check, target, kind, *ending)


def _check(target: str, *about: str) -> None:
    with grpc.insecure_channel(target) as channel:
        check_ending(channel, *about)


def test_a_call_that_is_one_too_many_is_told(home: Path) -> None:
    with (
        serving.sync_server(f"unix:{home.parent}/s", [service({"unary_unary": threaded})], 1, 1) as target,
        grpc.insecure_channel(target) as channel,
    ):
        waiting = begin(channel, "unary_unary", "wait")
        until(lambda: told("grpc_server_in_flight", "unary_unary") == 1)
        check_refusal(channel)
        waiting.cancel()
        until(lambda: told("grpc_server_in_flight", "unary_unary") == 0)


def check_refusal(channel: grpc.Channel) -> None:
    before = told("grpc_server_handled_total", "unary_unary", grpc_code="RESOURCE_EXHAUSTED")
    with structlog.testing.capture_logs() as logged:
        assert begin(channel, "unary_unary", "answer").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        until(lambda: bool(logged))
    assert [(line["event"], line["reason"]) for line in logged] == [("call failed", "TOO_MANY_CALLS")]
    assert told("grpc_server_handled_total", "unary_unary", grpc_code="RESOURCE_EXHAUSTED") == before + 1
