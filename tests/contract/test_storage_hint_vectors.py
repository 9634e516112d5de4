"""Vectors and token codes of hints: found as the memory's own, and gone with the hints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
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
    assert_clean,
    connected,
    database,
    maintaining,
    near,
    opened,
    refused,
    rows,
    serving,
    stub_of,
    unit,
    vector,
)

HINTS = ["how far", "how long"]
OF_CONTENT = pb.TokenCodes(encoding="float32", codes=unit(0))
QUERY = unit(0) + unit(1) + unit(2)
"""Tokens: the one of every content, and two of hints."""


def codes(*axes: int) -> pb.TokenCodes:
    return pb.TokenCodes(encoding="float32", codes=b"".join(map(unit, axes)))


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def put(
    store: Store,
    content: str = "zebra",
    hints: list[str] = HINTS,
    embedded: bytes | None = None,
    of_hints: bytes = b"",
    hint_codes: pb.TokenCodes | None = None,
    **fields: Any,
) -> pb.PutMemoryResponse:
    """Puts a memory whose content has unit(0) as its vector and its token, unless it is to have none."""
    token_codes = OF_CONTENT if embedded is None else None
    request = store.request(content, unit(0) if embedded is None else embedded, token_codes, hints=hints, **fields)
    request.model_revision = "model-1"
    request.hint_vectors = of_hints
    if hint_codes:
        request.hint_token_codes.CopyFrom(hint_codes)
    return store.stub.PutMemory(request, timeout=SECONDS)


def update(store: Store, memory_id: int, **fields: Any) -> pb.UpdateMemoryResponse:
    """Sets the hints to those that are given, and whatever else is."""
    hints = fields.pop("hints", HINTS)
    request = pb.UpdateMemoryRequest(
        namespace=store.namespace,
        ref=Ref(id=memory_id),
        memory=Memory(hints=hints),
        update_mask=FieldMask(paths=["hints"]),
        model_revision="model-1",
        **fields,
    )
    return store.stub.UpdateMemory(request, timeout=SECONDS)


def cosine(store: Store, to: bytes) -> float:
    """How near the namespace's one memory is."""
    (hit,) = store.search(dense=to).hits
    return round(hit.dense.score, 3)


def tokens(store: Store, content: str = "zebra") -> list[float]:
    return store.similarities(content, QUERY)[content]


def test_a_memory_is_as_near_as_its_nearest_hint(store: Store) -> None:
    put(store, of_hints=unit(1) + unit(2), hint_codes=codes(1, 2))
    assert [cosine(store, unit(axis)) for axis in range(4)] == [1, 1, 1, 0]
    assert tokens(store) == [1, 1, 1]
    (hit,) = store.search(dense=unit(2), keyword="zebra").hits
    assert hit.dense.rank == 1
    hits = {hit.id: hit.dense for hit in store.search(dense=unit(2), keyword="zebra", k=1).hits}
    assert round(hits[hit.id].score, 3) == 1
    assert store.compare(unit(1)) == pytest.approx([0])
    assert store.compare(unit(0)) == pytest.approx([1])


def test_what_the_keyword_arm_alone_found_is_as_near_as_its_nearest_hint(store: Store) -> None:
    put(store, of_hints=near(0.5) + near(0.75))
    for number in range(3):
        store.add(f"other {number}", near(0.9))
    hits = store.search(dense=vector(1), keyword="zebra", k=1).hits
    (score,) = [hit.dense.score for hit in hits if hit.memory.content == "zebra"]
    assert score == pytest.approx(1, abs=1e-3)
    put(store, "gnu", embedded=unit(5), of_hints=near(0.5) + near(0.75))
    hits = store.search(dense=vector(1), keyword="gnu", k=1).hits
    (score,) = [hit.dense.score for hit in hits if hit.memory.content == "gnu"]
    assert score == pytest.approx(0.75, abs=1e-3)


def test_hints_that_are_replaced_or_cleared_take_theirs_along(store: Store) -> None:
    memory = put(store, of_hints=unit(1) + unit(2), hint_codes=codes(1, 2)).memory
    updated = memory.updated_at
    assert update(store, memory.id, hints=["new"], hint_vectors=unit(3), hint_token_codes=codes(2)).changed
    assert [cosine(store, unit(axis)) for axis in range(4)] == [1, 0, 0, 1]
    assert tokens(store) == [1, 0, 1]
    assert update(store, memory.id, hints=["newer"]).changed
    assert [cosine(store, unit(axis)) for axis in range(4)] == [1, 0, 0, 0]
    assert tokens(store) == [1, 0, 0]
    update(store, memory.id, hints=["newest"], hint_vectors=unit(1), hint_token_codes=codes(1))
    assert update(store, memory.id, hints=[]).changed
    assert (cosine(store, unit(1)), tokens(store)) == (0, [1, 0, 0])
    now = store.get_id(memory.id)
    assert (now.version, now.updated_at, now.model_revision) == (1, updated, "model-1")


