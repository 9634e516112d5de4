"""Cosine similarities, from the float16 vectors: the one source of them, whichever way a memory was found.

A cosine has an error of about 1e-5 with vectors of a model, of 1e-4 with vectors of few components. Equal vectors have
equal cosines.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from hippovault.memory.v1 import memory_pb2
from hippovault_storage.sqlite import query, records, scope
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.vectors import FLOAT16, FLOAT32

Vector = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

OF_MEMORIES = """
SELECT v.memory_id, v.vector FROM json_each(?) CROSS JOIN hippo_vectors v ON v.memory_id = json_each.value
"""
OF_NEWEST = """
SELECT v.vector FROM hippo_memories h CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id AND v.place = 0
WHERE {scope} ORDER BY h.created_at DESC, h.memory_id DESC LIMIT ?
"""


def vector(stored: bytes) -> Vector:
    """Returns a request's vector, of length 1."""
    given = np.frombuffer(stored, FLOAT32)
    return (given / np.linalg.norm(given)).astype(np.float32)


def cosines(to: Vector, stored: Iterable[bytes]) -> Vector:
    """Returns the cosine similarities of vectors of hippo_vectors to another; 0 for one that points nowhere."""
    return between(to, np.frombuffer(b"".join(stored), FLOAT16).reshape(-1, to.size))


def between(to: Vector, stored: Halves | npt.NDArray[np.float32]) -> Vector:
    """Does the same, of the vectors in a row each."""
    matrix = stored.astype(np.float32)
    lengths = np.sqrt(np.vecdot(matrix, matrix))
    # Row by row: sums of a product of matrices depend on a row's place, and its threads wait for each other.
    result: Vector = np.vecdot(matrix, to) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return result


def of_memories(connection: Connection, to: Vector, ids: Iterable[int]) -> dict[int, float]:
    """Returns the similarity of each memory's nearest vector, of those that have one, best first."""
    rows = query.rows(connection, OF_MEMORIES, (records.as_json(ids),))
    near = cosines(to, (row[1] for row in rows))
    order = np.argsort(-near, kind="stable")
    found: dict[int, float] = {}
    for position, cosine in zip(order.tolist(), near[order].tolist(), strict=True):
        found.setdefault(rows[position][0], cosine)
    return found


def of_newest(connection: Connection, to: Vector, namespace: str, newest: int) -> Vector:
    """Returns the similarities of the first vectors of a namespace's newest live memories, newest first.

    They are the newest n that have a vector: one that another program wrote without takes no place.
    """
    within = scope.live(connection.vault, namespace, memory_pb2.Filter())
    return cosines(to, query.column(connection, OF_NEWEST.format(scope=within.condition), (*within.parameters, newest)))
