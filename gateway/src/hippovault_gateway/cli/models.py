"""The models of a running memory, as its embedding service tells them."""

from __future__ import annotations

from typing import Self

import grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1 import embedding_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway.cli.client import gateway_settings
from hippovault_gateway.cli.options import ClientOptions
from hippovault_gateway.documents import Document

SERVICE: str = pb.DESCRIPTOR.services_by_name["EmbeddingService"].full_name
MOST_SECONDS = 2.0
"""What it gets to answer."""


class ModelView(Document):
    """A model that is served; the first one is the memory's own."""

    name: str
    model_revision: str
    dimensions: int | None
    """None where the model's server has not told yet."""
    loaded: bool
    load_error: str
    """Why it could not be loaded, or its server gave no vectors, when that was last tried; empty when it went well."""
    server: str
    """Base URL of what computes its vectors; empty where this memory does."""

    @classmethod
    def of(cls, model: pb.GetModelResponse) -> Self:
        """Returns the JSON form."""
        return cls(
            name=model.name,
            model_revision=model.model_revision,
            dimensions=model.dimensions or None,
            loaded=model.loaded,
            load_error=model.load_error,
            server=model.server,
        )

    @property
    def state(self) -> str:
        """How it is, for people."""
        if self.load_error:
            return "failed"
        return "loaded" if self.loaded else "not loaded"


def served(options: ClientOptions) -> list[ModelView]:
    """Returns the models that are served, the default one first; none where the service does not answer."""
    target = gateway_settings(options.layout).embedding_target()
    with channels.sync(target, SERVICE, ()) as channel:
        stub = embedding_pb2_grpc.EmbeddingServiceStub(channel)
        try:
            answer = stub.ListModels(pb.ListModelsRequest(), timeout=min(options.timeout, MOST_SECONDS))
        except grpc.RpcError:  # Why, the gateway tells.
            return []
    return [ModelView.of(model) for model in answer.models]
