"""An embedding process, as a test uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import ServiceError
from support.processes import Process, start

SERVICE = "hippovault.embedding.v1.EmbeddingService"
SECONDS = 30

Vectors = npt.NDArray[np.float32]


@contextmanager
def serving(home: Path, *flags: str, **variables: str) -> Iterator[Process]:
    """Serves with these flags and variables."""
    process = start(["hippovault_embedding", *flags], home, "embedding", variables)
    try:
        yield process
    finally:
        process.kill()


@contextmanager
def connected(process: Process) -> Iterator[EmbeddingServiceStub]:
    """A stub of the process."""
    with grpc.insecure_channel(process.status) as channel:
        yield EmbeddingServiceStub(channel)


def embed(stub: EmbeddingServiceStub, texts: Sequence[str], model: str = "") -> pb.EmbedResponse:
    """Embeds documents."""
    return stub.Embed(pb.EmbedRequest(texts=texts, model=model), timeout=SECONDS)


def vectors(response: pb.EmbedResponse) -> Vectors:
    """The rows of an answer."""
    return np.frombuffer(response.vectors, "<f4").reshape(-1, response.dimensions)


def get_model(stub: EmbeddingServiceStub, model: str = "") -> pb.GetModelResponse:
    """What is told of a model, the default one for no name."""
    return stub.GetModel(pb.GetModelRequest(model=model), timeout=SECONDS)


def health_of(process: Process, name: str = SERVICE) -> int:
    """The state that health tells."""
    with grpc.insecure_channel(process.status) as channel:
        request = health_pb2.HealthCheckRequest(service=name)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=SECONDS).status)


def refusal(stub: EmbeddingServiceStub, request: pb.EmbedRequest) -> ServiceError:
    """What a request is refused with."""
    with pytest.raises(grpc.RpcError) as caught:
        stub.Embed(request, timeout=SECONDS)
    return ServiceError.from_rpc(caught.value, "embedding")


def events(process: Process, name: str) -> list[dict[str, object]]:
    """What was logged under this name."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines()]
    return [line for line in lines if line["event"] == name]
