"""The standard health protocol, in both kinds of servers. A watch ends with a drain, which it must not hold up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from hippovault_chassis.admission import Admission

LOOK_SECONDS = 0.5
"""Between two looks at what services know of themselves while somebody watches."""
WHOLE = ""
"""The whole server, by the protocol."""


class AioHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # It has no types.
    """For coroutines; heeds what the services know of themselves.

    Args:
        healthy: Of each service, by its name.
    """

    def __init__(self, healthy: Mapping[str, Callable[[], bool]]) -> None:
        self._healthy = healthy
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Says from now on that nothing is served."""
        self._draining.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  # The contract names it.
        """Answers one check."""
        state = self._state(request.service)
        if state == HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return HealthCheckResponse(status=state)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        """Tells the state, and each that follows until the server drains."""
        told = None
        while True:
            state = self._state(request.service)
            if state != told:
                await context.write(HealthCheckResponse(status=state))
                told = state
            if self._draining.is_set():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), LOOK_SECONDS)

    def _state(self, name: str) -> Any:
        if name != WHOLE and name not in self._healthy:
            return HealthCheckResponse.SERVICE_UNKNOWN
        asked = self._healthy.values() if name == WHOLE else [self._healthy[name]]
        serving = not self._draining.is_set() and all(healthy() for healthy in asked)
        return HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING


class ThreadedHealth(health.HealthServicer):  # type: ignore[misc]  # It has no types.
    """For threads; answers although all workers are busy, and holds no thread while a client watches.

    Args:
        names: Of the services.
        admission: Has threads for it.
    """

    def __init__(self, names: Sequence[str], admission: Admission) -> None:
        super().__init__()
        self._watching: set[Callable[[Any], None]] = set()
        self.Check: Any = admission.reserve(super().Check)
        self.Watch: Any = admission.reserve(self._watch)
        self.Watch.experimental_non_blocking = True
        for name in (WHOLE, *names):
            self.set(name, HealthCheckResponse.SERVING)

    def drain(self) -> None:
        """Says from now on that nothing is served."""
        self.enter_graceful_shutdown()
        for tell in tuple(self._watching):
            tell(None)  # Nothing more comes.

    def _watch(self, request: Any, context: Any, tell: Callable[[Any], None] | None = None) -> None:
        if tell:  # Always, with threads that are not held.
            self._watching.add(tell)
            context.add_callback(lambda: self._watching.discard(tell))
        super().Watch(request, context, tell)
