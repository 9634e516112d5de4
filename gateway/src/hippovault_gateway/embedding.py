"""Texts to vectors, by the embedding service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.clients import EMBEDDING, Services, call

MAX_WINDOWS = 64
"""Vectors of a document: as many as storage keeps of a memory. With the default model's window they reach to the end of
nearly every memory, however large."""
MAX_QUERY_TOKENS = 512
"""As many as storage compares."""
REQUEST_BYTES = 64 * 1024
"""Of the documents in one request, unless there is but one: they take seconds, and when a batch fails, the next try
finds in the embedder's cache what this one got."""
CONTENT = "content"
TEXT = re.compile(r"texts\[(\d+)\]")
"""A field of EmbedRequest."""
AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""How the embedder fails where what was asked of it may be right, and can be asked again."""
DOCUMENT_SHARE = 0.75
"""Of the time left that one document's embedding gets: what is left is for storing it without."""
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


async def query(services: Services, text: str, *, share: float) -> EmbeddedQuery:
    """Returns what to search with.

    Args:
        services: The embedding service is one of them.
        text: The query.
        share: Part of the time left that it may take.
    """
    request = pb.EmbedRequest(texts=[text], input_type=pb.INPUT_TYPE_QUERY, token_encoding=pb.TOKEN_ENCODING_FLOAT32)
    with _blaming("query"):
        try:
            response = await call(services.embedding.Embed, request, EMBEDDING, share=share)
        except ServiceError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            # The model tells no tokens, or not so many. Asked each time: it may be another one by now.
            request.ClearField("token_encoding")
            response = await call(services.embedding.Embed, request, EMBEDDING, share=share)
        [embedded] = _embedded(request, response)
    token_vectors = response.texts[0].token_codes[: MAX_QUERY_TOKENS * len(embedded.first)]
    return EmbeddedQuery(embedded.first, token_vectors, embedded.model_revision)


async def document(services: Services, text: str) -> Embedded | ServiceError:
    """Returns the vectors to find a text by, or how the embedder is AWAY."""
    request = _request([text])
    try:
        with _blaming(CONTENT):
            answer = await call(services.embedding.Embed, request, EMBEDDING, share=DOCUMENT_SHARE)
            return _embedded(request, answer)[0]
    except ServiceError as error:
        if error.code not in AWAY:
            raise
        return error


async def documents(services: Services, texts: Sequence[str]) -> list[Embedded | ServiceError]:
    """Returns the vectors to find texts by, in order; waits while the embedder's queue is full.

    Of a text that the embedder refuses, the error is returned; of those that it was not there for, that it is not.
    """
    embedded: list[Embedded | ServiceError] = []
    if not texts:
        return embedded
    try:
        model = await call(services.embedding.GetModel, pb.GetModelRequest(), EMBEDDING)
        for portion in _portions(texts, max(model.max_texts, 1)):
            embedded += await _each(services, portion)
    except ServiceError as error:
        if error.code is not grpc.StatusCode.UNAVAILABLE:
            raise
        embedded += [error] * (len(texts) - len(embedded))
    return embedded


async def _each(services: Services, texts: Sequence[str]) -> list[Embedded | ServiceError]:
    request = _request(texts)
    try:
        return [*_embedded(request, await _patient(services, request))]
    except ServiceError as error:
        refused = _refused(error)
        if not refused:
            raise
    accepted = [text for index, text in enumerate(texts) if index not in refused]
    rest = iter(await _each(services, accepted) if accepted else ())
    return [refused[index] if index in refused else next(rest) for index in range(len(texts))]


async def _patient(services: Services, request: pb.EmbedRequest) -> pb.EmbedResponse:
    """Embeds, again for as long as the embedder says when to, and the time lasts."""
    while True:
        try:
            return await call(services.embedding.Embed, request, EMBEDDING)
        except ServiceError as error:
            in_vain = error.reason == DEADLINE_TOO_SHORT or error.retry_seconds >= deadline.remaining()
            if in_vain or not error.retry_seconds:
                raise
            await asyncio.sleep(error.retry_seconds)


@contextmanager
def _blaming(field: str) -> Iterator[None]:
    """Tells of the one text of a request by the name that the caller has for it."""
    try:
        yield
    except ServiceError as error:
        raise _refused(error, field).get(0, error) from error


def _refused(error: ServiceError, field: str = CONTENT) -> dict[int, ServiceError]:
    """Returns what is wrong with each text that the embedder refuses, such as one too long for its model's server."""
    texts = [(TEXT.fullmatch(each.field), each) for each in error.violations]
    return {
        int(match[1]): ServiceError.invalid(field, each.message.removeprefix(f"{each.field}: "))
        for match, each in texts
        if match
    }


def _request(texts: Sequence[str]) -> pb.EmbedRequest:
    return pb.EmbedRequest(texts=texts, input_type=pb.INPUT_TYPE_DOCUMENT, max_windows=MAX_WINDOWS)


def _portions(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """Yields the texts in order, as many at a time as one request may have."""
    portion: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if portion and (len(portion) == most or size + length > REQUEST_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += length
    yield portion


def _embedded(request: pb.EmbedRequest, response: pb.EmbedResponse) -> list[Embedded]:
    """Returns what the answer has of each text."""
    row, windows = response.dimensions * 4, [info.windows for info in response.texts]
    fits = len(windows) == len(request.texts) and min(windows) > 0 and 0 < row * sum(windows) == len(response.vectors)
    if not fits:
        problem = (
            f"the embedding service answered {len(response.vectors)} bytes for {len(request.texts)} texts "
            f"in {sum(windows)} windows of {row} bytes"
        )
        raise ServiceError(grpc.StatusCode.INTERNAL, "EMBEDDING_SHAPE", problem)
    embedded, start = [], 0
    for info in response.texts:
        vectors = response.vectors[start : start + row * info.windows]
        embedded.append(Embedded(vectors, info.windows, response.model_revision, info.truncated))
        start += len(vectors)
    return embedded
