"""What memories were: as of an instant, and version by version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import EXISTED, REVIVED, UPDATED, Code, Ref, Store, encrypted, entity, refused, stub_of, vector

MICROSECOND = 1e-6


@pytest.fixture(scope="module", params=["off", "values"])
def stub(module_home: Path, request: pytest.FixtureRequest) -> Iterator[StorageServiceStub]:
    with stub_of(module_home.with_name(request.param), encrypted(request.param)) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def seconds(instant: Any) -> float:
    return float(instant.ToMicroseconds() / 1e6)


def lives(store: Store, ref: Ref) -> list[tuple[str, float, float | None]]:
    """Content, beginning and end of every life, the newest first."""
    return [
        (one.memory.content, seconds(one.since), seconds(one.until) if one.HasField("until") else None)
        for one in store.versions(ref).versions
    ]


def test_a_new_memory_has_one_life_without_an_end(store: Store) -> None:
    memory = store.add("text", hints=["asked so"])
    assert lives(store, Ref(id=memory.id)) == [("text", seconds(memory.updated_at), None)]
    with refused(Code.NOT_FOUND, "as_of"):
        store.as_of(Ref(id=memory.id), seconds(memory.updated_at) - MICROSECOND)
    then = store.as_of(Ref(id=memory.id), seconds(memory.updated_at))
    assert list(then.hints) == []
    then.hints[:] = memory.hints
    assert then == memory


def test_every_way_that_content_ends_leaves_a_life(store: Store) -> None:
    ref = entity("c", "k")
    one = store.add("one", category="c", key="k", tags=["t"], hints=["h"], metadata='{"a":1}', status="open")
    assert store.put("two", category="c", key="k").outcome == UPDATED
    store.update(ref, vector(1), content="three")
    store.delete(ref)
    assert store.put("four", category="c", key="k").outcome == REVIVED
    store.delete(ref)
    store.undelete(ref)
    found = lives(store, ref)
    assert [content for content, _, _ in found] == ["four", "four", "three", "two", "one"]
    ends = [end for _, _, end in found]
    begins = [begin for _, begin, _ in found]
    assert ends[0] is None
    for end, begin in ((ends[2], begins[1]), (ends[1], begins[0])):  # Deleted in between.
        assert end is not None
        assert end < begin
    assert ends[3:] == begins[2:4]
    assert all(later > earlier for later, earlier in itertools.pairwise(begins))
    for content, begin, end in found:
        assert store.as_of(ref, begin).content == content
        if end is not None:
            assert store.as_of(ref, end - MICROSECOND).content == content
    with refused(Code.NOT_FOUND, "as_of"):
        store.as_of(ref, ends[1] or 0)
    oldest = store.versions(ref).versions[-1].memory
    one.ClearField("hints")
    assert oldest == one


def test_versions_count_contents_not_lives(store: Store) -> None:
    memory = store.add("one", key="k")
    store.delete_id(memory.id)
    store.put("one", key="k")
    store.put("two", key="k")
    versions = store.versions(Ref(id=memory.id)).versions
    assert [(one.memory.content, one.memory.version) for one in versions] == [("two", 2), ("one", 1), ("one", 1)]


def test_what_is_not_content_makes_no_life(store: Store) -> None:
    memory = store.add("text", key="k", hints=["one"])
    assert store.put("text", key="k", tags=["t"], metadata='{"a":1}', status="done", hints=["two"]).outcome == EXISTED
    store.update(Ref(id=memory.id), tags=["u"], memory_type="fact", hints=["three"], category="c")
    [only] = store.versions(Ref(id=memory.id)).versions
    assert list(only.memory.tags) == ["u"]
    assert not only.memory.hints


def test_a_deleted_memory_is_read_as_it_was(store: Store) -> None:
    memory = store.add("text", hints=["h"])
    store.delete_id(memory.id)
    deleted = store.get(Ref(id=memory.id), visibility=memory_pb2.VISIBILITY_DELETED)
    [only] = store.versions(Ref(id=memory.id)).versions
    memory.ClearField("hints")
    assert (only.memory, only.until) == (memory, deleted.deleted_at)
    assert store.as_of(Ref(id=memory.id), seconds(deleted.deleted_at) - MICROSECOND) == memory
    with refused(Code.NOT_FOUND, "as_of"):
        store.as_of(Ref(id=memory.id), seconds(deleted.deleted_at))


def test_a_memory_that_got_its_key_later_keeps_what_it_was(store: Store) -> None:
    plain = store.add("plain text")
    assert store.put("plain text", key="k").memory.id == plain.id
    assert store.put("replaced", key="k").memory.id == plain.id
    assert [content for content, _, _ in lives(store, entity("", "k"))] == ["replaced", "plain text"]
    with refused(Code.NOT_FOUND, "ref.content_hash"):
        store.versions(Ref(content_hash=plain.content_hash))
    assert store.put("plain text").memory.id != plain.id


def test_the_surprise_of_an_old_version_is_that_of_its_time(store: Store) -> None:
    old = memory_pb2.Surprise(score=0.5, components=memory_pb2.SurpriseComponents(prediction_loss=0.25), version=3)
    memory = store.add("one", key="k", surprise=old, metadata='{"a":1}')
    store.put("two", key="k", surprise=memory_pb2.Surprise(score=1, version=3))
    assert [one.memory.surprise.score for one in store.versions(Ref(id=memory.id)).versions] == [1, 0.5]
    assert store.as_of(Ref(id=memory.id), seconds(memory.updated_at)).surprise == old


def test_pages_of_versions_are_stable_and_bound_to_the_memory(store: Store) -> None:
    for number in range(5):
        store.put(f"text {number}", key="k")
    ref = entity("", "k")
    seen, token = [], ""
    while True:
        page = store.versions(ref, 2, token)
        seen += [one.memory.content for one in page.versions]
        token = page.next_page_token
        if not token:
            break
        store.put(f"later {len(seen)}", key="k")
    assert seen == ["text 4", "text 3", "text 2", "text 1", "text 0"]
    other = store.add("other", key="other")
    token = store.versions(ref, 1).next_page_token
    for request in ((Ref(id=other.id), token), (ref, store.page(1).next_page_token), (ref, "nonsense")):
        with refused(Code.INVALID_ARGUMENT, "page_token"):
            store.versions(request[0], 1, request[1])
    store.update(ref, key="renamed")
    store.add("new holder", key="k")
    with refused(Code.INVALID_ARGUMENT, "page_token"):
        store.versions(ref, 1, token)


def test_a_page_of_long_versions_fits_into_an_answer(store: Store) -> None:
    for number in range(60):
        store.put(f"{number} " + "x" * 60_000, key="k")
    seen: list[int] = []
    token = ""
    while token or not seen:
        page = store.versions(entity("", "k"), token=token)
        assert page.ByteSize() < 4 * 1024 * 1024
        seen += [int(one.memory.content.split()[0]) for one in page.versions]
        token = page.next_page_token
    assert seen == list(range(59, -1, -1))


@pytest.mark.parametrize("size", [0, -1, 1001])
def test_a_page_has_bounds(store: Store, size: int) -> None:
    memory = store.add("text")
    with refused(Code.INVALID_ARGUMENT, "page_size"):
        store.versions(Ref(id=memory.id), size)


def test_another_namespace_has_no_past_here(store: Store) -> None:
    memory = Store(store.stub).add("text")
    with refused(Code.NOT_FOUND, "ref.id"):
        store.versions(Ref(id=memory.id))
    with refused(Code.NOT_FOUND, "ref.id"):
        store.as_of(Ref(id=memory.id), seconds(memory.updated_at))


def test_a_purely_foreign_instant_is_refused(store: Store) -> None:
    memory = store.add("text")
    with refused(Code.INVALID_ARGUMENT, "as_of"):
        store.get(Ref(id=memory.id), as_of={"seconds": 10**15})
