"""OpenTelemetry spans: one a gRPC call, its context handed on between processes in the W3C form.

While no exporter is set up, a span costs a call a few microseconds and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

import grpc
import structlog
from opentelemetry.context import Context, attach
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    get_current_span,
    get_tracer,
    set_span_in_context,
    set_tracer_provider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hippovault_chassis import logs

log = structlog.get_logger()

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
GRPC = "grpc"
LAST_SPANS_SECONDS = 2.0
"""What they get to be sent when the process ends."""

W3C = TraceContextTextMapPropagator()
_tracer = get_tracer("hippovault")


@contextlib.contextmanager
def exporting(service: str) -> Iterator[None]:
    """Sends spans while the context lasts to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, if it names one.

    Spans are worth less than a memory: where they cannot be sent, a warning says so.

    Args:
        service: The process's name.
    """
    end = _export_safely(service) if any(map(os.environ.get, ENDPOINTS)) else None
    try:
        yield
    finally:
        if end:
            end()


def _export_safely(service: str) -> Callable[[], None] | None:
    protocol = next(filter(None, map(os.environ.get, PROTOCOLS)), GRPC)
    if protocol != GRPC:
        log.warning("spans are not exported: the OTLP protocol must be grpc", protocol=protocol)
        return None
    try:
        return _export(service)
    except ImportError:
        log.warning("spans are not exported: the packages of hippovault-chassis[tracing] are not installed")
    except Exception as error:  # noqa: BLE001  # Whatever is wrong with the variables, the process serves.
        log.warning("spans are not exported: a variable OTEL_* is wrong", **logs.facts(error))
    return None


def _export(service: str) -> Callable[[], None]:
    """Sets the exporter up, and returns what ends it."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or f"hippovault-{service}"
    exporter = OTLPSpanExporter()
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    set_tracer_provider(provider)

    def end() -> None:
        # By itself it would try for longer than a process may take to end.
        timer = threading.Timer(LAST_SPANS_SECONDS, exporter.shutdown)
        timer.start()
        provider.shutdown()
        timer.cancel()

    return end


def begin(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Span:
    """Begins the span of a call and makes it the current one of this task or thread.

    Nothing resets that: a task ends with its call, and the next call of a thread begins its own.

    Args:
        method: Full name of the gRPC method.
        metadata: What came with the call.
    """
    carrier = {key: value for key, value in metadata if key in W3C.fields}
    parent = W3C.extract(carrier, Context())
    name = method.removeprefix("/")
    span = _tracer.start_span(name, parent, SpanKind.SERVER)
    if span.is_recording():
        service, _, short = name.partition("/")
        span.set_attributes({"rpc.system": "grpc", "rpc.service": service, "rpc.method": short})
    attach(set_span_in_context(span, parent))
    return span


def end(span: Span, code: grpc.StatusCode, reason: str, *, fault: bool) -> None:
    """Ends the span of a call.

    Args:
        span: Its span.
        code: How the call ended.
        reason: Why, if it failed; never a message, which may name what a caller gave.
        fault: Whether the service is to blame.
    """
    if span.is_recording():
        span.set_attribute("rpc.grpc.status_code", code.value[0])
        if reason:
            span.set_attribute("error.type", reason)
        if fault:
            span.set_status(StatusCode.ERROR)
    span.end()


@contextlib.asynccontextmanager
async def root(name: str) -> AsyncIterator[None]:
    """Begins a trace with what is no gRPC call, and lasts as long as that."""
    with _tracer.start_as_current_span(
        name, Context(), SpanKind.SERVER, record_exception=False, set_status_on_exception=False
    ):
        yield


def current() -> Span:
    """Returns the span of the call that this is done for."""
    return get_current_span()


def record(name: str, parent: Span, began: float, seconds: float, facts: Mapping[str, int | str] | None = None) -> None:
    """Tells of a part of a call that has ended.

    Args:
        name: What was done.
        parent: The call's span.
        began: When, by `time.monotonic`.
        seconds: How long it took.
        facts: Counts and names, never a text.
    """
    if not parent.is_recording():
        return
    start = time.time_ns() - round((time.monotonic() - began) * 1e9)
    span = _tracer.start_span(name, set_span_in_context(parent), attributes=facts, start_time=start)
    span.end(start + round(seconds * 1e9))


def metadata() -> tuple[tuple[str, str], ...]:
    """Returns what a call that is made for the current one carries."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier)
    return tuple(carrier.items())