def test_a_put_replaces_and_clears_them_as_it_does_the_hints(store: Store) -> None:
    put(store, key="k", of_hints=unit(1) + unit(2), hint_codes=codes(1, 2))
    other = put(store, hints=["new"], embedded=b"", of_hints=unit(3), hint_codes=codes(2), key="k")
    assert other.outcome == EXISTED
    assert [cosine(store, unit(axis)) for axis in range(4)] == [1, 0, 0, 1]
    assert tokens(store) == [1, 0, 1]
    put(store, hints=[], embedded=b"", key="k")
    assert (cosine(store, unit(3)), tokens(store)) == (0, [1, 0, 0])


def test_they_stay_while_the_hints_do(store: Store) -> None:
    memory = put(store, key="k", of_hints=unit(1) + unit(2), hint_codes=codes(1, 2)).memory

    def are_there(content: str = "zebra") -> bool:
        return (cosine(store, unit(2)), tokens(store, content)) == (1, [1, 1, 1])

    assert put(store, embedded=b"", key="k").outcome == EXISTED
    assert are_there()
    assert put(store, hints=[], embedded=b"").outcome == EXISTED  # Without a key it does not know of the hints.
    assert are_there()
    assert not update(store, memory.id).changed
    assert are_there()
    assert put(store, "gnu zebra", key="k").outcome == UPDATED
    assert are_there("gnu zebra")
    store.update(Ref(id=memory.id), tags=["x"])
    store.delete_id(memory.id)
    store.undelete(Ref(id=memory.id))
    assert are_there("gnu zebra")
    store.delete_id(memory.id)
    assert put(store, "gnu zebra", key="k").outcome == REVIVED
    assert are_there("gnu zebra")


def test_hints_that_have_none_get_them_and_those_that_have_keep_them(store: Store) -> None:
    memory = put(store).memory
    assert update(store, memory.id, hint_vectors=unit(1) + unit(2), hint_token_codes=codes(1), dry_run=True).changed
    assert (cosine(store, unit(1)), tokens(store)) == (0, [1, 0, 0])
    assert update(store, memory.id, hint_vectors=unit(1) + unit(2), hint_token_codes=codes(1)).changed
    assert (cosine(store, unit(1)), tokens(store)) == (1, [1, 1, 0])
    assert not update(store, memory.id, hint_vectors=unit(3) + unit(4), hint_token_codes=codes(1)).changed
    assert cosine(store, unit(3)) == 0
    assert update(store, memory.id, hint_token_codes=codes(2)).changed
    assert tokens(store) == [1, 0, 1]
    put(store, "gnu", embedded=unit(0), hints=HINTS)
    put(store, "gnu", embedded=b"", of_hints=unit(5) + unit(6))
    assert store.nearest(unit(6), k=1) == ["gnu"]


def test_new_content_and_new_hints_come_in_one_update(store: Store) -> None:
    memory = put(store, of_hints=unit(1) + unit(2), hint_codes=codes(1, 2)).memory
    request = pb.UpdateMemoryRequest(
        namespace=store.namespace,
        ref=Ref(id=memory.id),
        memory=Memory(content="gnu", hints=["new"]),
        update_mask=FieldMask(paths=["content", "hints"]),
        vectors=unit(4),
        model_revision="model-1",
        token_codes=codes(2),
        hint_vectors=unit(5),
        hint_token_codes=codes(1),
    )
    assert store.stub.UpdateMemory(request, timeout=SECONDS).memory.version == 2
    assert [cosine(store, unit(axis)) for axis in range(6)] == [0, 0, 0, 0, 1, 1]
    assert tokens(store, "gnu") == [0, 1, 1]


def test_without_those_of_the_content_there_are_none(store: Store) -> None:
    assert put(store, embedded=unit(0), hint_codes=codes(1)).outcome == CREATED
    assert store.similarities("zebra", QUERY) == {"zebra": []}
    put(store, embedded=b"", hint_codes=codes(1))
    assert store.similarities("zebra", QUERY) == {"zebra": []}


