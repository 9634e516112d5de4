"""When a model is in memory: from its first use until nobody has used it for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from hippovault_chassis import tracing
from hippovault_chassis.errors import ServiceError, told
from hippovault_embedding import memory
from hippovault_embedding.metrics import ModelMetrics

log = structlog.get_logger()


def cause(name: str, error: BaseException) -> str:
    """Logs why a model cannot be used, and returns what callers are told of it."""
    log.error("model not loaded", model=name, type=type(error).__name__, reason=told(error))
    return f"the model {name} cannot be loaded: {told(error)}"


class Residency:
    """Loads on the first use, once for all who come meanwhile, and unloads after an idle time.

    Args:
        name: The model's, for people.
        load: Called from a thread; any exception means that the model cannot be used.
        unload: Called from a thread.
        idle_seconds: Without use, until it is unloaded; 0 means never.
    """

    def __init__(self, name: str, load: Callable[[], None], unload: Callable[[], None], idle_seconds: float) -> None:
        self._name = name
        self._load = load
        self._unload = unload
        self._idle_seconds = idle_seconds
        self._metrics = ModelMetrics(name)
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._changing = asyncio.Lock()
        self._loading: asyncio.Task[None] | None = None
        self._unloading: asyncio.Task[None] | None = None
        self._ready = False
        """Whether it can be used; while it is unloaded it cannot, although it is still in memory."""
        self.loaded = False
        """Whether it is in memory."""
        self.load_error = ""
        """Why the last attempt to load failed; empty when it did not."""

    @asynccontextmanager
    async def use(self) -> AsyncIterator[None]:
        """Keeps the model in memory while the context lasts.

        Raises:
            ServiceError: UNAVAILABLE, it cannot be loaded; the next use tries again.
        """
        self._users += 1
        try:
            if not self._ready:
                # A caller that goes away does not take the model from those who wait for the same load.
                await asyncio.shield(self._begin_loading())
            if not self._ready:
                raise ServiceError.unavailable("embedding", self.load_error)
            yield
        finally:
            self._users -= 1
            self._restart_timer()

    async def close(self) -> None:
        """Unloads, unless it is used."""
        await self._ensure_unloaded()
        if self._timer:
            self._timer.cancel()

    def _begin_loading(self) -> asyncio.Task[None]:
        """Returns the attempt to load that is under way, which may be a new one."""
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._ensure_loaded())
        return self._loading

    async def _ensure_loaded(self) -> None:
        async with self._changing:
            started = time.monotonic()
            try:
                await asyncio.to_thread(self._load)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001  # A panic of native code is no Exception. The process lives.
                self._metrics.load_failures.inc()
                self.load_error = cause(self._name, error)
                return
            self.loaded, self._ready, self.load_error = True, True, ""
            seconds = time.monotonic() - started
            log.info("model loaded", model=self._name, seconds=round(seconds, 3))
            self._metrics.load_seconds.observe(seconds)
            tracing.record("load", tracing.current(), started, seconds, {"model": self._name})
        self._restart_timer()  # All who wanted it may be gone.

    def _restart_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._idle_seconds and not self._users and self._ready:
            self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._begin_unloading)

    def _begin_unloading(self) -> None:
        self._unloading = asyncio.create_task(self._ensure_unloaded())

    async def _ensure_unloaded(self) -> None:
        async with self._changing:
            if self._users or not self._ready:
                return
            self._ready = False
            try:
                await asyncio.to_thread(self._free)
            finally:
                self.loaded = False
            log.info("model unloaded", model=self._name)
            self._metrics.unloads.inc()

    def _free(self) -> None:
        self._unload()
        memory.give_back()
