"""Memories to vectors: of the content, of each hint, and of all of their tokens, by as few requests as may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import embedding
from hippovault_gateway.clients import EMBEDDING, Services, call
from hippovault_gateway.embedding import AWAY, Embedded
from hippovault_gateway.token_encoding import TokenEncoding

Write = storage_pb2.PutMemoryRequest | storage_pb2.UpdateMemoryRequest | storage_pb2.EmbedMemoryRequest
"""What takes vectors to storage."""
Embed = Callable[[pb.EmbedRequest], Awaitable[pb.EmbedResponse]]
Result = Embedded | ServiceError

MAX_WINDOWS = 64
"""Vectors of a content: as many as storage keeps of a memory. With the default model's window they reach to the end of
nearly every memory, however large."""
REQUEST_BYTES = 64 * 1024
"""Of the texts in one request, unless there is but one: they take seconds, and when a batch fails, the next try
finds in the embedder's cache what this one got."""
MAX_CODES_BYTES = 262_144
"""Of the token codes that storage keeps of a content, and of the hints together. Tokens beyond are left out."""
CODES_SHARE = 2
"""Codes get one such part of an answer's bytes; the rest is for vectors."""
DOCUMENT_SHARE = 0.75
"""Of the time left that an embedding gets: what is left is for storing without."""
MODEL_SECONDS = 10.0
"""What the embedder gets to tell its model, which takes it a millisecond: a stuck one holds up streams, which have time
without end, no longer."""
OUT_OF_REACH = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""How it is away, apart from being busy, which many wait for."""
ENCODINGS = {
    "int8": (pb.TOKEN_ENCODING_INT8, 8),
    "int4": (pb.TOKEN_ENCODING_INT4, 4),
    "sign": (pb.TOKEN_ENCODING_SIGN, 1),
}
"""Each with its bits a dimension."""


class Texts(NamedTuple):
    """What of a memory is to be embedded."""

    content: str
    """Empty where the hints alone are."""
    hints: Sequence[str]

    @classmethod
    def of(cls, memory: memory_pb2.Memory) -> Texts:
        """Returns all of a memory's texts."""
        return cls(memory.content, memory.hints)

    @property
    def all(self) -> list[str]:
        """The content, if it is one of them, then the hints."""
        return [*([self.content] if self.content else []), *self.hints]


@dataclass(frozen=True)
class EmbeddedMemory:
    """What became of a memory's texts."""

    content: Embedded | None
    hints: Sequence[Embedded]

    def add_to(self, write: Write) -> None:
        """Puts the vectors and token codes into a write."""
        if self.content:
            write.vectors, write.model_revision = self.content.vectors, self.content.model_revision
            _add_codes(write.token_codes, [self.content])
        if self.hints:
            write.hint_vectors = b"".join(hint.first for hint in self.hints)
            write.model_revision = self.hints[0].model_revision
            _add_codes(write.hint_token_codes, self.hints)


