"""Which memory is meant: by content and key, or by a reference."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator

import grpc

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.memory_rules import DEFAULT_NAMESPACE
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.scope import VISIBLE
from hippovault_storage.vault import framed

Memory = memory_pb2.Memory

KINDS = {memory_pb2.VISIBILITY_DELETED: "deleted memory", memory_pb2.VISIBILITY_ALL: "memory"}


@functools.lru_cache(maxsize=1)
def content_hash(content: str) -> str:
    """Returns the lower-case hex SHA-256 of the UTF-8 bytes: the hash that callers see. A write asks several times."""
    return hashlib.sha256(content.encode()).hexdigest()


def row_hashes(memory: memory_pb2.Memory) -> Iterator[str]:
    """Yields what `memories.content_hash` may hold for a memory, the preferred first.

    That column is unique over the file, but two namespaces or two keys may hold the same content. So it holds the
    plain hash, which other programs know, only for a memory of the default namespace without a key; for any other a
    SHA-256 over namespace, category (where it is part of a key's name), key and content, each with its length before
    it so that no two lists of parts give the same bytes. The first falls back to the second where another program has
    put the plain hash to another content (some hash the content in lower case).
    """
    if memory.namespace == DEFAULT_NAMESPACE and not memory.key:
        yield content_hash(memory.content)
    category = memory.category if memory.key else ""
    yield hashlib.sha256(framed(memory.namespace, category, memory.key, memory.content)).hexdigest()


def find(connection: Connection, namespace: str, content: str, category: str, key: str) -> int | None:
    """Returns the id of the memory, live or deleted, that a put of this content and key writes to; None for none.

    With a key, the memory of (namespace, category, key); where there is none, the one without a key that has the same
    content, which gets the key. Without a key, the memory with the same content: a live one before a deleted one, one
    without a key before one with, the lowest id.
    """
    keyed = _keyed(connection, namespace, category, key)
    if keyed is not None:
        return keyed
    found = query.rows(
        connection,
        "SELECT deleted_at IS NOT NULL, key <> '', memory_id FROM hippo_memories "
        "WHERE namespace = ? AND content_hash = ? AND (key = '' OR ?)",
        (namespace, connection.vault.digest(content_hash(content)), not key),
    )
    return int(min(found)[-1]) if found else None  # Sorting one row or none costs SQLite more than finding it.


def same(connection: Connection, memory: memory_pb2.Memory) -> int | None:
    """Returns the id of the memory, live or deleted, that is the same in another store: by key, or without by content.

    Unlike `find`, it takes none with a key for one without, since a store may have both.
    """
    if memory.key:
        return _keyed(connection, memory.namespace, memory.category, memory.key)
    found = query.value(
        connection,
        "SELECT memory_id FROM hippo_memories WHERE namespace = ? AND content_hash = ? AND key = '' "
        "ORDER BY deleted_at IS NOT NULL, memory_id LIMIT 1",
        (memory.namespace, connection.vault.digest(content_hash(memory.content))),
    )
    return None if found is None else int(found)


def check_free(connection: Connection, memory: Memory, stored: Memory) -> None:
    """Looks whether a memory may get the identity that it would have in place of the stored one's.

    Raises:
        ServiceError: ALREADY_EXISTS when another memory, live or deleted, has it.
    """
    if _identity(memory) == _identity(stored):  # Another program may have stored the same content twice.
        return
    holder, field = same(connection, memory), "key" if memory.key else "content"
    if holder is not None:
        raise ServiceError(
            grpc.StatusCode.ALREADY_EXISTS,
            "IDENTITY_TAKEN",
            f"{field}: memory {holder}, {'with this key' if memory.key else 'without a key'}, has it already, live or "
            "deleted; change that one, or purge it first",
            field=field,
        )


def named(
    connection: Connection,
    namespace: str,
    ref: memory_pb2.MemoryRef,
    visibility: memory_pb2.Visibility.ValueType = memory_pb2.VISIBILITY_LIVE,
) -> list[int]:
    """Returns the ids of the visible memories that a reference names, the first being the one that a get returns.

    Only a content hash can name several, which differ by key: live ones come first, then the one without a key, then
    by id.

    Raises:
        ServiceError: NOT_FOUND when it names none.
    """
    kind = ref.WhichOneof("ref")
    condition, parameters = {
        "id": ("h.memory_id = ?", (ref.id,)),
        "content_hash": ("h.content_hash = ?", (connection.vault.digest(ref.content_hash),)),
        "entity": ("h.category = ? AND h.key = ? AND h.key <> ''", (ref.entity.category, ref.entity.key)),
    }[kind or "id"]
    ids = query.column(
        connection,
        f"SELECT h.memory_id FROM hippo_memories h WHERE h.namespace = ? AND {VISIBLE[visibility]} AND {condition} "
        "ORDER BY h.deleted_at IS NOT NULL, h.key <> '', h.memory_id",
        (namespace, *parameters),
    )
    if not ids:
        named = {"id": f"{ref.id} ", "entity": f'"{ref.entity.key}" of the category "{ref.entity.category}" '}
        problem = f'names no {KINDS.get(visibility, "live memory")} of the namespace "{namespace}"'
        raise ServiceError.not_found(f"ref.{kind}", named.get(kind or "", "") + problem)
    return ids


def _identity(memory: Memory) -> tuple[str, ...]:
    return (memory.category, memory.key) if memory.key else (memory.content,)


def _keyed(connection: Connection, namespace: str, category: str, key: str) -> int | None:
    if not key:
        return None
    found = query.value(
        connection,
        "SELECT memory_id FROM hippo_memories WHERE namespace = ? AND category = ? AND key = ? AND key <> ''",
        (namespace, category, key),
    )
    return None if found is None else int(found)
