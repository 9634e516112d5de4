"""Vectors of tokens in compact form, for late interaction.

Only a token's direction counts there, so no scale is told: a reader takes the norm of the values that it reads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hippovault.embedding.v1 import embedding_pb2 as pb

Floats = npt.NDArray[np.float32]


def encode(tokens: Floats, encoding: pb.TokenEncoding.ValueType) -> bytes:
    """Returns the codes of token vectors.

    Args:
        tokens: tokens * dimensions; dimensions are a multiple of 8.
        encoding: See embedding.proto.
    """
    if encoding == pb.TOKEN_ENCODING_UNSPECIFIED:
        return b""
    if encoding == pb.TOKEN_ENCODING_FLOAT32:
        return tokens.astype("<f4").tobytes()
    if encoding == pb.TOKEN_ENCODING_SIGN:
        return np.packbits(tokens > 0, axis=1, bitorder="little").tobytes()
    if encoding == pb.TOKEN_ENCODING_INT8:
        return _scaled(tokens, 127).tobytes()
    nibbles = _scaled(tokens, 7).view(np.uint8) & 0x0F
    return (nibbles[:, ::2] | nibbles[:, 1::2] << 4).tobytes()


def _scaled(tokens: Floats, largest: int) -> npt.NDArray[np.int8]:
    """Returns integers of which the largest of each token has the given magnitude."""
    peaks = np.abs(tokens).max(axis=1, keepdims=True, initial=np.finfo(np.float32).tiny)
    codes: npt.NDArray[np.int8] = np.rint(tokens * (largest / peaks)).astype(np.int8)
    return codes
