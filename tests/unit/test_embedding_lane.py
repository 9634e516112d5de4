"""Which waiting pieces make a batch: all of them once, none over the bound, everyone in turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hippovault_embedding.backend import Piece, Row
from hippovault_embedding.lane import Lane, Ticket, Waiting

MANY = 1_000_000

Calls = st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=12), max_size=12)


def ticket(*sizes: int) -> Ticket:
    return Ticket([Piece(range(size), size) for size in sizes], now=0.0, ends=1.0)


def tokens(lane: Lane) -> int:
    return sum(piece.piece.size for ticket in lane.tickets for piece in ticket.waiting)


def padded(batch: list[Waiting]) -> int:
    return len(batch) * max(waiting.piece.size for waiting in batch)


@given(Calls, st.integers(1, 600), st.integers(1, 8))
async def test_every_piece_is_in_one_batch_and_none_is_over_the_bounds(
    calls: list[list[int]], max_tokens: int, max_pieces: int
) -> None:
    lane = Lane()
    tickets = [ticket(*sizes) for sizes in calls]
    for each in tickets:
        lane.add(each)
    seen: list[tuple[Ticket, int]] = []
    while lane:
        assert lane.tokens == tokens(lane)
        batch = lane.batch(max_tokens, max_pieces)
        assert len(batch) <= max_pieces
        assert len(batch) == 1 or padded(batch) <= max_tokens
        assert [waiting.piece.size for waiting in batch] == sorted(waiting.piece.size for waiting in batch)
        seen += [(waiting.ticket, waiting.place) for waiting in batch]
    assert len(seen) == len(set(seen))
    assert set(seen) == {
        (each, place) for each, sizes in zip(tickets, calls, strict=True) for place in range(len(sizes))
    }
    assert (lane.tokens, lane.tickets, lane.batch(max_tokens, max_pieces)) == (0, [], [])


@given(Calls.filter(bool), st.integers(1, 600), st.integers(0, 11), st.integers(0, 20))
async def test_a_call_of_one_text_waits_for_one_batch_of_each_other_call_at_most(
    calls: list[list[int]], max_tokens: int, taken: int, size: int
) -> None:
    lane = Lane()
    for sizes in calls:
        lane.add(ticket(*sizes))
    for _ in range(taken):
        lane.batch(max_tokens, MANY)
    others = len(list(lane.tickets))
    one = ticket(size + 1)
    lane.add(one)
    batches = 0
    while one.waiting:
        lane.batch(max_tokens, MANY)
        batches += 1
    assert batches <= others + 1


Steps = st.lists(
    st.one_of(
        st.lists(st.integers(1, 300), min_size=1, max_size=6),  # A call comes,
        st.none(),  # a batch begins,
        st.integers(0, 20),  # a call goes.
    ),
    max_size=40,
)


@given(Steps)
async def test_calls_may_go_at_any_moment(steps: list[list[int] | int | None]) -> None:
    lane = Lane()
    tickets: list[Ticket] = []
    for step in steps:
        if isinstance(step, list):
            tickets.append(ticket(*step))
            lane.add(tickets[-1])
        elif step is None:
            lane.batch(450, MANY)
        elif tickets:
            gone = tickets[step % len(tickets)]
            lane.discard(gone)
            assert not gone.waiting
            assert gone not in lane.tickets
        waiting = [each for each in tickets if each.waiting]
        assert set(lane.tickets) == set(waiting)
        assert lane.tokens == tokens(lane) == sum(each.tokens for each in waiting)
        assert bool(lane) == bool(waiting)


async def test_a_batch_is_filled_by_neighbours_in_size_of_all_calls() -> None:
    lane = Lane()
    first, second = ticket(40, 200), ticket(200, 41, 39)
    lane.add(first)
    lane.add(second)
    batch = lane.batch(450, MANY)
    assert [(waiting.ticket, waiting.piece.size) for waiting in batch] == [(second, 39), (first, 40), (second, 41)]
    assert [waiting.piece.size for waiting in lane.batch(450, MANY)] == [200, 200]


async def test_what_is_computed_before_a_new_call_is_a_turn_of_each_other_or_all_it_has() -> None:
    lane = Lane()
    assert lane.before(10, batch_tokens=100) == 0
    lane.add(ticket(*[50] * 40))
    lane.add(ticket(30))
    assert lane.before(10, batch_tokens=100) == 100 + 30
    assert lane.before(101, batch_tokens=100) == 200 + 30
    assert lane.before(5000, batch_tokens=100) == 2000 + 30


async def test_rows_come_in_the_order_of_the_pieces_and_a_failure_ends_a_call_once() -> None:
    call = ticket(3, 2, 1)
    for place in (2, 0, 1):
        assert not call.done.done()
        call.put(place, Row(bytes([place])))
    call.fail(RuntimeError("too late"))
    assert [row.vector for row in await call.done] == [b"\0", b"\1", b"\2"]
