"""One model, from texts to vectors: cache, tokens, queue."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import structlog

from hippovault_chassis import tracing
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.aside import aside
from hippovault_embedding.backend import Backend, Options, Prepared
from hippovault_embedding.batcher import Batcher, Computed, Limits
from hippovault_embedding.cache import Embedding, EmbeddingCache
from hippovault_embedding.metrics import ModelMetrics
from hippovault_embedding.model import ModelError, ModelFacts
from hippovault_embedding.residency import Residency, cause

log = structlog.get_logger()

CHARACTERS_A_TOKEN = 4
"""Of running text, about."""
PORTION_CHARACTERS = 16_000
"""After which those who wait to be tokenised take turns; a text is never cut for it."""


@dataclass(frozen=True)
class Embedded:
    """What became of the texts of a call."""

    facts: ModelFacts
    """Of the model."""
    embeddings: Sequence[Embedding]
    """One a text, in order."""
    tokenize_seconds: float = 0.0
    queue_seconds: float = 0.0
    inference_seconds: float = 0.0


class Embedder:
    """Embeds texts by one model, which all callers share.

    Args:
        name: The model's, for people.
        backend: Computes its vectors.
        residency: When the backend is in memory.
        batcher: The queue before it.
        cache: What it computed lately.
    """

    def __init__(
        self, name: str, backend: Backend, residency: Residency, batcher: Batcher, cache: EmbeddingCache
    ) -> None:
        self.name = name
        self._backend = backend
        self.residency = residency
        self._batcher = batcher
        self._cache = cache
        self._metrics = ModelMetrics(name)
        self._facts_error = ""
        self._told_unknown = False

    async def facts(self) -> ModelFacts:
        """Returns what callers are told of the model; never loads it.

        Raises:
            ServiceError: UNAVAILABLE, it cannot be told.
        """
        try:
            facts = await self._backend.facts()
        except (ModelError, OSError) as error:
            self._metrics.load_failures.inc()
            self._facts_error = cause(self.name, error)
            raise ServiceError.unavailable("embedding", self._facts_error) from error
        self._facts_error = ""
        return facts

    @property
    def load_error(self) -> str:
        """Why the model could not be used when that was last tried; empty when it could."""
        return self._facts_error or self.residency.load_error

    async def embed(self, texts: Sequence[str], options: Options) -> Embedded:
        """Returns one embedding a text, in order.

        What is left to compute is dropped when the caller is gone.

        Raises:
            ServiceError: UNAVAILABLE when the model cannot be used, RESOURCE_EXHAUSTED when too much waits,
                DEADLINE_EXCEEDED when the time is up, INVALID_ARGUMENT when the model's server refuses a text or the
                answer would be too large.
        """
        facts = await self.facts()
        keys = await aside(texts, lambda texts: [self._cache.key(facts.revision, options, text) for text in texts])
        found = [self._cache.get(key) for key in keys]
        missing = [index for index, embedding in enumerate(found) if embedding is None]
        self._metrics.cache_hits.inc(len(texts) - len(missing))
        self._metrics.cache_misses.inc(len(missing))
        size = sum(embedding.size for embedding in found if embedding)
        if not missing:
            _check_answer(size)
            return Embedded(facts, [replace(each, cached=True) for each in found if each])
        wanted = [texts[index] for index in missing]
        async with AsyncExitStack() as used:
            with self._batcher.expecting(_expected_tokens(wanted, options, facts), query=options.query):
                await used.enter_async_context(self.residency.use())
                changed = (await self.facts()).revision != facts.revision
                started = time.monotonic()
                prepared = [] if changed else await self._prepare(wanted, options, facts.dimensions, size)
                tokenized = time.monotonic() - started
            if changed:  # The files did, before they were loaded.
                return await self.embed(texts, options)
            self._tell_tokenized(prepared, started, tokenized)
            pieces = [piece for each in prepared for piece in each.pieces]
            computed = await self._batcher.submit(pieces, query=options.query)
        self._tell_unknown(prepared)
        fresh = dict(zip(missing, _embeddings(prepared, computed), strict=True))
        for index, embedding in fresh.items():
            if not embedding.refused:
                self._cache.put(keys[index], embedding)
        _check_none_refused(fresh)  # Who asks again without those that were finds the others in the cache.
        embeddings = [
            replace(known, cached=True) if (known := found[index]) else fresh[index] for index in range(len(texts))
        ]
        facts = await self.facts()  # A server's dimensions are known by its answer.
        _check_answer(sum(embedding.size for embedding in embeddings))
        return Embedded(facts, embeddings, tokenized, computed.queue_seconds, computed.inference_seconds)

    @property
    def limits(self) -> Limits:
        """What its batches and its queue may have."""
        return self._batcher.limits

    async def warm(self) -> float:
        """Brings the model into memory and returns the seconds that it took."""
        started = time.monotonic()
        was_loaded = self.residency.loaded
        async with self.residency.use():
            return 0.0 if was_loaded else time.monotonic() - started

    async def close(self) -> None:
        """Lets go of the model; what waits is dropped."""
        await self._batcher.close()
        await self.residency.close()

    async def _prepare(self, texts: Sequence[str], options: Options, dimensions: int, size: int) -> list[Prepared]:
        """Returns each text as pieces, unless an answer with so many bytes already cannot hold their vectors."""
        prepared: list[Prepared] = []
        for portion in _portions(texts):  # Between two, other calls get their turn, and one that was cancelled ends.
            fresh = await self._backend.prepare(portion, options)
            size += sum(piece.row_bytes(dimensions) for each in fresh for piece in each.pieces)
            _check_answer(size)
            prepared += fresh
        return prepared

    def _tell_tokenized(self, prepared: Sequence[Prepared], started: float, seconds: float) -> None:
        self._metrics.tokenize_seconds.observe(seconds)
        facts = {"texts": len(prepared), "tokens": sum(each.token_count for each in prepared)}
        tracing.record("tokenize", tracing.current(), started, seconds, facts)

    def _tell_unknown(self, prepared: Sequence[Prepared]) -> None:
        if not self._told_unknown and any(each.mostly_unknown for each in prepared):
            self._told_unknown = True
            log.warning("most of a text is unknown to the model; its language may be another", model=self.name)


def _embeddings(prepared: Sequence[Prepared], computed: Computed) -> list[Embedding]:
    rows = iter(computed.rows)
    return [
        Embedding([next(rows) for _ in each.pieces], each.token_count, each.truncated, each.unknown)
        for each in prepared
    ]


def _check_none_refused(embeddings: Mapping[int, Embedding]) -> None:
    refused = [
        ServiceError.invalid(f"texts[{index}]", embedding.refused)
        for index, embedding in embeddings.items()
        if embedding.refused
    ]
    if refused:
        raise ServiceError.invalid_fields(refused)


def _expected_tokens(texts: Sequence[str], options: Options, facts: ModelFacts) -> int:
    """Returns how many the texts have, about; those of texts that are cut are not counted."""
    most = facts.window * options.max_windows or sys.maxsize
    return sum(min(1 + len(text) // CHARACTERS_A_TOKEN, most) for text in texts)


def _portions(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yields the texts in order, as many at a time as take a few hundredths of a second."""
    portion: list[str] = []
    size = 0
    for text in texts:
        portion.append(text)
        size += len(text)
        if size >= PORTION_CHARACTERS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _check_answer(size: int) -> None:
    """Refuses what no client could receive; before it is computed, where the dimensions are known.

    Args:
        size: Bytes of the vectors and codes that are known of.
    """
    if size > MAX_ANSWER_BYTES:
        problem = (
            f"their vectors have {size} or more bytes, an answer {MAX_ANSWER_BYTES} at most; "
            "send fewer texts, or ask for fewer windows or shorter codes"
        )
        raise ServiceError.invalid("texts", problem)
