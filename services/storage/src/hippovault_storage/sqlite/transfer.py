"""Memories with all that belongs to them, on their way out of a store and into one.

A record has a memory; one without a memory has more of the history of the memory before it, so that no record is too
large for a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError
from hippovault_storage import record_checks, times
from hippovault_storage.sqlite import hint_vectors, history, identity, models, query, records, vectors, writes
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.hint_vectors import Due

Stored = bool | ServiceError
"""Whether a record was stored, or why it must not be."""
Run = Callable[[Callable[[Connection], list[Stored]]], list[Stored]]
Numbered = tuple[int, pb.MemoryRecord]

PAGE = 1_000
"""Ids read at a time."""
BATCH = 100
BATCH_BYTES = 4 * 1024 * 1024
"""Records written in one transaction: a batch is full at either."""
MAX_ERRORS = 1_000

IDS = (
    "SELECT memory_id FROM hippo_memories WHERE memory_id > ? AND (? = '' OR namespace = ?) ORDER BY memory_id LIMIT ?"
)
FIRST_VECTOR = "SELECT content_embedding FROM memory_embeddings WHERE rowid = ?"
PARTS = "SELECT vector FROM hippo_vectors WHERE memory_id = ? AND place > 0 ORDER BY place"
OF_HINTS = "SELECT vector FROM hippo_vectors WHERE memory_id = ? AND place < 0 ORDER BY place DESC"


def export(connection: Connection, request: pb.ExportMemoriesRequest) -> Iterator[pb.MemoryRecord]:
    """Yields every memory, live and deleted, in the order of their ids, as the connection's moment has it."""
    last = records.BEFORE_ALL
    while ids := query.column(connection, IDS, (last, request.namespace, request.namespace, PAGE)):
        for last in ids:
            yield from _records(connection, last, with_vectors=not request.without_vectors)


def take_in(requests: Iterable[pb.ImportMemoriesRequest], run: Run, dimensions: int) -> pb.ImportMemoriesResponse:
    """Stores records as they come; one that is wrong leaves no trace and does not stop the others.

    Args:
        requests: One record each.
        run: Runs work in a transaction and returns its result once that is on disk.
        dimensions: Length of the store's vectors.

    Raises:
        ServiceError: What `run` raised. What was stored before stays, and the same records may be sent again.
    """
    result = pb.ImportMemoriesResponse()
    for batch in _batches(_checked(_whole(requests), dimensions, result)):
        stored = run(lambda connection, batch=batch: [_store_or_refuse(connection, record) for _, record in batch])  # type: ignore[misc]
        for (place, _), outcome in zip(batch, stored, strict=True):
            if isinstance(outcome, ServiceError):
                _note(result, place, outcome)
        result.imported += stored.count(True)
        result.kept += stored.count(False)
    return result


def _records(connection: Connection, memory_id: int, *, with_vectors: bool) -> Iterator[pb.MemoryRecord]:
    memory = records.one(connection, memory_id)
    record = pb.MemoryRecord(memory=memory, since=times.timestamp(history.since(connection, memory_id)))
    if with_vectors:
        record.vectors = _vectors(connection, memory_id)
        if record.vectors:
            record.hint_vectors = _widened(query.column(connection, OF_HINTS, (memory_id,)))
        if codes := vectors.token_codes(connection, memory_id):
            record.token_codes.CopyFrom(codes.of_content)
            if codes.of_hints:
                record.hint_token_codes.CopyFrom(codes.of_hints)
    size = record.ByteSize()
    for version in history.versions(connection, memory):
        added = version.ByteSize()
        if size + added > MAX_ANSWER_BYTES:
            yield record
            record, size = pb.MemoryRecord(), 0
        record.history.append(version)
        size += added
    yield record


def _vectors(connection: Connection, memory_id: int) -> bytes:
    """Returns the first vector as it was written, and the others as they are kept."""
    first = query.value(connection, FIRST_VECTOR, (memory_id,))
    if first is None or not np.isfinite(np.frombuffer(first, vectors.FLOAT32)).all():
        return b""
    return bytes(first) + _widened(query.column(connection, PARTS, (memory_id,)))


def _widened(kept: Iterable[bytes]) -> bytes:
    return np.frombuffer(b"".join(kept), vectors.FLOAT16).astype(vectors.FLOAT32).tobytes()


def _whole(requests: Iterable[pb.ImportMemoriesRequest]) -> Iterator[Numbered]:
    """Yields records with all of their history, each with the place of its first part."""
    current: Numbered | None = None
    for place, request in enumerate(requests):
        if current and not request.record.HasField("memory"):
            current[1].history.extend(request.record.history)
            continue
        if current:
            yield current
        current = place, request.record
    if current:
        yield current


def _checked(numbered: Iterable[Numbered], dimensions: int, result: pb.ImportMemoriesResponse) -> Iterator[Numbered]:
    """Yields what may be stored, and notes the others."""
    for place, record in numbered:
        try:
            record_checks.record(record, dimensions)
        except ServiceError as error:
            _note(result, place, error)
        else:
            yield place, record


def _note(result: pb.ImportMemoriesResponse, place: int, error: ServiceError) -> None:
    result.failed += 1
    if len(result.errors) < MAX_ERRORS:
        result.errors[place].CopyFrom(error.to_batch_error())


def _batches(whole: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for place, record in whole:
        batch.append((place, record))
        size += record.ByteSize()
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _store_or_refuse(connection: Connection, record: pb.MemoryRecord) -> Stored:
    before = connection.total_changes()
    try:
        return _store(connection, record)
    except ServiceError as error:
        if connection.total_changes() != before:  # Half of a memory: the transaction must not be committed.
            raise
        return error


def _store(connection: Connection, record: pb.MemoryRecord) -> bool:
    """Stores a record unless the memory is there and was not changed before it; returns whether it did.

    Raises:
        ServiceError: FAILED_PRECONDITION when its vectors are of another model than the store's.
    """
    memory = record.memory
    memory_id = identity.same(connection, memory)
    stored = None if memory_id is None else records.one(connection, memory_id)
    began = times.seconds(record.since)
    if stored and _changed(stored, history.since(connection, stored.id)) >= _changed(memory, began):
        return False
    if stored:
        memory.id = stored.id
    if record.vectors:
        models.take(connection, memory.model_revision)
    else:
        memory.model_revision = ""  # It tells what made the stored vector.
    writes.write(connection, memory, stored)
    for version in record.history:
        version.memory.namespace = memory.namespace
    history.replace(connection, memory.id, began, record.history)
    vectors.purge(connection, [memory.id])
    codes = record.token_codes if record.HasField("token_codes") else None
    if record.vectors:
        vectors.write(connection, memory.id, record.vectors, codes)
    else:
        vectors.write_token_codes(connection, memory.id, codes)
    hint_vectors.write(connection, memory.id, Due(record.hint_vectors, record.hint_token_codes))
    return True


def _changed(memory: memory_pb2.Memory, since: float) -> float:
    """Returns when a memory was written, deleted or brought back last."""
    return max(times.seconds(memory.updated_at), times.seconds(memory.deleted_at), since)