class Embedder:
    """Embeds memories.

    Args:
        services: The embedding service is one of them.
        token_encoding: Of the token codes; of a model that tells no tokens in it there are none.
    """

    def __init__(self, services: Services, token_encoding: TokenEncoding) -> None:
        self._services = services
        self._wanted = token_encoding

    async def token_encoding(self) -> str:
        """Returns the encoding of the token codes; nothing where there are none."""
        return (await self._plan()).encoding

    async def memory(self, texts: Texts) -> EmbeddedMemory | ServiceError:
        """Returns the vectors to find a memory by, or how the embedder is AWAY."""
        flat: list[Result] = []
        try:
            await self._embed_into(flat, texts.all, self._once)
        except ServiceError as error:
            if error.code not in AWAY:
                raise
            return error
        embedded = _joined(texts, iter(flat))
        if isinstance(embedded, ServiceError):
            raise embedded
        return embedded

    async def memories(self, wanted: Sequence[Texts]) -> list[EmbeddedMemory | ServiceError]:
        """Returns the vectors to find memories by, in order; waits while the embedder's queue is full.

        Of a memory of which the embedder refuses a text, the error is returned; of those that it was not there for,
        that it is not.
        """
        texts = [text for each in wanted for text in each.all]
        flat: list[Result] = []
        try:
            await self._embed_into(flat, texts, self._patiently)
        except ServiceError as error:
            if error.code not in OUT_OF_REACH:
                raise
            flat += [error] * (len(texts) - len(flat))
        results = iter(flat)
        return [_joined(each, results) for each in wanted]

    async def _embed_into(self, results: list[Result], texts: Sequence[str], embed: Embed) -> None:
        if texts:
            plan = await self._plan()
            for portion in plan.portions(texts):
                results += await _each(plan, portion, embed)

    async def _plan(self) -> _Plan:
        tell, request = self._services.embedding.GetModel, pb.GetModelRequest()
        model = await call(tell, request, EMBEDDING, share=DOCUMENT_SHARE, at_most=MODEL_SECONDS)
        most_texts = max(model.max_texts, 1)
        value, bits = ENCODINGS.get(self._wanted, (None, 0))
        if value not in model.token_encodings or not model.dimensions:
            return _Plan(most_texts)
        return _Plan(most_texts, self._wanted, model.dimensions * bits // 8, model.max_answer_bytes // CODES_SHARE)

    async def _once(self, request: pb.EmbedRequest) -> pb.EmbedResponse:
        return await call(self._services.embedding.Embed, request, EMBEDDING, share=DOCUMENT_SHARE)

    async def _patiently(self, request: pb.EmbedRequest) -> pb.EmbedResponse:
        """Embeds, again for as long as the embedder says when to, and the time lasts."""
        while True:
            try:
                return await self._once(request)
            except ServiceError as error:
                late = error.reason == embedding.DEADLINE_TOO_SHORT or error.retry_seconds >= deadline.remaining()
                if late or not error.retry_seconds:
                    raise
                await asyncio.sleep(error.retry_seconds)


@dataclass(frozen=True)
class _Plan:
    """How texts are asked for, as the model that is served now allows."""

    most_texts: int
    encoding: str = ""
    row_bytes: int = 0
    """Of a token's codes."""
    codes_bytes: int = 0
    """Of all codes of one answer."""

    def request(self, texts: Sequence[str]) -> pb.EmbedRequest:
        request = pb.EmbedRequest(texts=texts, input_type=pb.INPUT_TYPE_DOCUMENT, max_windows=MAX_WINDOWS)
        if self.encoding:
            request.token_encoding = ENCODINGS[self.encoding][0]
            request.max_told_tokens = MAX_CODES_BYTES // self.row_bytes
        return request

    def portions(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Yields the texts in order, as many at a time as one request may have."""
        portion: list[str] = []
        size = codes = 0
        for text in texts:
            length = len(text.encode())
            told = min(length * self.row_bytes, MAX_CODES_BYTES)  # A token has a byte, and mostly more.
            is_full = size + length > REQUEST_BYTES or codes + told > self.codes_bytes
            if portion and (is_full or len(portion) == self.most_texts):
                yield portion
                portion, size, codes = [], 0, 0
            portion.append(text)
            size, codes = size + length, codes + told
        yield portion


async def _each(plan: _Plan, texts: Sequence[str], embed: Embed) -> list[Result]:
    request = plan.request(texts)
    try:
        return [*embedding.embedded(request, await embed(request), plan.encoding)]
    except ServiceError as error:
        refused = embedding.refused(error)
        if not refused:
            raise
    accepted = [text for index, text in enumerate(texts) if index not in refused]
    rest = iter(await _each(plan, accepted, embed) if accepted else ())
    return [refused[index] if index in refused else next(rest) for index in range(len(texts))]


def _joined(texts: Texts, results: Iterator[Result]) -> EmbeddedMemory | ServiceError:
    """Takes what became of a memory's texts; an error of one of them is the memory's."""
    content = next(results) if texts.content else None
    hints = [*islice(results, len(texts.hints))]
    if isinstance(content, ServiceError):
        return content
    embedded = []
    for place, hint in enumerate(hints):
        if isinstance(hint, ServiceError):
            problem = hint.message.removeprefix(f"{hint.field}: ")
            return ServiceError.invalid(f"hints[{place}]", problem) if hint.field else hint
        embedded.append(hint)
    return EmbeddedMemory(content, embedded)


def _add_codes(codes: storage_pb2.TokenCodes, texts: Sequence[Embedded]) -> None:
    told = b"".join(text.token_codes for text in texts)
    if told:
        row = len(texts[0].first) // 4 * ENCODINGS[texts[0].token_encoding][1] // 8
        codes.encoding, codes.codes = texts[0].token_encoding, told[: MAX_CODES_BYTES // row * row]
