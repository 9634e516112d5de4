"""Pieces that wait, and which of them make the next batch."""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Iterable, Sequence
from operator import attrgetter

from hippovault_chassis import tracing
from hippovault_embedding.backend import Piece, Row


class Waiting:
    """A piece that waits."""

    __slots__ = ("order", "piece", "place", "ticket")

    _numbers = itertools.count()

    def __init__(self, ticket: Ticket, place: int, piece: Piece) -> None:
        self.ticket = ticket
        self.place = place
        self.piece = piece
        self.order = piece.size, next(self._numbers)
        """By size, then by arrival."""


class Ticket:
    """The pieces of one call, and what became of them."""

    def __init__(self, pieces: Sequence[Piece], now: float, ends: float) -> None:
        self.since = now
        """When it began to wait."""
        self.ends = ends
        """When nobody waits for it any more."""
        self.waiting = dict.fromkeys(Waiting(self, place, piece) for place, piece in enumerate(pieces))
        """The pieces that are in no batch yet, in order."""
        self.tokens = sum(piece.size for piece in pieces)
        """Of those."""
        self.queue_seconds = 0.0
        """The longest that one of them waited for its batch."""
        self.inference_seconds = 0.0
        """The longest that a batch with one of them took."""
        self.span = tracing.current()
        """The call's."""
        self.done: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._rows: list[Row | None] = [None] * len(pieces)
        self._open = len(pieces)

    def put(self, place: int, row: Row) -> None:
        """Takes in one row; the last one completes the call."""
        self._rows[place] = row
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result([each for each in self._rows if each is not None])

    def fail(self, error: Exception) -> None:
        """Ends the call, unless it has ended."""
        if not self.done.done():
            self.done.set_exception(error)


class Lane:
    """The waiting pieces of one priority.

    Calls take turns, so that a call of one text waits for a batch of each other call and not for all that came before
    it. Whoever's turn it is, its batch is filled with the pieces of all calls that are nearest in size, so that
    little is padded.
    """

    def __init__(self) -> None:
        self.tokens = 0
        """Of all waiting pieces."""
        self.expected = 0
        """Tokens, about, of the calls that are still prepared."""
        self._turns: dict[Ticket, None] = {}
        self._by_size: list[Waiting] = []

    def __len__(self) -> int:
        """Returns how many pieces wait."""
        return len(self._by_size)

    @property
    def tickets(self) -> Iterable[Ticket]:
        """The calls with pieces that wait, in the order of their turns."""
        return list(self._turns)

    def add(self, ticket: Ticket) -> None:
        """Puts the pieces of a call in line."""
        self._turns[ticket] = None
        self.tokens += ticket.tokens
        self._by_size.extend(ticket.waiting)
        self._by_size.sort(key=_order)  # Mostly in order already, which sorting makes use of.

    def discard(self, ticket: Ticket) -> None:
        """Takes out the pieces of a call that still wait."""
        if self._turns.pop(ticket, ticket) is ticket:
            return
        self._by_size = [waiting for waiting in self._by_size if waiting.ticket is not ticket]
        self.tokens -= ticket.tokens
        ticket.tokens = 0
        ticket.waiting.clear()

    def before(self, tokens: int, batch_tokens: int) -> int:
        """Returns the tokens of others that are computed before a new call of so many is done, about."""
        turns = -(-tokens // batch_tokens)
        return sum(min(ticket.tokens, turns * batch_tokens) for ticket in self._turns)

    def batch(self, max_tokens: int, max_pieces: int) -> list[Waiting]:
        """Takes out the next batch, smallest piece first; empty when none waits.

        Args:
            max_tokens: Padding included; a piece that is larger gets a batch of its own.
            max_pieces: At least 1.
        """
        if not self:
            return []
        ticket = next(iter(self._turns))
        first = next(iter(ticket.waiting))
        start = bisect.bisect_left(self._by_size, first.order, key=_order)
        end = start + 1
        while end - start < max_pieces and (side := self._nearest(start, end, max_tokens)) is not None:
            start, end = (start - 1, end) if side < start else (start, end + 1)
        taken = self._take(start, end)
        if ticket in self._turns:  # Its next turn comes after everyone else's.
            self._turns[ticket] = self._turns.pop(ticket)
        return taken

    def _nearest(self, start: int, end: int, max_tokens: int) -> int | None:
        """Returns the place beside a batch whose piece fits best, or None when neither does."""
        sizes = self._by_size
        count, longest = end - start + 1, sizes[end - 1].piece.size
        below = start - 1 if start and count * longest <= max_tokens else None
        above = end if end < len(sizes) and count * sizes[end].piece.size <= max_tokens else None
        if below is None or above is None:
            return above if below is None else below
        shorter, longer = longest - sizes[below].piece.size, sizes[above].piece.size - longest
        # A longer piece pads all of the others, a shorter one only itself.
        return below if shorter <= longer * (count - 1) else above

    def _take(self, start: int, end: int) -> list[Waiting]:
        taken = self._by_size[start:end]
        del self._by_size[start:end]
        for waiting in taken:
            ticket, size = waiting.ticket, waiting.piece.size
            self.tokens -= size
            ticket.tokens -= size
            del ticket.waiting[waiting]
            if not ticket.waiting:
                del self._turns[ticket]
        return taken


_order = attrgetter("order")
