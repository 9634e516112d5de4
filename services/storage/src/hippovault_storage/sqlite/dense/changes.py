"""What was written and is not in the indexes yet: a search looks at all of it.

So a write waits for no index, and the indexes take in many at once. Changes are told before the commit, and stay until
no reader is left whose moment came before the indexes had them: what one change wrote and the next replaced is in none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import apsw

from hippovault_storage.sqlite.dense.namespace import GRACE_SECONDS


@dataclass(frozen=True)
class Change:
    """What one or more transactions changed, or would have if they had been committed."""

    memories: frozenset[int]
    """Whose row of hippo_memories is another one."""
    vectors: frozenset[int]
    """New rows of hippo_vectors."""
    taken_in: float = math.inf
    """When the indexes had it, by the monotonic clock."""


class Changes:
    """The changes, noted and taken by the writer's thread alone; read by any, through `since`."""

    def __init__(self) -> None:
        self._memories: set[int] = set()
        self._vectors: set[int] = set()
        self._told: tuple[Change, ...] = ()
        self._taken = 0
        """How many of those told, the first, are in the indexes."""
        self.waiting = 0
        """How many rows are in no index."""

    def note(self, kind: int, database: str, table: str, row_id: int) -> None:  # noqa: ARG002  # SQLite gives them.
        """Takes note of a row that is being changed."""
        if table == "hippo_memories":
            self._memories.add(row_id)
        elif table == "hippo_vectors" and kind == apsw.SQLITE_INSERT:
            self._vectors.add(row_id)

    def tell(self) -> None:
        """Lets searches see what was noted. To tell of what is rolled back later is no harm."""
        if self._memories or self._vectors:
            self._told = (*self._told, Change(frozenset(self._memories), frozenset(self._vectors)))
            self.waiting += len(self._memories) + len(self._vectors)
            self._memories, self._vectors = set(), set()

    def all_waiting(self, missed: Iterable[int]) -> Change:
        """Returns what is in no index, and memories that one missed."""
        return _joined([*self._told[self._taken :], Change(frozenset(missed), frozenset())])

    def taken(self, change: Change) -> None:
        """Notes that the indexes have what was waiting, and that what they found before is found no more."""
        now = time.monotonic()
        kept = [before for before in self._told[: self._taken] if before.taken_in >= now - GRACE_SECONDS]
        self._told = (*kept, Change(change.memories, change.vectors, now))
        self._taken, self.waiting = len(self._told), 0

    def since(self, moment: float) -> Change:
        """Returns what was changed and perhaps is in no index, or was replaced before one had it.

        To be called before an index is looked at, which may take in meanwhile what is waiting.

        Args:
            moment: A time by the monotonic clock, no later than the beginning of what the caller reads.
        """
        return _joined([*takewhile(lambda change: change.taken_in >= moment, reversed(self._told))])


def _joined(changes: Sequence[Change]) -> Change:
    return Change(
        frozenset().union(*(change.memories for change in changes)),
        frozenset().union(*(change.vectors for change in changes)),
    )
