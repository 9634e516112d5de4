"""Whether what was written is what is read: content and key by their hashes, the rest by what repeats it."""

from __future__ import annotations

from collections.abc import Iterator

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis import deadline
from hippovault_chassis.memory_rules import DEFAULT_NAMESPACE
from hippovault_storage import metadata
from hippovault_storage.sqlite import identity, query, readable, records
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

BATCH = 500
"""Memories read at a time, each batch as of a moment of its own."""
HASHES = """
SELECT h.memory_id, h.content_hash, m.content_hash FROM hippo_memories h JOIN memories m ON m.id = h.memory_id
WHERE h.memory_id IN (SELECT value FROM json_each(?))
"""
TAGS = "SELECT memory_id, tag FROM hippo_tags WHERE memory_id IN (SELECT value FROM json_each(?))"


def look(connection: Connection, findings: Findings) -> None:
    """Counts memories."""
    for ids in batches(connection):
        findings.looked_at(len(ids))
        hashes = {memory_id: found for memory_id, *found in query.rows(connection, HASHES, (records.as_json(ids),))}
        for memory_id, memory in readable.each(connection, ids):
            problem = memory if isinstance(memory, str) else _problem(connection, memory, *hashes[memory_id])
            if problem:
                findings.wrong(f"memory {memory_id}: {problem}")


def look_at_tags(connection: Connection, findings: Findings) -> None:
    """Counts memories."""
    digest = connection.vault.digest
    for ids in batches(connection):
        findings.looked_at(len(ids))
        indexed: dict[int, set[str]] = {}
        for memory_id, tag in query.rows(connection, TAGS, (records.as_json(ids),)):
            indexed.setdefault(memory_id, set()).add(tag)
        for memory_id, memory in readable.each(connection, ids):
            if not isinstance(memory, str) and indexed.get(memory_id, set()) != set(map(digest, memory.tags)):
                findings.wrong(f"memory {memory_id}: its tags in hippo_tags are not those in memories")


def batches(connection: Connection) -> Iterator[list[int]]:
    """Yields the ids of all memories, each list as of a moment that lasts until the next."""
    last = records.BEFORE_ALL
    while True:
        deadline.remaining()
        connection.execute("BEGIN")
        ids = query.column(connection, records.NEXT_IDS, (last, BATCH))
        if not ids:
            break
        yield ids
        connection.execute("ROLLBACK")
        last = ids[-1]
    connection.execute("ROLLBACK")


def _problem(connection: Connection, memory: memory_pb2.Memory, content_hash: str, row_hash: str) -> str:
    digest = connection.vault.digest
    if content_hash != digest(identity.content_hash(memory.content)):
        return "its content is not what was written"
    # Without a key, in the default namespace, the hash may be another program's.
    ours = memory.key or memory.namespace != DEFAULT_NAMESPACE
    if ours and row_hash not in map(digest, identity.row_hashes(memory)):
        return "its namespace, category or key is not what was written"
    text, surprise = metadata.read(memory.metadata)
    if memory.metadata and not text:
        return "its metadata is no JSON object"
    if memory.surprise != (surprise or memory_pb2.Surprise()):
        return "its surprise is not the one in its metadata"
    return ""
