"""The index of one large namespace: codes of most entries, and the vectors of the newest.

Every entry stays as it is. A memory that changes gets new entries and its old ones die, but a reader still finds what
died after the moment that it reads. What it finds is looked at in SQL, of that moment: the index may find too much,
never too little.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hippovault_storage.sqlite.dense.codes import Codes, Mask, Slots
from hippovault_storage.sqlite.dense.columns import Columns, Wanted
from hippovault_storage.sqlite.dense.depth import usual
from hippovault_storage.sqlite.distances import Vector

GRACE_SECONDS = 10.0
"""How long the dead are kept: longer than it takes a reader from its moment to its look at the index."""

TAIL_SHARE = 64
"""The tail is compacted when it has that part of the codes' number, within the bounds below."""
MIN_TAIL = 512
MAX_TAIL = 8_192

WIDE = 4
"""A filter that lets through one entry of so many, or more, is applied to what is found; a narrower one within."""

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """An index at one moment: readers keep the one that they took."""

    codes: Codes
    base: Columns
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

    def candidates(self, to: Vector, wanted: Wanted, depth: int, moment: float) -> tuple[Slots, bool]:
        """Returns ids of the vectors that seem nearest, about `depth` of the base and of the tail each.

        Args:
            to: What they are near to.
            wanted: What the filter lets through.
            depth: How many.
            moment: A time by the monotonic clock, no later than the beginning of what the reader reads.

        Returns:
            The ids, and whether there are no others that the filter lets through.
        """
        found, all_of_base = self._in_base(to, wanted, depth, moment)
        newest, all_of_tail = self._in_tail(to, wanted, depth, moment)
        ids = np.concatenate([self.base.values["vector_id"][found], self.tail.values["vector_id"][newest]])
        return ids, all_of_base and all_of_tail

    def living(self) -> int:
        """Returns how many entries live."""
        return len(self) - self.base_dead - _dead(self.tail_died[: len(self.tail)])

    def _in_base(self, to: Vector, wanted: Wanted, depth: int, moment: float) -> tuple[Slots, bool]:
        mask = wanted.mask(self.base)
        if mask is None and self.base_dead <= depth:
            slots = self.codes.search(to, depth + self.base_dead)
            return slots[self.base_died[slots] >= moment], depth + self.base_dead >= len(self.base)
        if mask is None or self.base_dead:
            living = self.base_died >= moment
            mask = living if mask is None else mask & living
        number = int(np.count_nonzero(mask))
        if number <= depth:
            return np.flatnonzero(mask), True
        return self._through(mask, number, to, depth), False

    def _through(self, mask: Mask, number: int, to: Vector, depth: int) -> Slots:
        if number * WIDE >= len(self.base):
            slots = self.codes.search(to, depth * len(self.base) // number + depth // 2)
            slots = slots[mask[slots]][:depth]
            if slots.size * 2 >= depth:
                return slots
        return self.codes.search(to, depth, mask)  # Also where what the filter lets through lies far away.

    def _in_tail(self, to: Vector, wanted: Wanted, depth: int, moment: float) -> tuple[Slots, bool]:
        mask = self.tail_died[: len(self.tail)] >= moment
        if (wanted_here := wanted.mask(self.tail)) is not None:
            mask = mask & wanted_here
        slots = np.flatnonzero(mask)
        if slots.size <= depth:
            return slots, True
        cosines = np.einsum("ij,j->i", self.tail_vectors[slots], to)
        return slots[np.argpartition(-cosines, depth)[:depth]], False


class NamespaceIndex:
    """Changes by the writer's thread alone; read by any, through `view`.

    Args:
        namespace: Whose it is.
        codes: The base's.
        base: In the order of memory ids.
        share: What part of all entries it takes as candidates, see `depth`.
    """

    def __init__(self, namespace: str, codes: Codes, base: Columns, share: float) -> None:
        self.namespace = namespace
        self.trained_at = len(base)
        self._kept_dead = 0
        """Dead entries that the last compaction kept, since readers might find them."""
        self.tail_slots: dict[int, list[int]] = {}
        """Where in the tail each memory has entries."""
        self.view = self._view(codes, base, share)

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
        new = type(self)(self.namespace, compacted.codes, compacted.columns, view.share)
        new.add(view.tail.taken(rest), view.tail_vectors[rest])
        new.view.tail_died[: rest.size] = view.tail_died[rest]
        self.tail_slots = new.tail_slots
        self._kept_dead = _dead(died)
        self.view = replace(new.view, base_died=died, base_dead=self._kept_dead)

    @staticmethod
    def _view(codes: Codes, base: Columns, share: float) -> View:
        nothing = base.taken(np.empty(0, np.int64))
        return View(
            codes,
            base,
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
    order: Slots
    """Which of the entries of the old base and tail, one after the other, it has."""

    @classmethod
    def of(cls, view: View) -> Self:
        """Makes it; the view's index goes on meanwhile."""
        size = len(view.tail)
        died = np.concatenate([view.base_died, view.tail_died[:size]])
        order = np.flatnonzero(died > time.monotonic() - GRACE_SECONDS)
        ids = np.concatenate([part.values["memory_id"] for part in (view.base, view.tail)])
        order = order[np.argsort(ids[order], kind="stable")]
        columns = Columns.joined([view.base, view.tail], order)
        return cls(view.codes.rearranged(view.tail_vectors[:size], order), columns, order)


def _dead(died: Times) -> int:
    return int(np.count_nonzero(died < np.inf))


def _grown(array: npt.NDArray[Any], used: int, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    grown = np.empty(shape, array.dtype)
    grown[:used] = array[:used]
    return grown
