"""EmbeddingService: what a request may be, and its answer. Free of transport, so it can be called in process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceServicer
from hippovault_chassis import memory_rules
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.aside import aside
from hippovault_embedding.backend import Options
from hippovault_embedding.cache import Embedding
from hippovault_embedding.catalogue import Catalogue
from hippovault_embedding.embedder import Embedder
from hippovault_embedding.model import ModelFacts
from hippovault_embedding.settings import EmbeddingSettings

NAME = pb.DESCRIPTOR.services_by_name["EmbeddingService"].full_name
MAX_WINDOWS = 64
"""As many vectors as a memory may have."""

MAX_INT32 = 2**31 - 1


class EmbeddingServicer(EmbeddingServiceServicer):
    """Serves the models of a catalogue.

    Args:
        catalogue: Embeds.
        settings: Limits of a request.
    """

    def __init__(self, catalogue: Catalogue, settings: EmbeddingSettings) -> None:
        self._catalogue = catalogue
        self._settings = settings

    async def Embed(self, request: pb.EmbedRequest, context: object) -> pb.EmbedResponse:
        """See embedding.proto."""
        embedder = self._catalogue.get(request.model)
        options = self._options(request, await embedder.facts())
        memory_rules.within("texts", len(request.texts), 1, self._settings.max_texts)
        texts = list(request.texts)  # Each look at a message's own makes new ones.
        await aside(texts, self._check_texts)
        embedded = await embedder.embed(texts, options)
        return pb.EmbedResponse(
            vectors=b"".join(row.vector for each in embedded.embeddings for row in each.rows),
            dimensions=embedded.facts.dimensions,
            model_revision=embedded.facts.revision,
            texts=map(_info, embedded.embeddings),
            tokenize_time=_duration(embedded.tokenize_seconds),
            queue_time=_duration(embedded.queue_seconds),
            inference_time=_duration(embedded.inference_seconds),
        )

    async def GetModel(self, request: pb.GetModelRequest, context: object) -> pb.GetModelResponse:
        """See embedding.proto."""
        return await self._described(self._catalogue.get(request.model))

    async def ListModels(self, request: pb.ListModelsRequest, context: object) -> pb.ListModelsResponse:
        """See embedding.proto."""
        return pb.ListModelsResponse(models=await asyncio.gather(*map(self._described, self._catalogue.all)))

    async def Warm(self, request: pb.WarmRequest, context: object) -> pb.WarmResponse:
        """See embedding.proto."""
        seconds = await self._catalogue.get(request.model).warm()
        return pb.WarmResponse(load_time=_duration(seconds))

    async def _described(self, embedder: Embedder) -> pb.GetModelResponse:
        settings, limits = self._settings, embedder.limits
        try:
            facts = await embedder.facts()
        except ServiceError:  # Which is what `load_error` says.
            facts = ModelFacts(name=embedder.name, revision="", dimensions=0)
        return pb.GetModelResponse(
            name=facts.name,
            model_revision=facts.revision,
            dimensions=facts.dimensions,
            max_tokens=facts.window,
            max_texts=settings.max_texts,
            max_text_bytes=settings.max_text_bytes,
            loaded=embedder.residency.loaded,
            load_error=embedder.load_error or facts.server_error,
            max_windows=MAX_WINDOWS if facts.windowed else 1,
            window_overlap=facts.overlap,
            max_batch_tokens=limits.batch_tokens,
            max_queue_tokens=limits.queue_tokens,
            token_encodings=facts.token_encodings,
            server=facts.server,
            max_answer_bytes=MAX_ANSWER_BYTES,
        )

    def _check_texts(self, texts: Sequence[str]) -> None:
        """Tells of every text that is wrong, so that a caller can leave out all of them at once."""
        problems = list(self._problems(texts))
        if problems:
            raise ServiceError.invalid_fields(problems)

    def _problems(self, texts: Sequence[str]) -> Iterator[ServiceError]:
        for index, text in enumerate(texts):
            try:
                limit = self._settings.max_text_bytes
                memory_rules.text(f"texts[{index}]", text, limit, allowed=memory_rules.LINE_CONTROLS)
            except ServiceError as error:
                yield error

    @staticmethod
    def _options(request: pb.EmbedRequest, facts: ModelFacts) -> Options:
        _check_enum("input_type", request.input_type, pb.InputType)
        _check_enum("token_encoding", request.token_encoding, pb.TokenEncoding)
        if request.token_encoding and request.token_encoding not in facts.token_encodings:
            problem = f"the model {facts.name} cannot tell the vectors of tokens; must be unset"
            raise ServiceError.invalid("token_encoding", problem)
        return Options(
            query=request.input_type == pb.INPUT_TYPE_QUERY,
            max_windows=memory_rules.within("max_windows", request.max_windows or 1, 1, MAX_WINDOWS),
            token_encoding=request.token_encoding,
            max_told_tokens=memory_rules.within("max_told_tokens", request.max_told_tokens, 0, MAX_INT32) or MAX_INT32,
        )


def _info(embedding: Embedding) -> pb.TextInfo:
    return pb.TextInfo(
        token_count=embedding.token_count,
        truncated=embedding.truncated,
        unknown_token_count=embedding.unknown,
        windows=len(embedding.rows),
        token_codes=b"".join(row.token_codes for row in embedding.rows),
        cached=embedding.cached,
    )


def _check_enum(field: str, value: int, enum: type[pb.InputType | pb.TokenEncoding]) -> None:
    if value not in enum.values():
        raise ServiceError.invalid(field, f"must be one of {', '.join(enum.keys())}, is {value}")


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
