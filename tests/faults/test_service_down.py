"""A service that is down or stuck: an error that names it, within the deadline, and the gateway stays up."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis.errors import ServiceError
from support.stack import Stack, running
from support.waiting import until

Memory = memory_pb2.Memory

SECONDS = 60
FIRST = memory_pb2.MemoryRef(id=1)
SHORT = 2.0


@pytest.fixture(scope="module")
def own_stack(module_home: Path) -> Iterator[Stack]:
    with running(module_home, {"HIPPOVAULT_GATEWAY_QUERY_CACHE_MEBIBYTES": "0"}) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[MemoryServiceStub]:
    with own_stack.client() as client:
        client.Remember(pb.RememberRequest(content="The vault is under the stairs"), timeout=SECONDS)
        yield client


def freeze(popen: subprocess.Popen[bytes]) -> None:
    """Stops every thread of the process; the signal alone takes a while to reach them on a busy machine."""
    popen.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, popen.pid, os.WSTOPPED | os.WNOWAIT)


def error_of(call: Callable[[], object]) -> ServiceError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return ServiceError.from_rpc(caught.value, "gateway")


def recall(gateway: MemoryServiceStub, mode: pb.RecallMode.ValueType, timeout: float = SECONDS) -> pb.RecallResponse:
    return gateway.Recall(pb.RecallRequest(query="where is the vault", mode=mode), timeout=timeout)


def update(gateway: MemoryServiceStub, memory: Memory) -> pb.UpdateMemoryResponse:
    mask = FieldMask(paths=[field.name for field, _ in memory.ListFields()])
    request = pb.UpdateMemoryRequest(ref=FIRST, memory=memory, update_mask=mask)
    return gateway.UpdateMemory(request, timeout=SECONDS)


def serving(gateway: MemoryServiceStub) -> dict[str, bool]:
    return {service.name: service.serving for service in gateway.Ping(pb.PingRequest(), timeout=SECONDS).services}


def one(gateway: MemoryServiceStub, content: str) -> pb.RememberResponse:
    return gateway.Remember(pb.RememberRequest(content=content), timeout=SHORT)


def batch(gateway: MemoryServiceStub, content: str) -> pb.RememberResponse:
    items = [pb.RememberRequest(content=content)]
    (result,) = gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SHORT).results
    return result.response


def stream(gateway: MemoryServiceStub, content: str) -> pb.RememberResponse:
    items = iter([pb.StreamRememberRequest(request=pb.RememberRequest(content=content))])
    (answer,) = gateway.StreamRemember(items, timeout=SHORT)
    return answer.result.response


def test_without_storage_every_call_names_it(own_stack: Stack, gateway: MemoryServiceStub) -> None:
    own_stack.processes["storage"].kill()
    calls: list[Callable[[], object]] = [
        lambda: gateway.Remember(pb.RememberRequest(content="new"), timeout=SECONDS),
        lambda: recall(gateway, pb.RECALL_MODE_HYBRID),
        lambda: gateway.ListMemories(pb.ListMemoriesRequest(), timeout=SECONDS),
        lambda: gateway.SummarizeSession(pb.SummarizeSessionRequest(), timeout=SECONDS),
        lambda: update(gateway, Memory(status="open")),
        lambda: gateway.Undelete(pb.UndeleteRequest(ref=FIRST), timeout=SECONDS),
        lambda: gateway.Purge(pb.PurgeRequest(ref=FIRST), timeout=SECONDS),
    ]
    for call in calls:
        error = error_of(call)
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert "storage" in error.message
    ping = gateway.Ping(pb.PingRequest(), timeout=SECONDS)
    assert serving(gateway) == {"embedding": True, "storage": False}
    assert not ping.HasField("live_memories")
    own_stack.restart("storage")
    assert recall(gateway, pb.RECALL_MODE_HYBRID).hits[0].memory.content == "The vault is under the stairs"
    assert serving(gateway) == {"embedding": True, "storage": True}


def test_without_the_embedder_hybrid_answers_from_the_keyword_arm(own_stack: Stack, gateway: MemoryServiceStub) -> None:
    own_stack.processes["embedding"].kill()
    hybrid = recall(gateway, pb.RECALL_MODE_HYBRID)
    assert hybrid.hits[0].memory.content == "The vault is under the stairs"
    assert "embedding" in hybrid.degradation.reason
    assert not hybrid.hits[0].HasField("similarity")
    assert not recall(gateway, pb.RECALL_MODE_KEYWORD).HasField("degradation")
    error = error_of(lambda: recall(gateway, pb.RECALL_MODE_DENSE))
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert "embedding" in error.message
    [kept] = gateway.ListMemories(pb.ListMemoriesRequest(), timeout=SECONDS).memories
    assert (kept.content, kept.pending) == ("The vault is under the stairs", False)
    assert update(gateway, Memory(status="open")).memory.status == "open"
    own_stack.restart("embedding")
    # Dense tries at once; hybrid gives an embedder that was down a rest.
    assert recall(gateway, pb.RECALL_MODE_DENSE).hits


def test_a_stuck_service_costs_the_deadline_and_no_more(own_stack: Stack, gateway: MemoryServiceStub) -> None:
    storage = own_stack.processes["storage"].popen
    freeze(storage)
    try:
        begun = time.monotonic()
        error = error_of(lambda: gateway.ListMemories(pb.ListMemoriesRequest(), timeout=SHORT))
        assert time.monotonic() - begun < SHORT * 2
        assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "storage" in error.message
        assert serving(gateway)["storage"] is False
    finally:
        storage.send_signal(signal.SIGCONT)
    assert gateway.ListMemories(pb.ListMemoriesRequest(), timeout=SECONDS).total_size == 1


def test_hybrid_leaves_time_for_storage_when_the_embedder_is_stuck(
    own_stack: Stack, gateway: MemoryServiceStub
) -> None:
    embedding = own_stack.processes["embedding"].popen
    freeze(embedding)
    try:
        answer = recall(gateway, pb.RECALL_MODE_HYBRID, timeout=SHORT)
    finally:
        embedding.send_signal(signal.SIGCONT)
    assert "embedding" in answer.degradation.reason
    assert answer.hits


@pytest.mark.parametrize("door", [one, batch, stream])
def test_a_memory_is_stored_in_time_when_the_embedder_is_stuck(
    own_stack: Stack, gateway: MemoryServiceStub, door: Callable[[MemoryServiceStub, str], pb.RememberResponse]
) -> None:
    embedding = own_stack.processes["embedding"].popen
    freeze(embedding)
    try:
        stored = door(gateway, f"Stored in time by {door.__name__}")
    finally:
        embedding.send_signal(signal.SIGCONT)
    assert stored.memory.pending
    until(lambda: gateway.Ping(pb.PingRequest(), timeout=SECONDS).pending_memories == 0)
