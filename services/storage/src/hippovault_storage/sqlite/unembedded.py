"""Memories whose vectors are to come: which they are, and what completes them."""

from __future__ import annotations

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import deadline
from hippovault_storage import metadata
from hippovault_storage.sqlite import hint_vectors, models, query, readable, records, vectors, writes
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.records import Memory

PENDING = f"""
SELECT count(*) FROM hippo_memories h WHERE h.deleted_at IS NULL AND {records.PENDING}
"""
LACKING = f"""
SELECT h.memory_id, {records.SIZE} FROM hippo_memories h JOIN memories m ON m.id = h.memory_id
WHERE h.memory_id > :after_id AND h.deleted_at IS NULL AND (
    {records.PENDING}
    OR (h.hints <> '{records.NO_HINTS}' AND NOT EXISTS (
        SELECT 1 FROM hippo_vectors v WHERE v.memory_id = h.memory_id AND v.place < 0
    ))
    OR (:encoding <> '' AND NOT EXISTS (
        SELECT 1 FROM hippo_token_codes t WHERE t.memory_id = h.memory_id AND t.encoding = :encoding
            AND (h.hints = '{records.NO_HINTS}' OR t.hint_encoding IS :encoding)
    ))
)
ORDER BY h.memory_id LIMIT :page_size
"""
UNCHANGED = """
SELECT memory_id FROM hippo_memories WHERE memory_id = ? AND namespace = ? AND version = ? AND deleted_at IS NULL
"""


def count_pending(connection: Connection) -> int:
    """Returns how many live memories have no vector."""
    return int(query.value(connection, PENDING))


def list_page(connection: Connection, request: pb.ListUnembeddedRequest) -> pb.ListUnembeddedResponse:
    """Returns live memories that lack vectors or token codes, of hints too, by id, as many as fit into an answer."""
    wanted = {"after_id": request.after_id, "encoding": request.token_encoding, "page_size": request.page_size}
    memories: list[Memory] = []
    while not memories and (ids := records.fitting(query.rows(connection, LACKING, wanted))):
        deadline.remaining()
        memories, wanted["after_id"] = readable.alone(connection, ids), ids[-1]
    return pb.ListUnembeddedResponse(memories=memories)


def embed(connection: Connection, request: pb.EmbedMemoryRequest) -> pb.EmbedMemoryResponse:
    """Gives a memory what it lacks of what is given, unless it is another one by now.

    Raises:
        ServiceError: FAILED_PRECONDITION when the vectors are of another model than the store's.
    """
    stored = _unchanged(connection, request.memory)
    return pb.EmbedMemoryResponse(written=stored is not None and _complete(connection, stored, request))


def _unchanged(connection: Connection, read: Memory) -> Memory | None:
    """Returns the memory as it is, where that is what was read."""
    if query.value(connection, UNCHANGED, (read.id, read.namespace, read.version)) is None:
        return None
    stored = records.one(connection, read.id)
    return stored if stored.hints == read.hints else None


def _complete(connection: Connection, stored: Memory, request: pb.EmbedMemoryRequest) -> bool:
    takes_vectors = stored.pending and bool(request.vectors)
    codes = request.token_codes if request.HasField("token_codes") else None
    there = vectors.token_codes(connection, stored.id)
    takes_codes = codes is not None and codes != (there and there.of_content)
    codes = codes or (there and there.of_content)
    memory = _embedded(stored, request) if takes_vectors else stored
    of_hints = hint_vectors.due(connection, request, memory, stored)
    if not (takes_vectors or takes_codes or of_hints.is_something):
        return False
    models.take(connection, request.model_revision)
    if takes_vectors:
        writes.write(connection, memory, stored)
        vectors.write(connection, memory.id, request.vectors, codes)
    elif takes_codes:
        vectors.write_token_codes(connection, memory.id, codes)
    hint_vectors.write(connection, memory.id, of_hints)
    return True


def _embedded(stored: Memory, request: pb.EmbedMemoryRequest) -> Memory:
    """Returns the memory with what belongs to vectors; its time stays, since what it says does."""
    memory = Memory()
    memory.CopyFrom(stored)
    memory.model_revision, memory.pending = request.model_revision, False
    if request.memory.HasField("surprise") and not stored.HasField("surprise"):
        memory.surprise.CopyFrom(request.memory.surprise)
        memory.metadata = metadata.replaced(stored.metadata, stored.metadata, memory.surprise)
    return memory
