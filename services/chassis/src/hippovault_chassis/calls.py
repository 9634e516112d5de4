"""One gRPC call as metrics, spans and the log tell of it, in every server."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

import grpc
import structlog

from hippovault_chassis import metrics, tracing
from hippovault_chassis.errors import ServiceError, status_code

log = structlog.get_logger()

FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""What a server is to blame for, by OpenTelemetry's conventions for gRPC."""


class Call:
    """Lasts as long as the call. Of a failure its code and reason are told, never a message or a request's value.

    Args:
        method: Its full name.
        context: Its servicer context.
    """

    def __init__(self, method: str, context: Any) -> None:
        self._method = method
        self._context = context
        self._error: ServiceError | None = None

    def failed(self, error: ServiceError) -> None:
        """Takes in what the client is told."""
        self._error = error

    def __enter__(self) -> Self:
        """Begins it."""
        self._began = time.perf_counter()
        self._span = tracing.begin(self._method, self._context.invocation_metadata())
        metrics.in_flight(self._method).inc()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Tells how it ended."""
        code, reason = self._outcome(error)
        seconds = time.perf_counter() - self._began
        metrics.in_flight(self._method).dec()
        metrics.handling(self._method).observe(seconds)
        metrics.handled(self._method, code.name).inc()
        tracing.end(self._span, code, reason, fault=code in FAULTS)
        if code is not grpc.StatusCode.OK:
            tell = log.warning if code in FAULTS else log.info
            tell("call failed", method=self._method, code=code.name, reason=reason, seconds=round(seconds, 6))

    def _outcome(self, error: BaseException | None) -> tuple[grpc.StatusCode, str]:
        if self._error:
            return self._error.code, self._error.reason
        if error is None:
            return grpc.StatusCode.OK, ""
        code = status_code(self._context.code())  # Of a handler that aborted.
        if code is grpc.StatusCode.OK:  # The client has gone, or its time was up.
            left = self._context.time_remaining()
            over = left is not None and left <= 0
            code = grpc.StatusCode.DEADLINE_EXCEEDED if over else grpc.StatusCode.CANCELLED
        return code, code.name
