"""What a write does to the vectors and token codes of hints.

They go when the hints are replaced, and stay when the content is. There are none without those of the content: a
memory that has none gets all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import query, records, vectors
from hippovault_storage.sqlite.connections import Connection

NUMBERS = """
SELECT memory_id, count(*) FROM hippo_vectors
WHERE place < 0 AND memory_id IN (SELECT value FROM json_each(?)) GROUP BY memory_id
"""


class Due(NamedTuple):
    """What is to be written; None for what stays."""

    vectors: bytes | None
    token_codes: pb.TokenCodes | None
    """One without codes takes away what is there."""

    @property
    def is_something(self) -> bool:
        """Whether anything is."""
        return self.vectors is not None or self.token_codes is not None


def due(
    connection: Connection,
    request: pb.PutMemoryRequest | pb.UpdateMemoryRequest | pb.EmbedMemoryRequest,
    memory: memory_pb2.Memory,
    stored: memory_pb2.Memory | None,
) -> Due:
    """Returns what a write has to do.

    Args:
        connection: Reads.
        request: The write; its hints, where it has vectors of them, are the memory's.
        memory: As it will be.
        stored: As it is.
    """
    replaced = memory.hints != (stored.hints if stored else [])
    given = b"" if memory.pending else request.hint_vectors
    takes = replaced or (given and not numbers(connection, [memory.id]))
    codes = request.hint_token_codes
    if not replaced and codes.codes:
        there = vectors.token_codes(connection, memory.id)
        replaced = (there is not None or request.HasField("token_codes")) and codes != (there and there.of_hints)
    return Due(given if takes else None, codes if replaced else None)


def write(connection: Connection, memory_id: int, due: Due) -> None:
    """Does it, to a memory whose own vectors and codes are written already."""
    if due.vectors is not None:
        vectors.write_of_hints(connection, memory_id, due.vectors)
    if due.token_codes is not None:
        vectors.write_token_codes_of_hints(connection, memory_id, due.token_codes)


def numbers(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """Returns how many vectors the hints of memories have, by id; without those that have none."""
    return dict(query.rows(connection, NUMBERS, (records.as_json(ids),)))


def unfit(connection: Connection, memories: Iterable[memory_pb2.Memory]) -> list[int]:
    """Returns the ids of memories whose hints have vectors, but not one each."""
    hints = {memory.id: len(memory.hints) for memory in memories}
    return [memory_id for memory_id, number in numbers(connection, hints).items() if number != hints[memory_id]]
