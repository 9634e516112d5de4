"""When a model is in memory: from its first use until nobody has used it for a while."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from hippovault_chassis import tracing
from hippovault_chassis.errors import ServiceError, told
from hippovault_embedding.metrics import ModelMetrics

log = structlog.get_logger()


def cause(name: str, error: Exception) -> str:
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
        self.loaded = False
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
            if not self.loaded:
                if self._loading is None or self._loading.done():
                    self._loading = asyncio.create_task(self._ensure_loaded())
                # A caller that goes away does not take the model from those who wait for the same load.
                await asyncio.shield(self._loading)
            yield
        finally:
            self._users -= 1
            self._restart_timer()

    async def close(self) -> None:
        """Unloads."""
        if self._timer:
            self._timer.cancel()
        await self._ensure_unloaded()

    async def _ensure_loaded(self) -> None:
        async with self._changing:
            if self.loaded:
                return
            started = time.monotonic()
            try:
                await asyncio.to_thread(self._load)
            except Exception as error:  # Whatever the reason, the process lives and the next call tries again.
                self._metrics.load_failures.inc()
                self.load_error = cause(self._name, error)
                raise ServiceError.unavailable("embedding", self.load_error) from error
            self.loaded, self.load_error = True, ""
            seconds = time.monotonic() - started
            log.info("model loaded", model=self._name, seconds=round(seconds, 3))
            self._metrics.load_seconds.observe(seconds)
            tracing.record("load", tracing.current(), started, seconds, {"model": self._name})

    def _restart_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._idle_seconds and not self._users and self.loaded:
            self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._start_unloading)

    def _start_unloading(self) -> None:
        self._unloading = asyncio.create_task(self._ensure_unloaded())

    async def _ensure_unloaded(self) -> None:
        async with self._changing:
            if self._users or not self.loaded:
                return
            self.loaded = False
            await asyncio.to_thread(self._free)
            log.info("model unloaded", model=self._name)
            self._metrics.unloads.inc()

    def _free(self) -> None:
        self._unload()
        gc.collect()
        if sys.platform == "linux":
            # glibc keeps what is freed for later allocations of the process; the system wants it back.
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim:
                trim(0)
