"""An embedder that others keep busy: what can be done without it is done, now or later; or it is told when to try."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc
import pytest

from hippovault.embedding.v1 import embedding_pb2
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis.errors import ServiceError
from support.command import in_process
from support.processes import environment
from support.stack import Stack, running
from support.waiting import until

SECONDS = 60
SHORT = 0.5
CONTENT = "The vault is under the stairs"
QUERY, DOCUMENT = embedding_pb2.INPUT_TYPE_QUERY, embedding_pb2.INPUT_TYPE_DOCUMENT
SETTINGS = {
    "HIPPOVAULT_EMBEDDING_MAX_QUEUE_TOKENS": "300",
    "HIPPOVAULT_EMBEDDING_IDLE_SECONDS": "0.2",
    "HIPPOVAULT_EMBEDDING_CACHE_MEBIBYTES": "0",
    "HIPPOVAULT_GATEWAY_QUERY_CACHE_MEBIBYTES": "0",
}
numbers = itertools.count()


@pytest.fixture(scope="module")
def own_stack(module_home: Path) -> Iterator[Stack]:
    with running(module_home, SETTINGS) as stack:
        yield stack


@pytest.fixture(scope="module")
def gateway(own_stack: Stack) -> Iterator[MemoryServiceStub]:
    with own_stack.client() as client:
        client.Remember(pb.RememberRequest(content=CONTENT), timeout=SECONDS)
        yield client


@pytest.fixture(scope="module")
def embedder(own_stack: Stack) -> Iterator[EmbeddingServiceStub]:
    with grpc.insecure_channel(f"unix:{own_stack.home / 'run' / 'embedding.sock'}") as channel:
        yield EmbeddingServiceStub(channel)


@contextlib.contextmanager
def busy(embedder: EmbeddingServiceStub, input_type: embedding_pb2.InputType.ValueType) -> Iterator[Callable[[], None]]:
    """Keeps the embedder's queue full while the context lasts.

    Yields:
        What ends the load, and returns once the queue is empty.
    """
    ending = Event()

    def load() -> None:
        request = embedding_pb2.EmbedRequest(texts=["7 " * 16_000], input_type=input_type, max_windows=8)
        while not ending.is_set():
            try:
                embedder.Embed(request, timeout=SECONDS)
            except grpc.RpcError as error:
                ending.wait(ServiceError.from_rpc(error, "embedding").retry_seconds)

    with ThreadPoolExecutor() as pool:
        loads = [pool.submit(load) for _ in range(2)]

        def end() -> None:
            ending.set()
            for each in loads:
                each.result()

        try:
            yield end
        finally:
            end()


def remembered(gateway: MemoryServiceStub) -> pb.RememberResponse:
    """What comes of a content that was not there before."""
    return gateway.Remember(pb.RememberRequest(content=f"Number {next(numbers)}"), timeout=SECONDS)


def batch_remembered(gateway: MemoryServiceStub) -> pb.BatchRememberResponse:
    """What comes of a batch that has too little time to wait."""
    items = [pb.RememberRequest(content=f"Number {next(numbers)}")]
    return gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SHORT)


def recalled(gateway: MemoryServiceStub, mode: pb.RecallMode.ValueType, seconds: float = SECONDS) -> pb.RecallResponse:
    return gateway.Recall(pb.RecallRequest(query=f"vault {next(numbers)}", mode=mode), timeout=seconds)


def refusal(call: Callable[[], object]) -> ServiceError:
    """Calls until that is refused, and returns how."""
    while True:
        try:
            call()
        except grpc.RpcError as error:
            return ServiceError.from_rpc(error, "gateway")


def check_busy(error: ServiceError) -> None:
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert error.message.startswith("the embedding service is busy: ")
    assert f"try again in {error.retry_seconds:.1f} s" in error.message
    assert 0 < error.retry_seconds <= 30


def test_queries_that_find_the_queue_full(gateway: MemoryServiceStub, embedder: EmbeddingServiceStub) -> None:
    with busy(embedder, QUERY) as end:
        check_busy(refusal(lambda: recalled(gateway, pb.RECALL_MODE_DENSE)))
        while not (answer := recalled(gateway, pb.RECALL_MODE_HYBRID)).HasField("degradation"):
            pass
        assert answer.degradation.missing == pb.RECALL_MODE_DENSE
        assert "the embedding service is busy" in answer.degradation.reason
        assert answer.hits[0].memory.content == CONTENT
        remembered(gateway)  # Documents have a queue of their own.
        end()
    ended = time.monotonic()
    while recalled(gateway, pb.RECALL_MODE_HYBRID).HasField("degradation"):
        assert time.monotonic() < ended + 2  # The embedder told less.


def test_documents_that_find_the_queue_full(gateway: MemoryServiceStub, embedder: EmbeddingServiceStub) -> None:
    with busy(embedder, DOCUMENT):
        while not remembered(gateway).memory.pending:
            pass
        assert not recalled(gateway, pb.RECALL_MODE_HYBRID).HasField("degradation")
        check_busy(refusal(lambda: batch_remembered(gateway)))
    until(lambda: gateway.Ping(pb.PingRequest(), timeout=SECONDS).pending_memories == 0)


def test_batches_and_imports_wait_until_it_is_their_turn(
    own_stack: Stack,
    gateway: MemoryServiceStub,
    embedder: EmbeddingServiceStub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = in_process(environment(own_stack.home), monkeypatch, capsys)
    file = tmp_path / "memories.jsonl"
    lines = [{"content": f"Line {number} of a busy import.", "namespace": "busy"} for number in range(5)]
    file.write_text("\n".join(map(json.dumps, lines)))
    items = [pb.RememberRequest(namespace="busy", content=f"Item {number}") for number in range(5)]
    load = embedding_pb2.EmbedRequest(texts=["7 " * 16_000], input_type=DOCUMENT, max_windows=64)
    loaded = embedder.Embed.future(load, timeout=SECONDS)
    while not remembered(gateway).memory.pending:
        pass
    batch = gateway.BatchRemember.future(pb.BatchRememberRequest(requests=items), timeout=SECONDS)
    # However long the load takes: the command has no deadline.
    code, counted = run("import", str(file))
    assert (code, counted["created"], counted["failed"]) == (0, 5, 0), counted
    assert [result.WhichOneof("result") for result in batch.result().results] == ["response"] * 5
    assert loaded.result().texts[0].windows == 64
    listed = gateway.ListMemories(pb.ListMemoriesRequest(namespace="busy"), timeout=SECONDS)
    assert listed.total_size == 10


def test_a_model_that_left_memory_comes_back_for_a_hybrid_recall(
    gateway: MemoryServiceStub, embedder: EmbeddingServiceStub
) -> None:
    await_unloaded(embedder)
    answer = gateway.Recall(pb.RecallRequest(query="what is below the staircase"), timeout=SECONDS)
    assert not answer.HasField("degradation")
    assert answer.hits[0].HasField("dense")


def test_a_call_with_little_time_takes_the_embedder_from_nobody_else(
    gateway: MemoryServiceStub, embedder: EmbeddingServiceStub
) -> None:
    await_unloaded(embedder)
    started = time.monotonic()
    with contextlib.suppress(grpc.RpcError):
        recalled(gateway, pb.RECALL_MODE_HYBRID, 0.3)  # Half of it is too short for the model to come back.
    while recalled(gateway, pb.RECALL_MODE_HYBRID).HasField("degradation"):
        assert time.monotonic() < started + 1.5


def await_unloaded(embedder: EmbeddingServiceStub) -> None:
    """Returns once the model has left memory."""
    while embedder.GetModel(embedding_pb2.GetModelRequest(), timeout=SECONDS).loaded:
        pass
