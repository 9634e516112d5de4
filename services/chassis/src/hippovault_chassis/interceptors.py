"""One error mapping, one deadline and one account for every handler, asyncio or threads, unary or streaming."""

from __future__ import annotations

import contextlib
import inspect
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import structlog

from hippovault_chassis import deadline, logs
from hippovault_chassis.calls import Call
from hippovault_chassis.errors import STATUS_KEY, ServiceError

log = structlog.get_logger()

GRPCS_OWN = "/grpc."
"""What the methods of health and reflection start with: they map their own errors, and call back in ways of theirs."""

Details = grpc.HandlerCallDetails
# Generic in its stubs alone.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour: TypeAlias = Callable[[Any, Any], Any]
"""What a servicer's method is: takes a request or an iterator of them, and a context."""
Wrap: TypeAlias = Callable[[Behaviour, "Method"], Behaviour]


@dataclass(frozen=True)
class Method:
    """A servicer's method."""

    name: str
    """Full name."""
    streams: bool
    """Whether it takes or answers a stream."""


class AioInterceptor(grpc.aio.ServerInterceptor):
    """Starts the deadline and turns what a coroutine handler raises into a status."""

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler | None]], handler_call_details: Details
    ) -> Handler | None:
        """Wraps every handler but gRPC's own."""
        method = handler_call_details.method
        return _wrapped(await continuation(handler_call_details), method, _aio, _aio)


class SyncInterceptor(grpc.ServerInterceptor):
    """Starts the deadline and turns what a threaded handler raises into a status."""

    def intercept_service(
        self, continuation: Callable[[Details], Handler | None], handler_call_details: Details
    ) -> Handler | None:
        """Wraps every handler but gRPC's own."""
        return _wrapped(continuation(handler_call_details), handler_call_details.method, unary, _stream)


def _wrapped(handler: Handler | None, method: str, single: Wrap, stream: Wrap) -> Handler | None:
    """Returns the handler behind the wrap for its kind of answer."""
    if handler is None or method.startswith(GRPCS_OWN):
        return handler
    kind = "_".join("stream" if many else "unary" for many in (handler.request_streaming, handler.response_streaming))
    about = Method(method, handler.request_streaming or handler.response_streaming)
    behaviour = (stream if handler.response_streaming else single)(getattr(handler, kind), about)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    wrapped: Handler = make(behaviour, handler.request_deserializer, handler.response_serializer)
    return wrapped


def _aio(behaviour: Behaviour, method: Method) -> Behaviour:
    async def call(argument: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        deadline.start(context.time_remaining(), stream=method.streams)
        with Call(method.name, context) as current:
            try:
                answer = behaviour(argument, context)
                if not inspect.isasyncgen(answer):
                    return await answer
                async with contextlib.aclosing(answer):
                    async for message in answer:
                        await context.write(message)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001  # The one place where all of them end.
                mapped = told(error, method.name)
                current.failed(mapped)
                await context.abort(mapped.code, mapped.message, _metadata(mapped))

    return call


def unary(behaviour: Behaviour, method: Method) -> Behaviour:
    """Returns the threaded behaviour with the deadline started and what it raises mapped."""

    def call(argument: Any, context: grpc.ServicerContext) -> Any:
        with _mapping(method, context):
            return behaviour(argument, context)

    return call


def _stream(behaviour: Behaviour, method: Method) -> Behaviour:
    def call(argument: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        with _mapping(method, context):
            yield from behaviour(argument, context)

    return call


@contextlib.contextmanager
def _mapping(method: Method, context: grpc.ServicerContext) -> Iterator[None]:
    gone = deadline.start(context.time_remaining(), stream=method.streams)
    if not context.add_callback(gone):  # It has gone already.
        gone()
    with Call(method.name, context) as current:
        try:
            yield
        except Exception as error:  # The one place where all of them end.
            if type(error) in {Exception, grpc.RpcError} and not error.args:
                raise  # How gRPC tells that the handler aborted, or that the client is gone.
            mapped = told(error, method.name)
            current.failed(mapped)
            context.set_trailing_metadata(_metadata(mapped))
            context.abort(mapped.code, mapped.message)


def _metadata(error: ServiceError) -> tuple[tuple[str, str | bytes], ...]:
    # By this trailer clients do not retry: what a service answers, UNAVAILABLE included, is an answer. Only silence is
    # worth another try.
    return (STATUS_KEY, error.to_status().SerializeToString()), ("grpc-retry-pushback-ms", "-1")


def told(error: Exception, method: str) -> ServiceError:
    """Returns what the client is told: of an unforeseen error only an id, which the log has too."""
    if isinstance(error, ServiceError):
        return error
    error_id = uuid.uuid4().hex
    log.error("unhandled error", method=method, error_id=error_id, **logs.facts(error))
    return ServiceError(grpc.StatusCode.INTERNAL, "INTERNAL", f"internal error {error_id}; the log tells more")
