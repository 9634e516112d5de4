"""GetMemory, ListMemories, DeleteMemory, SummarizeMemories and GetStats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import Code, Memory, Ref, Store, at, encrypted, entity, refused, stub_of

UNKNOWN_HASH = "0" * 64


@pytest.fixture(scope="module", params=["off", "values"])
def stub(module_home: Path, request: pytest.FixtureRequest) -> Iterator[StorageServiceStub]:
    with stub_of(module_home.with_name(request.param), encrypted(request.param)) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def surprise(score: float) -> memory_pb2.Surprise:
    return memory_pb2.Surprise(score=score, version=1)


# ------------------------------------------------------------------------------------------------------ get, delete


def references(memory: Memory) -> list[Ref]:
    return [Ref(id=memory.id), Ref(content_hash=memory.content_hash), entity(memory.category, memory.key)]


def test_every_kind_of_reference_gets_the_memory(store: Store) -> None:
    memory = store.add("text", category="c", key="k")
    for ref in references(memory):
        assert store.get(ref) == memory


def test_a_content_hash_means_the_unkeyed_memory_first_then_the_oldest(store: Store) -> None:
    one, two = store.add("text", key="one"), store.add("text", key="two")
    assert store.get(Ref(content_hash=one.content_hash)) == one
    store.delete_id(one.id)
    assert store.get(Ref(content_hash=one.content_hash)) == two
    unkeyed = store.add("different", key="three")
    store.add("moved", key="three")
    plain = store.add("different")
    store.add("different", key="four")
    assert store.get(Ref(content_hash=unkeyed.content_hash)) == store.get_id(plain.id)


@pytest.mark.parametrize(
    ("ref", "field", "told"),
    [
        (Ref(id=999_999_999), "ref.id", "999999999 names"),
        (Ref(id=-1), "ref.id", "-1 names"),
        (Ref(content_hash=UNKNOWN_HASH), "ref.content_hash", "names"),
        (Ref(content_hash="' OR 1=1 --"), "ref.content_hash", "names"),
        (entity("no", "such"), "ref.entity", '"such" of the category "no" names'),
    ],
)
def test_an_unknown_memory_is_not_found_by_the_field_that_names_it(
    store: Store, ref: Ref, field: str, told: str
) -> None:
    message = f'{field}: {told} no live memory of the namespace "{store.namespace}"'
    with refused(Code.NOT_FOUND, field, message=message):
        store.get(ref)
    with refused(Code.NOT_FOUND, field, message=message):
        store.delete(ref)
    with refused(Code.NOT_FOUND, field, message=message):
        store.delete(ref, dry_run=True)


@pytest.mark.parametrize(("ref", "field"), [(Ref(), "ref"), (entity("c", " "), "ref.entity.key")])
def test_a_reference_must_name_something(store: Store, ref: Ref, field: str) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        store.get(ref)
    with refused(Code.INVALID_ARGUMENT, field):
        store.delete(ref)


def test_a_shortened_hash_names_nothing(store: Store) -> None:
    memory = store.add("text")
    with refused(Code.NOT_FOUND, "ref.content_hash"):
        store.get(Ref(content_hash=memory.content_hash[:12]))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_deleted_memory_is_gone_by_every_reference(store: Store, kind: int) -> None:
    memory = store.add("text about zebras", category="c", key="k", tags=["t"])
    assert store.delete(references(memory)[kind]) == [memory.id]
    for ref, field in zip(references(memory), ("ref.id", "ref.content_hash", "ref.entity"), strict=True):
        with refused(Code.NOT_FOUND, field):
            store.get(ref)
        with refused(Code.NOT_FOUND, field):
            store.delete(ref)
    assert store.listed() == []
    assert store.matching("zebra") == []
    assert store.compare(b"\0\0\x80\x3f" + bytes(383 * 4)) == []


def test_a_content_hash_deletes_every_memory_of_the_content_in_its_namespace(store: Store) -> None:
    one, two = store.add("text", key="one"), store.add("text", key="two")
    kept = store.add("other text")
    elsewhere = Store(store.stub)
    elsewhere.add("text")
    ref = Ref(content_hash=one.content_hash)
    assert store.delete(ref, dry_run=True) == [one.id, two.id]
    assert store.delete(ref) == [one.id, two.id]
    assert store.listed() == [kept.content]
    assert elsewhere.listed() == ["text"]


def test_a_dry_run_changes_nothing(store: Store) -> None:
    memory = store.add("text", tags=["t"])
    assert store.delete(Ref(id=memory.id), dry_run=True) == [memory.id]
    assert store.get_id(memory.id) == memory
    assert store.matching("text") == ["text"]


# ------------------------------------------------------------------------------------------------------------- list


def test_the_newest_comes_first_and_equals_by_id(store: Store) -> None:
    for content, seconds in (("old", 10), ("new", 30), ("middle one", 20), ("middle two", 20)):
        store.add(content, created_at=at(seconds))
    assert store.listed() == ["new", "middle two", "middle one", "old"]


def test_pages_cover_the_listing_once_while_others_write(store: Store) -> None:
    before = {store.add(f"memory {n}", created_at=at(1000 + n // 3)).content for n in range(23)}
    seen: list[str] = []
    token = ""
    for number in range(100):
        page = store.page(4, token)
        seen += [memory.content for memory in page.memories]
        assert len(page.memories) <= 4
        store.add(f"newer than all {number}", created_at=at(5000 + number))
        token = page.next_page_token
        if not token:
            break
    assert len(seen) == len(set(seen))
    assert before <= set(seen)
    assert not any(content.startswith("newer") for content in seen)


def test_the_last_page_has_no_token(store: Store) -> None:
    for n in range(4):
        store.add(f"memory {n}")
    page = store.page(2)
    assert page.total_size == 4
    assert page.next_page_token
    page = store.page(2, page.next_page_token)
    assert len(page.memories) == 2
    assert not page.next_page_token
    assert not store.page(4).next_page_token


def test_skip_passes_over_the_first(store: Store) -> None:
    for n in range(5):
        store.add(f"memory {n}", created_at=at(n))
    page = store.page(2, skip=1)
    assert [memory.content for memory in page.memories] == ["memory 3", "memory 2"]
    assert page.total_size == 5
    rest = store.page(2, page.next_page_token)
    assert [memory.content for memory in rest.memories] == ["memory 1", "memory 0"]
    assert not store.page(2, skip=5).memories


def test_a_page_stops_before_it_grows_too_large(store: Store) -> None:
    for n in range(60):
        store.add(f"{n:02} " + "x" * 65_000, created_at=at(n))
    seen: list[str] = []
    token, pages = "", 0
    while token or not pages:
        page = store.page(1000, token)
        assert page.ByteSize() < 3.5 * 1024 * 1024
        seen += [memory.content[:2] for memory in page.memories]
        token, pages = page.next_page_token, pages + 1
    assert pages == 2
    assert seen == [f"{n:02}" for n in reversed(range(60))]


def test_a_token_belongs_to_its_listing(store: Store) -> None:
    for n in range(3):
        store.add(f"memory {n}", tags=["t"])
    token = store.page(1).next_page_token
    for other in ("nonsense", "é", token[:-4], "A" * len(token)):
        with refused(Code.INVALID_ARGUMENT, "page_token"):
            store.page(1, other)
    with refused(Code.INVALID_ARGUMENT, "page_token"):
        store.page(1, token, tags_any=["t"])
    with refused(Code.INVALID_ARGUMENT, "page_token"):
        Store(store.stub).page(1, token)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("page_size", {"size": 0}),
        ("page_size", {"size": -1}),
        ("page_size", {"size": 1001}),
        ("skip", {"skip": -1}),
        ("filter.tags_any[0]", {"tags_any": ["a,b"]}),
        ("filter.created_since", {"created_since": Timestamp(seconds=10**15)}),
    ],
)
def test_a_bad_listing_is_refused(store: Store, field: str, arguments: dict[str, Any]) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        store.page(**arguments)


# ---------------------------------------------------------------------------------------------------------- filters


@pytest.fixture(scope="module")
def tagged(stub: StorageServiceStub) -> Store:
    store = Store(stub)
    for number, tags in enumerate((["test"], ["testing"], ["a_b"], ["axb"], ["100%"], ["100x"], ["test", "a*b"], [])):
        store.add(f"memory {number}", tags=tags, created_at=at(number))
    return store


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("test", ["memory 6", "memory 0"]),
        ("testing", ["memory 1"]),
        ("tes", []),
        ("TEST", []),
        ("a_b", ["memory 2"]),
        ("a*b", ["memory 6"]),
        ("100%", ["memory 4"]),
        ("%", []),
        ("*", []),
        ("[a]", []),
        ("' OR 1=1 --", []),
    ],
)
def test_tags_are_compared_exactly(tagged: Store, tag: str, found: list[str]) -> None:
    assert tagged.listed(tags_any=[tag]) == found
    assert tagged.listed(tags_all=[tag]) == found
    assert tagged.page(tags_any=[tag]).total_size == len(found)


def test_any_and_all_of_the_tags(tagged: Store) -> None:
    assert tagged.listed(tags_any=["test", "axb"]) == ["memory 6", "memory 3", "memory 0"]
    assert tagged.listed(tags_all=["test", "a*b"]) == ["memory 6"]
    assert tagged.listed(tags_all=["test"], tags_any=["a*b", "axb"]) == ["memory 6"]


def test_filters_by_type_category_and_time_hold_together(store: Store) -> None:
    store.add("one", memory_type="Decision", category="c", key="1", created_at=at(10))
    store.add("two", memory_type="decision", category="c", key="2", created_at=at(20))
    store.add("three", memory_type="Decision", category="d", key="3", created_at=at(30))
    assert store.listed(memory_types=["Decision"]) == ["three", "one"]
    assert store.listed(memory_types=["Decision", "decision"], categories=["c"]) == ["two", "one"]
    assert store.listed(created_since=at(20)) == ["three", "two"]
    assert store.listed(created_before=at(20)) == ["one"]
    assert store.listed(created_since=at(10), created_before=at(30), memory_types=["Decision"]) == ["one"]


# ---------------------------------------------------------------------------------------------------------- summary


def test_a_summary_tells_what_is_notable(store: Store) -> None:
    store.add("before", memory_type="Note", tags=["old"], surprise=surprise(1.0), created_at=at(10))
    store.add("mild", memory_type="Note", tags=["b", "a"], surprise=surprise(0.2), created_at=at(100))
    store.add("high", memory_type="Decision", tags=["a"], surprise=surprise(0.8), created_at=at(101))
    store.add("unscored", created_at=at(102))
    gone = store.add("gone", tags=["a", "gone"], surprise=surprise(1.0), created_at=at(103))
    store.delete_id(gone.id)
    summary = store.summary(since=100, highlights=5)
    assert summary.total_memories == 3
    assert dict(summary.by_type) == {"Note": 1, "Decision": 1, "": 1}
    assert [(tag.tag, tag.count) for tag in summary.top_tags] == [("a", 2), ("b", 1)]
    assert [memory.content for memory in summary.highlights] == ["high", "mild"]
    assert summary.mean_surprise == pytest.approx(0.5)
    assert summary.since == at(100)
    assert [tag.tag for tag in store.summary(since=100, top_tags=1).top_tags] == ["a"]
    assert [memory.content for memory in store.summary(since=100, highlights=1).highlights] == ["high"]
    assert store.summary().total_memories == 4


def test_a_summary_tells_the_commonest_types_only(store: Store) -> None:
    for n in range(101):
        store.add(f"memory {n}", memory_type=f"type {n:03}")
    store.add("one more", memory_type="type 100")
    by_type = store.summary().by_type
    assert len(by_type) == 100
    assert by_type["type 100"] == 2
    assert "type 099" not in by_type


def test_a_summary_of_nothing_is_empty(store: Store) -> None:
    summary = store.summary(since=5)
    assert (summary.total_memories, summary.mean_surprise) == (0, 0)
    assert not summary.by_type
    assert not summary.highlights


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("top_tags", {"top_tags": 0}), ("top_tags", {"top_tags": 101}), ("highlights", {"highlights": 101})],
)
def test_a_bad_summary_is_refused(store: Store, field: str, arguments: dict[str, int]) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        store.summary(**arguments)


# ------------------------------------------------------------------------------------------------------------ stats


def test_stats_count_the_whole_store(stub: StorageServiceStub) -> None:
    before = stub.GetStats(pb.GetStatsRequest())
    store = Store(stub)
    store.add("one")
    store.delete_id(store.add("two").id)
    after = stub.GetStats(pb.GetStatsRequest())
    assert after.live_memories == before.live_memories + 1
    assert after.deleted_memories == before.deleted_memories + 1
    assert after.namespaces == before.namespaces + 1
    assert after.size_bytes > 0
    assert (after.schema_version, after.dimensions) == (3, 384)
    assert after.engine.startswith("SQLite 3.")
    assert "sqlite-vec 0." in after.engine