def test_vectors_of_hints_are_of_the_model_of_the_store(store: Store) -> None:
    memory = put(store).memory
    request = store.request("zebra", b"", hints=["new"])
    request.hint_vectors, request.model_revision = unit(1), "model-2"
    with refused(Code.FAILED_PRECONDITION, reason="MODEL_MISMATCH"):
        store.stub.PutMemory(request, timeout=SECONDS)
    for dry_run in (True, False):
        with refused(Code.FAILED_PRECONDITION, reason="MODEL_MISMATCH"):
            store.stub.UpdateMemory(
                pb.UpdateMemoryRequest(
                    namespace=store.namespace,
                    ref=Ref(id=memory.id),
                    memory=Memory(hints=["new"]),
                    update_mask=FieldMask(paths=["hints"]),
                    hint_vectors=unit(1),
                    model_revision="model-2",
                    dry_run=dry_run,
                ),
                timeout=SECONDS,
            )
        assert store.get_id(memory.id).hints == HINTS


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("hint_vectors", {"of_hints": unit(1)}),
        ("hint_vectors", {"of_hints": unit(1) * 3}),
        ("hint_vectors", {"of_hints": (unit(1) * 2)[:-4]}),
        ("hint_vectors", {"of_hints": unit(1) + bytes(1536)}),
        ("hint_vectors", {"of_hints": unit(1), "hints": []}),
        ("hint_token_codes", {"hint_codes": codes(1), "hints": []}),
        ("hint_token_codes.codes", {"hint_codes": pb.TokenCodes(encoding="int8")}),
        ("hint_token_codes.codes", {"hint_codes": pb.TokenCodes(encoding="int8", codes=bytes(262_145))}),
        ("hint_token_codes.encoding", {"hint_codes": pb.TokenCodes(codes=b"1")}),
    ],
)
def test_there_is_one_for_each_hint(store: Store, field: str, given: dict[str, Any]) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        put(store, **given)
    assert store.find("zebra") is None


def test_a_large_namespace_finds_hints_too_and_loses_those_that_went(home: Path) -> None:
    with stub_of(home, {"HIPPOVAULT_STORAGE_INDEX_MIN_VECTORS": "20"}) as stub:
        store = Store(stub)
        ids = [
            put(store, f"zebra {number}", ["one"], unit(100 + number), unit(200 + number)).memory.id
            for number in range(60)
        ]
        for number in range(30):
            update(store, ids[number], hints=["two"], hint_vectors=unit(300 + number))
        for number in range(20):
            update(store, ids[number], hints=[])
        for number in range(60):
            found = store.nearest(unit(200 + number), k=1) == [f"zebra {number}"]
            assert found == (number >= 30)
            again = store.nearest(unit(300 + number), k=1) == [f"zebra {number}"] if number < 30 else None
            assert again in {number >= 20, None}
        stats = store.stub.GetStats(pb.GetStatsRequest(), timeout=SECONDS)
        assert stats.vectors == 60 + 40


def test_another_program_that_takes_the_vector_takes_those_of_the_hints(home: Path) -> None:
    with stub_of(home) as stub:
        store = Store(stub, "default")
        gone = put(store, of_hints=unit(1) + unit(2), hint_codes=codes(1, 2)).memory
        kept = put(store, "gnu", embedded=unit(4), of_hints=unit(5) + unit(6), hint_codes=codes(1, 2)).memory
    with opened(database(home)) as file:
        file.execute("DELETE FROM memory_embeddings WHERE rowid = ?", (gone.id,))
        file.execute("UPDATE memory_embeddings SET content_embedding = ? WHERE rowid = ?", (unit(7), kept.id))
        file.execute("UPDATE memories SET updated_at = updated_at + 1")
    with stub_of(home) as stub:
        store = Store(stub, "default")
        assert store.nearest(unit(2)) == ["gnu"]
        assert cosine(store, unit(6)) == cosine(store, unit(7)) == 1
    with opened(database(home)) as file:
        places = rows(file, "SELECT memory_id, place FROM hippo_vectors ORDER BY memory_id, place")
        assert places == [(kept.id, -2), (kept.id, -1), (kept.id, 0)]
        assert rows(file, "SELECT count(*) FROM hippo_token_codes") == [(0,)]


def test_a_reindex_lets_go_of_those_that_are_not_one_a_hint(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, maintaining(process) as maintenance:
        store = Store(stub)
        sound = put(store, "gnu", embedded=unit(4), of_hints=unit(5) + unit(6)).memory
        lacking = put(store, of_hints=unit(1) + unit(2)).memory
        with opened(database(home)) as file:
            file.execute("DELETE FROM hippo_vectors WHERE memory_id = ? AND place = -2", (lacking.id,))
        for _ in maintenance.Reindex(maintenance_pb2.ReindexRequest(), timeout=SECONDS):
            pass
        assert_clean(process)
        with opened(database(home)) as file:
            places = rows(file, "SELECT memory_id, place FROM hippo_vectors ORDER BY memory_id, place")
        assert places == [(sound.id, -2), (sound.id, -1), (sound.id, 0), (lacking.id, 0)]
