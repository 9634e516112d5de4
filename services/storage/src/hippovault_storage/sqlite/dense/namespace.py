"""The index of one large namespace: codes of most entries, and the vectors of the newest.

Every entry stays as it is. A memory that changes gets new entries and its old ones die, but a reader still finds what
died after the moment that it reads. What it finds is looked at in SQL, of that moment: the index may find too much,
never too little.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hippovault_storage.sqlite.dense.codes import Codes, Slots
from hippovault_storage.sqlite.dense.columns import Chosen, Columns, Wanted
from hippovault_storage.sqlite.dense.depth import usual
from hippovault_storage.sqlite.distances import Halves, Vector, between
from hippovault_storage.sqlite.vectors import FLOAT16

GRACE_SECONDS = 10.0
"""How long the dead are kept: longer than it takes a reader from its moment to its look at the index."""

TAIL_SHARE = 64
"""The tail is compacted when it has that part of the codes' number, within the bounds below."""
MIN_TAIL = 512
MAX_TAIL = 8_192

MAX_APART = 65_536
"""Entries that a filter lets through, of which the codes are kept apart, to be searched alone."""
WIDE = 4
"""A filter that lets through one entry of so many, or more, and was not asked for before, is applied to what is found:
it takes a search's time to set so many codes apart."""
FURTHER = 8
"""How many times more is looked at where what a wide filter lets through lies far away."""

Times = npt.NDArray[np.float64]


class Candidates(NamedTuple):
    """Vectors that may be the nearest."""

    ids: Slots
    floor: float
    """The nearest of those that were compared and left out has this cosine; minus infinity where there is none."""
    complete: bool
    """Whether there are no others that the filter lets through."""


