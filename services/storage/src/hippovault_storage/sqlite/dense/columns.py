"""What filters look at, of every entry of an index, and a filter in the same terms.

Texts stand as hashes. Two may have the same one, so a filter lets through a little more than it should; what is found
is looked at again in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hippovault.memory.v1 import memory_pb2
from hippovault_storage import times
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.codes import Codes, Mask, Slots
from hippovault_storage.sqlite.vectors import FLOAT16
from hippovault_storage.vault import Vault

Array = npt.NDArray[Any]

ENTRIES = """
SELECT v.id, h.memory_id, h.created_at, h.memory_type, h.category, h.status,
    (SELECT group_concat(t.tag, ',') FROM hippo_tags t WHERE t.memory_id = h.memory_id), v.vector, h.namespace
FROM carray(?) c CROSS JOIN hippo_memories h ON h.memory_id = c.value
CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
WHERE h.deleted_at IS NULL
"""
VECTOR, NAMESPACE = 7, 8
"""Where a row of ENTRIES has these."""

MAX_KEPT = 8
"""Filters of which is kept what they let through: a store is asked with few."""

TEXTS = ("memory_type", "category", "status")
COLUMNS = {"vector_id": "i8", "memory_id": "i8", "created_at": "f8", **dict.fromkeys(TEXTS, "u4")}


@dataclass
class Chosen:
    """Which entries a filter may let through."""

    mask: Mask
    """Not to be changed."""
    number: int
    again: bool = False
    """Whether it was asked for before."""
    apart: tuple[Slots, Codes] | None = None
    """Places and codes of those entries alone."""


@dataclass(frozen=True)
class Columns:
    """Entries: a vector each, with what its memory has."""

    values: dict[str, Array]
    """COLUMNS, an item an entry."""
    tags: npt.NDArray[np.uint32]
    tagged: Slots
    """The entry that has the tag at the same place."""
    chosen: dict[bytes, Chosen] = field(default_factory=dict)
    """Of filters that were asked for before."""

    def __len__(self) -> int:
        """Returns how many entries there are."""
        return self.values["vector_id"].size

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> Self:
        """Returns the columns of rows of ENTRIES."""
        values = {}
        for place, (name, kind) in enumerate(COLUMNS.items()):
            column: Iterable[Any] = (row[place] for row in rows)
            values[name] = np.fromiter(map(_hash, column) if name in TEXTS else column, kind, len(rows))
        tags = [(_hash(tag), slot) for slot, row in enumerate(rows) if row[6] for tag in row[6].split(",")]
        return cls(
            values,
            np.fromiter((tag for tag, _ in tags), np.uint32, len(tags)),
            np.fromiter((slot for _, slot in tags), np.int64, len(tags)),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self], order: Slots | None = None) -> Self:
        """Returns the entries of all parts, one after the other.

        Args:
            parts: At least one.
            order: Which of them, in turn; None for all.
        """
        starts = np.cumsum([0, *(len(part) for part in parts)])
        tags = np.concatenate([part.tags for part in parts])
        tagged = np.concatenate([part.tagged + start for part, start in zip(parts, starts, strict=False)])
        if order is not None:
            places = np.full(starts[-1], -1, np.int64)
            places[order] = np.arange(order.size)
            tagged = places[tagged]
            tags, tagged = tags[tagged >= 0], tagged[tagged >= 0]
        chosen = slice(None) if order is None else order
        # Column by column, so that no more than one is there in both forms.
        return cls(
            {name: np.concatenate([part.values[name] for part in parts])[chosen] for name in COLUMNS}, tags, tagged
        )

    def taken(self, order: Slots) -> Self:
        """Returns entries in another order, which may leave some out."""
        return self.joined([self], order)


class Wanted:
    """A filter.

    Args:
        vault: Knows what stands for a tag.
        conditions: The filter.
    """

    def __init__(self, vault: Vault, conditions: memory_pb2.Filter) -> None:
        named = {
            "memory_type": conditions.memory_types,
            "category": conditions.categories,
            "status": conditions.statuses,
        }
        self._name = conditions.SerializeToString(deterministic=True)
        self._texts = [(column, [_hash(name) for name in names]) for column, names in named.items() if names]
        any_of = [_hash(vault.digest(tag)) for tag in conditions.tags_any]
        self._tags = [[_hash(vault.digest(tag))] for tag in conditions.tags_all] + ([any_of] if any_of else [])
        self._since = times.seconds(conditions.created_since) if conditions.HasField("created_since") else None
        self._before = times.seconds(conditions.created_before) if conditions.HasField("created_before") else None

    def chosen(self, columns: Columns) -> Chosen | None:
        """Returns which entries the filter may let through; None for all."""
        if not self._name:
            return None
        chosen = columns.chosen.get(self._name)
        if chosen is None:
            mask = self._mask(columns)
            chosen = Chosen(mask, int(np.count_nonzero(mask)))
            if len(columns.chosen) >= MAX_KEPT:
                columns.chosen.clear()
            columns.chosen[self._name] = chosen
        else:
            chosen.again = True
        return chosen

    def _mask(self, columns: Columns) -> Mask:
        created_at = columns.values["created_at"]
        parts: list[Mask] = [_is_any(columns.values[name], hashes) for name, hashes in self._texts]
        if self._since is not None:
            parts.append(created_at >= self._since)
        if self._before is not None:
            parts.append(created_at < self._before)
        for hashes in self._tags:
            tagged = np.zeros(len(columns), np.bool_)
            tagged[columns.tagged[_is_any(columns.tags, hashes)]] = True
            parts.append(tagged)
        mask: Mask = np.logical_and.reduce(parts)
        return mask


def read(connection: Connection, ids: Slots) -> list[tuple[Any, ...]]:
    """Returns rows of ENTRIES for the vectors of live memories."""
    return query.rows_of(connection, ENTRIES, ids)


def matrix(rows: Sequence[tuple[Any, ...]], dimensions: int) -> npt.NDArray[np.float32]:
    """Returns the vectors of rows of ENTRIES, a row each."""
    return np.frombuffer(b"".join(row[VECTOR] for row in rows), FLOAT16).reshape(-1, dimensions).astype(np.float32)


def _is_any(column: Array, hashes: Sequence[int]) -> Mask:
    found: Mask = column == np.uint32(hashes[0])
    for value in hashes[1:]:
        found |= column == np.uint32(value)
    return found


def _hash(text: str) -> int:
    return hash(text) & 0xFFFFFFFF
