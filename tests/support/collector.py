"""A collector of OpenTelemetry spans on loopback, as the processes under test see it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc


@dataclass(frozen=True)
class Span:
    """What was told of one span."""

    service: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    start: int
    end: int
    facts: dict[str, Any]
    failed: bool


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.requests: list[pb.ExportTraceServiceRequest] = []
        self.address = ""

    def Export(self, request: pb.ExportTraceServiceRequest, context: object) -> pb.ExportTraceServiceResponse:  # noqa: ARG002, N802  # The contract names it.
        self.requests.append(request)
        return pb.ExportTraceServiceResponse()

    @property
    def variables(self) -> dict[str, str]:
        """What sends a process's spans here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}"}

    @property
    def spans(self) -> list[Span]:
        """All that came, in the order of their ends."""
        found = [
            Span(
                service=_facts(resource.resource.attributes)["service.name"],
                name=span.name,
                trace=span.trace_id,
                id=span.span_id,
                parent=span.parent_span_id,
                start=span.start_time_unix_nano,
                end=span.end_time_unix_nano,
                facts=_facts(span.attributes),
                failed=span.status.code == span.status.STATUS_CODE_ERROR,
            )
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.end)


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Runs a collector while the context lasts."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
