"""Late interaction: how near each token of a query is to the nearest token of a memory, from the stored codes.

A hint's tokens are further tokens of its memory. Codes that cannot be read, since they are of an encoding that is
unknown here or of another length than their tokens have, are as good as none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw
import numpy as np
import numpy.typing as npt

from hippovault_chassis import deadline
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.vectors import FLOAT32

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

MEMORIES = 64
"""Whose codes are in memory at a time: they may have 256 KiB each, twice that with their hints'."""
TOKENS = 256
"""Compared at a time: as float32 they have four times the bytes of their codes, and stay in a processor's cache."""
MAX_COSINES = 16_000_000
"""Of one search, in 64 MB and half a second at most. Where there would be more, which takes long memories and a long
query, the first tokens of each memory are compared."""
SHARE = 2
"""Similarities take one such part of an answer at most."""

CODES = """
SELECT t.memory_id, t.encoding, t.codes, t.hint_encoding, t.hint_codes
FROM carray(?) c CROSS JOIN hippo_token_codes t ON t.memory_id = c.value
"""

SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little") * FLOAT32.type(2) - 1
"""The eight components that a byte of signs tells."""


class Encoding(NamedTuple):
    """How the vectors of tokens are told, see TokenEncoding in embedding.proto."""

    bits: int
    """A component."""
    decode: Callable[[Bytes, Floats], None]
    """Writes the vectors of codes, a row a token each; of any length, since only their directions count."""
    steps: int = 1
    """The components stand in an order of their own: every so many-th, from the first one on, then from the second."""


def _decode_halves(codes: Bytes, vectors: Floats) -> None:
    # The lower and the upper halves of the bytes, which are the even and the odd components, each in one piece: to put
    # them in turn takes as long as the comparison. Shifted back with their sign.
    middle = codes.shape[1]
    vectors[:, :middle] = (codes << 4).view(np.int8) >> 4
    vectors[:, middle:] = codes.view(np.int8) >> 4


def _decode_signs(codes: Bytes, vectors: Floats) -> None:
    np.take(SIGNS, codes, axis=0, out=vectors.reshape(*codes.shape, 8), mode="clip")


ENCODINGS = {
    "float32": Encoding(32, lambda codes, vectors: np.copyto(vectors, codes.view(FLOAT32))),
    "int8": Encoding(8, lambda codes, vectors: np.copyto(vectors, codes.view(np.int8))),
    "int4": Encoding(4, _decode_halves, steps=2),
    "sign": Encoding(1, _decode_signs),
}


def similarities(connection: Connection, ids: Sequence[int], token_vectors: bytes, dimensions: int) -> dict[int, bytes]:
    """Returns, by memory id, what SearchHit.token_similarities tells; without those that have no codes to compare.

    Args:
        connection: Reads.
        ids: Of memories, the most important first. Those that the answer has no room for are left out.
        token_vectors: See storage.proto, LateInteraction.
        dimensions: Of the vectors.
    """
    tokens = _unit(np.frombuffer(token_vectors, FLOAT32).reshape(-1, dimensions).astype(np.float64))
    room = MAX_ANSWER_BYTES // SHARE // (len(tokens) * FLOAT32.itemsize)
    found: dict[int, bytes] = {}
    if not ids:
        return found
    wanted = np.array(ids[:room], np.int64)
    most = max(1, MAX_COSINES // (len(wanted) * len(tokens)))
    for rows in query.chunks(connection, CODES, (apsw.carray(wanted),), MEMORIES):
        deadline.remaining()
        found |= _of_memories(tokens, rows, most)
    return found


def _unit(vectors: npt.NDArray[np.float64]) -> Floats:
    """Returns the vectors with length 1; zeros for one that points nowhere."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.where(norms > 0, norms, 1)).astype(FLOAT32)
    return unit


def _of_memories(tokens: Floats, rows: Sequence[Any], most: int) -> dict[int, bytes]:
    pieces: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for place, (_, encoding, codes, hint_encoding, hint_codes) in enumerate(rows):
        if _is_readable(encoding, codes, tokens):
            pieces[encoding].append((place, codes))
            if _is_readable(hint_encoding, hint_codes, tokens):
                pieces[hint_encoding].append((place, hint_codes))
    best = np.full((len(rows), len(tokens)), -np.inf, FLOAT32)
    for encoding, of_encoding in pieces.items():
        nearest = _nearest(tokens, ENCODINGS[encoding], [codes for _, codes in of_encoding], most)
        np.maximum.at(best, [place for place, _ in of_encoding], nearest)
    return {rows[place][0]: best[place].tobytes() for place in np.flatnonzero(np.isfinite(best[:, 0])).tolist()}


def _is_readable(encoding: str | None, codes: bytes | None, tokens: Floats) -> bool:
    if encoding not in ENCODINGS or not codes:
        return False
    return bool(len(codes) * 8 % (ENCODINGS[encoding].bits * tokens.shape[1]) == 0)


def _nearest(tokens: Floats, encoding: Encoding, pieces: Sequence[bytes], most: int) -> Floats:
    """Returns a row a piece of codes: the cosine of each token to the nearest one of the first ones of the piece."""
    size = encoding.bits * tokens.shape[1] // 8
    first = [piece[: most * size] for piece in pieces]
    cosines = _cosines(tokens, encoding, np.frombuffer(b"".join(first), np.uint8).reshape(-1, size))
    starts = np.cumsum([0, *(len(piece) // size for piece in first[:-1])])
    best: Floats = np.maximum.reduceat(cosines, starts, axis=0)
    return best


def _cosines(tokens: Floats, encoding: Encoding, codes: Bytes) -> Floats:
    """Returns a row a vector: its cosine to each token; 0 where it points nowhere, or is not of numbers."""
    inner = np.concatenate([tokens[:, first :: encoding.steps] for first in range(encoding.steps)], axis=1).T
    cosines, squares = np.empty((len(codes), len(tokens)), np.float32), np.empty((len(codes), 1), np.float32)
    scratch = np.empty((min(len(codes), TOKENS), tokens.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, len(codes), TOKENS):
            block = codes[start : start + TOKENS]
            vectors = scratch[: len(block)]
            encoding.decode(block, vectors)
            np.matmul(vectors, inner, out=cosines[start : start + TOKENS])
            np.vecdot(vectors, vectors, out=squares[start : start + TOKENS, 0])
        cosines /= np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
    cosines[~np.isfinite(squares[:, 0])] = 0
    return cosines
