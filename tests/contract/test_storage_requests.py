"""request_id: a write that comes again is done once, and answered as the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite import requests
from hippovault_storage.vault import Mode
from support.storage import (
    CREATED,
    SECONDS,
    UPDATED,
    Code,
    Memory,
    Ref,
    Store,
    at,
    connected,
    database,
    encrypted,
    engine_of,
    in_process,
    near,
    opened,
    refused,
    rows,
    serving,
    stub_of,
    vector,
)

CLIENTS = 10


@pytest.fixture(scope="module", params=["off", "values"])
def stub(module_home: Path, request: pytest.FixtureRequest) -> Iterator[StorageServiceStub]:
    with stub_of(module_home.with_name(request.param), encrypted(request.param)) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


@pytest.fixture
def path(home: Path) -> Path:
    database(home).parent.mkdir(parents=True)
    return database(home)


def put_request(store: Store, content: str, embedded: bytes | None = None, **fields: Any) -> pb.PutMemoryRequest:
    request = store.request(content, embedded, **fields)
    request.request_id = "r1"
    return request


def put(store: Store, content: str, embedded: bytes | None = None, **fields: Any) -> pb.PutMemoryResponse:
    return store.stub.PutMemory(put_request(store, content, embedded, **fields), timeout=SECONDS)


def update_request(store: Store, content: str) -> pb.UpdateMemoryRequest:
    return pb.UpdateMemoryRequest(
        namespace=store.namespace,
        ref=Ref(entity=memory_pb2.EntityKey(key="k")),
        memory=Memory(content=content),
        update_mask=FieldMask(paths=["content"]),
        vectors=near(0.5),
        request_id="r1",
    )


def test_a_repeated_put_has_the_first_outcome_and_the_memory_as_it_is(store: Store) -> None:
    first = put(store, "first", key="k", tags=["a"])
    assert put(store, "first", key="k", tags=["a"]) == first
    changed = store.put("second", key="k").memory
    again = put(store, "first", key="k", tags=["a"])
    assert (again.outcome, again.memory) == (CREATED, changed)
    store.delete_id(first.memory.id)
    assert put(store, "first", key="k", tags=["a"]).memory.HasField("deleted_at")
    assert store.listed() == []


def test_what_is_computed_may_differ_and_what_is_asked_may_not(store: Store) -> None:
    first = put(store, "asked", near(0.5), tags=["a"], surprise=memory_pb2.Surprise(score=0.5))
    other_surprise = put(store, "asked", near(0.4), tags=["a"], surprise=memory_pb2.Surprise(score=0.25))
    assert other_surprise == first
    pending = put_request(store, "asked", b"", tags=["a"])
    pending.pending = True
    assert store.stub.PutMemory(pending, timeout=SECONDS) == first
    for content, tags in (("asked", ["b"]), ("asked otherwise", ["a"])):
        with refused(Code.INVALID_ARGUMENT, "request_id", "REQUEST_ID_REUSED"):
            put(store, content, tags=tags)
    with refused(Code.INVALID_ARGUMENT, "request_id", "REQUEST_ID_REUSED"):
        store.stub.DeleteMemory(
            pb.DeleteMemoryRequest(namespace=store.namespace, ref=Ref(id=first.memory.id), request_id="r1"),
            timeout=SECONDS,
        )
    assert store.listed() == ["asked"]


def test_a_request_id_is_of_its_namespace(store: Store) -> None:
    other = Store(store.stub)
    assert put(store, "one").outcome == put(other, "other").outcome == CREATED


def test_what_was_refused_may_be_repeated(store: Store) -> None:
    with refused(Code.FAILED_PRECONDITION, "vectors", "VECTOR_REQUIRED"):
        put(store, "without", b"")
    assert put(store, "without").outcome == CREATED


@pytest.mark.parametrize("request_id", [" ", "a\nb", "x" * 129, "ä" * 65])
def test_a_request_id_has_a_form(store: Store, request_id: str) -> None:
    memory_id = store.add("there").id
    named = {"namespace": store.namespace, "ref": Ref(id=memory_id), "request_id": request_id}
    put_again = store.request("there")
    put_again.request_id = request_id
    change = pb.UpdateMemoryRequest(
        memory=Memory(status="open"),
        update_mask=FieldMask(paths=["status"]),
        **named,  # type: ignore[arg-type]
    )
    calls: list[Callable[[], object]] = [
        lambda: store.stub.PutMemory(put_again, timeout=SECONDS),
        lambda: store.stub.UpdateMemory(change, timeout=SECONDS),
        lambda: store.stub.DeleteMemory(pb.DeleteMemoryRequest(**named), timeout=SECONDS),  # type: ignore[arg-type]
        lambda: store.stub.UndeleteMemory(pb.UndeleteMemoryRequest(**named), timeout=SECONDS),  # type: ignore[arg-type]
        lambda: store.stub.PurgeMemories(pb.PurgeMemoriesRequest(**named), timeout=SECONDS),  # type: ignore[arg-type]
    ]
    for call in calls:
        with refused(Code.INVALID_ARGUMENT, "request_id"):
            call()


def test_each_put_of_a_batch_or_a_stream_has_its_own(store: Store) -> None:
    same, other = put_request(store, "same", key="k"), put_request(store, "other")
    results = store.batch(same, same, other)
    assert [result.done.outcome for result in results[:2]] == [CREATED, CREATED]
    assert results[2].error.reason == "REQUEST_ID_REUSED"
    store.put("another", key="k")
    for again in (*store.batch(same), *store.stream([same])):
        assert (again.done.outcome, again.done.id, again.done.version) == (CREATED, results[0].done.id, 2)
    assert store.listed() == ["another"]


def test_every_change_is_done_once(store: Store) -> None:
    memory = store.add("first", key="k")
    ref = Ref(id=memory.id)
    request = update_request(store, "second")
    first = store.stub.UpdateMemory(request, timeout=SECONDS)
    assert first.changed
    third = store.put("third", key="k").memory
    again = store.stub.UpdateMemory(request, timeout=SECONDS)
    assert (again.changed, again.memory) == (True, third)

    delete = pb.DeleteMemoryRequest(namespace=store.namespace, ref=ref, request_id="delete")
    deleted = store.stub.DeleteMemory(delete, timeout=SECONDS)
    assert list(deleted.ids) == [memory.id]
    assert store.stub.DeleteMemory(delete, timeout=SECONDS) == deleted
    undelete = pb.UndeleteMemoryRequest(namespace=store.namespace, ref=ref, request_id="undelete")
    undeleted = store.stub.UndeleteMemory(undelete, timeout=SECONDS)
    assert store.stub.UndeleteMemory(undelete, timeout=SECONDS) == undeleted
    assert store.stub.DeleteMemory(delete, timeout=SECONDS) == deleted
    assert store.listed() == ["third"]

    purge = pb.PurgeMemoriesRequest(namespace=store.namespace, ref=ref, request_id="purge")
    purged = store.stub.PurgeMemories(purge, timeout=SECONDS)
    assert (list(purged.ids), purged.total) == ([memory.id], 1)
    assert store.stub.PurgeMemories(purge, timeout=SECONDS) == purged


def test_a_purge_in_many_parts_is_answered_again_as_a_whole(store: Store) -> None:
    store.batch(*[store.request(f"number {number}") for number in range(600)])
    for memory in store.page().memories:
        store.delete_id(memory.id)
    purge = pb.PurgeMemoriesRequest(namespace=store.namespace, deleted_before=at(4e9), request_id="purge")
    purged = store.stub.PurgeMemories(purge, timeout=SECONDS)
    assert purged.total == len(purged.ids) == 600
    store.delete_id(store.add("later").id)
    assert store.stub.PurgeMemories(purge, timeout=SECONDS) == purged
    assert store.page(visibility=memory_pb2.VISIBILITY_ALL).total_size == 1


def test_a_dry_run_is_no_write(store: Store) -> None:
    memory = store.add("there", key="k")
    delete = pb.DeleteMemoryRequest(namespace=store.namespace, ref=Ref(id=memory.id), dry_run=True, request_id="r1")
    store.stub.DeleteMemory(delete, timeout=SECONDS)
    purge = pb.PurgeMemoriesRequest(namespace=store.namespace, ref=Ref(id=memory.id), dry_run=True, request_id="r1")
    store.stub.PurgeMemories(purge, timeout=SECONDS)
    change = update_request(store, "changed")
    change.dry_run = True
    store.stub.UpdateMemory(change, timeout=SECONDS)
    change.dry_run = False
    assert store.stub.UpdateMemory(change, timeout=SECONDS).changed


def test_what_was_purged_does_not_come_back_by_a_repeat(store: Store) -> None:
    memory = put(store, "purged").memory
    store.purge(Ref(id=memory.id))
    with refused(Code.NOT_FOUND, "request_id", message="purged"):
        put(store, "purged")
    assert store.find("purged") is None


def test_clients_at_once_write_once(store: Store) -> None:
    store.add("first", key="k")
    second = update_request(store, "second")
    second.request_id = "r2"
    changes: list[Callable[[], object]] = [
        lambda: put(store, "at once", tags=["a"]),
        lambda: store.stub.UpdateMemory(second, timeout=SECONDS),
    ]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for change in changes:
            answers = [calling.result() for calling in [pool.submit(change) for _ in range(CLIENTS)]]
            assert answers == [answers[0]] * CLIENTS
    assert len(store.versions(Ref(entity=memory_pb2.EntityKey(key="k"))).versions) == 2
    assert sorted(store.listed()) == ["at once", "second"]


def test_find_tells_that_a_request_was_done(store: Store) -> None:
    request = pb.FindMemoryRequest(namespace=store.namespace, content="found", request_id="r1")
    assert not store.stub.FindMemory(request, timeout=SECONDS).request_done
    put(store, "another")
    found = store.stub.FindMemory(request, timeout=SECONDS)
    assert found.request_done
    assert not found.HasField("memory")
    request.request_id = ""
    assert not store.stub.FindMemory(request, timeout=SECONDS).request_done


@pytest.mark.parametrize("mode", ["off", "values"])
def test_an_answered_request_survives_a_kill(home: Path, mode: str) -> None:
    with serving(home, environment=encrypted(mode)) as process, connected(process) as stub:
        store = Store(stub)
        store.add("before", key="k")
        first = store.stub.UpdateMemory(update_request(store, "after"), timeout=SECONDS)
        store.put("later", key="k")
        process.kill()
    with serving(home, environment=encrypted(mode)) as process, connected(process) as stub:
        again = Store(stub, store.namespace).stub.UpdateMemory(update_request(store, "after"), timeout=SECONDS)
        assert (again.changed, again.memory.content) == (first.changed, "later")


def test_a_day_later_it_is_a_new_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = times.now()
    monkeypatch.setattr(times, "now", lambda: now)
    with in_process(path) as (stub, _):
        store = Store(stub)
        put(store, "first", key="k")
        store.put("second", key="k")
        now += requests.KEPT_SECONDS - 1
        assert put(store, "first", key="k").outcome == CREATED
        now += 1
        assert put(store, "first", key="k").outcome == UPDATED
        put(Store(stub), "another")
        now += requests.KEPT_SECONDS
        put(Store(stub), "the last")
    with opened(path) as file:
        assert rows(file, "SELECT count(*) FROM hippo_requests") == [(1,)]


@pytest.mark.parametrize("statement", ["UPDATE memories SET content = x'ff', updated_at = 1", "DELETE FROM memories"])
def test_what_another_program_took_away_does_not_come_back_by_a_repeat(path: Path, statement: str) -> None:
    with in_process(path) as (stub, _):
        put(Store(stub, "default"), "gone")
    with opened(path) as file:
        rows(file, statement)
    with in_process(path) as (stub, _), pytest.raises(ServiceError) as caught:
        put(Store(stub, "default"), "gone")
    assert (caught.value.code, caught.value.field) == (Code.NOT_FOUND, "request_id")


@pytest.mark.parametrize("mode", ["off", "values"])
def test_no_content_is_kept_with_a_request(path: Path, mode: Mode) -> None:
    path.parent.parent.mkdir(exist_ok=True)
    with engine_of(path, mode) as engine:
        for content in ("the password is heron", "it stays"):
            memory = Memory(namespace="n", content=content, tags=["secret"])
            request = pb.PutMemoryRequest(memory=memory, vectors=vector(1), request_id=f"for {content}")
            stored = engine.put_memory(request).memory
        kept = b"".join(file.read_bytes() for file in path.parent.iterdir() if file.suffix in {".db", ".db-wal"})
        if mode == "values":
            assert b"for the password" not in kept
        before = engine.find_memory(pb.FindMemoryRequest(namespace="n", content="the password is heron")).memory
        engine.purge_memories(pb.PurgeMemoriesRequest(namespace="n", ref=Ref(id=before.id)))
    assert stored.id != before.id
    with opened(path) as file:
        digests = dict(rows(file, "SELECT memory_id, digest FROM hippo_requests"))
        assert digests[before.id] == ""
        assert len(digests[stored.id]) == 64
        answers = rows(file, "SELECT answer FROM hippo_requests")
        assert not any(b"heron" in answer or b"stays" in answer for (answer,) in answers)
