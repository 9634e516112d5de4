"""PutMemory and FindMemory: identity, and what a put makes of what is there."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import (
    CREATED,
    DIMENSIONS,
    EXISTED,
    REVIVED,
    UPDATED,
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

SURPRISE = memory_pb2.Surprise(
    score=0.625,
    components=memory_pb2.SurpriseComponents(embedding_outlier=0.5, engagement=0.25, explicit=1.0),
    version=1,
)


@pytest.fixture(scope="module", params=["off", "values"])
def stub(module_home: Path, request: pytest.FixtureRequest) -> Iterator[StorageServiceStub]:
    with stub_of(module_home.with_name(request.param), encrypted(request.param)) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


# ---------------------------------------------------------------------------------------------------- a new memory


def test_a_new_memory_comes_back_whole(store: Store) -> None:
    given: dict[str, Any] = {
        "category": "ports",
        "key": "api",
        "tags": [" net ", "api", "net"],
        "hints": ["what port does the api listen on"],
        "memory_type": "Decision",
        "importance": 0.75,
        "metadata": '{"source": "chat"}',
        "created_at": at(1_700_000_000.123456),
        "surprise": SURPRISE,
    }
    response = store.put("The API listens on 8443.", **given)
    memory = response.memory
    assert response.outcome == CREATED
    assert memory.id > 0
    assert memory.namespace == store.namespace
    assert memory.content_hash == hashlib.sha256(b"The API listens on 8443.").hexdigest()
    assert (memory.category, memory.key) == ("ports", "api")
    assert list(memory.tags) == ["net", "api"]
    assert list(memory.hints) == ["what port does the api listen on"]
    assert (memory.memory_type, memory.importance) == ("Decision", 0.75)
    assert memory.created_at == at(1_700_000_000.123456)
    assert memory.updated_at.seconds > 1_700_000_000
    assert not memory.HasField("deleted_at")
    assert memory.surprise == SURPRISE
    assert (memory.version, memory.model_revision) == (1, "model-1")
    assert store.get_id(memory.id) == memory


def test_a_bare_memory_has_nothing_it_was_not_given(store: Store) -> None:
    memory = store.add("bare")
    assert not memory.HasField("importance")
    assert not memory.HasField("surprise")
    assert (memory.metadata, memory.memory_type, memory.category, memory.key) == ("", "", "", "")
    assert not memory.tags
    assert not memory.hints
    assert memory.created_at == memory.updated_at


def test_an_importance_of_zero_is_not_an_absent_one(store: Store) -> None:
    memory = store.add("zero", importance=0.0)
    assert memory.HasField("importance")
    assert memory.importance == 0


def test_an_empty_namespace_is_the_default_one(stub: StorageServiceStub) -> None:
    assert Store(stub, "").add("in the default namespace").namespace == "default"
    assert Store(stub, "default").find("in the default namespace")


@pytest.mark.parametrize("content", ["  leading and trailing \n", "Grüße 東京 👋", "a\r\nb\tc", "x" * 65_536])
def test_content_is_kept_byte_for_byte(store: Store, content: str) -> None:
    assert store.add(content).content == content


@pytest.mark.parametrize("seconds", [-1.5, 0, 1_699_999_999.999999, 4_102_444_800.000001])
def test_times_keep_their_microseconds(store: Store, seconds: float) -> None:
    assert store.add("then", created_at=at(seconds)).created_at == at(seconds)


# -------------------------------------------------------------------------------------------------------- identity


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"created_at": Timestamp(seconds=1, nanos=1_999)},
        {"created_at": Timestamp(seconds=-62_135_596_800, nanos=123_456_000)},
        {"created_at": Timestamp(seconds=253_402_300_798, nanos=123_456_789)},
        {"surprise": memory_pb2.Surprise(score=0.1)},
        {
            "surprise": SURPRISE,
            "metadata": '{"a": 1}',
            "importance": 0.0,
            "tags": ["a", "b c"],
            "hints": ["why", "how"],
        },
        {"category": "c", "key": "k", "memory_type": "t", "status": "s"},
    ],
)
def test_what_a_put_returns_is_what_a_get_returns(store: Store, fields: dict[str, Any]) -> None:
    for content, tags in (("one", []), ("one", ["new"]), ("two", [])):
        put = store.add(content, **{**fields, "tags": [*fields.get("tags", []), *tags]})
        assert store.get_id(put.id) == put
    store.delete_id(put.id)
    revived = store.add("two", **fields)
    assert store.get_id(put.id) == revived


def test_the_same_content_is_the_same_memory(store: Store) -> None:
    first = store.put("once")
    second = store.put("once")
    assert (first.outcome, second.outcome) == (CREATED, EXISTED)
    assert second.memory == first.memory


@pytest.mark.parametrize("other", ["set password to alpha", "Set PASSWORD to Alpha ", "Set  PASSWORD to Alpha"])
def test_identity_is_the_exact_bytes(store: Store, other: str) -> None:
    first = store.add("Set PASSWORD to Alpha")
    response = store.put(other)
    assert response.outcome == CREATED
    assert response.memory.id != first.id


def test_composed_and_decomposed_characters_are_two_contents(store: Store) -> None:
    assert store.put("caf\u00e9").outcome == CREATED
    assert store.put("cafe\u0301").outcome == CREATED


def test_two_namespaces_hold_the_same_content_apart(stub: StorageServiceStub) -> None:
    one, other = Store(stub), Store(stub)
    first, second = one.add("shared", tags=["one"]), other.add("shared", tags=["other"])
    assert first.id != second.id
    assert first.content_hash == second.content_hash
    one.delete_id(first.id)
    assert list(other.get(Ref(content_hash=second.content_hash)).tags) == ["other"]
    with refused(Code.NOT_FOUND, "ref.id"):
        other.get_id(first.id)


def test_a_key_names_one_memory_of_its_category(store: Store) -> None:
    ports = store.add("8443", category="ports", key="api")
    hosts = store.add("example", category="hosts", key="api")
    bare = store.add("other", key="api")
    assert len({ports.id, hosts.id, bare.id}) == 3
    assert store.put("9443", category="ports", key="api").memory.id == ports.id


def test_parts_of_a_name_cannot_be_shifted(store: Store) -> None:
    assert store.put("same", category="a", key="bc").outcome == CREATED
    assert store.put("same", category="ab", key="c").outcome == CREATED


def test_a_keyed_put_gives_its_key_to_the_same_unkeyed_content(store: Store) -> None:
    unkeyed = store.add("the port is 8443", tags=["net"])
    response = store.put("the port is 8443", category="ports", key="api", tags=["api"])
    assert response.outcome == EXISTED
    assert response.memory.id == unkeyed.id
    assert (response.memory.category, response.memory.key) == ("ports", "api")
    assert list(response.memory.tags) == ["net", "api"]
    assert response.memory.version == 1
    assert response.memory.updated_at.ToNanoseconds() > unkeyed.updated_at.ToNanoseconds()


def test_a_keyed_put_does_not_take_another_keys_content(store: Store) -> None:
    first = store.add("same text", key="one")
    response = store.put("same text", key="two")
    assert response.outcome == CREATED
    assert response.memory.id != first.id


def test_an_unkeyed_put_finds_the_unkeyed_memory_before_a_keyed_one(store: Store) -> None:
    store.add("text", key="k")
    unkeyed = store.add("other text")
    assert store.put("other text", key="k").outcome == UPDATED  # Now a keyed memory of the same content is there too.
    assert store.put("other text").memory.id == unkeyed.id


def test_an_unkeyed_put_finds_a_keyed_memory_and_leaves_its_key(store: Store) -> None:
    first = store.add("text", key="one")
    store.add("text", key="two")
    response = store.put("text")
    assert response.outcome == EXISTED
    assert response.memory.id == first.id
    assert response.memory.key == "one"


def test_an_unkeyed_put_finds_a_live_keyed_memory_before_a_deleted_unkeyed_one(store: Store) -> None:
    unkeyed = store.add("text")
    store.delete_id(unkeyed.id)
    keyed = store.add("another", key="k")
    assert store.put("text", key="k").memory.id == keyed.id
    response = store.put("text")
    assert response.outcome == EXISTED
    assert response.memory.id == keyed.id


def test_a_category_without_a_key_is_a_group_and_no_name(store: Store) -> None:
    first = store.add("8443", category="ports")
    assert (first.category, first.key) == ("ports", "")
    assert store.put("8443").outcome == EXISTED
    assert store.find("8443") == store.find("8443", category="hosts") == store.get_id(first.id) == first
    assert store.put("9443", category="ports").outcome == CREATED
    assert set(store.listed(categories=["ports"])) == {"8443", "9443"}
    with refused(Code.INVALID_ARGUMENT, "ref.entity.key"):
        store.get(entity("ports", ""))


def test_a_given_category_replaces_that_of_an_unkeyed_memory_only(store: Store) -> None:
    first = store.add("8443", category="ports")
    moved = store.put("8443", b"", category="services")
    assert (moved.outcome, moved.memory.id, moved.memory.category) == (EXISTED, first.id, "services")
    assert store.listed(categories=["ports"]) == []
    named = store.add("8443", category="api", key="port")
    assert (named.id, named.category, named.key) == (first.id, "api", "port")
    kept = store.add("8443", category="ports")
    assert (kept.id, kept.category, kept.key) == (first.id, "api", "port")


def test_find_returns_what_a_put_would_write_to(store: Store) -> None:
    assert store.find("text") is None
    memory = store.add("text", category="c", key="k")
    assert store.find("text") == memory
    assert store.find("something else", "c", "k") == memory
    assert store.find("something else", "c", "other") is None
    store.delete_id(memory.id)
    found = store.find("text")
    assert found is not None
    assert found.id == memory.id
    assert found.HasField("deleted_at")


# --------------------------------------------------------------------------------------- the same content once more


def test_a_repeat_merges_tags_and_replaces_what_it_gives(store: Store) -> None:
    first = store.add(
        "text", tags=["a", "b"], memory_type="Note", importance=0.2, metadata='{"n":1}', surprise=SURPRISE
    )
    response = store.put(
        "text",
        near(0.5),
        tags=["c", "a"],
        memory_type="Decision",
        importance=0.9,
        metadata='{"n":2}',
        created_at=at(5),
        surprise=memory_pb2.Surprise(score=0.1, version=2),
    )
    memory = response.memory
    assert response.outcome == EXISTED
    assert list(memory.tags) == ["a", "b", "c"]
    assert (memory.memory_type, memory.importance) == ("Decision", 0.9)
    assert json.loads(memory.metadata)["n"] == 2
    assert memory.surprise == SURPRISE
    assert memory.created_at == first.created_at
    assert memory.version == 1
    assert memory.updated_at.ToNanoseconds() > first.updated_at.ToNanoseconds()
    assert store.compare(vector(1)) == pytest.approx([1.0], abs=3e-4)


def test_a_repeat_without_fields_keeps_them(store: Store) -> None:
    first = store.add("text", tags=["a"], memory_type="Note", importance=0.2, metadata='{"n":1}', surprise=SURPRISE)
    assert store.add("text") == first


def test_a_repeat_needs_no_vector(store: Store) -> None:
    first = store.add("text")
    response = store.put("text", b"", tags=["new"])
    assert response.outcome == EXISTED
    assert response.memory.model_revision == first.model_revision == "model-1"


def test_hints_are_replaced_and_cleared_without_moving_the_memory(store: Store) -> None:
    first = store.add("text", key="k", hints=["one way to ask"])
    second = store.add("text", key="k", hints=["another way to ask", "a third way"])
    assert list(second.hints) == ["another way to ask", "a third way"]
    third = store.add("text", key="k")
    assert not third.hints
    assert first.updated_at == second.updated_at == third.updated_at
    assert first.version == second.version == third.version == 1


@pytest.mark.parametrize("key", ["", "k"])
def test_a_write_that_meets_the_same_content_by_chance_keeps_its_hints(store: Store, key: str) -> None:
    store.add("text", key=key, hints=["one way to ask"])
    assert list(store.add("text").hints) == ["one way to ask"]
    assert list(store.add("text", hints=["another"]).hints) == ["another"]


def test_merged_tags_over_the_limit_store_nothing(store: Store) -> None:
    first = store.add("text", tags=[f"t{n}" for n in range(32)])
    with refused(Code.INVALID_ARGUMENT, "tags", message="32"):
        store.put("text", tags=["one-more"], memory_type="Changed")
    assert store.get_id(first.id) == first


def test_32_threads_with_the_same_content_make_one_memory(store: Store) -> None:
    with ThreadPoolExecutor(32) as pool:
        responses = list(pool.map(lambda n: store.put("contended", tags=[f"t{n}"]), range(32)))
    assert len({response.memory.id for response in responses}) == 1
    assert [response.outcome for response in responses].count(CREATED) == 1
    (memory,) = store.page().memories
    assert set(memory.tags) == {f"t{n}" for n in range(32)}
    assert memory.version == 1


def test_32_threads_on_one_key_give_every_write_its_own_version(store: Store) -> None:
    with ThreadPoolExecutor(32) as pool:
        written = [r.memory for r in pool.map(lambda n: store.put(f"value {n}", key="counter"), range(32))]
    assert sorted(memory.version for memory in written) == list(range(1, 33))
    by_version = sorted(written, key=lambda memory: memory.version)
    instants = [memory.updated_at.ToNanoseconds() for memory in by_version]
    assert instants == sorted(set(instants))
    assert store.get(entity("", "counter")) == by_version[-1]


# ------------------------------------------------------------------------------------------------- an update by key


def test_another_content_under_the_key_is_an_update(store: Store) -> None:
    first = store.add(
        "old words zebra",
        category="c",
        key="k",
        tags=["a"],
        hints=["old hint walrus"],
        memory_type="Note",
        importance=0.5,
        metadata='{"n":1}',
        surprise=SURPRISE,
        created_at=at(1_600_000_000),
    )
    response = store.put("new words yak", near(0.0), category="c", key="k", tags=["b"])
    memory = response.memory
    assert response.outcome == UPDATED
    assert (memory.id, memory.version, memory.content) == (first.id, 2, "new words yak")
    assert memory.content_hash == hashlib.sha256(b"new words yak").hexdigest()
    assert list(memory.tags) == ["b"]
    assert not memory.hints
    assert (memory.memory_type, memory.metadata) == ("", "")
    assert not memory.HasField("importance")
    assert not memory.HasField("surprise")
    assert memory.created_at == first.created_at
    assert memory.updated_at.ToNanoseconds() > first.updated_at.ToNanoseconds()
    assert store.compare(vector(1)) == pytest.approx([0.0], abs=3e-4)
    assert store.matching("yak") == ["new words yak"]
    assert store.matching("zebra walrus") == []
    assert store.listed(tags_any=["a"]) == []
    assert store.find("old words zebra") is None


def test_an_update_takes_a_given_time(store: Store) -> None:
    store.add("old", key="k")
    assert store.add("new", key="k", created_at=at(77)).created_at == at(77)


# -------------------------------------------------------------------------------------------------------- a revival


def test_a_deleted_memory_lives_again_with_the_fields_of_the_put(store: Store) -> None:
    first = store.add(
        "phoenix", tags=["old"], hints=["old hint"], memory_type="Note", importance=0.5, surprise=SURPRISE,
        created_at=at(1_600_000_000),
    )  # fmt: skip
    store.delete_id(first.id)
    assert store.matching("phoenix") == []
    response = store.put("phoenix", near(0.0), tags=["new"])
    memory = response.memory
    assert response.outcome == REVIVED
    assert (memory.id, memory.version) == (first.id, 1)
    assert list(memory.tags) == ["new"]
    assert not memory.hints
    assert not memory.memory_type
    assert not memory.HasField("surprise")
    assert not memory.HasField("deleted_at")
    assert memory.created_at == memory.updated_at
    assert store.matching("phoenix") == ["phoenix"]
    assert store.compare(vector(1)) == pytest.approx([0.0], abs=3e-4)


def test_a_key_brings_its_deleted_memory_back_with_new_content(store: Store) -> None:
    first = store.add("old", key="k")
    store.delete_id(first.id)
    response = store.put("new", key="k", created_at=at(99))
    assert response.outcome == REVIVED
    assert (response.memory.id, response.memory.version) == (first.id, 2)
    assert response.memory.created_at == at(99)


@pytest.mark.parametrize("category", ["", "other"])
def test_a_key_outlives_the_deletion_of_its_memory(store: Store, category: str) -> None:
    first = store.add("phoenix", category="c", key="k")
    store.delete_id(first.id)
    revived = store.put("phoenix", category=category)
    assert revived.outcome == REVIVED
    assert (revived.memory.id, revived.memory.category, revived.memory.key) == (first.id, "c", "k")
    assert store.get(entity("c", "k")) == revived.memory
    assert store.put("ashes", category="c", key="k").outcome == UPDATED


def test_deleting_and_storing_over_and_over_keeps_one_memory(store: Store) -> None:
    ids = set()
    for _ in range(5):
        memory = store.add("again")
        ids.add(memory.id)
        store.delete_id(memory.id)
    assert len(ids) == 1
    assert store.put("again").outcome == REVIVED
    assert store.listed() == ["again"]


# ---------------------------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("deleted", [False, True])
def test_a_vector_is_required_where_no_live_memory_has_the_content(store: Store, *, deleted: bool) -> None:
    if deleted:
        store.delete_id(store.add("text").id)
    with refused(Code.FAILED_PRECONDITION, "vectors", reason="VECTOR_REQUIRED"):
        store.put("text", b"")
    assert store.listed() == []


def test_an_update_without_a_vector_changes_nothing(store: Store) -> None:
    first = store.add("old", key="k")
    with refused(Code.FAILED_PRECONDITION, "vectors", reason="VECTOR_REQUIRED"):
        store.put("new", b"", key="k", tags=["t"])
    assert store.get_id(first.id) == first


@pytest.mark.parametrize(
    "bad",
    [
        vector(1)[:-4],
        vector(1) + b"\0\0\0\0",
        vector(1)[:-1],
        struct.pack("<384f", *[0.0] * DIMENSIONS),
        struct.pack("<384f", 1.01, *[0.0] * (DIMENSIONS - 1)),
        struct.pack("<384f", math.nan, *[0.0] * (DIMENSIONS - 1)),
        struct.pack("<384f", 1.0, math.nan, *[0.0] * (DIMENSIONS - 2)),
        struct.pack("<384f", math.inf, *[0.0] * (DIMENSIONS - 1)),
    ],
    ids=["short", "long", "odd", "zero", "not-normalised", "nan", "one-nan", "infinite"],
)
def test_a_bad_vector_is_refused_and_nothing_is_stored(store: Store, bad: bytes) -> None:
    with refused(Code.INVALID_ARGUMENT, "vectors"):
        store.put("text", bad)
    assert store.find("text") is None


# --------------------------------------------------------------------------------------------------------- metadata


def test_metadata_is_returned_as_given(store: Store) -> None:
    text = '{ "b": 1.50, "a": ["\\u00e9", null, {"deep": true}] }'
    assert store.add("text", metadata=text).metadata == text


def test_surprise_stands_in_the_metadata_and_cannot_be_forged(store: Store) -> None:
    forged = '{"mine": 1, "_hippo": {"surprise": {"score": 1}, "cluster_id": 7}}'
    memory = store.add("scored", metadata=forged, surprise=SURPRISE)
    assert json.loads(memory.metadata) == {
        "mine": 1,
        "_hippo": {
            "cluster_id": 7,
            "surprise": {
                "score": 0.625,
                "components": {
                    "embedding_outlier": 0.5, "engagement": 0.25, "explicit": 1.0, "prediction_loss": None,
                },
                "version": 1,
            },
        },
    }  # fmt: skip
    unscored = store.add("unscored", metadata=forged)
    assert json.loads(unscored.metadata) == {"mine": 1, "_hippo": {"cluster_id": 7}}
    assert not unscored.HasField("surprise")


def test_new_metadata_keeps_the_surprise_and_what_others_keep_beside_it(store: Store) -> None:
    store.add("text", metadata='{"n": 1, "_hippo": {"cluster_id": 7}}', surprise=SURPRISE)
    memory = store.add("text", metadata='{"n": 2, "_hippo": {"surprise": {"score": 1}, "other": 8}}')
    assert memory.surprise == SURPRISE
    stored = json.loads(memory.metadata)
    assert stored["n"] == 2
    assert stored["_hippo"].keys() == {"cluster_id", "other", "surprise"}
    assert stored["_hippo"]["surprise"]["score"] == 0.625


@pytest.mark.parametrize("deleted", [False, True])
def test_what_others_keep_beside_the_surprise_survives_new_content(store: Store, *, deleted: bool) -> None:
    metadata = '{"n": 1, "_hippo": {"cluster_id": 7, "seen": true}}'
    first = store.add("old", key="k", metadata=metadata, surprise=SURPRISE)
    if deleted:
        store.delete_id(first.id)
    bare = store.add("new", key="k")
    assert json.loads(bare.metadata) == {"_hippo": {"cluster_id": 7, "seen": True}}
    store.delete_id(bare.id)
    forged = '{"n": 2, "_hippo": {"seen": false, "surprise": {"score": 1}}}'
    memory = store.add("newer", key="k", metadata=forged, surprise=SURPRISE)
    stored = json.loads(memory.metadata)
    assert stored["n"] == 2
    assert {name: value for name, value in stored["_hippo"].items() if name != "surprise"} == {
        "cluster_id": 7,
        "seen": False,
    }
    assert stored["_hippo"]["surprise"]["score"] == SURPRISE.score
    assert memory.surprise == SURPRISE


def test_an_absent_prediction_loss_is_not_zero(store: Store) -> None:
    assert not store.add("absent", surprise=SURPRISE).surprise.components.HasField("prediction_loss")
    zero = memory_pb2.Surprise()
    zero.CopyFrom(SURPRISE)
    zero.components.prediction_loss = 0
    assert store.add("zero", surprise=zero).surprise.components.HasField("prediction_loss")


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("id", {"id": 5}),
        ("content_hash", {"content_hash": "0" * 64}),
        ("updated_at", {"updated_at": at(5)}),
        ("deleted_at", {"deleted_at": at(5)}),
        ("version", {"version": 2}),
        ("model_revision", {"model_revision": "m"}),
        ("content", {"content": "   \n\t "}),
        ("content", {"content": "before\x00after"}),
        ("content", {"content": "x" * 65_537}),
        ("namespace", {"namespace": "n" * 257}),
        ("category", {"category": "c\nd"}),
        ("tags[1]", {"tags": ["fine", "a,b"]}),
        ("tags", {"tags": [str(n) for n in range(33)]}),
        ("hints", {"hints": ["a", "b", "c", "d"]}),
        ("hints[0]", {"hints": ["h" * 201]}),
        ("importance", {"importance": 1.5}),
        ("importance", {"importance": math.nan}),
        ("metadata", {"metadata": "[1]"}),
        ("metadata", {"metadata": "{"}),
        ("metadata", {"metadata": '{"_hippo": {"n": 1e999}}'}),
        ("surprise.score", {"surprise": memory_pb2.Surprise(score=2)}),
        (
            "surprise.components.engagement",
            {"surprise": memory_pb2.Surprise(components=memory_pb2.SurpriseComponents(engagement=-1))},
        ),
        ("surprise.version", {"surprise": memory_pb2.Surprise(version=-1)}),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_stored(store: Store, field: str, fields: dict[str, Any]) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        store.put(**{"content": "text", **fields})
    assert store.listed() == []


def test_a_request_without_a_memory_is_refused(stub: StorageServiceStub) -> None:
    with refused(Code.INVALID_ARGUMENT, "content"):
        stub.PutMemory(pb.PutMemoryRequest(vectors=vector(1)))


def test_an_error_never_tells_the_content(store: Store) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        store.put("hunter2\x00" * 3)
    assert "hunter2" not in str(caught.value)


def test_find_checks_what_it_is_given(store: Store) -> None:
    with refused(Code.INVALID_ARGUMENT, "content"):
        store.find(" ")
    with refused(Code.INVALID_ARGUMENT, "category"):
        store.find("text", category="c\nd")


def test_names_are_trimmed_before_they_are_compared(store: Store) -> None:
    memory = store.add("text", category=" c ", key=" k ")
    assert store.get(entity("c ", " k")) == memory
    assert store.find("other", " c", "k ") == memory
    assert isinstance(memory, Memory)
