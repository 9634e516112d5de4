"""Texts to vectors, by the embedding service."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.clients import EMBEDDING, Services, call

MAX_QUERY_TOKENS = 512
"""As many as storage compares."""
CONTENT = "content"
TEXT = re.compile(r"texts\[(\d+)\]")
"""A field of EmbedRequest."""
AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""How the embedder fails where what was asked of it may be right, and can be asked again."""
SYMBOL = "So"
"""Unicode's category of symbols that are no signs of a language."""
DEADLINE_TOO_SHORT = "DEADLINE_TOO_SHORT"
"""Reason by which the embedder refuses what would not be done in the time that is left, not even after a wait."""


@dataclass(frozen=True)
class Embedded:
    """What became of a text."""

    vectors: bytes
    """Little-endian float32, a row a window, in order; each row has L2 norm 1."""
    windows: int
    """Rows of `vectors`, at least 1."""
    model_revision: str
    truncated: bool
    """Whether the text goes on where the last window ends."""
    token_codes: bytes = b""
    """Of its tokens, special ones apart."""
    token_encoding: str = ""

    @property
    def first(self) -> bytes:
        """The vector of the text's beginning."""
        return self.vectors[: len(self.vectors) // self.windows]


@dataclass(frozen=True)
class EmbeddedQuery:
    """What to search with."""

    vector: bytes
    """Little-endian float32, of L2 norm 1."""
    token_vectors: bytes
    """Of the query's tokens, special ones apart, for storage's LateInteraction; empty where the model tells none."""
    model_revision: str
    unknown: float
    """Share of the query's tokens that the model does not know, 0 to 1; symbols such as emoji apart."""


async def query(services: Services, text: str, *, share: float) -> EmbeddedQuery:
    """Returns what to search with.

    Args:
        services: The embedding service is one of them.
        text: The query.
        share: Part of the time left that it may take.
    """
    request = pb.EmbedRequest(
        texts=[text],
        input_type=pb.INPUT_TYPE_QUERY,
        token_encoding=pb.TOKEN_ENCODING_FLOAT32,
        max_told_tokens=MAX_QUERY_TOKENS,
    )
    with _blaming("query"):
        try:
            response = await call(services.embedding.Embed, request, EMBEDDING, share=share)
        except ServiceError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            # The model tells no tokens. Asked each time: it may be another one by now.
            request.ClearField("token_encoding")
            response = await call(services.embedding.Embed, request, EMBEDDING, share=share)
        [result] = embedded(request, response)
    return EmbeddedQuery(result.first, result.token_codes, result.model_revision, _unknown(text, response.texts[0]))


def _unknown(text: str, told: pb.TextInfo) -> float:
    symbols = sum(unicodedata.category(character) == SYMBOL for character in text)
    return max(0, told.unknown_token_count - symbols) / max(told.token_count, 1)


@contextmanager
def _blaming(field: str) -> Iterator[None]:
    """Tells of the one text of a request by the name that the caller has for it."""
    try:
        yield
    except ServiceError as error:
        raise refused(error, field).get(0, error) from error


def refused(error: ServiceError, field: str = CONTENT) -> dict[int, ServiceError]:
    """Returns what is wrong with each text that the embedder refuses, such as one too long for its model's server."""
    texts = [(TEXT.fullmatch(each.field), each) for each in error.violations]
    return {
        int(match[1]): ServiceError.invalid(field, each.message.removeprefix(f"{each.field}: "))
        for match, each in texts
        if match
    }


def embedded(request: pb.EmbedRequest, response: pb.EmbedResponse, token_encoding: str = "") -> list[Embedded]:
    """Returns what the answer has of each text.

    Args:
        request: What was asked.
        response: The answer.
        token_encoding: Of the token codes, by its name in storage.
    """
    row, windows = response.dimensions * 4, [info.windows for info in response.texts]
    fits = len(windows) == len(request.texts) and min(windows) > 0 and 0 < row * sum(windows) == len(response.vectors)
    if not fits:
        problem = (
            f"the embedding service answered {len(response.vectors)} bytes for {len(request.texts)} texts "
            f"in {sum(windows)} windows of {row} bytes"
        )
        raise ServiceError(grpc.StatusCode.INTERNAL, "EMBEDDING_SHAPE", problem)
    results, start = [], 0
    for info in response.texts:
        vectors = response.vectors[start : start + row * info.windows]
        codes = info.token_codes, token_encoding
        results.append(Embedded(vectors, info.windows, response.model_revision, info.truncated, *codes))
        start += len(vectors)
    return results
