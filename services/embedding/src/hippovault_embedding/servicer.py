"""EmbeddingService: what a request may be, and its answer. Free of transport, so it can be called in process."""

from __future__ import annotations

from collections.abc import Sequence

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceServicer
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.embedder import Embedder

NAME = pb.DESCRIPTOR.services_by_name["EmbeddingService"].full_name


class EmbeddingServicer(EmbeddingServiceServicer):
    """Serves one model.

    Args:
        embedder: Embeds.
        max_texts: Texts in one request.
        max_text_bytes: UTF-8 bytes in one text.
    """

    def __init__(self, embedder: Embedder, max_texts: int, max_text_bytes: int) -> None:
        self._embedder = embedder
        self._model = embedder.model
        self._max_texts = max_texts
        self._max_text_bytes = max_text_bytes

    async def Embed(self, request: pb.EmbedRequest, context: object) -> pb.EmbedResponse:
        """See embedding.proto."""
        self._check_model(request.model)
        self._check_texts(request.texts)
        prefix = self._prefix(request.input_type)
        embeddings = await self._embedder.embed([prefix + text for text in request.texts])
        return pb.EmbedResponse(
            vectors=b"".join(embedding.vector for embedding in embeddings),
            dimensions=self._model.dimensions,
            model_revision=self._model.revision,
            texts=[
                pb.TextInfo(
                    token_count=len(embedding.tokens.ids),
                    truncated=embedding.tokens.truncated,
                    unknown_token_count=embedding.tokens.unknown,
                )
                for embedding in embeddings
            ],
        )

    async def GetModel(self, request: pb.GetModelRequest, context: object) -> pb.GetModelResponse:
        """See embedding.proto."""
        self._check_model(request.model)
        return pb.GetModelResponse(
            name=self._model.name,
            model_revision=self._model.revision,
            dimensions=self._model.dimensions,
            max_tokens=self._model.window,
            max_texts=self._max_texts,
            max_text_bytes=self._max_text_bytes,
            loaded=self._embedder.loaded,
            load_error=self._embedder.load_error,
        )

    def _check_model(self, name: str) -> None:
        if name not in ("", self._model.name):
            raise ServiceError.invalid("model", f"must be empty or {self._model.name!r}, the one that is served")

    def _check_texts(self, texts: Sequence[str]) -> None:
        memory_rules.within("texts", len(texts), 1, self._max_texts)
        for index, text in enumerate(texts):
            memory_rules.text(f"texts[{index}]", text, self._max_text_bytes, allowed=memory_rules.LINE_CONTROLS)

    def _prefix(self, input_type: pb.InputType.ValueType) -> str:
        if input_type not in pb.InputType.values():
            known = ", ".join(pb.InputType.keys())
            raise ServiceError.invalid("input_type", f"must be one of {known}, is {input_type}")
        query = input_type == pb.INPUT_TYPE_QUERY
        return self._model.query_prefix if query else self._model.document_prefix
