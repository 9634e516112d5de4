"""Whether the code index finds what exact comparison finds, for a sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import deadline
from hippovault_storage.sqlite import nearest, query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.vectors import FLOAT16, FLOAT32
from hippovault_storage.sqlite.verifying.findings import Findings

SAMPLE = 50
NEIGHBOURS = 10
LEAST_RECALL = 0.97
ROUNDING = 1e-5
"""How far two ways to compute a cosine may be apart."""

SAMPLED = """
SELECT v.memory_id, v.vector FROM hippo_vectors v WHERE v.id IN (
    SELECT v.id FROM hippo_memories h CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
    WHERE h.namespace = ? AND h.deleted_at IS NULL ORDER BY random() LIMIT ?
)
"""
VECTORS = """
SELECT v.memory_id, v.vector FROM hippo_memories h CROSS JOIN hippo_vectors v ON v.memory_id = h.memory_id
WHERE h.namespace = ? AND h.deleted_at IS NULL
"""

Matrix = npt.NDArray[np.float32]


def look(connection: Connection, index: CodeIndex, findings: Findings) -> None:
    """Counts the vectors that are searched for, of each namespace that has an index."""
    for namespace in index.namespaces():
        moment = nearest.begin(connection)
        rows = query.rows(connection, SAMPLED, (namespace, SAMPLE))
        if rows:
            sample = _unit(rows)
            findings.looked_at(len(sample))
            recall = _recall(connection, index, namespace, sample, moment)
            if recall < LEAST_RECALL:
                findings.wrong(f"the code index of a namespace finds {recall:.3f} of the {NEIGHBOURS} nearest vectors")
        connection.execute("ROLLBACK")


def _recall(connection: Connection, index: CodeIndex, namespace: str, sample: Matrix, moment: float) -> float:
    """Returns what part of what the index finds is as near as the true neighbours."""
    best = _best(connection, namespace, sample)
    found = 0
    for vector, limit in zip(sample, best[:, -1].tolist(), strict=True):
        deadline.remaining()
        arm = pb.DenseArm(vector=vector.astype(FLOAT32).tobytes(), k=NEIGHBOURS)
        request = pb.SearchMemoriesRequest(namespace=namespace, dense=arm)
        near = nearest.find(connection, index, request, vector, moment)
        found += sum(cosine >= limit - ROUNDING for cosine in near.values())
    return found / best.size


def _best(connection: Connection, namespace: str, sample: Matrix) -> Matrix:
    """Returns the cosines of each one's true neighbours, memories by their nearest vectors, best first."""
    best = np.full((len(sample), 0), -np.inf, np.float32)
    for rows in query.chunks(connection, VECTORS, (namespace,), nearest.CHUNK):
        deadline.remaining()
        cosines = sample @ _unit(rows).T
        ids = np.array([memory_id for memory_id, _ in rows])
        firsts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))  # A memory's vectors come together.
        best = np.concatenate([best, np.maximum.reduceat(cosines, firsts, axis=1)], axis=1)
        best = -np.sort(-best, axis=1)[:, :NEIGHBOURS]
    return best


def _unit(rows: Sequence[tuple[int, bytes]]) -> Matrix:
    matrix = np.frombuffer(b"".join(vector for _, vector in rows), FLOAT16).reshape(len(rows), -1).astype(np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: Matrix = matrix / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
