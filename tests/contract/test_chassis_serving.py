"""Both kinds of servers: deadlines, errors in every kind of method, and health while all threads are busy."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import DoubleValue, StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault_chassis import channels, deadline, drain, health_service, serving
from hippovault_chassis.errors import ServiceError

NAME = "test.Service"
SECONDS = 20
SECRET = "the vault is blue"  # noqa: S105
KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
FIRST = DoubleValue(value=-1)
"""What a method with many answers sends before it does what it was asked to."""

TIMES = [None, 5.0, 3000.0, 200_000.0]
"""What the client allows."""
OUTCOMES = [
    ("secret", grpc.StatusCode.INTERNAL, "INTERNAL"),
    ("secret after a code", grpc.StatusCode.INTERNAL, "INTERNAL"),
    ("refuse", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"),
    ("abort", grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
]


def act(what: str, context: Any) -> DoubleValue:
    if what == "secret after a code":
        context.set_code(grpc.StatusCode.NOT_FOUND)
    if what.startswith("secret"):
        raise ValueError(SECRET)
    if what == "refuse":
        raise ServiceError.invalid("field", "is wrong")
    return DoubleValue(value=deadline.remaining())


def threaded(what: str, context: grpc.ServicerContext) -> DoubleValue:
    if what == "abort":
        context.abort(grpc.StatusCode.NOT_FOUND, "as the handler said")
    return act(what, context)


async def coroutine(what: str, context: grpc.aio.ServicerContext[Any, Any]) -> DoubleValue:
    if what == "abort":
        await context.abort(grpc.StatusCode.NOT_FOUND, "as the handler said")
    return act(what, context)


def threaded_stream(what: str, context: grpc.ServicerContext) -> Iterator[DoubleValue]:
    yield FIRST
    yield threaded(what, context)


async def coroutine_stream(what: str, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[DoubleValue]:
    yield FIRST
    yield await coroutine(what, context)


async def coroutine_that_writes(request: StringValue, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.write(FIRST)
    await context.write(await coroutine(request.value, context))


async def coroutine_of_many(requests: AsyncIterator[StringValue], context: Any) -> DoubleValue:
    return await coroutine("".join([request.value async for request in requests]), context)


async def coroutine_of_many_stream(requests: AsyncIterator[StringValue], context: Any) -> AsyncIterator[DoubleValue]:
    async for request in requests:
        async for answer in coroutine_stream(request.value, context):
            yield answer


def joined(requests: Iterable[StringValue]) -> str:
    return "".join(request.value for request in requests)


THREADED = {
    "unary_unary": lambda request, context: threaded(request.value, context),
    "unary_stream": lambda request, context: threaded_stream(request.value, context),
    "stream_unary": lambda requests, context: threaded(joined(requests), context),
    "stream_stream": lambda requests, context: threaded_stream(joined(requests), context),
}
COROUTINES: dict[str, Any] = {
    "unary_unary": lambda request, context: coroutine(request.value, context),
    "unary_stream": lambda request, context: coroutine_stream(request.value, context),
    "stream_unary": coroutine_of_many,
    "stream_stream": coroutine_of_many_stream,
}


def service(methods: Mapping[str, Any]) -> serving.Service:
    """A service whose methods are named after their kinds."""

    def add(servicer: Mapping[str, Any], server: Any) -> None:
        handlers = {
            kind: getattr(grpc, f"{kind}_rpc_method_handler")(
                behaviour, StringValue.FromString, DoubleValue.SerializeToString
            )
            for kind, behaviour in servicer.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))

    return serving.Service(NAME, methods, add)


def call(channel: Any, kind: str, what: str, timeout: float | None = SECONDS) -> Any:
    """Calls the method of this kind."""
    method = getattr(channel, kind)(f"/{NAME}/{kind}", StringValue.SerializeToString, DoubleValue.FromString)
    request = StringValue(value=what)
    return method(request if kind.startswith("unary") else iter([request]), timeout=timeout)


def last(channel: grpc.Channel, kind: str, what: str, timeout: float | None = SECONDS) -> Any:
    """Returns the last answer."""
    answer = call(channel, kind, what, timeout)
    if kind.endswith("unary"):
        return answer.value
    first, second = answer
    assert first == FIRST
    return second.value


async def aio_last(channel: grpc.aio.Channel, kind: str, what: str, seconds: float | None = SECONDS) -> Any:
    """Returns the last answer."""
    answer = call(channel, kind, what, seconds)
    if kind.endswith("unary"):
        return (await answer).value
    first, second = [each async for each in answer]
    assert first == FIRST
    return second.value


@contextmanager
def connected(home: Path, methods: Mapping[str, Any], threads: int, maximum: int | None = None) -> Iterator[Any]:
    """A client of a server with threads."""
    with (
        serving.sync_server(f"unix:{home.parent}/s", [service(methods)], threads, maximum) as address,
        grpc.insecure_channel(address) as channel,
    ):
        yield channel


@asynccontextmanager
async def aio_connected(home: Path, methods: Mapping[str, Any]) -> AsyncIterator[Any]:
    """A client of a server with coroutines."""
    async with (
        serving.aio_server(f"unix:{home.parent}/s", [service(methods)]) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


@pytest.fixture(scope="module")
def channel(module_home: Path) -> Iterator[grpc.Channel]:
    with connected(module_home, THREADED, threads=2) as channel:
        yield channel


def check_error(error: grpc.RpcError, what: str, code: grpc.StatusCode, reason: str) -> None:
    """Checks what the client learns."""
    told = ServiceError.from_rpc(error, "test")
    assert (told.code, told.reason) == (code, reason)
    assert SECRET not in str(error)
    assert "as the handler said" in told.message or what != "abort"
    assert told.field == ("field" if what == "refuse" else "")


def expected_time(kind: str, timeout: float | None) -> float:
    """Seconds that a call gets; one with a stream may take as long as a whole store does."""
    default, most = (30.0, 300.0) if kind == "unary_unary" else (86_400.0, 86_400.0)
    return default if timeout is None else min(timeout, most)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timeout", TIMES)
def test_threads_get_the_clients_time_or_the_default(channel: grpc.Channel, kind: str, timeout: float | None) -> None:
    assert last(channel, kind, "deadline", timeout) == pytest.approx(expected_time(kind, timeout), rel=0.01, abs=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("what", "code", "reason"), OUTCOMES)
def test_threads_tell_no_text_of_an_exception(
    channel: grpc.Channel,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    what: str,
    code: grpc.StatusCode,
    reason: str,
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        last(channel, kind, what)
    check_error(caught.value, what, code, reason)
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


async def test_coroutines_get_the_clients_time_or_the_default(home: Path) -> None:
    async with aio_connected(home, COROUTINES) as channel:
        for kind in KINDS:
            for timeout in TIMES:
                expected = expected_time(kind, timeout)
                assert await aio_last(channel, kind, "deadline", timeout) == pytest.approx(expected, rel=0.01, abs=2)


@pytest.mark.parametrize("methods", [COROUTINES, {"unary_stream": coroutine_that_writes}])
async def test_coroutines_tell_no_text_of_an_exception(
    home: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, methods: Mapping[str, Any]
) -> None:
    async with aio_connected(home, methods) as channel:
        for kind in methods:
            for what, code, reason in OUTCOMES:
                with pytest.raises(grpc.RpcError) as caught:
                    await aio_last(channel, kind, what)
                check_error(caught.value, what, code, reason)
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


def test_an_answer_is_not_retried_even_when_it_is_unavailable(home: Path) -> None:
    asked: list[str] = []

    def unavailable(request: StringValue, _context: object) -> DoubleValue:
        asked.append(request.value)
        raise ServiceError.unavailable("test", "its file is locked")

    address = f"unix:{home.parent}/s"
    with (
        serving.sync_server(address, [service({"unary_unary": unavailable})], 2),
        channels.sync(address, NAME, KINDS) as channel,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, "unary_unary", "once")
        assert "its file is locked" in ServiceError.from_rpc(caught.value, "test").message
    assert asked == ["once"]


def test_a_client_that_is_gone_is_no_error(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: queue.Queue[str] = queue.Queue()
    gone = threading.Event()

    def read(requests: Iterable[StringValue], _context: object) -> DoubleValue:
        seen.put("the call")
        try:
            return DoubleValue(value=len(joined(requests)))
        finally:
            seen.put("its end")

    def nothing_yet() -> Iterator[StringValue]:
        gone.wait(SECONDS)
        yield from ()

    with connected(home, {"stream_unary": read}, threads=2) as channel:
        method = channel.stream_unary(f"/{NAME}/stream_unary", StringValue.SerializeToString, DoubleValue.FromString)
        running = method.future(nothing_yet())
        assert seen.get(timeout=SECONDS) == "the call"
        running.cancel()
        assert seen.get(timeout=SECONDS) == "its end"
        gone.set()
    assert "unhandled" not in "".join(capfd.readouterr())


def test_health_answers_while_all_threads_are_busy_and_further_calls_are_refused(home: Path) -> None:
    started, refused, released = queue.Queue[object](), queue.Queue[Any](), threading.Event()

    def wait(_request: object, _context: object) -> DoubleValue:
        started.put(None)
        assert released.wait(SECONDS)
        return FIRST

    with connected(home, {"unary_unary": wait}, threads=2, maximum=3) as channel:
        method = channel.unary_unary(f"/{NAME}/unary_unary", StringValue.SerializeToString, DoubleValue.FromString)
        calls = [method.future(StringValue(), timeout=SECONDS) for _ in range(2)]
        for _ in calls:
            started.get(timeout=SECONDS)
        calls += [method.future(StringValue(), timeout=SECONDS) for _ in range(9)]
        for each in calls:
            each.add_done_callback(refused.put)
        for _ in range(8):
            error = refused.get(timeout=SECONDS)
            check_error(error, "", grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
            assert ServiceError.from_rpc(error, "test").retry_seconds > 0

        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=NAME)
        assert health.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        watched = health.Watch(request, timeout=5)
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        watched.cancel()

        released.set()
        assert [each.code() for each in calls].count(grpc.StatusCode.OK) == 3


async def test_who_watches_is_told_what_a_service_knows_of_itself_and_of_the_drain(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_service, "LOOK_SECONDS", 0.01)
    states, healthy = health_pb2.HealthCheckResponse, False
    known = replace(service(COROUTINES), healthy=lambda: healthy)
    async with AsyncExitStack() as server:
        address = await server.enter_async_context(serving.aio_server(f"unix:{home.parent}/s", [known]))
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            requests = [health_pb2.HealthCheckRequest(service=name) for name in ("", NAME)]
            watches = [aiter(stub.Watch(request, timeout=SECONDS)) for request in requests]
            for expected in (states.NOT_SERVING, states.SERVING, states.NOT_SERVING, states.SERVING):
                healthy = expected == states.SERVING
                assert [(await anext(watch)).status for watch in watches] == [expected] * 2
                assert [(await stub.Check(request, timeout=SECONDS)).status for request in requests] == [expected] * 2
            began = time.monotonic()
            await server.aclose()
            assert time.monotonic() - began < drain.GRACE_SECONDS / 2
            assert [[each.status async for each in watch] for watch in watches] == [[states.NOT_SERVING]] * 2


def test_who_watches_a_server_with_threads_is_told_of_the_drain_and_does_not_hold_it_up(home: Path) -> None:
    states = health_pb2.HealthCheckResponse
    with ExitStack() as server:
        address = server.enter_context(serving.sync_server(f"unix:{home.parent}/s", [service(THREADED)], threads=1))
        with grpc.insecure_channel(address) as channel:
            request = health_pb2.HealthCheckRequest(service=NAME)
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=SECONDS)
            assert next(watch).status == states.SERVING
            began = time.monotonic()
            server.close()
            assert time.monotonic() - began < drain.GRACE_SECONDS / 2
            assert [each.status for each in watch] == [states.NOT_SERVING]


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_a_threaded_handler_learns_that_its_client_has_gone(home: Path, kind: str) -> None:
    began, told = threading.Event(), threading.Event()

    def wait(_request: StringValue, _context: grpc.ServicerContext) -> Any:
        began.set()
        while not deadline.is_over():
            told.wait(0.01)  # Only to be no burden.
        told.set()
        return iter(()) if kind.endswith("stream") else FIRST

    home.mkdir()
    with connected(home, {kind: wait}, threads=1) as channel:
        method = getattr(channel, kind)(f"/{NAME}/{kind}", StringValue.SerializeToString, DoubleValue.FromString)
        answer = method(StringValue()) if kind.endswith("stream") else method.future(StringValue())
        assert began.wait(SECONDS)
        assert not told.is_set()
        answer.cancel()
        assert told.wait(SECONDS)
