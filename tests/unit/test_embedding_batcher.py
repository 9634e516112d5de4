"""The queue before a model: what is computed first, what never is, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import grpc
import pytest

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_embedding import batcher as batcher_module
from hippovault_embedding.backend import Piece, Row
from hippovault_embedding.batcher import Batcher, Computed, Limits
from hippovault_embedding.speed import KNOWN_FROM

LIMITS = Limits(batch_tokens=100, urgent_batch_tokens=20, queue_tokens=1000)
SLOW = 3600.0


@dataclass
class Model:
    """Computes a batch once it is told to: the bytes of a row are its piece's text."""

    begun: asyncio.Queue[list[str]] = field(default_factory=asyncio.Queue)
    computed: list[list[str]] = field(default_factory=list)
    may_end: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    failure: BaseException | None = None
    rows: int | None = None

    async def run(self, pieces: Sequence[Piece]) -> list[Row]:
        texts = [piece.text for piece in pieces]
        self.computed.append(texts)
        self.begun.put_nowait(texts)
        await self.may_end.acquire()
        failure, self.failure = self.failure, None
        if failure:
            raise failure
        return [Row(text.encode()) for text in texts][: self.rows]

    def go(self, batches: int = 1000) -> None:
        for _ in range(batches):
            self.may_end.release()


@pytest.fixture
async def model() -> Model:
    return Model()


@pytest.fixture
async def slots() -> asyncio.Semaphore:
    return asyncio.Semaphore(1)


@pytest.fixture
async def batcher(model: Model, slots: asyncio.Semaphore) -> AsyncIterator[Batcher]:
    batcher = make(model, slots)
    yield batcher
    model.go()
    await batcher.close()


def make(model: Model, slots: asyncio.Semaphore, limits: Limits = LIMITS) -> Batcher:
    return Batcher("m", model.run, slots, limits)


def pieces(*texts: str, size: int = 10) -> list[Piece]:
    return [Piece((), size, text) for text in texts]


def documents(batcher: Batcher, *texts: str, size: int = 10) -> asyncio.Task[Computed]:
    return asyncio.create_task(batcher.submit(pieces(*texts, size=size), query=False))


def queries(batcher: Batcher, *texts: str, size: int = 10) -> asyncio.Task[Computed]:
    return asyncio.create_task(batcher.submit(pieces(*texts, size=size), query=True))


async def occupy(batcher: Batcher, model: Model) -> asyncio.Task[Computed]:
    """Has a batch of one document begin, so that what comes next waits."""
    first = documents(batcher, "first")
    assert await model.begun.get() == ["first"]
    return first


def texts(computed: Computed) -> list[str]:
    return [row.vector.decode() for row in computed.rows]


async def refused(call: asyncio.Task[Computed]) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await call
    return caught.value


