"""StreamRemember against the real three processes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import grpc
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from support.stack import Stack

SECONDS = 60


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[MemoryServiceStub]:
    with stack.client() as client:
        yield client


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"stream {request.node.name}"


def message(namespace: str, content: str, **fields: object) -> pb.StreamRememberRequest:
    request = pb.RememberRequest(namespace=namespace, content=content, **fields)  # type: ignore[arg-type]
    return pb.StreamRememberRequest(request=request)


def total(gateway: MemoryServiceStub, namespace: str) -> int:
    return gateway.ListMemories(pb.ListMemoriesRequest(namespace=namespace), timeout=SECONDS).total_size


def test_many_are_stored_in_order_and_each_is_answered(gateway: MemoryServiceStub, namespace: str) -> None:
    contents = [f"Number {number} of the stream" for number in range(120)]
    answers = gateway.StreamRemember((message(namespace, content) for content in contents), timeout=SECONDS)
    stored = [answer.result.response for answer in answers]
    assert [response.memory.content for response in stored] == contents
    assert all(response.windows == 1 and response.memory.HasField("surprise") for response in stored)
    assert total(gateway, namespace) == len(contents)


def test_what_is_wrong_is_told_in_its_place_and_stops_nothing(gateway: MemoryServiceStub, namespace: str) -> None:
    items = [
        message(namespace, "first", key="k", request_id="r1"),
        message(namespace, "\n"),
        message(namespace, "first", key="k", request_id="r1"),
        message(namespace, "another", request_id="r1"),
        message(namespace, "hinted", hints=["a", "b", "c", "d"]),
        message(namespace, "second", key="k"),
    ]
    results = [answer.result for answer in gateway.StreamRemember(iter(items), timeout=SECONDS)]
    assert [(result.error.field, result.error.reason) for result in results] == [
        ("", ""),
        ("content", "INVALID_FIELD"),
        ("", ""),
        ("request_id", "REQUEST_ID_REUSED"),
        ("hints", "INVALID_FIELD"),
        ("", ""),
    ]
    assert [results[index].response.outcome for index in (0, 2, 5)] == [
        memory_pb2.WRITE_OUTCOME_CREATED,
        memory_pb2.WRITE_OUTCOME_CREATED,
        memory_pb2.WRITE_OUTCOME_UPDATED,
    ]
    assert total(gateway, namespace) == 1


def test_an_answer_comes_before_the_stream_ends(gateway: MemoryServiceStub, namespace: str) -> None:
    answered = threading.Event()

    def requests() -> Iterator[pb.StreamRememberRequest]:
        yield message(namespace, "first")
        assert answered.wait(SECONDS)
        yield message(namespace, "second")

    answers = gateway.StreamRemember(requests(), timeout=SECONDS)
    assert next(answers).result.response.memory.content == "first"
    answered.set()
    assert [answer.result.response.memory.content for answer in answers] == ["second"]


def test_a_client_that_goes_away_ends_it_and_leaves_no_half_memory(gateway: MemoryServiceStub, namespace: str) -> None:
    endless = (message(namespace, f"Number {number} of many", tags=["t"]) for number in itertools.count())
    answers = gateway.StreamRemember(endless, timeout=SECONDS)
    told = [next(answers).result.response.memory for _ in range(5)]
    answers.cancel()
    with pytest.raises(grpc.RpcError):
        list(answers)
    # What is asked after it is stored after all that it had begun.
    gateway.Remember(pb.RememberRequest(namespace=namespace, content="the last"), timeout=SECONDS)
    request = pb.ListMemoriesRequest(namespace=namespace, page_size=100, filter=memory_pb2.Filter(tags_all=["t"]))
    stored: list[memory_pb2.Memory] = []
    while not stored or request.page_token:
        page = gateway.ListMemories(request, timeout=SECONDS)
        stored += page.memories
        request.page_token = page.next_page_token
    assert {memory.id for memory in told} <= {memory.id for memory in stored}
    assert total(gateway, namespace) == len(stored) + 1
    assert all(memory.HasField("surprise") and not memory.pending for memory in stored)


def test_an_empty_stream_is_answered_by_its_end(gateway: MemoryServiceStub) -> None:
    assert list(gateway.StreamRemember(iter(()), timeout=SECONDS)) == []
