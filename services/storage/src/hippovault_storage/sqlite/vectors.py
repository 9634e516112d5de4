"""What the dense arm looks at: every vector of a memory, and the codes of its tokens.

vec0 has the first vector of each memory as float32, as other programs write and read it. hippo_vectors has all of them
as float16, each in a row of its own: the one source of distances, see `distances`. Those of the content have the places
0, 1, …, those of the hints -1, -2, …
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import foreign, query, records, schema
from hippovault_storage.sqlite.connections import Connection

FLOAT32 = np.dtype("<f4")
FLOAT16 = np.dtype("<f2")

UNIT_TOLERANCE = 1e-5
"""What a squared length may be off by before it changes a cosine by more than float16 does."""

CHUNK = 2_000
"""Memories a transaction of `backfill`."""

# vec0 keeps its row ids in this table. Through vec0 itself, which reads the vectors, it would take 20 times as long.
WITHOUT_COPY = """
SELECT e.rowid FROM memory_embeddings_rowids e JOIN hippo_memories h ON h.memory_id = e.rowid
WHERE NOT EXISTS (SELECT 1 FROM hippo_vectors v WHERE v.memory_id = e.rowid AND v.place = 0)
"""
COPY_ALONE = """
SELECT v.memory_id FROM hippo_vectors v
WHERE v.place = 0 AND NOT EXISTS (SELECT 1 FROM memory_embeddings_rowids e WHERE e.rowid = v.memory_id)
"""
OF_HINTS_ALONE = """
DELETE FROM hippo_vectors WHERE place < 0 AND memory_id IN (SELECT value FROM json_each(?))
    AND memory_id NOT IN (SELECT rowid FROM memory_embeddings_rowids)
"""
UPDATE = "UPDATE memory_embeddings SET content_embedding = ?2 WHERE rowid = ?1"
BOTH = """
SELECT json_each.value, e.content_embedding, (
    SELECT v.vector FROM hippo_vectors v WHERE v.memory_id = json_each.value AND v.place = 0
) FROM json_each(?) LEFT JOIN memory_embeddings e ON e.rowid = json_each.value
"""


def insert(connection: Connection, memory_id: int, rows: bytes, token_codes: pb.TokenCodes | None) -> None:
    """Gives vectors and token codes to a memory that has none, see `write`."""
    dimensions, insertion = connection.of_schema(_table)
    matrix = np.frombuffer(rows, FLOAT32).reshape(-1, dimensions)
    connection.execute(insertion, (memory_id, rows[: matrix[0].nbytes]))
    _insert_halves(connection, memory_id, halves(matrix), range(len(matrix)))
    if token_codes is not None:
        write_token_codes(connection, memory_id, token_codes)


def write(connection: Connection, memory_id: int, rows: bytes, token_codes: pb.TokenCodes | None) -> None:
    """Gives a memory its vectors and token codes, in place of those that it had.

    Args:
        connection: The writer's.
        memory_id: The memory.
        rows: One or more vectors as in PutMemoryRequest, checked.
        token_codes: None for none.
    """
    dimensions, insertion = connection.of_schema(_table)
    matrix = np.frombuffer(rows, FLOAT32).reshape(-1, dimensions)
    # vec0 knows no REPLACE, and deleting leaves holes in it.
    there = records.has_vector(connection, memory_id)
    connection.execute(UPDATE if there else insertion, (memory_id, rows[: matrix[0].nbytes]))
    _write_halves(connection, memory_id, halves(matrix))
    write_token_codes(connection, memory_id, token_codes)


def write_token_codes(connection: Connection, memory_id: int, token_codes: pb.TokenCodes | None) -> None:
    """Gives the content of a memory token codes in place of those that it had; None for none, its hints' included."""
    if token_codes is None:
        connection.execute("DELETE FROM hippo_token_codes WHERE memory_id = ?", (memory_id,))
    else:
        connection.execute(
            "INSERT INTO hippo_token_codes (memory_id, encoding, codes) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET encoding = excluded.encoding, codes = excluded.codes",
            (memory_id, token_codes.encoding, token_codes.codes),
        )


def write_of_hints(connection: Connection, memory_id: int, rows: bytes) -> None:
    """Gives the hints of a memory their vectors, in place of those that they had; nothing for none."""
    connection.execute("DELETE FROM hippo_vectors WHERE memory_id = ? AND place < 0", (memory_id,))
    matrix = np.frombuffer(rows, FLOAT32).reshape(-1, connection.of_schema(schema.dimensions))
    _insert_halves(connection, memory_id, halves(matrix), range(-1, -1 - len(matrix), -1))


