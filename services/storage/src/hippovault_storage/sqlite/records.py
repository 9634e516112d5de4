"""A stored memory as the contract has it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_storage import times
from hippovault_storage.sqlite import identity, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import Place, Value, Vault

Memory = memory_pb2.Memory
Columns = dict[str, str | float | None]
SealedColumns = dict[str, Value | float]

# vec0 keeps its row ids in this table; vec0 itself would read the vector too.
PENDING = "NOT EXISTS (SELECT 1 FROM memory_embeddings_rowids e WHERE e.rowid = h.memory_id)"
"""Whether the dense arm cannot find a memory `h`: its vectors are to come, or another program wrote it without."""

SELECT = (
    "SELECT h.memory_id, h.namespace, m.content, h.content_hash, h.category, h.key, m.tags, h.hints, h.memory_type, "
    "h.importance, iif(h.has_metadata, m.metadata, NULL), h.created_at, coalesce(h.updated_at, h.created_at), "
    "h.deleted_at, h.version, h.model_revision, h.status, "
    f"{PENDING}, "
    "h.surprise, h.embedding_outlier, h.engagement, h.explicit, h.prediction_loss, h.scoring_version "
    "FROM hippo_memories h JOIN memories m ON m.id = h.memory_id"
)
"""Rows for `fill`; goes before a WHERE over `h` and `m`."""

SURPRISE = 18
"""Where a row's columns of the surprise begin."""

NO_HINTS = "[]"

SEALED = ("content", "tags", "metadata", "hints")
"""Columns whose values a vault seals."""

DIGESTED = ("content_hash",)
"""Columns that hold a vault's digest of what is looked up."""

SIZE = (
    "octet_length(m.content) + coalesce(octet_length(m.metadata), 0) + coalesce(octet_length(m.tags), 0) + "
    "octet_length(h.hints) + octet_length(h.namespace || h.category || h.key || h.memory_type || h.status) + "
    "octet_length(h.model_revision) + 256"
)
"""About the bytes of a memory in an answer, for `fitting`."""

BEFORE_ALL = -(2**63)
"""An id that is before all others: SQLite takes negative ones, and another program may have given them."""
NEXT_IDS = "SELECT memory_id FROM hippo_memories WHERE memory_id > ? ORDER BY memory_id LIMIT ?"


def fill(vault: Vault, memory: Memory, row: tuple[Any, ...]) -> None:
    """Writes a row of SELECT into a new message.

    A search reads hundreds: setting a message's fields where it lies costs a third of constructing it from keywords.
    """
    (
        memory.id, memory.namespace, content, content_hash, memory.category, memory.key, tags, hints,
        memory.memory_type, importance, metadata, created_at, updated_at, deleted_at, memory.version,
        memory.model_revision, memory.status, pending,
    ) = row[:SURPRISE]  # fmt: skip
    where = place(memory)
    memory.content = vault.open(where, "content", content)
    memory.content_hash = identity.content_hash(memory.content) if vault.seals else content_hash
    memory.tags.extend(split_tags(vault.open(where, "tags", tags)))
    memory.hints.extend(read_hints(vault, where, hints))
    memory.metadata = vault.open(where, "metadata", metadata)
    memory.pending = bool(pending)
    if importance is not None:
        memory.importance = importance
    times.fill(memory.created_at, created_at)
    times.fill(memory.updated_at, updated_at)
    if deleted_at is not None:
        times.fill(memory.deleted_at, deleted_at)
    if row[SURPRISE] is not None:
        _fill_surprise(memory.surprise, row[SURPRISE:])


def memory(vault: Vault, row: tuple[Any, ...]) -> Memory:
    """Returns the memory of a row of SELECT."""
    result = Memory()
    fill(vault, result, row)
    return result


def as_read(memory: Memory) -> Memory:
    """Brings a memory that was just written to the form in which a read returns it, without reading it."""
    memory.content_hash = identity.content_hash(memory.content)
    for moment in (memory.created_at, memory.updated_at):
        times.fill(moment, times.seconds(moment))
    if memory.HasField("surprise"):
        memory.surprise.components.SetInParent()
    return memory


def one(connection: Connection, memory_id: int) -> Memory:
    """Returns the memory of an id that is known to exist."""
    return memory(connection.vault, query.rows(connection, f"{SELECT} WHERE h.memory_id = ?", (memory_id,))[0])


