"""Serving gRPC: guarded bind, health, reflection, and a drain that loses no call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hippovault_chassis import addresses, notify
from hippovault_chassis.admission import Admission, Workers
from hippovault_chassis.channels import MAX_REQUEST_BYTES, UNLIMITED
from hippovault_chassis.drain import GRACE_SECONDS, LAME_DUCK_SECONDS
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.health_service import AioHealth, ThreadedHealth
from hippovault_chassis.interceptors import AioInterceptor, SyncInterceptor

log = structlog.get_logger()

CALLS_PER_THREAD = 8
"""Calls that a server with threads takes on, unless it is told: more would wait beyond their deadlines."""

MAX_PENDING_CALLS = 100_000
"""That have arrived and not begun."""

OPTIONS: list[tuple[str, int]] = [
    # On, a forgotten server on the same port would silently take half of the connections.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", UNLIMITED),
    # By itself gRPC cancels calls of a burst beyond 1000 without a word; here each is told why it is refused.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
]


@dataclass(frozen=True)
class Service:
    """A servicer and how it is registered."""

    name: str
    """Full name, such as `hippovault.storage.v1.StorageService`."""
    servicer: Any
    add: Callable[[Any, Any], None]
    """The generated `add_…Servicer_to_server`."""
    healthy: Callable[[], bool] = lambda: True
    """What an asyncio server asks for health, checked or watched, beside whether it drains."""


@contextlib.asynccontextmanager
async def aio_server(address: str, services: Sequence[Service]) -> AsyncIterator[str]:
    """Serves coroutine handlers while the context lasts; leaving it drains.

    Yields:
        The address bound to, its port filled in.

    Raises:
        ServiceError: The bind is refused, or another process serves the address.
    """
    addresses.check_bind("listen", address)
    lock = addresses.lock_socket(address)
    server = grpc.aio.server(interceptors=[AioInterceptor()], options=OPTIONS)
    health_servicer = AioHealth({service.name: service.healthy for service in services})
    bound = _register(server, services, health_servicer, address)
    await server.start()
    log.info("serving", address=bound)
    try:
        yield bound
    finally:
        log.info("draining")
        health_servicer.drain()
        await asyncio.sleep(LAME_DUCK_SECONDS)
        await server.stop(GRACE_SECONDS)
        if lock:
            lock.close()


@contextlib.contextmanager
def sync_server(
    address: str, services: Sequence[Service], threads: int, maximum_calls: int | None = None
) -> Iterator[str]:
    """Serves blocking handlers on a pool of threads while the context lasts; leaving it drains.

    Args:
        address: `unix:/path` or a loopback `host:port`.
        services: What is served, beside health and reflection. Health is answered although all threads are busy.
        threads: Calls that run at a time.
        maximum_calls: Calls that run or wait at a time, 8 a thread by default; more are RESOURCE_EXHAUSTED.

    Yields:
        The address bound to, its port filled in.

    Raises:
        ServiceError: The bind is refused, or another process serves the address.
    """
    addresses.check_bind("listen", address)
    lock = addresses.lock_socket(address)
    workers = Workers(threads)
    admission = Admission(workers, maximum_calls or CALLS_PER_THREAD * threads)
    server = grpc.server(workers, interceptors=[admission, SyncInterceptor()], options=OPTIONS)
    health_servicer = ThreadedHealth([service.name for service in services], admission)
    bound = _register(server, services, health_servicer, address)
    server.start()
    log.info("serving", address=bound)
    try:
        yield bound
    finally:
        log.info("draining")
        health_servicer.drain()
        time.sleep(LAME_DUCK_SECONDS)
        server.stop(GRACE_SECONDS).wait()
        admission.close()
        if lock:
            lock.close()


async def stopped(status: str) -> None:
    """Tells the parent that this process serves, and returns when it is asked to stop.

    Args:
        status: Free text for people, such as the address.
    """
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    _watch_parent(lambda: loop.call_soon_threadsafe(event.set))
    notify.ready(status)  # Only now, since a parent may ask at once.
    await event.wait()


def wait_until_stopped(status: str) -> None:
    """Tells the parent that this process serves, and blocks the main thread until it is asked to stop.

    Args:
        status: Free text for people, such as the address.
    """
    waiting, waking = socket.socketpair()
    waking.settimeout(0)
    # A signal may come to one of gRPC's threads; a lock that the main thread waits for would not notice it.
    signal.set_wakeup_fd(waking.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _watch_parent(lambda: waking.send(b"\0"))
    notify.ready(status)  # Only now, since a parent may ask at once.
    waiting.recv(1)


def _watch_parent(gone: Callable[[], object]) -> None:
    if not os.environ.get(notify.SUPERVISED):
        return

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        log.warning("the supervising process is gone")
        with contextlib.suppress(RuntimeError):  # The loop may have ended meanwhile.
            gone()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _register(server: Any, services: Sequence[Service], health_servicer: Any, address: str) -> str:
    for service in services:
        service.add(service.servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = [*(service.name for service in services), health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:  # gRPC wrote the cause to stderr itself.
        raise ServiceError(
            grpc.StatusCode.UNAVAILABLE,
            "CANNOT_LISTEN",
            f"listen: {address} cannot be bound; it may be taken, choose another",
        ) from error
    if address.startswith(addresses.UNIX):
        return address
    host = address.rpartition(":")[0]
    return f"{host}:{port}"
