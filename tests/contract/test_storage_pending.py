"""Memories whose vectors are to come: stored, found by words, told, and completed by EmbedMemory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from support.processes import Process
from support.storage import (
    CREATED,
    EXISTED,
    REVIVED,
    SECONDS,
    UPDATED,
    Code,
    Memory,
    Ref,
    Store,
    connected,
    database,
    encrypted,
    entity,
    in_process,
    maintaining,
    near,
    opened,
    refused,
    serving,
    vector,
    write_fixture,
)

SURPRISE = memory_pb2.Surprise(
    score=0.5, components=memory_pb2.SurpriseComponents(embedding_outlier=0.5, engagement=0.25), version=1
)
CODES = pb.TokenCodes(encoding="sign", codes=b"\1" * 96)
BEFORE_ALL = -(2**63)


@pytest.fixture(scope="module", params=["off", "values"])
def process(module_home: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    with serving(module_home.with_name(request.param), environment=encrypted(request.param)) as process:
        yield process


@pytest.fixture
def store(process: Process) -> Iterator[Store]:
    with connected(process) as stub:
        yield Store(stub)


def put(store: Store, content: str, **fields: Any) -> pb.PutMemoryResponse:
    """Puts a memory without vectors."""
    request = store.request(content, b"", **fields)
    request.pending = True
    return store.stub.PutMemory(request, timeout=SECONDS)


def listed(store: Store, encoding: str = "", page_size: int = 1000) -> list[Memory]:
    """The namespace's share of what lacks something."""
    found: list[Memory] = []
    request = pb.ListUnembeddedRequest(page_size=page_size, after_id=BEFORE_ALL, token_encoding=encoding)
    while page := list(store.stub.ListUnembedded(request, timeout=SECONDS).memories):
        found += page
        request.after_id = page[-1].id
    assert [memory.id for memory in found] == sorted({memory.id for memory in found})
    return [memory for memory in found if memory.namespace == store.namespace]


def embed(
    store: Store, memory: Memory, vectors: bytes = b"", codes: pb.TokenCodes | None = None, **of_hints: Any
) -> bool:
    request = pb.EmbedMemoryRequest(
        memory=memory, vectors=vectors, model_revision="model-1", token_codes=codes, **of_hints
    )
    return store.stub.EmbedMemory(request, timeout=SECONDS).written


def pending_memories(store: Store) -> int:
    return store.stub.GetStats(pb.GetStatsRequest(), timeout=SECONDS).pending_memories


def update(store: Store, memory_id: int, content: str) -> pb.UpdateMemoryResponse:
    """Gives a memory content without vectors."""
    request = pb.UpdateMemoryRequest(
        namespace=store.namespace, ref=Ref(id=memory_id), memory=Memory(content=content), pending=True
    )
    request.update_mask.CopyFrom(FieldMask(paths=["content"]))
    return store.stub.UpdateMemory(request, timeout=SECONDS)


def test_a_pending_memory_is_found_by_words_and_told(store: Store) -> None:
    before = pending_memories(store)
    response = put(store, "the harbour opens at dawn", metadata='{"a":1}')
    assert response.outcome == CREATED
    memory = response.memory
    assert memory.pending
    assert not memory.HasField("surprise")
    assert store.get_id(memory.id) == store.find(memory.content) == memory
    assert store.matching("harbour") == [memory.content]
    assert store.nearest(vector(1)) == []
    assert store.compare(vector(1)) == []
    assert listed(store) == [memory]
    assert pending_memories(store) == before + 1
    store.delete_id(memory.id)
    assert store.get(Ref(id=memory.id), visibility=memory_pb2.VISIBILITY_DELETED).pending
    assert listed(store) == []
    assert pending_memories(store) == before


def test_what_completes_it_leaves_all_else_as_it_is(store: Store) -> None:
    memory = put(store, "the harbour opens at dawn", metadata='{"a":1}').memory
    read = store.get_id(memory.id)
    read.surprise.CopyFrom(SURPRISE)
    assert embed(store, read, near(0.5), CODES)
    complete = store.get_id(memory.id)
    assert complete.surprise == SURPRISE
    assert complete.model_revision == "model-1"
    assert not complete.pending
    assert '"score":0.5' in complete.metadata
    for field in ("surprise", "model_revision", "metadata", "pending"):
        complete.ClearField(field)
        memory.ClearField(field)
    assert complete == memory
    assert store.compare(vector(1)) == pytest.approx([0.5], abs=1e-3)
    assert store.nearest(vector(1)) == [memory.content]
    assert listed(store) == listed(store, "sign") == []
    assert not embed(store, read, near(0.9), CODES)
    assert store.compare(vector(1)) == pytest.approx([0.5], abs=1e-3)


