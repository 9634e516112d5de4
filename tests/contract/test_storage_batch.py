"""BatchPutMemories and StreamPutMemories: many puts, each as one alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import (
    CREATED,
    EXISTED,
    REVIVED,
    SECONDS,
    UPDATED,
    Code,
    Ref,
    Store,
    assert_whole,
    connected,
    database,
    refused,
    serving,
    stub_of,
    vector,
)

Many = Callable[[Store, list[pb.PutMemoryRequest]], list[pb.PutMemoryResult]]


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


@pytest.fixture(params=["batch", "stream"])
def many(request: pytest.FixtureRequest) -> Many:
    if request.param == "batch":
        return lambda store, requests: store.batch(*requests)
    return lambda store, requests: list(store.stream(requests))


def outcomes(results: list[pb.PutMemoryResult]) -> list[memory_pb2.WriteOutcome.ValueType]:
    return [result.done.outcome for result in results]


def test_each_put_is_as_one_alone(store: Store, many: Many) -> None:
    store.delete_id(store.add("dead").id)
    results = many(
        store,
        [
            store.request("new"),
            store.request("one", key="k"),
            store.request("two", key="k"),
            store.request("dead"),
            store.request("new", embedded=b"", tags=["t"]),
        ],
    )
    assert outcomes(results) == [CREATED, CREATED, UPDATED, REVIVED, EXISTED]
    assert [result.done.version for result in results] == [1, 1, 2, 1, 1]
    assert results[0].done.id == results[4].done.id
    for result, content in zip(results, ["new", "two", "two", "dead", "new"], strict=True):
        assert store.get_id(result.done.id).content == content
    assert list(store.get_id(results[0].done.id).tags) == ["t"]
    assert len(store.versions(Ref(id=results[1].done.id)).versions) == 2


def test_one_that_is_refused_leaves_no_trace_and_the_others_go_in(store: Store, many: Many) -> None:
    full = store.add("full", tags=[f"t{number}" for number in range(32)])
    results = many(
        store,
        [
            store.request("first"),
            store.request("without a vector", embedded=b""),
            store.request("bad tag", tags=["fine", "a,b"]),
            store.request("bad vector", embedded=vector(1)[:-4]),
            store.request("full", tags=["one more"]),
            store.request("set by the store", version=3),
            store.request("last"),
        ],
    )
    told = [(error.code, error.field, error.reason) for error in map(_error, results) if error]
    assert told == [
        (Code.FAILED_PRECONDITION.value[0], "vectors", "VECTOR_REQUIRED"),
        (Code.INVALID_ARGUMENT.value[0], "tags[1]", "INVALID_FIELD"),
        (Code.INVALID_ARGUMENT.value[0], "vectors", "INVALID_FIELD"),
        (Code.INVALID_ARGUMENT.value[0], "tags", "INVALID_FIELD"),
        (Code.INVALID_ARGUMENT.value[0], "version", "INVALID_FIELD"),
    ]
    assert all(error.message.startswith(error.field) for error in map(_error, results) if error)
    assert store.listed() == ["last", "first", "full"]
    assert store.get_id(full.id) == full
    assert store.matching("vector tag store") == []


def _error(result: pb.PutMemoryResult) -> memory_pb2.BatchError | None:
    return result.error if result.HasField("error") else None


@pytest.mark.parametrize("number", [0, 1001])
def test_a_batch_has_bounds(store: Store, number: int) -> None:
    with refused(Code.INVALID_ARGUMENT, "requests", message=str(number)):
        store.batch(*[store.request("text")] * number)
    assert store.listed() == []


def test_a_thousand_at_once(store: Store, many: Many) -> None:
    results = many(store, [store.request(f"text {number}") for number in range(1000)])
    assert set(outcomes(results)) == {CREATED}
    ids = [result.done.id for result in results]
    assert ids == sorted(set(ids))
    assert store.page(1).total_size == 1000
    assert store.get_id(ids[-1]).content == "text 999"


def test_a_stream_answers_before_more_is_sent(store: Store) -> None:
    requests: queue.SimpleQueue[pb.PutMemoryRequest | None] = queue.SimpleQueue()
    results = store.stream(iter(requests.get, None))
    for number in range(3):
        requests.put(store.request(f"text {number}"))
        assert store.get_id(next(results).done.id).content == f"text {number}"
    requests.put(None)
    assert list(results) == []


def test_a_stream_without_requests_ends(store: Store) -> None:
    assert list(store.stream([])) == []


def test_answers_keep_the_order_of_long_and_short_requests(store: Store) -> None:
    contents = [f"{number} " + "x" * (60_000 if number % 3 else 1) for number in range(200)]
    results = list(store.stream(store.request(content) for content in contents))
    by_id = {memory.id: memory.content for result in results for memory in [store.get_id(result.done.id)]}
    assert [by_id[result.done.id] for result in results] == contents


def test_streams_and_puts_at_once_lose_nothing(store: Store) -> None:
    def put(worker: int) -> int:
        requests = [store.request(f"{worker} {number}", key=f"{number}") for number in range(40)]
        if worker % 2:
            return sum(result.done.id > 0 for result in store.stream(requests))
        return sum(result.done.id > 0 for result in store.batch(*requests))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(put, range(4))) == [40] * 4
    memories = store.page().memories
    assert sorted(memory.key for memory in memories) == sorted(str(number) for number in range(40))
    assert {memory.version for memory in memories} == {4}


def test_a_stream_that_its_client_leaves_keeps_what_was_answered(home: Path) -> None:
    with serving(home) as process:
        with connected(process) as stub:
            store = Store(stub)
            held = threading.Event()

            def requests() -> Iterator[pb.StreamPutMemoriesRequest]:
                for number in range(20):
                    yield pb.StreamPutMemoriesRequest(request=store.request(f"text {number}"))
                held.wait()

            call = stub.StreamPutMemories(requests(), timeout=SECONDS)
            answered = [next(call).result.done.id for _ in range(20)]
            call.cancel()
            held.set()
            with pytest.raises(grpc.RpcError):
                next(call)
            assert len(store.listed()) == 20
            assert [store.get_id(memory_id).content for memory_id in answered[-1:]] == ["text 19"]
            for _ in range(40):  # Streams that are left give their places back.
                left = stub.StreamPutMemories(iter([]), timeout=SECONDS)
                assert list(left) == []
        assert process.stop() == 0
    assert_whole(database(home))


def test_streams_are_limited_and_give_their_places_back(store: Store) -> None:
    held = threading.Event()

    def waiting() -> Iterator[pb.StreamPutMemoriesRequest]:
        yield pb.StreamPutMemoriesRequest(request=store.request("text"))
        held.wait()

    calls = [store.stub.StreamPutMemories(waiting(), timeout=SECONDS) for _ in range(16)]
    for call in calls:
        next(call)
    with refused(Code.RESOURCE_EXHAUSTED, reason="TOO_MANY_STREAMS"):
        list(store.stream([store.request("one too many")]))
    assert store.listed() == ["text"]
    for call in calls[:8]:
        call.cancel()
    held.set()
    for call in calls[8:]:
        assert list(call) == []
    assert outcomes(list(store.stream([store.request("again")]))) == [CREATED]
