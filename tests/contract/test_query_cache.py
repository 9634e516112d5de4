"""Queries that come again are searched with what they were searched with before, while that is of the store's model."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import pytest

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from support.model_folders import TINY_DIMENSIONS, tiny
from support.stack import running

SECONDS = 60


def nearest(gateway: MemoryServiceStub, query: str, mode: pb.RecallMode.ValueType = pb.RECALL_MODE_DENSE) -> list[str]:
    """Returns what a query finds by meaning."""
    answer = gateway.Recall(pb.RecallRequest(query=query, mode=mode), timeout=SECONDS)
    assert not answer.HasField("degradation")
    assert all(hit.HasField("similarity") for hit in answer.hits)
    return [hit.memory.content for hit in answer.hits]


def remember(gateway: MemoryServiceStub, content: str) -> None:
    gateway.Remember(pb.RememberRequest(content=content), timeout=SECONDS)


def test_a_kept_query_needs_no_embedder_and_outlives_no_model(home: Path) -> None:
    first, second = (str(tiny(home.parent / pooling, pooling)) for pooling in ("mean", "cls"))
    variables = {"HIPPOVAULT_EMBEDDING_MODEL": first, "HIPPOVAULT_STORAGE_DIMENSIONS": str(TINY_DIMENSIONS)}
    with running(home, variables) as memory, memory.client() as gateway:
        remember(gateway, "the first whale")
        assert nearest(gateway, "whale") == ["the first whale"]
        memory.processes["embedding"].kill()
        assert nearest(gateway, "whale") == ["the first whale"]
        assert nearest(gateway, "whale", pb.RECALL_MODE_HYBRID) == ["the first whale"]
        with pytest.raises(grpc.RpcError, match="the embedding service"):
            nearest(gateway, "vessel")

        memory.environment = {**memory.environment, "HIPPOVAULT_EMBEDDING_MODEL": second}
        memory.restart("embedding")
        with pytest.raises(grpc.RpcError, match="the model that the store was made with"):
            nearest(gateway, "vessel")
        assert nearest(gateway, "whale") == ["the first whale"]

        memory.processes["storage"].stop()
        shutil.rmtree(home / "data")
        memory.restart("storage")
        remember(gateway, "the second whale")
        for mode in (pb.RECALL_MODE_DENSE, pb.RECALL_MODE_HYBRID):
            assert nearest(gateway, "whale", mode) == ["the second whale"]
