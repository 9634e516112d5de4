"""Changing one live memory: the fields that a mask names."""

from __future__ import annotations

import grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import merging, times
from hippovault_storage.sqlite import hint_vectors, history, identity, models, records, vectors, writes
from hippovault_storage.sqlite.connections import Connection

Memory = memory_pb2.Memory


def update(connection: Connection, request: pb.UpdateMemoryRequest) -> pb.UpdateMemoryResponse:
    """Sets the fields that the mask names; with dry_run it tells what the memory would be.

    Raises:
        ServiceError: NOT_FOUND, ABORTED, ALREADY_EXISTS and FAILED_PRECONDITION, as storage.proto says.
    """
    stored = records.one(connection, identity.named(connection, request.namespace, request.ref)[0])
    _check_version(stored, request.expected_version)
    now = times.now()
    memory = merging.updated(stored, request, now)
    identity.check_free(connection, memory, stored)
    takes_vector = merging.takes_vector(stored, memory, request)
    codes = request.token_codes if request.HasField("token_codes") else None
    there = vectors.token_codes(connection, stored.id)
    takes_codes = codes is not None and codes != (there and there.of_content)
    of_hints = hint_vectors.due(connection, request, memory, stored)
    if takes_vector or of_hints.vectors or vectors.has_token_codes(request):
        (models.check if request.dry_run else models.take)(connection, request.model_revision)
    if not request.dry_run:
        _apply(connection, memory, stored, now)
        if takes_vector:
            vectors.write(connection, memory.id, request.vectors, codes)
        elif memory.pending and memory.content != stored.content:
            vectors.purge(connection, [memory.id])
        elif takes_codes:
            vectors.write_token_codes(connection, memory.id, codes)
        hint_vectors.write(connection, memory.id, of_hints)
    changed = takes_vector or takes_codes or of_hints.is_something or memory != stored
    return pb.UpdateMemoryResponse(memory=records.as_read(memory), changed=changed)


def _apply(connection: Connection, memory: Memory, stored: Memory, now: float) -> None:
    if memory.content != stored.content:
        history.begin_life(connection, stored, now)
    if memory != stored:
        writes.write(connection, memory, stored)


def _check_version(stored: Memory, expected: int) -> None:
    if expected not in {0, stored.version}:
        raise ServiceError(
            grpc.StatusCode.ABORTED,
            "OTHER_VERSION",
            f"expected_version: is {expected}, but the memory has version {stored.version}; read it again",
            field="expected_version",
        )
