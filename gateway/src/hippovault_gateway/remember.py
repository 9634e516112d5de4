"""Remember: a duplicate is looked for before anything is embedded; one write stores all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import embedding, hints_gate
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedding import Embedded
from hippovault_gateway.scoring import Scorer

MAX_BATCH = 100
MAX_BATCH_BYTES = 2 * 1024 * 1024
"""The answer has every memory again, and a gRPC client takes 4 MiB by default."""
VECTOR_REQUIRED = "VECTOR_REQUIRED"
"""Reason by which storage refuses a put without a vector: the memory is not there (any more)."""


class Rememberer:
    """Stores memories.

    Args:
        services: The services behind the gateway.
        scorer: Scores what is new.
    """

    def __init__(self, services: Services, scorer: Scorer) -> None:
        self._services = services
        self._scorer = scorer

    async def remember(self, request: pb.RememberRequest) -> pb.RememberResponse:
        """Stores one memory, or finds that it is stored already."""
        memory = _checked(request)
        embedded = None if await self._is_stored(memory) else await embedding.document(self._services, memory.content)
        return await self._write(memory, embedded)

    async def batch_remember(self, request: pb.BatchRememberRequest) -> pb.BatchRememberResponse:
        """Stores memories in order, embedding them together; each has its own result.

        Raises:
            ServiceError: A service does not answer, or is busy. The batch may be repeated: what is stored is found.
        """
        memory_rules.within("requests", len(request.requests), 1, MAX_BATCH)
        if request.ByteSize() > MAX_BATCH_BYTES:
            problem = f"must have at most {MAX_BATCH_BYTES} bytes together, have {request.ByteSize()}"
            raise ServiceError.invalid("requests", problem)
        results = [pb.BatchRememberResult() for _ in request.requests]
        memories: dict[int, memory_pb2.Memory] = {}
        for index, item in enumerate(request.requests):
            with _error_into(results[index]):
                memories[index] = _checked(item)
        new = [index for index, memory in memories.items() if not await self._is_stored(memory)]
        texts = [memories[index].content for index in new]
        embedded = dict(zip(new, await embedding.documents(self._services, texts), strict=True))
        # In order: a key's last content wins, and each memory is part of the history of the next one's surprise.
        for index, memory in memories.items():
            with _error_into(results[index]):
                results[index].response.CopyFrom(await self._write(memory, embedded.get(index)))
        return pb.BatchRememberResponse(results=results)

    async def _is_stored(self, memory: memory_pb2.Memory) -> bool:
        """Tells whether the live memory that a write would go to has this content, and a vector of it."""
        find = storage_pb2.FindMemoryRequest(
            namespace=memory.namespace, content=memory.content, category=memory.category, key=memory.key
        )
        found = await call(self._services.storage.FindMemory, find, STORAGE)
        live = found.HasField("memory") and not found.memory.HasField("deleted_at")
        return live and found.has_vector and found.memory.content == memory.content

    async def _write(self, memory: memory_pb2.Memory, embedded: Embedded | ServiceError | None) -> pb.RememberResponse:
        """Writes the memory; without a vector where it is stored with one."""
        if isinstance(embedded, ServiceError):
            raise embedded
        if embedded is None:
            try:
                return await self._put(storage_pb2.PutMemoryRequest(memory=memory))
            except ServiceError as error:
                if error.reason != VECTOR_REQUIRED:
                    raise
            # Forgotten or changed since it was found.
            embedded = await embedding.document(self._services, memory.content)
        memory.surprise.CopyFrom(await self._scorer.score(memory, embedded))
        put = storage_pb2.PutMemoryRequest(
            memory=memory, vectors=embedded.vectors, model_revision=embedded.model_revision
        )
        response = await self._put(put)
        response.windows, response.truncated = embedded.windows, embedded.truncated
        return response

    async def _put(self, request: storage_pb2.PutMemoryRequest) -> pb.RememberResponse:
        stored = await call(self._services.storage.PutMemory, request, STORAGE)
        return pb.RememberResponse(memory=stored.memory, outcome=stored.outcome)


def _checked(request: pb.RememberRequest) -> memory_pb2.Memory:
    """Returns the memory that the request describes, in its stored form.

    Raises:
        ServiceError: A field is wrong; told before hints are refused for being switched off.
    """
    memory = memory_pb2.Memory(
        namespace=request.namespace,
        content=request.content,
        category=request.category,
        key=request.key,
        tags=request.tags,
        hints=request.hints,
        memory_type=request.memory_type,
        importance=request.importance if request.HasField("importance") else None,
        metadata=request.metadata,
        created_at=request.created_at if request.HasField("created_at") else None,
        status=request.status,
    )
    memory_rules.normalise(memory)
    if memory.hints:
        hints_gate.check()
    return memory


@contextmanager
def _error_into(result: pb.BatchRememberResult) -> Iterator[None]:
    """Puts an error that is the item's own into its result; others are the batch's."""
    try:
        yield
    except ServiceError as error:
        if error.code not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
            raise
        code = error.code.value[0]
        result.error.CopyFrom(
            memory_pb2.BatchError(code=code, message=error.message, field=error.field, reason=error.reason)
        )