def write_token_codes_of_hints(connection: Connection, memory_id: int, token_codes: pb.TokenCodes) -> None:
    """Gives the hints of a memory, whose content has token codes, theirs; without codes for none."""
    told = (token_codes.encoding, token_codes.codes) if token_codes.codes else (None, None)
    statement = "UPDATE hippo_token_codes SET hint_encoding = ?, hint_codes = ? WHERE memory_id = ?"
    connection.execute(statement, (*told, memory_id))


def has_token_codes(request: pb.PutMemoryRequest | pb.UpdateMemoryRequest) -> bool:
    """Tells whether a write brings token codes; they replace others where its vectors do not."""
    return request.HasField("token_codes") or request.HasField("hint_token_codes")


class TokenCodes(NamedTuple):
    """The token codes of a memory."""

    of_content: pb.TokenCodes
    of_hints: pb.TokenCodes | None


def token_codes(connection: Connection, memory_id: int) -> TokenCodes | None:
    """Returns the token codes of a memory, if it has any."""
    stored = "SELECT encoding, codes, hint_encoding, hint_codes FROM hippo_token_codes WHERE memory_id = ?"
    for encoding, codes, hint_encoding, hint_codes in query.rows(connection, stored, (memory_id,)):
        of_hints = pb.TokenCodes(encoding=hint_encoding, codes=hint_codes) if hint_codes else None
        return TokenCodes(pb.TokenCodes(encoding=encoding, codes=codes), of_hints)
    return None


def purge(connection: Connection, ids: Iterable[int]) -> None:
    """Takes away the vectors and token codes of memories."""
    single = [(memory_id,) for memory_id in ids]  # One by one: for a list vec0 would run through all of its rows.
    connection.executemany("DELETE FROM memory_embeddings WHERE rowid = ?", single)
    for table in ("hippo_vectors", "hippo_token_codes"):
        connection.executemany(f"DELETE FROM {table} WHERE memory_id = ?", single)


def backfill(connection: Connection) -> None:
    """Copies what vec0 has and hippo_vectors lacks, a chunk in a transaction: after a migration or an adoption."""
    lacking = query.column(connection, WITHOUT_COPY) + query.column(connection, COPY_ALONE)
    for start in range(0, len(lacking), CHUNK):
        with connection:
            refresh(connection, lacking[start : start + CHUNK])


def refresh(connection: Connection, ids: Sequence[int]) -> None:
    """Follows vec0, whose vectors another program may have changed; with a vector go its parts and token codes."""
    width = schema.dimensions(connection)
    for memory_id, first, half in query.rows(connection, BOTH, (records.as_json(ids),)):
        copies = halves(np.frombuffer(first or b"", FLOAT32).reshape(int(first is not None), width))
        if copies.tobytes() != (half or b""):
            _write_halves(connection, memory_id, copies)
            write_token_codes(connection, memory_id, None)
    connection.execute(OF_HINTS_ALONE, (records.as_json(ids),))


def halves(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float16]:
    """Returns vectors of any length, a row each, as unit vectors in half the bytes; zeros for one without direction."""
    of_unit = np.array([abs(float(row.dot(row)) - 1) < UNIT_TOLERANCE for row in matrix], np.bool_)
    if of_unit.all():
        return matrix.astype(FLOAT16)
    # Another program may have written anything. Each row by itself: it has one copy, whatever it is looked at with.
    wide = matrix[~of_unit].astype(np.float64)
    squares = np.vecdot(wide, wide)
    pointless = ~((squares > 0) & np.isfinite(squares))
    wide[pointless], squares[pointless] = 0, 1
    result = np.empty(matrix.shape, FLOAT16)
    result[of_unit], result[~of_unit] = matrix[of_unit], wide / np.sqrt(squares)[:, np.newaxis]
    return result


def _table(connection: Connection) -> tuple[int, str]:
    """Returns how long the vectors of vec0's table are, and what inserts one."""
    return schema.dimensions(connection), _insertion(connection)


def _insertion(connection: Connection) -> str:
    columns = "".join(f", {query.quoted(name)}" for name in foreign.vector_columns(connection))
    insertion = f"INSERT INTO memory_embeddings (rowid, content_embedding{columns}) "
    return insertion + (f"SELECT id, ?2{columns} FROM memories WHERE id = ?1" if columns else "VALUES (?, ?)")


def _write_halves(connection: Connection, memory_id: int, matrix: npt.NDArray[np.float16]) -> None:
    connection.execute("DELETE FROM hippo_vectors WHERE memory_id = ? AND place >= 0", (memory_id,))
    _insert_halves(connection, memory_id, matrix, range(len(matrix)))


def _insert_halves(
    connection: Connection, memory_id: int, matrix: npt.NDArray[np.float16], places: Iterable[int]
) -> None:
    connection.executemany(
        "INSERT INTO hippo_vectors (memory_id, place, vector) VALUES (?, ?, ?)",
        [(memory_id, place, row.tobytes()) for place, row in zip(places, matrix, strict=True)],
    )
