"""What a record of an export may be, checked before it is imported, and brought to its stored form.

Other programs may have put into a file what no caller could: contents and metadata of any size, tags without number,
vectors of any length. What was adopted must come back from an export, so the limits of a put do not hold here.

All raise ServiceError INVALID_ARGUMENT naming the field, the limit and the value's size, never its text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_storage import checks, metadata

MAX_VERSION = 1_000_000_000
"""Leaves room for as many changes again."""
TIMES = ("created_at", "updated_at", "deleted_at")


def record(value: pb.MemoryRecord, dimensions: int) -> None:
    """Checks a record.

    Args:
        value: With all of its history.
        dimensions: Length of the store's vectors.
    """
    if not value.HasField("memory"):
        raise ServiceError.invalid("memory", "must be given; only more history of the memory before it comes without")
    _memory(value.memory)
    value.memory.hints[:] = memory_rules.hints("hints", value.memory.hints)
    if not value.HasField("since"):
        value.since.CopyFrom(value.memory.updated_at)
    memory_rules.timestamp("since", value.since)
    _history(value)
    if value.vectors:
        _vectors(value, dimensions)
    if value.HasField("token_codes"):
        checks.token_codes("token_codes", value.token_codes)
    checks.of_hints(value, dimensions)
    if value.hint_vectors and not value.vectors:
        raise ServiceError.invalid("hint_vectors", "must be given with vectors, and not without")


def _memory(memory: memory_pb2.Memory) -> None:
    """Checks a memory or what it was, and sets what is missing."""
    memory.namespace = memory_rules.namespace(memory.namespace)
    memory_rules.text("content", memory.content, sys.maxsize, allowed=memory_rules.LINE_CONTROLS)
    for field in ("category", "key", "status", "model_revision"):
        if name := getattr(memory, field):
            memory_rules.text(field, name, memory_rules.MAX_NAME_BYTES)
    memory.tags[:] = _tags(memory.tags)
    if memory.HasField("importance"):
        memory_rules.fraction("importance", memory.importance)
    _surprise(memory)
    if not memory.HasField("created_at"):
        raise ServiceError.invalid("created_at", "must be given")
    if not memory.HasField("updated_at"):
        memory.updated_at.CopyFrom(memory.created_at)
    for field in TIMES:
        memory_rules.timestamp(field, getattr(memory, field))
    memory.version = memory_rules.within("version", memory.version or 1, 1, MAX_VERSION)


def _tags(tags: Iterable[str]) -> list[str]:
    """Returns each tag once."""
    for index, tag in enumerate(tags):
        if not tag or tag != tag.strip() or "," in tag:
            raise ServiceError.invalid(f"tags[{index}]", "must not be blank or begin or end so, or have a comma")
    return list(dict.fromkeys(tags))


def _surprise(memory: memory_pb2.Memory) -> None:
    """Lets the metadata mirror the surprise; where it does, it stays byte for byte."""
    surprise = memory.surprise if memory.HasField("surprise") else None
    if surprise is not None:
        numbers = [surprise.score, *(value for _, value in surprise.components.ListFields())]
        if not all(math.isfinite(number) for number in numbers):
            raise ServiceError.invalid("surprise", "must be finite")
        memory_rules.within("surprise.version", surprise.version, 0, metadata.MAX_VERSION)
    sealed = metadata.sealed(memory.metadata, surprise)  # Also tells what is no metadata.
    if metadata.read(memory.metadata) != (memory.metadata, surprise):
        memory.metadata = sealed


def _history(value: pb.MemoryRecord) -> None:
    for index, version in enumerate(value.history):
        try:
            _memory(version.memory)
            for field in ("until", "since"):
                _given(version, field)
        except ServiceError as error:
            problem = error.message.removeprefix(f"{error.field}: ")
            raise ServiceError.invalid(f"history[{index}].{error.field}", problem) from None
        version.memory.namespace = value.memory.namespace
    instants = [_key(instant) for version in value.history for instant in (version.since, version.until)]
    lives = zip(instants[::2], instants[1::2], strict=True)
    if any(since >= until for since, until in lives) or any(one > next_one for one, next_one in pairwise(instants)):
        raise ServiceError.invalid("history", "must go from the oldest to the newest, each from since to a later until")


def _given(version: memory_pb2.MemoryVersion, field: str) -> None:
    if not version.HasField(field):  # type: ignore[arg-type]
        raise ServiceError.invalid(field, "must be given")
    memory_rules.timestamp(field, getattr(version, field))


def _key(instant: Timestamp) -> tuple[int, int]:
    return instant.seconds, instant.nanos


def _vectors(value: pb.MemoryRecord, dimensions: int) -> None:
    size = dimensions * checks.FLOAT32.itemsize
    if len(value.vectors) % size or len(value.vectors) > checks.MAX_VECTORS * size:
        problem = f"must be 1 to {checks.MAX_VECTORS} of {dimensions} float32, have {len(value.vectors)} bytes together"
        raise ServiceError.invalid("vectors", problem)
    first, parts = np.frombuffer(value.vectors[:size], checks.FLOAT32).astype(np.float64), value.vectors[size:]
    if not np.isfinite(first).all():
        raise ServiceError.invalid("vectors", "must be finite")
    if abs(np.linalg.norm(first) - 1) > checks.NORM_TOLERANCE:
        value.memory.model_revision = ""  # Another program made it, of which a memory has one.
    if parts:
        checks.vectors("vectors", parts, dimensions, checks.MAX_VECTORS)
