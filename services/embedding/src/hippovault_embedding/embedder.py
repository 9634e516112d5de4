"""One model on one thread: loaded by its first use, shared by all callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import structlog

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_embedding import batches
from hippovault_embedding.model import Model

if TYPE_CHECKING:  # Imported for good by the first use: a process that embeds nothing stays small.
    from hippovault_embedding.encoder import Encoder
    from hippovault_embedding.tokenizer import Tokens

log = structlog.get_logger()

ResultT = TypeVar("ResultT")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True)
class Embedding:
    """What became of one text."""

    vector: bytes
    """Little-endian float32 of L2 norm 1."""
    tokens: Tokens


class Embedder:
    """Embeds texts off the event loop.

    Everything that touches the model runs on one thread, one batch at a time. So the first use loads the model once
    however many callers come first, and a short text waits for one batch of a long request, not for all of it.

    Args:
        model: What to load at the first use.
        threads: How many threads one inference uses.
    """

    def __init__(self, model: Model, threads: int) -> None:
        self.model = model
        self._threads = threads
        self._encoder: Encoder | None = None
        self._executor = ThreadPoolExecutor(1, "inference")
        self._told_unknown = False
        self.load_error = ""
        """Why the last attempt to load failed; empty when it did not."""

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._encoder is not None

    async def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """Returns one embedding a text, in order.

        What is left to compute is dropped when the caller is gone.

        Raises:
            ServiceError: UNAVAILABLE when the model cannot be loaded, DEADLINE_EXCEEDED when the time is up.
        """
        encoder, tokens = await self._on_thread(self._tokenize, texts)
        self._tell_unknown(tokens)
        vectors = [b""] * len(texts)
        for batch in batches.plan([len(each.ids) for each in tokens]):
            deadline.remaining()
            rows = await self._on_thread(_infer, encoder, [tokens[index] for index in batch])
            for index, row in zip(batch, rows, strict=True):
                vectors[index] = row
        return [Embedding(vector, each) for vector, each in zip(vectors, tokens, strict=True)]

    def close(self) -> None:
        """Ends the thread; batches that have not begun are dropped."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def _on_thread(self, function: Callable[[*Ts], ResultT], *arguments: *Ts) -> ResultT:
        # Cancelling the caller's task cancels a job that has not begun.
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def _tokenize(self, texts: Sequence[str]) -> tuple[Encoder, list[Tokens]]:
        encoder = self._encoder = self._encoder or self._load()
        return encoder, encoder.tokenize(texts)

    def _load(self) -> Encoder:
        started = time.perf_counter()
        try:
            from hippovault_embedding.encoder import Encoder

            encoder = Encoder(self.model, self._threads)
        except Exception as error:  # Whatever the reason, the process lives and the next call tries again.
            raise self._not_loaded(error) from error
        log.info("model loaded", model=self.model.name, seconds=round(time.perf_counter() - started, 3))
        self.load_error = ""
        return encoder

    def _not_loaded(self, error: Exception) -> ServiceError:
        log.error("model not loaded", model=self.model.name, type=type(error).__name__, reason=str(error))
        self.load_error = f"the model {self.model.name} cannot be loaded: {error}"
        return ServiceError.unavailable("embedding", self.load_error)

    def _tell_unknown(self, tokens: Sequence[Tokens]) -> None:
        if not self._told_unknown and any(each.mostly_unknown for each in tokens):
            self._told_unknown = True
            log.warning("most of a text is unknown to the model; its language may be another", model=self.model.name)


def _infer(encoder: Encoder, batch: Sequence[Tokens]) -> list[bytes]:
    started = time.perf_counter()
    rows = encoder.embed(batch)
    log.debug("inference", texts=len(batch), seconds=round(time.perf_counter() - started, 4))
    return rows
