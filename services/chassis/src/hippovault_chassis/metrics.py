"""Prometheus metrics: of every gRPC call, and where a process tells them and its own. Labels are bounded, always."""

from __future__ import annotations

import contextlib
import functools
from wsgiref.simple_server import WSGIRequestHandler

import grpc
import prometheus_client
import structlog
from prometheus_client import Counter, Gauge, Histogram

from hippovault_chassis import addresses
from hippovault_chassis.errors import ServiceError, told

log = structlog.get_logger()

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

CLIENT_SECONDS = 10.0
"""How long a connection may be silent; each costs a thread and a file descriptor."""

METHOD = ("grpc_service", "grpc_method")
HANDLED = Counter("grpc_server_handled", "Calls that have ended.", (*METHOD, "grpc_code"))
HANDLING = Histogram("grpc_server_handling_seconds", "From a call's start to its end.", METHOD, buckets=SECONDS_BUCKETS)
IN_FLIGHT = Gauge("grpc_server_in_flight", "Calls that have begun and not ended.", METHOD)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # A series beside each of ours, which nobody asks for.


def listen(address: str) -> None:
    """Serves /metrics from now on until the process ends.

    Args:
        address: A loopback `host:port`; empty serves nothing.

    Raises:
        ServiceError: The bind is refused, or the port is taken.
    """
    if not address:
        return
    host, port = addresses.check_loopback("metrics_listen", address)
    try:
        server, _ = prometheus_client.start_http_server(port, host)
        server.RequestHandlerClass = _Handler
    except OSError as error:
        problem = f"metrics_listen: {address} cannot be bound: {told(error)}; choose another port"
        raise ServiceError(grpc.StatusCode.UNAVAILABLE, "CANNOT_LISTEN", problem) from error
    log.info("serving metrics", address=f"{address.rpartition(':')[0]}:{server.server_port}")


class _Handler(WSGIRequestHandler):
    """Answers one connection, and ends one that is broken or does not go on."""

    timeout = CLIENT_SECONDS

    def handle(self) -> None:
        """Answers it."""
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Logs nothing: a client says what stands there."""


@functools.cache  # Finding a metric by its labels takes longer than counting.
def in_flight(method: str) -> Gauge:
    """Returns what counts the calls of a method, by its full name, that run."""
    return IN_FLIGHT.labels(*_labels(method))


@functools.cache
def handling(method: str) -> Histogram:
    """Returns what takes the seconds that a call of a method took."""
    return HANDLING.labels(*_labels(method))


@functools.cache
def handled(method: str, code: str) -> Counter:
    """Returns what counts the calls of a method that ended with a status code, by its name."""
    return HANDLED.labels(*_labels(method), code)


def _labels(method: str) -> list[str]:
    return method.removeprefix("/").split("/", 1)
