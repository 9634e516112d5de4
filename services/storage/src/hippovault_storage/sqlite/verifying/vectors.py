"""Whether every memory has its vectors: sound, and the same in both tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hippovault_chassis import deadline
from hippovault_storage.checks import NORM_TOLERANCE
from hippovault_storage.sqlite import hint_vectors, query, readable, records, schema, unembedded, vectors
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying.findings import Findings

HALF_TOLERANCE = 4e-3
"""How far from 1 the norm of a vector in halves may be."""

NOBODYS = "SELECT rowid FROM memory_embeddings_rowids WHERE rowid NOT IN (SELECT id FROM memories)"
LACKING = """
SELECT memory_id FROM hippo_memories
WHERE model_revision <> '' AND memory_id NOT IN (SELECT rowid FROM memory_embeddings_rowids)
"""
GAPS = """
SELECT memory_id FROM hippo_vectors GROUP BY memory_id HAVING max(place) >= 0 AND (
    count(*) FILTER (WHERE place >= 0) <> max(place) + 1 OR count(*) FILTER (WHERE place < 0) <> max(-min(place), 0)
)
"""
OF_HINTS_ALONE = "SELECT memory_id FROM hippo_vectors GROUP BY memory_id HAVING max(place) < 0"
OF_HINTS = "SELECT DISTINCT memory_id FROM hippo_vectors WHERE place < 0"
FIRST = "SELECT rowid, content_embedding FROM memory_embeddings"
COPIES = "SELECT memory_id, vector FROM hippo_vectors WHERE place = 0 AND memory_id IN (SELECT value FROM json_each(?))"
OURS = """
SELECT memory_id, model_revision <> '' FROM hippo_memories WHERE memory_id IN (SELECT value FROM json_each(?))
"""
PARTS = "SELECT memory_id, vector FROM hippo_vectors WHERE place <> 0"

BY_ID = (
    (NOBODYS, "it is not there, yet has a vector"),
    (LACKING, "it has no vector"),
    (vectors.COPY_ALONE, "it has a vector in hippo_vectors, and none in memory_embeddings"),
    (GAPS, "the places of its vectors have gaps"),
    (OF_HINTS_ALONE, "its hints have vectors, its content has none"),
)

Row = tuple[int, Any]


def look(connection: Connection, findings: Findings) -> None:
    """Counts vectors."""
    connection.execute("BEGIN")
    for sql, problem in BY_ID:
        for (memory_id,) in query.each(connection, sql):
            findings.wrong(f"memory {memory_id}: {problem}")
    width = schema.dimensions(connection)
    for batch in query.chunks(connection, FIRST, (), query.CHUNK):
        deadline.remaining()
        _look_at_firsts(connection, findings, batch, width)
    for batch in query.chunks(connection, PARTS, (), query.CHUNK):
        deadline.remaining()
        _look_at_parts(findings, batch, width)
    for batch in query.chunks(connection, OF_HINTS, (), query.CHUNK):
        deadline.remaining()
        _look_at_hints(connection, findings, [memory_id for (memory_id,) in batch])


def look_at_pending(connection: Connection, findings: Findings) -> None:
    """Counts the live memories whose vectors are to come, which is nothing wrong."""
    findings.looked_at(unembedded.count_pending(connection))


def _look_at_firsts(connection: Connection, findings: Findings, batch: list[Row], width: int) -> None:
    """Looks at vectors that vec0 has, which sees to their length."""
    findings.looked_at(len(batch))
    ids = records.as_json(memory_id for memory_id, _ in batch)
    ours, copies = (dict(query.rows(connection, sql, (ids,))) for sql in (OURS, COPIES))
    matrix = np.frombuffer(b"".join(vector for _, vector in batch), vectors.FLOAT32).reshape(-1, width)
    halves, sound = vectors.halves(matrix), _of_norm_1(matrix, NORM_TOLERANCE)
    for place, (memory_id, _) in enumerate(batch):
        if memory_id not in ours:  # A row that cannot be a memory.
            continue
        if ours[memory_id] and not sound[place]:  # Another program's may have any length.
            findings.wrong(f"memory {memory_id}: its vector is not finite and of norm 1")
        elif copies.get(memory_id) != halves[place].tobytes():
            findings.wrong(f"memory {memory_id}: its vector in hippo_vectors is not the one in memory_embeddings")


def _look_at_parts(findings: Findings, batch: list[Row], width: int) -> None:
    findings.looked_at(len(batch))
    for memory_id, vector in batch:
        whole = len(vector) == width * vectors.FLOAT16.itemsize
        if not whole or not _of_norm_1(np.frombuffer(vector, vectors.FLOAT16)[np.newaxis], HALF_TOLERANCE)[0]:
            findings.wrong(f"memory {memory_id}: a vector of a part of it, or of a hint, is not finite and of norm 1")


def _look_at_hints(connection: Connection, findings: Findings, ids: list[int]) -> None:
    for memory_id in hint_vectors.unfit(connection, readable.alone(connection, ids)):
        findings.wrong(f"memory {memory_id}: it has another number of hints than of vectors of hints")


def _of_norm_1(matrix: npt.NDArray[Any], tolerance: float) -> npt.NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        norms: npt.NDArray[np.float64] = np.linalg.norm(matrix.astype(np.float64), axis=1)
        return np.less_equal(np.abs(norms - 1), tolerance)  # Not a number is not.
