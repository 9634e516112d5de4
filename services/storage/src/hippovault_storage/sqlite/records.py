"""A stored memory as the contract has it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault_storage import metadata, times
from hippovault_storage.sqlite import query

SELECT = (
    "SELECT h.memory_id, h.namespace, m.content, h.content_hash, h.category, h.key, m.tags, h.hints, h.memory_type, "
    "h.importance, m.metadata, h.created_at, h.updated_at, h.deleted_at, h.version, h.model_revision "
    "FROM hippo_memories h JOIN memories m ON m.id = h.memory_id"
)
"""Rows for `memory`; goes before a WHERE over `h` and `m`."""


NO_HINTS = "[]"


def memory(row: tuple[Any, ...]) -> memory_pb2.Memory:
    """Returns the memory of a row of SELECT."""
    (
        memory_id, namespace, content, content_hash, category, key, tags, hints, memory_type,
        importance, stored_metadata, created_at, updated_at, deleted_at, version, model_revision,
    ) = row  # fmt: skip
    text, surprise = metadata.read(stored_metadata)
    return memory_pb2.Memory(
        id=memory_id,
        namespace=namespace,
        content=content,
        content_hash=content_hash,
        category=category,
        key=key,
        tags=split_tags(tags),
        hints=json.loads(hints) if hints != NO_HINTS else (),
        memory_type=memory_type,
        importance=importance,
        metadata=text,
        created_at=times.timestamp(created_at),
        updated_at=times.timestamp(created_at if updated_at is None else updated_at),
        deleted_at=None if deleted_at is None else times.timestamp(deleted_at),
        surprise=surprise,
        version=version,
        model_revision=model_revision,
    )


def one(connection: apsw.Connection, memory_id: int) -> memory_pb2.Memory:
    """Returns the memory of an id that is known to exist."""
    return memory(query.rows(connection, f"{SELECT} WHERE h.memory_id = ?", (memory_id,))[0])


def many(connection: apsw.Connection, ids: Iterable[int]) -> list[memory_pb2.Memory]:
    """Returns the memories of ids that are known to exist, in no particular order."""
    chosen = f"{SELECT} WHERE h.memory_id IN (SELECT value FROM json_each(?))"
    return [memory(row) for row in query.rows(connection, chosen, (as_json(ids),))]


def has_vector(connection: apsw.Connection, memory_id: int) -> bool:
    """Tells whether the dense arm can find the memory; another program may have written it without a vector."""
    return bool(query.value(connection, "SELECT EXISTS(SELECT 1 FROM memory_embeddings WHERE rowid = ?)", (memory_id,)))


def as_json(ids: Iterable[int]) -> str:
    """Returns ids as one parameter, for `json_each`."""
    return json.dumps(list(ids))


def split_tags(tags: str | None) -> list[str]:
    """Returns the tags of the drop-in table's column, which separates them by commas."""
    trimmed = (tag.strip() for tag in (tags or "").split(","))
    return list(dict.fromkeys(tag for tag in trimmed if tag))


def join_tags(tags: Iterable[str]) -> str | None:
    """Returns the column for tags, which have no comma; NULL for none, as other programs write it."""
    return ",".join(tags) or None
