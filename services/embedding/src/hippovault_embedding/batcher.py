"""Gathers the pieces of all calls into batches, the most urgent first, and refuses what it could not do in time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import structlog

from hippovault_chassis import deadline, tracing
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.backend import Piece, Row
from hippovault_embedding.lane import Lane, Ticket, Waiting
from hippovault_embedding.metrics import ModelMetrics
from hippovault_embedding.speed import Speed

log = structlog.get_logger()

URGENT_SECONDS = 2.0
"""How long after a query batches of documents stay small: the next query may come at any moment, and waits for one."""
PATIENCE_SECONDS = 1.0
"""How long documents wait while queries come without a break; then one batch of them goes first, which takes a query a
few hundredths of a second."""
MAX_RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Limits:
    """What a batch and a queue may have, in tokens, padding included."""

    batch_tokens: int
    urgent_batch_tokens: int
    """Of a batch of documents while queries come."""
    queue_tokens: int
    """That wait of each priority before calls are refused. One call may go beyond."""
    batch_pieces: int = sys.maxsize
    batches: int = 1
    """That are computed at a time."""


class Computed(NamedTuple):
    """What became of a call."""

    rows: list[Row]
    queue_seconds: float
    inference_seconds: float


class Batcher:
    """The queue before one model.

    A piece waits only while another batch is computed: which pieces make a batch is decided when it can begin.

    Args:
        model: Its name.
        run: Computes a batch.
        slots: Batches that are computed at a time; models that share a processor share this.
        limits: Sizes.
    """

    def __init__(
        self,
        model: str,
        run: Callable[[Sequence[Piece]], Awaitable[list[Row]]],
        slots: asyncio.Semaphore,
        limits: Limits,
    ) -> None:
        self._model = model
        self._run = run
        self._slots = slots
        self.limits = limits
        self._queries, self._documents = Lane(), Lane()
        self._speed = Speed(limits.batches)
        self._metrics = ModelMetrics(model)
        self._metrics.watch(self._queries, self._documents)
        self._last_query = -URGENT_SECONDS
        self._documents_turn = 0.0
        """When documents came to an empty lane, or last had a batch."""
        self._closed = False
        self._dispatching: asyncio.Task[None] | None = None
        self._batches: dict[asyncio.Task[None], set[Ticket]] = {}

    @contextmanager
    def expecting(self, tokens: int, *, query: bool) -> Iterator[None]:
        """Keeps a place in the queue for a call that is still prepared, so that a burst of calls is refused in time.

        Args:
            tokens: That the call will have, about.
            query: Which lane.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED, QUEUE_FULL.
        """
        lane = self._admitting(query=query)
        lane.expected += tokens
        try:
            yield
        finally:
            lane.expected -= tokens

    async def submit(self, pieces: Sequence[Piece], *, query: bool) -> Computed:
        """Returns the rows of the pieces, in order.

        What has not begun is dropped when the caller is cancelled or its time is up; what has, when nobody else waits
        for it.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, or what computing failed with.
        """
        lane = self._admitting(query=query)
        seconds = deadline.remaining()
        now = time.monotonic()
        ticket = Ticket(pieces, now, now + seconds)
        self._refuse_late(seconds, ticket.tokens, query=query)
        if query:
            self._last_query = now
        elif not lane:
            self._documents_turn = now
        lane.add(ticket)
        self._dispatch()
        try:
            async with asyncio.timeout(seconds):
                rows = await ticket.done
        except TimeoutError:
            problem = "the request's time was up before its texts were computed"
            raise ServiceError(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", problem) from None
        finally:
            lane.discard(ticket)
            self._abandon()
        waited = self._metrics.query_queue_seconds if query else self._metrics.document_queue_seconds
        waited.observe(ticket.queue_seconds)
        tracing.record("queue", ticket.span, ticket.since, ticket.queue_seconds)
        return Computed(rows, ticket.queue_seconds, ticket.inference_seconds)

    async def close(self) -> None:
        """Waits for the batches that have begun; who waits for others is told that the service stops."""
        self._closed = True
        if self._dispatching:
            self._dispatching.cancel()
        self._drop(_stopping())
        await asyncio.gather(*self._batches, return_exceptions=True)

    def _admitting(self, *, query: bool) -> Lane:
        """Returns the lane that a call goes to, unless it is full."""
        if self._closed:
            raise _stopping()
        lane = self._queries if query else self._documents
        tokens, most = lane.tokens + lane.expected, self.limits.queue_tokens
        if tokens >= most:
            problem = f"{tokens} tokens wait, at most {most} may"
            raise self._exhausted("QUEUE_FULL", problem, tokens - most / 2)
        return lane

    def _refuse_late(self, seconds: float, tokens: int, *, query: bool) -> None:
        """Refuses what would be computed for nobody."""
        batch = self.limits.batch_tokens
        ahead = self._queries.before(tokens, batch) if query else self._queries.tokens
        ahead += 0 if query else self._documents.before(tokens, batch)
        total, speed = ahead + tokens, self._speed.tokens_a_second
        if not speed or total / speed <= seconds:
            return
        left = f"the deadline leaves {seconds:.1f} s"
        if tokens / speed > seconds:  # However short the queue is.
            problem = f"its {tokens} tokens alone take about {tokens / speed:.1f} s, {left}"
            raise self._too_large(problem)
        problem = f"{total} tokens take about {total / speed:.1f} s, {left}"
        raise self._exhausted("DEADLINE_TOO_SHORT", problem, total - seconds * speed)

    def _too_large(self, problem: str) -> ServiceError:
        """Returns the refusal of a call that another try does not help."""
        self._metrics.refused("DEADLINE_TOO_SHORT")
        way_out = "send fewer or shorter texts, or allow more time"
        return ServiceError(grpc.StatusCode.RESOURCE_EXHAUSTED, "DEADLINE_TOO_SHORT", f"{problem}; {way_out}")

    def _exhausted(self, reason: str, problem: str, tokens_over: float) -> ServiceError:
        """Returns the refusal; its RetryInfo is when the tokens that are too many will have been computed."""
        self._metrics.refused(reason)
        speed = self._speed.tokens_a_second
        seconds = tokens_over / speed if speed else 1.0
        return ServiceError.busy(reason, problem, min(max(seconds, 0.1), MAX_RETRY_SECONDS))

    def _dispatch(self) -> None:
        if self._dispatching is None or self._dispatching.done():
            self._dispatching = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while self._queries or self._documents:
            await self._slots.acquire()
            batch = self._next()
            if not batch:  # Its callers are gone.
                self._slots.release()
                return
            task = asyncio.create_task(self._compute(batch))
            self._batches[task] = {waiting.ticket for waiting in batch}
            task.add_done_callback(self._ended)

    def _drop(self, error: Exception) -> None:
        """Ends every call that waits."""
        for lane in (self._queries, self._documents):
            for ticket in lane.tickets:
                lane.discard(ticket)
                ticket.fail(error)

    def _ended(self, batch: asyncio.Task[None]) -> None:
        del self._batches[batch]
        self._slots.release()

    def _abandon(self) -> None:
        """Stops the batches that nobody waits for any more."""
        for batch, tickets in self._batches.items():
            if not batch.cancelling() and all(ticket.done.done() for ticket in tickets):
                batch.cancel()

    def _next(self) -> list[Waiting]:
        now, limits = time.monotonic(), self.limits
        patient = not self._documents or now - self._documents_turn < PATIENCE_SECONDS
        if self._queries and patient:
            return self._queries.batch(limits.batch_tokens, limits.batch_pieces)
        self._documents_turn = now
        urgent = now - self._last_query < URGENT_SECONDS
        tokens = limits.urgent_batch_tokens if urgent else limits.batch_tokens
        return self._documents.batch(tokens, limits.batch_pieces)

    async def _compute(self, batch: Sequence[Waiting]) -> None:
        started = time.monotonic()
        deadline.start(max(waiting.ticket.ends for waiting in batch) - started)
        try:
            rows = await self._run([waiting.piece for waiting in batch])
            if len(rows) != len(batch):
                raise RuntimeError(f"{len(rows)} rows came of {len(batch)} pieces")  # noqa: TRY301
        except BaseException as error:  # noqa: BLE001  # Every caller in the batch is told; the next batch goes on.
            failure = _failure(error)
            if not isinstance(error, asyncio.CancelledError):
                self._metrics.inference_failures.inc()
            for waiting in batch:
                waiting.ticket.fail(failure)
            return
        seconds = time.monotonic() - started
        tokens = len(batch) * batch[-1].piece.size
        self._tell(batch, tokens, started, seconds)
        self._measure(tokens, seconds)
        for waiting, row in zip(batch, rows, strict=True):
            ticket = waiting.ticket
            ticket.queue_seconds = max(ticket.queue_seconds, started - ticket.since)
            ticket.inference_seconds = max(ticket.inference_seconds, seconds)
            ticket.put(waiting.place, row)

    def _tell(self, batch: Sequence[Waiting], tokens: int, started: float, seconds: float) -> None:
        """Tells metrics, spans and the log of a batch."""
        log.debug("inference", texts=len(batch), tokens=tokens, seconds=round(seconds, 4))
        self._metrics.batch_texts.observe(len(batch))
        self._metrics.batch_tokens.observe(tokens)
        self._metrics.padding_tokens.inc(tokens - sum(waiting.piece.size for waiting in batch))
        self._metrics.inference_seconds.observe(seconds)
        facts: dict[str, int | str] = {"model": self._model, "texts": len(batch), "tokens": tokens}
        for span in {waiting.ticket.span for waiting in batch}:
            tracing.record("inference", span, started, seconds, facts)

    def _measure(self, tokens: int, seconds: float) -> None:
        """Follows the speed that a queue is worked off with; a small batch, mostly fixed cost, tells nothing of it."""
        if tokens < self.limits.urgent_batch_tokens // 2:
            return
        self._speed.note(tokens, seconds)


def _failure(error: BaseException) -> Exception:
    """Returns what callers are told. A cancellation is not theirs, a panic of native code no Exception."""
    if isinstance(error, asyncio.CancelledError):
        return _stopping()
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


def _stopping() -> ServiceError:
    return ServiceError.unavailable("embedding", "it is stopping")
