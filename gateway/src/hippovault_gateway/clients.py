"""Calls to the services behind the gateway, each within the time that the request has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import grpc
from google.protobuf.message import Message

from hippovault.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from hippovault.storage.v1 import storage_pb2, storage_pb2_grpc
from hippovault_chassis import channels, deadline, health, tracing
from hippovault_chassis.errors import ServiceError

if TYPE_CHECKING:
    from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceAsyncStub
    from hippovault.storage.v1.storage_pb2_grpc import StorageServiceAsyncStub

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

EMBEDDING = "embedding"
STORAGE = "storage"
EMBEDDING_SERVICE: str = embedding_pb2.DESCRIPTOR.services_by_name["EmbeddingService"].full_name
STORAGE_SERVICE: str = storage_pb2.DESCRIPTOR.services_by_name["StorageService"].full_name
INNER_SHARE = 0.95
"""Of the time left that an inner call gets, so that its failure is told before the caller's own deadline ends."""
VECTOR_FIELDS = frozenset({"vector", "vectors", "hint_vectors", "dense.vector", "late_interaction.token_vectors"})
STORAGE_RETRIED = (
    # A repeated put finds what the first one stored. A repeated delete or undelete would answer NOT_FOUND, a repeated
    # update that nothing changed or that the version is another, a repeated purge that there was nothing to erase.
    "PutMemory",
    "FindMemory",
    "GetMemory",
    "BatchGetMemories",
    "ListMemories",
    "ListMemoryVersions",
    "SearchMemories",
    "CompareToNewest",
    "ListUnembedded",
    "EmbedMemory",
    "SummarizeMemories",
    "GetStats",
)


@dataclass(frozen=True)
class Services:
    """The stubs of the services behind the gateway."""

    embedding: EmbeddingServiceAsyncStub
    storage: StorageServiceAsyncStub
    channels: Sequence[tuple[grpc.aio.Channel, str]]
    """To each service, with its full name."""

    @classmethod
    @asynccontextmanager
    async def connect(cls, embedding_target: str, storage_target: str) -> AsyncIterator[Self]:
        """Opens both channels while the context lasts; connecting waits for the first call."""
        async with (
            channels.aio(embedding_target, EMBEDDING_SERVICE, ("Embed", "GetModel")) as embedding,
            channels.aio(storage_target, STORAGE_SERVICE, STORAGE_RETRIED) as storage,
        ):
            yield cls(
                embedding=embedding_pb2_grpc.EmbeddingServiceStub(embedding),
                storage=storage_pb2_grpc.StorageServiceStub(storage),
                channels=((embedding, EMBEDDING_SERVICE), (storage, STORAGE_SERVICE)),
            )

    async def serving(self, seconds: float) -> bool:
        """Tells whether all services say that they serve, each within the given seconds."""
        answers = (health.serves(channel, service, seconds) for channel, service in self.channels)
        return all(await asyncio.gather(*answers))


async def call(
    method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
    request: RequestT,
    service: str,
    *,
    share: float = 1.0,
    at_most: float = deadline.MAX_SECONDS,
) -> ResponseT:
    """Calls a service.

    Args:
        method: Of a stub.
        request: Its request.
        service: The service's name, for the error.
        share: Part of the time left that the call may take.
        at_most: Seconds it may take.

    Raises:
        ServiceError: What the service answered, or that it does not answer.
    """
    try:
        seconds = min(deadline.remaining() * share * INNER_SHARE, at_most)
        return await method(request, timeout=seconds, metadata=tracing.metadata())
    except grpc.aio.AioRpcError as error:
        raise _blamed(ServiceError.from_rpc(error, service), service) from error


def _blamed(error: ServiceError, service: str) -> ServiceError:
    """Returns the error; of a busy service with its name, over a vector, which no caller sends, as what it means."""
    if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_seconds:
        problem = f"the {service} service is busy: {error.message}"
        return ServiceError(error.code, error.reason, problem, retry_seconds=error.retry_seconds)
    if error.code is not grpc.StatusCode.INVALID_ARGUMENT or error.field not in VECTOR_FIELDS:
        return error
    return ServiceError.model_mismatch(f"the embedding model's vectors do not have the store's form ({error.message})")