def test_a_surprise_that_is_there_stays(store: Store) -> None:
    memory = put(store, "scored already", surprise=memory_pb2.Surprise(score=0.25, version=1)).memory
    memory.surprise.CopyFrom(SURPRISE)
    assert embed(store, memory, near(0.5))
    assert store.get_id(memory.id).surprise.score == 0.25


def test_vectors_of_what_a_memory_no_longer_is_are_not_written(store: Store) -> None:
    memory = put(store, "it was so", key="k", hints=["how was it"]).memory
    put(store, "it is so now", key="k", hints=["how was it"])
    assert not embed(store, memory, near(0.5))
    now = store.get_id(memory.id)
    store.update(Ref(id=memory.id), hints=["how is it"])
    assert not embed(store, now, near(0.5))
    store.delete_id(memory.id)
    assert not embed(store, store.get(Ref(id=memory.id), visibility=memory_pb2.VISIBILITY_DELETED), near(0.5))
    store.undelete(Ref(id=memory.id))
    live = store.get_id(memory.id)
    assert live.pending
    stranger = Memory(namespace="another namespace", id=live.id, version=live.version, hints=live.hints)
    assert not embed(store, stranger, near(0.5))
    assert embed(store, live, near(0.5))
    store.purge(Ref(id=memory.id))
    assert not embed(store, live, near(0.5))


@pytest.mark.parametrize("by_key", [True, False])
def test_new_content_takes_the_vectors_of_the_former_along(store: Store, *, by_key: bool) -> None:
    memory = store.add("the first tide", near(0.9), key="tide", surprise=SURPRISE)
    if by_key:
        response = put(store, "the second tide", key="tide")
        assert (response.outcome, response.memory.id) == (UPDATED, memory.id)
        changed = response.memory
    else:
        changed = update(store, memory.id, "the second tide").memory
    assert changed.pending
    assert changed.version == 2
    assert changed.model_revision == ""
    assert not changed.HasField("surprise")
    assert "surprise" not in changed.metadata
    assert store.get_id(memory.id) == changed
    assert store.nearest(vector(1)) == []
    assert embed(store, changed, near(0.1))
    assert store.compare(vector(1)) == pytest.approx([0.1], abs=1e-3)


def test_the_same_content_keeps_its_vectors(store: Store) -> None:
    memory = store.add("a steady light", near(0.9), surprise=SURPRISE)
    assert put(store, memory.content).outcome == EXISTED
    assert not update(store, memory.id, memory.content).changed
    assert store.get_id(memory.id) == memory
    store.delete_id(memory.id)
    revived = put(store, memory.content)
    assert revived.outcome == REVIVED
    assert not revived.memory.pending
    assert revived.memory.surprise == SURPRISE
    assert revived.memory == store.get_id(memory.id)
    assert store.nearest(vector(1)) == [memory.content]


def test_a_later_write_with_vectors_completes_it(store: Store) -> None:
    by_put, by_update = put(store, "completed by a put").memory, put(store, "completed by an update").memory
    put_again = store.put(by_put.content, near(0.5), surprise=SURPRISE).memory
    updated = store.update(Ref(id=by_update.id), near(0.4), content=by_update.content)
    assert updated.changed
    for memory in (put_again, updated.memory):
        assert not memory.pending
        assert memory.model_revision == "model-1"
        assert store.get_id(memory.id) == memory
    assert listed(store) == []
    assert not embed(store, by_put, near(0.9))


def test_a_memory_without_vectors_must_be_meant_so(store: Store) -> None:
    with refused(Code.FAILED_PRECONDITION, "vectors", "VECTOR_REQUIRED"):
        store.put("not meant so", b"")
    with refused(Code.INVALID_ARGUMENT, "vectors"):
        store.update(Ref(id=store.add("there").id), content="other")
    with refused(Code.INVALID_ARGUMENT, "pending"):
        store.put("set by the store", pending=True)


