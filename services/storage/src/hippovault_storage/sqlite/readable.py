"""Reading memories of which some cannot be read: those hold up none of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import records
from hippovault_storage.sqlite.connections import Connection

UNREADABLE = (ServiceError, ValueError, TypeError, apsw.CorruptError)
"""What reading a damaged row raises: no UTF-8, no JSON, a value of another type, one that was not sealed for it."""


def each(connection: Connection, ids: Sequence[int]) -> Iterator[tuple[int, memory_pb2.Memory | str]]:
    """Yields memories with their ids, in no particular order; for one that cannot be read, why."""
    try:
        found = records.rows(connection, ids)
    except UNREADABLE as error:
        if len(ids) == 1:
            yield ids[0], told(error)
            return
        for memory_id in ids:
            yield from each(connection, [memory_id])
    else:
        yield from ((row[0], _memory(connection, row)) for row in found)


def alone(connection: Connection, ids: Sequence[int]) -> list[memory_pb2.Memory]:
    """Returns those that can be read, by id."""
    memories = (memory for _, memory in each(connection, ids) if not isinstance(memory, str))
    return sorted(memories, key=lambda memory: memory.id)


def told(error: Exception) -> str:
    """Returns why something cannot be read, without any of it."""
    # Another error's text may have the value in it.
    return error.message if isinstance(error, ServiceError) else f"it cannot be read ({type(error).__name__})"


def _memory(connection: Connection, row: tuple[Any, ...]) -> memory_pb2.Memory | str:
    try:
        return records.memory(connection.vault, row)
    except UNREADABLE as error:
        return told(error)
