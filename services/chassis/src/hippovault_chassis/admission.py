"""How many calls a server with threads takes on, and who answers while all of its threads are busy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import grpc
from grpc_health.v1 import health

from hippovault_chassis import interceptors
from hippovault_chassis.errors import ServiceError

P = ParamSpec("P")
T = TypeVar("T")

HEALTH = f"/{health.SERVICE_NAME}/"
RETRY_SECONDS = 0.5
"""After which a refused call is worth another try: those that are under way take milliseconds each."""
RESERVED_THREADS = 4
"""For health checks and refusals, which take no time."""


class Workers(ThreadPoolExecutor):
    """Threads that know the calls they were given and have not ended."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "call")
        self.calls: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a call as soon as a thread is free."""
        future = super().submit(fn, *args, **kwargs)
        self.calls.add(future)
        future.add_done_callback(self.calls.discard)
        return future


class Admission(grpc.ServerInterceptor):
    """Refuses calls beyond a limit at once. Must be the first interceptor.

    gRPC's own limit would refuse health checks too, and one that waits for a thread says that the server is dead.

    Args:
        workers: Who runs the calls.
        limit: Calls that run or wait at a time.
    """

    def __init__(self, workers: Workers, limit: int) -> None:
        self._workers = workers
        self._limit = limit
        self._reserved = ThreadPoolExecutor(RESERVED_THREADS, "reserved")

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], interceptors.Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> interceptors.Handler | None:
        """Lets the call through or refuses it."""
        handler, method = continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith(HEALTH) or len(self._workers.calls) < self._limit:
            return handler
        # Whatever the method's kind: a handler of streams is called before a request has come.
        refuse = interceptors.unary(self._refuse, interceptors.Method(method, streams=True))
        return grpc.stream_unary_rpc_method_handler(self.reserve(refuse))

    def reserve(self, behaviour: interceptors.Behaviour) -> Any:
        """Returns a servicer's method that gets a thread although all workers are busy."""
        reserved: Any = functools.partial(behaviour)
        reserved.experimental_thread_pool = self._reserved
        return reserved

    def close(self) -> None:
        """Lets the threads go."""
        self._reserved.shutdown(wait=False)

    def _refuse(self, _requests: object, _context: object) -> None:
        problem = f"the server has {self._limit} calls, as many as it takes on"
        raise ServiceError.busy("TOO_MANY_CALLS", problem, RETRY_SECONDS)
