"""The seam between the queue and what computes vectors: a network in this process, or a server elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_embedding.model import ModelFacts


@dataclass(frozen=True)
class Options:
    """How texts are embedded; texts of unlike options never share a cache entry."""

    query: bool = False
    """Whether they are to search with, and not to be found."""
    max_windows: int = 1
    """Vectors that one text may get."""
    token_encoding: pb.TokenEncoding.ValueType = pb.TOKEN_ENCODING_UNSPECIFIED
    max_told_tokens: int = sys.maxsize
    """Tokens of one text whose vectors are told."""


BITS = {
    pb.TOKEN_ENCODING_UNSPECIFIED: 0,
    pb.TOKEN_ENCODING_FLOAT32: 32,
    pb.TOKEN_ENCODING_INT8: 8,
    pb.TOKEN_ENCODING_INT4: 4,
    pb.TOKEN_ENCODING_SIGN: 1,
}
"""Of a token's code, a dimension."""


@dataclass(frozen=True)
class Piece:
    """What one row of an inference is computed from: a window of a text."""

    ids: Sequence[int]
    """Its tokens, special tokens included. A server's piece has none."""
    size: int
    """Tokens, for planning; a server's are estimated."""
    text: str = ""
    """What a server gets."""
    told: slice = field(default_factory=lambda: slice(0))
    """The places of `ids` whose token vectors are told: no special tokens, no prefix, nothing of the window before."""
    token_encoding: pb.TokenEncoding.ValueType = pb.TOKEN_ENCODING_UNSPECIFIED

    def row_bytes(self, dimensions: int) -> int:
        """Returns how many bytes its vector and codes will have."""
        tokens = len(range(*self.told.indices(len(self.ids))))
        return dimensions * (32 + tokens * BITS[self.token_encoding]) // 8


@dataclass(frozen=True)
class Prepared:
    """A text, ready to be computed."""

    pieces: Sequence[Piece]
    """At least one."""
    token_count: int
    truncated: bool = False
    unknown: int = 0
    """Tokens that the vocabulary does not have."""
    mostly_unknown: bool = False
    """Whether the text's language is not the model's."""


@dataclass(frozen=True)
class Row:
    """What became of a piece."""

    vector: bytes
    """Little-endian float32 of L2 norm 1."""
    token_codes: bytes = b""
    refused: str = ""
    """Why there is no vector, where the piece itself is to blame; empty when there is one."""


class Backend(Protocol):
    """Computes the vectors of one model.

    `load` and `unload` are called from a thread, one at a time; `prepare` and `run` only between them.
    """

    async def facts(self) -> ModelFacts:
        """Returns what callers are told of the model; never loads it.

        Raises:
            ModelError: It cannot be told, since a file is missing or damaged.
        """

    def load(self) -> None:
        """Brings into memory what the model needs; an exception says that it cannot, and names the file."""

    def unload(self) -> None:
        """Lets go of it."""

    async def prepare(self, texts: Sequence[str], options: Options) -> list[Prepared]:
        """Returns each text as pieces, in order."""

    async def run(self, pieces: Sequence[Piece]) -> list[Row]:
        """Returns the rows of the pieces, in order, by one inference.

        `deadline.remaining` is the longest that one of the callers waits. Cancelled when none does any more.
        """