@dataclass(frozen=True)
class View:
    """An index at one moment: readers keep the one that they took."""

    codes: Codes
    base: Columns
    base_vectors: Halves | None
    """A copy of those that live, zeros for the others; None where memory has no room for it."""
    base_died: Times
    """When each entry of the base died, by the monotonic clock; infinity for the living."""
    base_dead: int
    """How many have."""
    tail: Columns
    tail_vectors: npt.NDArray[np.float32]
    """Has room for more than the tail's entries; so has the next."""
    tail_died: Times
    share: float
    """What part of all entries it takes as candidates, see `depth`."""

    def __len__(self) -> int:
        """Returns how many entries there are, dead ones included."""
        return len(self.base) + len(self.tail)

    @property
    def depth(self) -> int:
        """How many candidates it takes to find the ten nearest."""
        return max(usual(len(self)), round(self.share * len(self)))

    def candidates(self, to: Vector, wanted: Wanted, depth: int, enough: int, moment: float) -> Candidates:
        """Returns the vectors that seem nearest, about `depth` of the base and of the tail each.

        Where the vectors are at hand, those are compared, and only the nearest of them returned.

        Args:
            to: What they are near to.
            wanted: What the filter lets through.
            depth: How many.
            enough: How many memories of those that were compared; beside them are returned those that died meanwhile.
            moment: A time by the monotonic clock, no later than the beginning of what the reader reads.
        """
        found, all_of_base = self._in_base(to, wanted, depth, moment)
        newest, floor = self._in_tail(to, wanted, depth, moment)
        ids = np.concatenate([self.base.values["vector_id"][found], self.tail.values["vector_id"][newest]])
        whole = Candidates(ids, floor, complete=all_of_base and floor == -np.inf)
        if self.base_vectors is None or ids.size <= enough:
            return whole
        cosines = np.concatenate([between(to, self.base_vectors[found]), between(to, self.tail_vectors[newest])])
        # Looked at after the vectors, which go when they die: then SQL tells whether they are among the nearest.
        dead = np.concatenate([self.base_died[found], self.tail_died[newest]]) < np.inf
        cosines[dead] = -np.inf
        order = np.argsort(-cosines)
        memories = np.concatenate([self.base.values["memory_id"][found], self.tail.values["memory_id"][newest]])
        firsts = np.sort(np.unique(memories[order], return_index=True)[1])
        if firsts.size <= enough:
            return whole
        end = firsts[enough]
        returned = dead
        returned[order[:end]] = True
        return Candidates(ids[returned], max(floor, float(cosines[order[end]])), complete=False)

    def living(self) -> int:
        """Returns how many entries live."""
        return len(self) - self.base_dead - _dead(self.tail_died[: len(self.tail)])

    def _in_base(self, to: Vector, wanted: Wanted, depth: int, moment: float) -> tuple[Slots, bool]:
        chosen = wanted.chosen(self.base)
        if chosen is None:
            slots, complete = self.codes.search(to, depth + self.base_dead), depth + self.base_dead >= len(self.base)
        elif chosen.apart or not self._is_wide(chosen):
            slots, complete = self._apart(chosen, to, depth, moment)
        else:
            slots, complete = self._through(chosen, to, depth, moment)
        return slots[self.base_died[slots] >= moment], complete

    def _is_wide(self, chosen: Chosen) -> bool:
        return chosen.number > MAX_APART or (0 < len(self.base) <= chosen.number * WIDE and not chosen.again)

    def _through(self, chosen: Chosen, to: Vector, depth: int, moment: float) -> tuple[Slots, bool]:
        """Searches all, and drops what the filter does not let through."""
        for further in (1, FURTHER):
            reach = further * (depth * len(self.base) // chosen.number + depth // 2 + self.base_dead)
            slots = self.codes.search(to, reach)
            slots = slots[chosen.mask[slots]][: depth + self.base_dead]
            if slots.size * 2 >= depth:
                return slots, False
        return self._apart(chosen, to, depth, moment)  # What the filter lets through lies far away.

    def _apart(self, chosen: Chosen, to: Vector, depth: int, moment: float) -> tuple[Slots, bool]:
        """Searches what the filter lets through, alone."""
        slots, codes = apart = chosen.apart or self._set_apart(chosen)
        if chosen.number <= MAX_APART:
            chosen.apart = apart
        reach = depth
        if self.base_dead:
            reach += int(np.count_nonzero(self.base_died[slots] < moment))
        return (slots, True) if reach >= slots.size else (slots[codes.search(to, reach)], False)

    def _set_apart(self, chosen: Chosen) -> tuple[Slots, Codes]:
        slots = np.flatnonzero(chosen.mask)
        return slots, self.codes.taken(slots)

    def _in_tail(self, to: Vector, wanted: Wanted, depth: int, moment: float) -> tuple[Slots, float]:
        mask = self.tail_died[: len(self.tail)] >= moment
        if (chosen := wanted.chosen(self.tail)) is not None:
            mask = mask & chosen.mask
        slots = np.flatnonzero(mask)
        if slots.size <= depth:
            return slots, -np.inf
        cosines = np.einsum("ij,j->i", self.tail_vectors[slots], to)
        order = np.argpartition(-cosines, depth)
        return slots[order[:depth]], float(cosines[order[depth]])


class NamespaceIndex:
    """Changes by the writer's thread alone; read by any, through `view`.

    Args:
        namespace: Whose it is.
        codes: The base's.
        base: In the order of memory ids.
        vectors: The base's; None where memory has no room for them.
        share: What part of all entries it takes as candidates, see `depth`.
    """

    def __init__(self, namespace: str, codes: Codes, base: Columns, vectors: Halves | None, share: float) -> None:
        self.namespace = namespace
        self.trained_at = len(base)
        self._kept_dead = 0
        """Dead entries that the last compaction kept, since readers might find them."""
        self.tail_slots: dict[int, list[int]] = {}
        """Where in the tail each memory has entries."""
        self.view = self._view(codes, base, vectors, share)

    @property
    def is_full(self) -> bool:
        """Whether it is time to compact."""
        view = self.view
        room = min(max(len(view.base) // TAIL_SHARE, MIN_TAIL), MAX_TAIL)
        return len(view.tail) >= room or view.base_dead - self._kept_dead > room

    def add(self, columns: Columns, vectors: npt.NDArray[np.float32]) -> None:
        """Adds entries."""
        view, start = self.view, len(self.view.tail)
        end = start + len(columns)
        if end > view.tail_died.size:
            size = max(2 * view.tail_died.size, end)
            view = replace(
                view,
                tail_vectors=_grown(view.tail_vectors, start, (size, vectors.shape[1])),
                tail_died=_grown(view.tail_died, start, (size,)),
            )
        view.tail_vectors[start:end] = vectors
        view.tail_died[start:end] = np.inf
        for slot, memory_id in enumerate(columns.values["memory_id"].tolist(), start):
            self.tail_slots.setdefault(memory_id, []).append(slot)
        self.view = replace(view, tail=Columns.joined([view.tail, columns]))

    def bury(self, ids: Iterable[int], before: int) -> None:
        """Lets memories' entries die, but for those in the tail from a place on.

        Args:
            ids: The memories.
            before: The place.
        """
        view, now = self.view, time.monotonic()
        wanted = np.fromiter(ids, np.int64)
        ordered, died = view.base.values["memory_id"], 0
        starts, ends = (np.searchsorted(ordered, wanted, side) for side in ("left", "right"))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            living = view.base_died[start:end] == np.inf
            view.base_died[start:end][living] = now
            if view.base_vectors is not None:
                view.base_vectors[start:end] = 0
            died += int(np.count_nonzero(living))
        in_tail = [
            slot for memory_id in wanted.tolist() for slot in self.tail_slots.get(memory_id, ()) if slot < before
        ]
        view.tail_died[in_tail] = np.minimum(view.tail_died[in_tail], now)
        if died:
            self.view = replace(view, base_dead=view.base_dead + died)

    def take_over(self, old: View, compacted: Compacted) -> None:
        """Goes on with a compacted base, which was made of an older view."""
        view = self.view
        if view.codes is not old.codes:
            return  # Done.
        rest = np.arange(len(old.tail), len(view.tail))
        died = np.concatenate([view.base_died, view.tail_died[: len(old.tail)]])[compacted.order]
        if compacted.vectors is not None:
            compacted.vectors[died < np.inf] = 0
        new = type(self)(self.namespace, compacted.codes, compacted.columns, compacted.vectors, view.share)
        new.add(view.tail.taken(rest), view.tail_vectors[rest])
        new.view.tail_died[: rest.size] = view.tail_died[rest]
        self.tail_slots = new.tail_slots
        self._kept_dead = _dead(died)
        self.view = replace(new.view, base_died=died, base_dead=self._kept_dead)

    @staticmethod
    def _view(codes: Codes, base: Columns, vectors: Halves | None, share: float) -> View:
        nothing = base.taken(np.empty(0, np.int64))
        return View(
            codes,
            base,
            vectors,
            np.full(len(base), np.inf),
            0,
            nothing,
            np.empty((0, codes.dimensions), np.float32),
            np.empty(0),
            share,
        )


@dataclass(frozen=True)
class Compacted:
    """A new base of an older view's base and tail, without their dead."""

    codes: Codes
    columns: Columns
    vectors: Halves | None
    order: Slots
    """Which of the entries of the old base and tail, one after the other, it has."""

    @classmethod
    def of(cls, view: View, *, with_vectors: bool) -> Self:
        """Makes it; the view's index goes on meanwhile.

        Args:
            view: The older one.
            with_vectors: Whether memory has room for a copy of the vectors; there is none where there was none.
        """
        size = len(view.tail)
        died = np.concatenate([view.base_died, view.tail_died[:size]])
        order = np.flatnonzero(died > time.monotonic() - GRACE_SECONDS)
        ids = np.concatenate([part.values["memory_id"] for part in (view.base, view.tail)])
        order = order[np.argsort(ids[order], kind="stable")]
        columns = Columns.joined([view.base, view.tail], order)
        newest = view.tail_vectors[:size]
        vectors = None
        if with_vectors and view.base_vectors is not None:
            old = order < len(view.base)
            vectors = np.empty((order.size, newest.shape[1]), FLOAT16)
            vectors[old], vectors[~old] = view.base_vectors[order[old]], newest[order[~old] - len(view.base)]
        return cls(view.codes.rearranged(newest, order), columns, vectors, order)


def _dead(died: Times) -> int:
    return int(np.count_nonzero(died < np.inf))


def _grown(array: npt.NDArray[Any], used: int, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    grown = np.empty(shape, array.dtype)
    grown[:used] = array[:used]
    return grown