def test_vectors_of_another_model_complete_nothing(store: Store) -> None:
    store.add("of the store's model")
    memory = put(store, "of another one").memory
    request = pb.EmbedMemoryRequest(memory=memory, vectors=near(0.5), model_revision="model-2")
    with refused(Code.FAILED_PRECONDITION, "", "MODEL_MISMATCH"):
        store.stub.EmbedMemory(request, timeout=SECONDS)
    with refused(Code.INVALID_ARGUMENT, "vectors"):
        embed(store, memory, b"\0" * 8)
    assert store.get_id(memory.id).pending


def test_memories_without_token_codes_of_the_encoding_are_listed_too(store: Store) -> None:
    without, other = store.add("without codes"), store.put("other codes", None, CODES).memory
    lacking = put(store, "lacking both").memory
    assert listed(store) == [lacking]
    assert listed(store, "sign", page_size=1) == [without, lacking]
    assert listed(store, "int8") == [without, other, lacking]
    assert embed(store, without, codes=CODES)
    assert not embed(store, without, codes=CODES)
    assert listed(store, "sign") == [lacking]
    assert store.get_id(without.id) == without
    with refused(Code.INVALID_ARGUMENT, "page_size"):
        store.stub.ListUnembedded(pb.ListUnembeddedRequest(), timeout=SECONDS)


def test_hints_without_vectors_and_codes_are_listed_and_get_them(store: Store) -> None:
    hinted = store.add("the harbour opens at dawn", near(0.9), hints=["when", "where"])
    pending = put(store, "the harbour closes at dusk", hints=["how"]).memory
    assert listed(store) == [hinted, pending]
    assert embed(store, hinted, hint_vectors=near(0.5) + near(0.1))
    assert not embed(store, hinted, hint_vectors=near(0.2) + near(0.3))
    assert embed(store, pending, near(0.8), CODES, hint_vectors=near(0.4), hint_token_codes=CODES)
    assert listed(store) == []
    for cosine, content in ((0.5, hinted.content), (0.1, hinted.content), (0.4, pending.content)):
        best = min(store.search(near(cosine)).hits, key=lambda hit: hit.dense.rank)
        assert best.memory.content == content
        assert best.dense.score == pytest.approx(1, abs=1e-3)
    assert listed(store, "sign") == [hinted]
    assert embed(store, hinted, codes=CODES)
    assert listed(store, "sign") == [hinted]
    assert embed(store, hinted, codes=CODES, hint_token_codes=CODES)
    assert listed(store, "sign") == []
    assert not embed(store, hinted, codes=CODES, hint_token_codes=CODES)
    assert store.get_id(hinted.id) == hinted
    with refused(Code.INVALID_ARGUMENT, "hint_vectors"):
        embed(store, hinted, hint_vectors=near(0.5))


def test_verify_counts_pending_memories_and_finds_no_fault(process: Process, store: Store) -> None:
    put(store, "a fact and no damage")
    update(store, store.add("it had a vector").id, "it has none now")
    with maintaining(process) as keeper:
        checks = {check.check: check for check in keeper.Verify(maintenance_pb2.VerifyRequest(), timeout=SECONDS)}
    assert not [check for check in checks.values() if check.wrong]
    assert checks["pending"].checked == pending_memories(store) >= 2


def test_what_another_program_wrote_without_a_vector_is_pending(home: Path) -> None:
    database(home).parent.mkdir(parents=True, mode=0o700)
    write_fixture(database(home), "mcp_memory_service_12")
    with opened(database(home)) as file:
        file.execute("DELETE FROM memory_embeddings WHERE rowid IN (SELECT min(rowid) FROM memory_embeddings)")
    with in_process(database(home)) as (stub, _):
        store = Store(stub, "default")
        [memory] = listed(store)
        assert memory.pending
        assert pending_memories(store) == 1
        assert embed(store, memory, near(0.5))
        assert listed(store) == []


def test_an_exported_pending_memory_comes_in_as_one(store: Store, home: Path) -> None:
    memory = put(store, "on its way", key="k").memory
    record = maintenance_pb2.MemoryRecord(memory=memory, since=memory.updated_at)
    home.mkdir()
    with in_process(home / "other.db") as (stub, keeper):
        told = keeper.ImportMemories(iter([maintenance_pb2.ImportMemoriesRequest(record=record)]), timeout=SECONDS)
        assert told.imported == 1
        taken = Store(stub, store.namespace).get(entity("", "k"))
        assert taken.pending
        memory.id = taken.id
        assert taken == memory
