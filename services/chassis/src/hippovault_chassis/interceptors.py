"""One error mapping and one deadline for every handler, asyncio or threads."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog

from hippovault_chassis import deadline
from hippovault_chassis.errors import STATUS_KEY, ServiceError

log = structlog.get_logger()

Details = grpc.HandlerCallDetails
# Generic in its stubs alone.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class AioInterceptor(grpc.aio.ServerInterceptor):
    """Starts the deadline and turns what a coroutine handler raises into a status."""

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler | None]], handler_call_details: Details
    ) -> Handler | None:
        """Wraps unary handlers; streams (health, reflection) map their own errors."""
        handler = await continuation(handler_call_details)
        inner: Any = handler.unary_unary if handler is not None else None
        if handler is None or inner is None:
            return handler

        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            deadline.start(context.time_remaining())
            try:
                return await inner(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001  # The one place where all of them end.
                mapped = told(error, handler_call_details.method)
                await context.abort(mapped.code, mapped.message, _metadata(mapped))

        return _unary(call, handler)


class SyncInterceptor(grpc.ServerInterceptor):
    """Starts the deadline and turns what a threaded handler raises into a status."""

    def intercept_service(
        self, continuation: Callable[[Details], Handler | None], handler_call_details: Details
    ) -> Handler | None:
        """Wraps unary handlers; streams (health, reflection) map their own errors."""
        handler = continuation(handler_call_details)
        inner: Any = handler.unary_unary if handler is not None else None
        if handler is None or inner is None:
            return handler

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            deadline.start(context.time_remaining())
            try:
                return inner(request, context)
            except Exception as error:
                if context.code() is not None:  # type: ignore[attr-defined]  # The handler aborted by itself.
                    raise
                mapped = told(error, handler_call_details.method)
            _abort(context, mapped)

        return _unary(call, handler)


def _abort(context: grpc.ServicerContext, error: ServiceError) -> NoReturn:
    context.set_trailing_metadata(_metadata(error))
    context.abort(error.code, error.message)


def _unary(call: Callable[..., Any], handler: Handler) -> Handler:
    return grpc.unary_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


def _metadata(error: ServiceError) -> tuple[tuple[str, bytes]]:
    return ((STATUS_KEY, error.to_status().SerializeToString()),)


def told(error: Exception, method: str) -> ServiceError:
    """Returns what the client is told: of an unforeseen error only an id, which the log has too."""
    if isinstance(error, ServiceError):
        return error
    error_id = uuid.uuid4().hex
    # Only the places: the message of an exception may quote a memory.
    log.error("unhandled error", method=method, error_id=error_id, type=type(error).__name__, at=_places(error))
    return ServiceError(grpc.StatusCode.INTERNAL, "INTERNAL", f"internal error {error_id}; the log tells more")


def _places(error: BaseException) -> list[str]:
    places = []
    trace = error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}")
        trace = trace.tb_next
    return places
