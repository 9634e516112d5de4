"""The one scope predicate: which memories a search, a list or a summary may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault_storage import times
from hippovault_storage.vault import Vault

VISIBLE = {
    memory_pb2.VISIBILITY_UNSPECIFIED: "h.deleted_at IS NULL",
    memory_pb2.VISIBILITY_LIVE: "h.deleted_at IS NULL",
    memory_pb2.VISIBILITY_DELETED: "h.deleted_at IS NOT NULL",
    memory_pb2.VISIBILITY_ALL: "TRUE",
}
"""Conditions on `hippo_memories h`."""

TAGGED = "h.memory_id IN (SELECT memory_id FROM hippo_tags WHERE tag {})"
TAGGED_ONE_BY_ONE = "+EXISTS (SELECT 1 FROM hippo_tags t WHERE t.tag {{}} AND t.memory_id = {one_by_one})"
"""With the sign SQLite makes no join of it, which it would put last: so tags are looked at before any row of
hippo_memories where another table tells the ids."""
IN_SCOPE = """
SELECT h.memory_id, h.created_at FROM carray(?) c CROSS JOIN hippo_memories h ON h.memory_id = c.value WHERE {scope}
"""
"""Which of some memories are in a scope."""


@dataclass(frozen=True)
class Scope:
    """A condition on `hippo_memories h`."""

    condition: str
    parameters: tuple[apsw.SQLiteValue, ...]


def live(vault: Vault, namespace: str, conditions: memory_pb2.Filter, *, one_by_one: str = "") -> Scope:
    """Returns the live memories of a namespace for which every given condition of the filter holds.

    Args:
        vault: Knows what stands for a tag.
        namespace: Of the memories.
        conditions: Of a request.
        one_by_one: As for `visible`.
    """
    return visible(vault, namespace, conditions, memory_pb2.VISIBILITY_LIVE, one_by_one=one_by_one)


def visible(
    vault: Vault,
    namespace: str,
    conditions: memory_pb2.Filter,
    visibility: memory_pb2.Visibility.ValueType,
    *,
    one_by_one: str = "",
) -> Scope:
    """Returns the memories of a namespace that are visible and for which every given condition of the filter holds.

    Args:
        vault: Knows what stands for a tag.
        namespace: Of the memories.
        conditions: Of a request.
        visibility: Whether the live are seen, the deleted or both.
        one_by_one: The column of the ids, where the memories are found otherwise and each is looked at: then a tag that
            many have costs no more than one that few have.
    """
    tagged = TAGGED_ONE_BY_ONE.format(one_by_one=one_by_one) if one_by_one else TAGGED
    parts: list[str] = ["h.namespace = ?", VISIBLE[visibility]]
    parameters: list[apsw.SQLiteValue] = [namespace]

    def add(condition: str, *values: apsw.SQLiteValue) -> None:
        parts.append(condition)
        parameters.extend(values)

    if conditions.tags_any:
        add(tagged.format(f"IN {_marks(conditions.tags_any)}"), *map(vault.digest, conditions.tags_any))
    for tag in conditions.tags_all:
        add(tagged.format("= ?"), vault.digest(tag))
    if conditions.memory_types:
        add(f"h.memory_type IN {_marks(conditions.memory_types)}", *conditions.memory_types)
    if conditions.categories:
        add(f"h.category IN {_marks(conditions.categories)}", *conditions.categories)
    if conditions.statuses:
        add(f"h.status IN {_marks(conditions.statuses)}", *conditions.statuses)
    if conditions.HasField("created_since"):
        add("h.created_at >= ?", times.seconds(conditions.created_since))
    if conditions.HasField("created_before"):
        add("h.created_at < ?", times.seconds(conditions.created_before))
    return Scope(" AND ".join(parts), tuple(parameters))


def _marks(values: Sequence[str]) -> str:
    return f"({', '.join('?' * len(values))})"