def rows(connection: Connection, ids: Iterable[int]) -> list[tuple[Any, ...]]:
    """Returns the rows of ids that are known to exist, in no particular order."""
    return query.rows(connection, f"{SELECT} WHERE h.memory_id IN (SELECT value FROM json_each(?))", (as_json(ids),))


def fitting(sizes: Iterable[tuple[int, int]], total: int = 0) -> list[int]:
    """Returns the first ids whose memories fit into an answer, at least one.

    Args:
        sizes: Ids with their SIZE.
        total: Bytes that the answer has already.
    """
    ids: list[int] = []
    for memory_id, size in sizes:
        total += size
        if ids and total > MAX_ANSWER_BYTES:
            break
        ids.append(memory_id)
    return ids


def derived(memory: Memory) -> Columns:
    """Returns the columns of ours that repeat what the drop-in row has, so that reading need not parse it."""
    surprise, parts = memory.surprise, memory.surprise.components
    scored = memory.HasField("surprise")
    return {
        "content_hash": identity.content_hash(memory.content),
        "memory_type": memory.memory_type,
        "has_metadata": bool(memory.metadata),
        "surprise": surprise.score if scored else None,
        "embedding_outlier": parts.embedding_outlier if scored else None,
        "engagement": parts.engagement if scored else None,
        "explicit": parts.explicit if scored else None,
        "prediction_loss": parts.prediction_loss if parts.HasField("prediction_loss") else None,
        "scoring_version": surprise.version if scored else None,
    }


def place(memory: Memory) -> Place:
    """Returns what the sealed values of a memory belong to."""
    return Place(memory.namespace, memory.category, memory.key, memory.version, memory.id)


def is_empty(column: str, value: Value | float) -> bool:
    """Tells whether a column that may be sealed has nothing in it, which is written as it is."""
    return value is None or (column == "hints" and value == NO_HINTS)


def sealed(vault: Vault, memory: Memory, columns: Columns) -> SealedColumns:
    """Returns columns of a memory as the file holds them."""
    if not vault.seals:
        return {**columns}
    where, result = place(memory), SealedColumns(columns)
    for name in columns.keys() & SEALED:
        if not is_empty(name, columns[name]):
            result[name] = vault.seal(where, name, cast("str | None", columns[name]))
    for name in columns.keys() & DIGESTED:
        result[name] = vault.digest(cast("str", columns[name]))
    return result


def has_vector(connection: Connection, memory_id: int) -> bool:
    """Tells whether the dense arm can find the memory; another program may have written it without a vector."""
    # vec0 keeps its row ids in this table; vec0 itself reads the vector too.
    there = "SELECT EXISTS(SELECT 1 FROM memory_embeddings_rowids WHERE rowid = ?)"
    return bool(query.value(connection, there, (memory_id,)))


def as_json(ids: Iterable[int]) -> str:
    """Returns ids as one parameter, for `json_each`."""
    return json.dumps(list(ids))


def split_tags(tags: str | None) -> list[str]:
    """Returns the tags of the drop-in table's column, which separates them by commas."""
    if not tags:
        return []
    return list(dict.fromkeys([tag for part in tags.split(",") if (tag := part.strip())]))


def join_tags(tags: Iterable[str]) -> str | None:
    """Returns the column for tags, which have no comma; NULL for none, as other programs write it."""
    return ",".join(tags) or None


def join_hints(hints: Sequence[str]) -> str:
    """Returns our column for hints."""
    return json.dumps(list(hints), ensure_ascii=False) if hints else NO_HINTS


def read_hints(vault: Vault, where: Place, hints: Value) -> Iterable[str]:
    """Returns the hints of our column, a JSON array."""
    return json.loads(vault.open(where, "hints", hints, table="hippo_memories")) if hints != NO_HINTS else ()


def _fill_surprise(surprise: memory_pb2.Surprise, columns: tuple[Any, ...]) -> None:
    parts = surprise.components
    (
        surprise.score, parts.embedding_outlier, parts.engagement, parts.explicit, prediction_loss, surprise.version,
    ) = columns  # fmt: skip
    if prediction_loss is not None:
        parts.prediction_loss = prediction_loss
