"""UpdateMemory, UndeleteMemory, and which memories a read sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import (
    REVIVED,
    SECONDS,
    Code,
    Memory,
    Ref,
    Store,
    at,
    encrypted,
    entity,
    near,
    refused,
    stub_of,
    vector,
)

UNSPECIFIED = memory_pb2.VISIBILITY_UNSPECIFIED
LIVE, DELETED, ALL = memory_pb2.VISIBILITY_LIVE, memory_pb2.VISIBILITY_DELETED, memory_pb2.VISIBILITY_ALL

SURPRISE = memory_pb2.Surprise(score=0.5, components=memory_pb2.SurpriseComponents(explicit=1), version=2)
NEW_VALUES: dict[str, Any] = {
    "category": "new category",
    "key": "new key",
    "tags": ["new", "tags"],
    "memory_type": "new type",
    "importance": 0.75,
    "metadata": '{"new":1}',
    "status": "done",
    "created_at": at(1_000),
    "surprise": SURPRISE,
}


@pytest.fixture(scope="module", params=["off", "values"])
def stub(module_home: Path, request: pytest.FixtureRequest) -> Iterator[StorageServiceStub]:
    with stub_of(module_home.with_name(request.param), encrypted(request.param)) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def whole(store: Store, **fields: Any) -> Memory:
    """A memory of which no field is empty."""
    given: dict[str, Any] = {
        "category": "c",
        "key": "k",
        "tags": ["a", "b"],
        "hints": ["asked so"],
        "memory_type": "fact",
        "importance": 0.25,
        "metadata": '{"own":[1]}',
        "status": "open",
        "created_at": at(5_000),
        "surprise": memory_pb2.Surprise(score=0.25, version=1),
    }
    return store.add("the text", **(given | fields))


# --------------------------------------------------------------------------------------------------------- the mask


@pytest.mark.parametrize("field", NEW_VALUES)
def test_one_field_changes_and_no_other(store: Store, field: str) -> None:
    before = whole(store)
    response = store.update(Ref(id=before.id), **{field: NEW_VALUES[field]})
    after = store.get_id(before.id)
    assert response == pb.UpdateMemoryResponse(memory=after, changed=True)
    assert after.updated_at.ToNanoseconds() > before.updated_at.ToNanoseconds()
    expected = Memory()
    expected.CopyFrom(before)
    expected.ClearField(field)  # type: ignore[arg-type]
    expected.MergeFrom(Memory(**{field: NEW_VALUES[field]}))
    expected.updated_at.CopyFrom(after.updated_at)
    expected.metadata = after.metadata
    assert after == expected
    own, mirrored = json.loads(after.metadata), after.surprise.score
    assert own.pop("_hippo")["surprise"]["score"] == mirrored
    assert own == ({"new": 1} if field == "metadata" else {"own": [1]})


@pytest.mark.parametrize("field", ["category", "tags", "hints", "memory_type", "importance", "status", "surprise"])
def test_a_masked_field_that_is_not_given_becomes_empty(store: Store, field: str) -> None:
    memory = whole(store)
    store.update(Ref(id=memory.id), mask=[field])
    after = store.get_id(memory.id)
    assert field not in {descriptor.name for descriptor, _ in after.ListFields()}
    assert after.content == memory.content


def test_emptied_metadata_keeps_the_surprise_alone(store: Store) -> None:
    memory = whole(store)
    after = store.update(Ref(id=memory.id), mask=["metadata"]).memory
    assert json.loads(after.metadata).keys() == {"_hippo"}


def test_what_the_mask_leaves_out_is_not_looked_at(store: Store) -> None:
    memory = whole(store)
    request = pb.UpdateMemoryRequest(
        namespace=store.namespace,
        ref=Ref(id=memory.id),
        memory=Memory(id=99, content="another", status="done", tags=[","], version=7),
    )
    request.update_mask.paths.append("status")
    after = store.stub.UpdateMemory(request, timeout=SECONDS).memory
    assert (after.id, after.content, after.status, after.tags) == (memory.id, "the text", "done", memory.tags)


@pytest.mark.parametrize(
    "path", ["id", "namespace", "content_hash", "updated_at", "deleted_at", "version", "model_revision", "*", "", "tag"]
)
def test_a_path_that_cannot_be_set_is_refused(store: Store, path: str) -> None:
    memory = whole(store)
    with refused(Code.INVALID_ARGUMENT, "update_mask.paths[1]"):
        store.update(Ref(id=memory.id), mask=["status", path])
    assert store.get_id(memory.id) == memory


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"tags": ["a,b"]}, "tags[0]"),
        ({"hints": ["a"] * 4}, "hints"),
        ({"importance": 1.5}, "importance"),
        ({"metadata": "[]"}, "metadata"),
        ({"status": "x" * 257}, "status"),
        ({"surprise": memory_pb2.Surprise(score=2)}, "surprise.score"),
        ({"content": " "}, "content"),
        ({"content": "without a vector"}, "vectors"),
        ({}, "update_mask"),
    ],
)
def test_a_value_that_no_memory_may_have_is_refused(store: Store, fields: dict[str, Any], blamed: str) -> None:
    memory = whole(store)
    with refused(Code.INVALID_ARGUMENT, blamed):
        store.update(Ref(id=memory.id), **fields)
    assert store.get_id(memory.id) == memory


def test_a_memory_has_a_time(store: Store) -> None:
    memory = whole(store)
    with refused(Code.INVALID_ARGUMENT, "created_at"):
        store.update(Ref(id=memory.id), mask=["created_at"])


def test_vectors_come_with_content_only(store: Store) -> None:
    memory = whole(store)
    with refused(Code.INVALID_ARGUMENT, "vectors"):
        store.update(Ref(id=memory.id), vector(1), status="done")
    assert store.get_id(memory.id) == memory


# ---------------------------------------------------------------------------------------------- content and hints


def test_new_content_is_found_and_the_old_is_not(store: Store) -> None:
    memory = whole(store)
    after = store.update(Ref(id=memory.id), vector(0, 1), content="other words").memory
    assert (after.id, after.version, after.model_revision) == (memory.id, 2, "model-1")
    assert after.created_at == memory.created_at
    assert after.hints == memory.hints
    assert after == store.get(Ref(content_hash=after.content_hash))
    assert store.matching("words") == ["other words"]
    assert store.matching("text") == []
    assert store.search(dense=vector(0, 1)).hits[0].dense.score == pytest.approx(1, abs=1e-3)


def test_the_same_content_makes_no_version(store: Store) -> None:
    memory = whole(store)
    response = store.update(Ref(id=memory.id), vector(0, 1), content="the text")
    assert response == pb.UpdateMemoryResponse(memory=memory, changed=False)
    assert len(store.versions(Ref(id=memory.id)).versions) == 1


def test_new_hints_make_no_version_and_move_no_time(store: Store) -> None:
    memory = whole(store)
    response = store.update(Ref(id=memory.id), hints=["worded differently"])
    after = store.get_id(memory.id)
    assert response == pb.UpdateMemoryResponse(memory=after, changed=True)
    assert (after.version, after.updated_at) == (1, memory.updated_at)
    assert store.matching("differently") == ["the text"]
    assert store.matching("asked") == []


def test_nothing_changed_is_nothing_written(store: Store) -> None:
    memory = whole(store)
    same: dict[str, Any] = {
        "tags": memory.tags,
        "status": memory.status,
        "metadata": '{"own":[1]}',
        "hints": memory.hints,
    }
    assert store.update(Ref(id=memory.id), **same) == pb.UpdateMemoryResponse(memory=memory, changed=False)
    assert store.get_id(memory.id) == memory


def test_a_dry_run_tells_what_would_be(store: Store) -> None:
    memory = whole(store)
    response = store.update(Ref(id=memory.id), vector(0, 1), content="other words", status="done", dry_run=True)
    assert store.get_id(memory.id) == memory
    assert store.matching("text") == ["the text"]
    real = store.update(Ref(id=memory.id), vector(0, 1), content="other words", status="done")
    response.memory.updated_at.CopyFrom(real.memory.updated_at)
    assert response == real
    with refused(Code.INVALID_ARGUMENT, "vectors"):
        store.update(Ref(id=memory.id), content="third", dry_run=True)


# ---------------------------------------------------------------------------------------------- identity, versions


def test_a_key_that_another_memory_has_is_refused(store: Store) -> None:
    memory, taken = whole(store), store.add("another", category="c", key="taken")
    for dry_run in (True, False):
        with refused(Code.ALREADY_EXISTS, "key", "IDENTITY_TAKEN", str(taken.id)):
            store.update(Ref(id=memory.id), key="taken", dry_run=dry_run)
    store.delete_id(taken.id)
    with refused(Code.ALREADY_EXISTS, "key"):
        store.update(Ref(id=memory.id), key="taken")
    assert store.update(Ref(id=memory.id), category="d", key="taken").changed
    assert store.get(entity("d", "taken")).id == memory.id


def test_content_that_another_memory_without_a_key_has_is_refused(store: Store) -> None:
    store.add("one")
    two, keyed = store.add("two"), store.add("three", key="k")
    with refused(Code.ALREADY_EXISTS, "content"):
        store.update(Ref(id=two.id), vector(1), content="one")
    assert store.update(Ref(id=keyed.id), vector(1), content="one").memory.version == 2
    with refused(Code.ALREADY_EXISTS, "content"):
        store.update(Ref(id=keyed.id), mask=["key"])
    assert store.get_id(two.id) == two


def test_another_namespace_takes_no_identity(store: Store) -> None:
    other = Store(store.stub)
    other.add("text", key="k")
    memory = store.add("different")
    assert store.update(Ref(id=memory.id), vector(1), content="text", key="k").changed
    with refused(Code.NOT_FOUND, "ref.id"):
        other.update(Ref(id=memory.id), status="done")


def test_a_deleted_memory_cannot_be_updated(store: Store) -> None:
    memory = whole(store)
    store.delete_id(memory.id)
    with refused(Code.NOT_FOUND, "ref.id", message="live"):
        store.update(Ref(id=memory.id), status="done")


def test_another_version_than_the_expected_one_aborts(store: Store) -> None:
    memory = whole(store)
    with refused(Code.ABORTED, "expected_version", "OTHER_VERSION"):
        store.update(Ref(id=memory.id), status="done", expected_version=2)
    assert store.update(Ref(id=memory.id), status="done", expected_version=1).changed
    with refused(Code.INVALID_ARGUMENT, "expected_version"):
        store.update(Ref(id=memory.id), status="done", expected_version=-1)


def test_no_update_of_many_at_once_is_lost(store: Store) -> None:
    memory = store.add("counter 0")

    def increment(_: int) -> None:
        while True:
            seen = store.get_id(memory.id)
            number = int(seen.content.split()[1]) + 1
            try:
                store.update(Ref(id=memory.id), vector(1), content=f"counter {number}", expected_version=seen.version)
            except Exception as error:
                if getattr(error, "code", lambda: None)() is not Code.ABORTED:
                    raise
            else:
                return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(increment, range(24)))
    after = store.get_id(memory.id)
    assert (after.content, after.version) == ("counter 24", 25)
    versions = store.versions(Ref(id=memory.id)).versions
    assert [version.memory.content for version in versions] == [f"counter {number}" for number in range(24, -1, -1)]


def test_fields_that_different_callers_set_at_once_are_all_set(store: Store) -> None:
    memory = store.add("text")
    fields: list[dict[str, Any]] = [{"status": "s"}, {"memory_type": "t"}, {"tags": ["a"]}, {"importance": 1.0}]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: store.update(Ref(id=memory.id), **one), fields))
    after = store.get_id(memory.id)
    assert (after.status, after.memory_type, list(after.tags), after.importance) == ("s", "t", ["a"], 1.0)


# ------------------------------------------------------------------------------------------- undelete, visibility


def test_undelete_brings_a_memory_back_as_it_was(store: Store) -> None:
    memory = whole(store)
    store.delete_id(memory.id)
    assert store.undelete(Ref(id=memory.id), dry_run=True) == [memory.id]
    assert store.listed() == []
    assert store.undelete(Ref(id=memory.id)) == [memory.id]
    assert store.get_id(memory.id) == memory
    assert store.matching("text") == store.matching("asked") == store.nearest(near(0.9)) == ["the text"]
    for dry_run in (True, False):
        with refused(Code.NOT_FOUND, "ref.id", message="deleted"):
            store.undelete(Ref(id=memory.id), dry_run=dry_run)


def test_undelete_by_hash_brings_back_all_that_it_names(store: Store) -> None:
    one, two = store.add("text", key="one"), store.add("text", key="two")
    live = store.add("text", key="three")
    store.delete_id(one.id)
    store.delete_id(two.id)
    assert store.undelete(Ref(content_hash=one.content_hash)) == [one.id, two.id]
    assert [memory.id for memory in store.page().memories] == [live.id, two.id, one.id]


def test_a_read_sees_what_its_visibility_says(store: Store) -> None:
    live, dead = store.add("live", key="a"), store.add("dead", key="b")
    store.delete_id(dead.id)
    for visibility, seen in ((UNSPECIFIED, {"live"}), (LIVE, {"live"}), (DELETED, {"dead"}), (ALL, {"live", "dead"})):
        page = store.page(visibility=visibility)
        assert {memory.content for memory in page.memories} == seen
        assert page.total_size == len(seen)
        for memory in (live, dead):
            if memory.content in seen:
                assert store.get(Ref(id=memory.id), visibility=visibility).content == memory.content
            else:
                with refused(Code.NOT_FOUND, "ref.id"):
                    store.get(Ref(id=memory.id), visibility=visibility)
    assert store.get(entity("", "b"), visibility=DELETED).HasField("deleted_at")
    with refused(Code.INVALID_ARGUMENT, "visibility"):
        store.page(visibility=9)  # type: ignore[arg-type]
    with refused(Code.INVALID_ARGUMENT, "visibility"):
        store.get(Ref(id=live.id), visibility=9)


def test_a_hash_means_the_live_memory_before_a_deleted_one(store: Store) -> None:
    dead, live = store.add("text", key="one"), store.add("text", key="two")
    store.delete_id(dead.id)
    assert store.get(Ref(content_hash=live.content_hash), visibility=ALL) == live


def test_a_page_token_is_of_its_visibility(store: Store) -> None:
    for number in range(3):
        store.delete_id(store.add(f"text {number}").id)
    token = store.page(1, visibility=DELETED).next_page_token
    assert [memory.content for memory in store.page(9, token, visibility=DELETED).memories] == ["text 1", "text 0"]
    for visibility in (UNSPECIFIED, LIVE, ALL):
        with refused(Code.INVALID_ARGUMENT, "page_token"):
            store.page(1, token, visibility=visibility)
    store.add("live")
    store.add("live, too")
    token = store.page(1).next_page_token
    assert store.page(1, token, visibility=LIVE).memories  # What is unspecified means live.


def test_a_status_is_kept_filtered_by_and_replaced(store: Store) -> None:
    memory = store.add("text", status=" open ", key="k")
    assert memory.status == "open"
    assert store.listed(statuses=["open", "other"]) == store.matching("text", statuses=["open"]) == ["text"]
    assert store.listed(statuses=["done"]) == store.nearest(vector(1), statuses=["done"]) == []
    assert store.add("text", key="k").status == "open"
    assert store.add("text", key="k", status="done").status == "done"
    assert store.add("new text", key="k").status == ""
    store.delete_id(memory.id)
    revived = store.put("new text", key="k", status="open")
    assert (revived.outcome, revived.memory.status) == (REVIVED, "open")