async def gone(call: asyncio.Task[Computed]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


# What is computed, and when


async def test_an_idle_model_begins_at_once(batcher: Batcher, model: Model) -> None:
    call = documents(batcher, "a")
    assert await model.begun.get() == ["a"]
    model.go()
    computed = await call
    assert texts(computed) == ["a"]
    assert 0 <= computed.queue_seconds < SLOW
    assert 0 <= computed.inference_seconds < SLOW


async def test_calls_that_wait_share_a_batch_and_each_gets_its_own_rows(batcher: Batcher, model: Model) -> None:
    first = await occupy(batcher, model)
    calls = [documents(batcher, f"{name}0", f"{name}1") for name in "abcd"]
    await asyncio.sleep(0)
    model.go()
    for name, call in zip("abcd", calls, strict=True):
        assert texts(await call) == [f"{name}0", f"{name}1"]
    await first
    assert [len(batch) for batch in model.computed] == [1, 8]


async def test_queries_go_before_documents_that_came_first(batcher: Batcher, model: Model) -> None:
    first = await occupy(batcher, model)
    document, query = documents(batcher, "document"), None
    await asyncio.sleep(0)
    query = queries(batcher, "query")
    await asyncio.sleep(0)
    model.go()
    await asyncio.gather(first, document, query)
    assert model.computed == [["first"], ["query"], ["document"]]


async def test_batches_of_documents_are_small_while_queries_come(
    batcher: Batcher, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.go()
    await documents(batcher, *map(str, range(20)))
    assert [len(batch) for batch in model.computed] == [10, 10]
    await queries(batcher, "query")
    model.computed.clear()
    await documents(batcher, *map(str, range(6)))
    assert [len(batch) for batch in model.computed] == [2, 2, 2]
    monkeypatch.setattr(batcher_module, "URGENT_SECONDS", 0.0)
    model.computed.clear()
    await documents(batcher, *map(str, range(6)))
    assert [len(batch) for batch in model.computed] == [6]


async def test_documents_are_not_starved_by_queries_without_end(
    batcher: Batcher, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await occupy(batcher, model)
    document, query = documents(batcher, "document"), queries(batcher, "query")
    await asyncio.sleep(0)
    monkeypatch.setattr(batcher_module, "PATIENCE_SECONDS", 0.0)
    model.go()
    await asyncio.gather(first, document, query)
    assert model.computed == [["first"], ["document"], ["query"]]


async def test_a_short_call_does_not_wait_for_a_long_one(batcher: Batcher, model: Model) -> None:
    first = await occupy(batcher, model)
    long, short = documents(batcher, *map(str, range(50))), documents(batcher, "short", size=90)
    await asyncio.sleep(0)
    model.go()
    await short
    assert not long.done()
    assert len(model.computed) <= 3
    await asyncio.gather(first, long)


async def test_models_that_share_a_slot_take_turns(model: Model, slots: asyncio.Semaphore) -> None:
    one, other = make(model, slots), make(model, slots)
    first = await occupy(one, model)
    calls = [documents(one, *["one"] * 30), documents(other, *["other"] * 30)]
    await asyncio.sleep(0)
    model.go()
    await asyncio.gather(first, *calls)
    assert [batch[0] for batch in model.computed] == ["first", "one", "other", "one", "other", "one", "other"]


# Who goes, and what fails


async def test_what_a_caller_who_is_gone_wanted_is_never_computed(batcher: Batcher, model: Model) -> None:
    first = await occupy(batcher, model)
    stays, goes = documents(batcher, "stays"), documents(batcher, *["goes"] * 50)
    await asyncio.sleep(0)
    await gone(goes)
    model.go()
    await asyncio.gather(first, stays)
    assert model.computed == [["first"], ["stays"]]


async def test_when_all_are_gone_nothing_more_begins(batcher: Batcher, model: Model, slots: asyncio.Semaphore) -> None:
    first = await occupy(batcher, model)
    for call in [documents(batcher, "a"), queries(batcher, "b"), first]:
        await asyncio.sleep(0)
        await gone(call)
    model.go()
    assert texts(await documents(batcher, "next")) == ["next"]
    assert model.computed == [["first"], ["next"]]
    assert not slots.locked()


@pytest.mark.parametrize("failure", [ValueError("no"), BaseException("panic"), asyncio.CancelledError()])
async def test_a_batch_that_fails_fails_its_callers_alone(
    batcher: Batcher, model: Model, slots: asyncio.Semaphore, failure: BaseException
) -> None:
    model.failure = failure
    failing = [await occupy(batcher, model)]
    later = documents(batcher, "later")
    await asyncio.sleep(0)
    model.go()
    (result,) = await asyncio.gather(*failing, return_exceptions=True)
    assert isinstance(result, ValueError | RuntimeError | ServiceError)
    assert str(failure) in str(result)
    assert texts(await later) == ["later"]
    assert not slots.locked()


async def test_a_batch_without_a_row_for_each_piece_fails(batcher: Batcher, model: Model) -> None:
    model.go()
    model.rows = 1
    with pytest.raises(RuntimeError, match="1 rows came of 2 pieces"):
        await documents(batcher, "a", "b")
    model.rows = None
    assert texts(await documents(batcher, "a", "b")) == ["a", "b"]


# What is refused


@pytest.mark.parametrize("query", [False, True])
async def test_a_full_lane_refuses_and_the_other_does_not(batcher: Batcher, model: Model, query: bool) -> None:  # noqa: FBT001
    first = await occupy(batcher, model)
    full, other = (queries, documents) if query else (documents, queries)
    bulk = full(batcher, *["bulk"] * 150)  # One call may go beyond the bound.
    await asyncio.sleep(0)
    error = await refused(full(batcher, "more"))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert "1500 tokens wait, at most 1000 may" in error.message
    assert error.retry_seconds > 0
    admitted = other(batcher, "other")
    await asyncio.sleep(0)
    model.go()
    await asyncio.gather(first, bulk, admitted)
    assert texts(await full(batcher, "again")) == ["again"]


async def test_calls_that_are_still_prepared_fill_the_queue_too(batcher: Batcher, model: Model) -> None:
    model.go()
    with batcher.expecting(1000, query=False):
        error = await refused(documents(batcher, "more"))
        assert error.reason == "QUEUE_FULL"
        with pytest.raises(ServiceError), batcher.expecting(1, query=False):
            pytest.fail("admitted")
        assert texts(await queries(batcher, "query")) == ["query"]
    assert texts(await documents(batcher, "again")) == ["again"]


async def test_a_deadline_that_would_pass_in_the_queue_is_refused_at_once(batcher: Batcher, model: Model) -> None:
    for _ in range(KNOWN_FROM):
        batcher._speed.note(100, 1.0)  # 100 tokens a second cannot be had otherwise without waiting.
    first = await occupy(batcher, model)
    bulk = documents(batcher, *["bulk"] * 80)
    await asyncio.sleep(0)
    deadline.start(9.0)
    error = await refused(documents(batcher, *["more"] * 80))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DEADLINE_TOO_SHORT")
    assert "1600 tokens take about 16.0 s, the deadline leaves 9.0 s" in error.message
    assert error.retry_seconds == pytest.approx(7, abs=0.1)
    deadline.start(2.5)  # One text waits for one batch of the others', not for all of them.
    short = documents(batcher, "short")
    deadline.start(1.0)
    query = queries(batcher, "query")
    await asyncio.sleep(0)
    model.go()
    await asyncio.gather(first, bulk, short, query)


async def test_a_call_too_large_for_its_deadline_is_told_to_be_smaller_and_not_to_come_again(batcher: Batcher) -> None:
    for _ in range(KNOWN_FROM):
        batcher._speed.note(100, 1.0)
    deadline.start(1.0)
    error = await refused(documents(batcher, *["more"] * 80))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DEADLINE_TOO_SHORT")
    assert "its 800 tokens alone take about 8.0 s, the deadline leaves 1.0 s; send fewer or shorter" in error.message
    assert "again" not in error.message
    assert error.retry_seconds == 0


async def test_a_deadline_that_passes_in_the_queue_ends_the_call(batcher: Batcher, model: Model) -> None:
    first = await occupy(batcher, model)
    deadline.start(0.01)
    error = await refused(documents(batcher, "late"))
    assert (error.code, error.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    model.go()
    await first
    deadline.start(SLOW)
    await documents(batcher, "next")
    assert model.computed == [["first"], ["next"]]


async def test_closing_ends_what_has_begun_and_tells_who_waits(model: Model, slots: asyncio.Semaphore) -> None:
    batcher = make(model, slots)
    first = await occupy(batcher, model)
    waiting = [documents(batcher, "waits"), queries(batcher, "waits")]
    await asyncio.sleep(0)
    closing = asyncio.create_task(batcher.close())
    for call in waiting:
        assert (await refused(call)).code is grpc.StatusCode.UNAVAILABLE
    assert not closing.done()
    model.go()
    await closing
    assert texts(await first) == ["first"]
    assert (await refused(documents(batcher, "late"))).code is grpc.StatusCode.UNAVAILABLE
    assert model.computed == [["first"]]
    assert not slots.locked()
