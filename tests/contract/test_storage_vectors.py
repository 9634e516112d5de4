"""What is stored for the dense arm: several vectors a memory, token codes, and copies of what other programs wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_storage import checks
from support.storage import SECONDS, Code, Memory, Ref, Store, database, near, opened, refused, rows, stub_of, vector

CODES = pb.TokenCodes(encoding="float32", codes=near(0.25))
OTHERS = pb.TokenCodes(encoding="float32", codes=near(0.75))


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def found_codes(store: Store, content: str) -> pb.TokenCodes | None:
    """The token codes that a search compared."""
    told = store.similarities(content, vector(1))[content]
    return {0.25: CODES, 0.75: OTHERS}[told[0]] if told else None


def test_as_many_vectors_are_taken_as_the_contract_says(store: Store) -> None:
    store.add("sixty-four", vector(1) * checks.MAX_VECTORS)
    with refused(Code.INVALID_ARGUMENT, "vectors", message="must be 1 to 64 vectors of 384 dimensions"):
        store.add("sixty-five", vector(1) * (checks.MAX_VECTORS + 1))
    with refused(Code.INVALID_ARGUMENT, "vectors", message="has 767 float32 (3068 bytes)"):
        store.add("part of a row", (vector(1) * 2)[:-4])
    with refused(Code.INVALID_ARGUMENT, "vectors", message="norm 0"):
        store.add("one that points nowhere", vector(1) + bytes(1536))


def test_vectors_of_a_model_of_other_dimensions_are_refused_with_the_way_out(store: Store) -> None:
    others, way_out = bytes(4 * 256), "; use a model of 384 dimensions, or another home with the model's `dimensions`"
    with refused(Code.INVALID_ARGUMENT, "vectors", message=f"has 256 float32 (1024 bytes){way_out}"):
        store.add("another model's", others)
    with refused(Code.INVALID_ARGUMENT, "vector", message="must be one vector of 384 dimensions"):
        store.compare(others)


@pytest.mark.parametrize(
    ("field", "codes"),
    [
        ("token_codes.encoding", pb.TokenCodes(encoding=" ", codes=b"1")),
        ("token_codes.encoding", pb.TokenCodes(encoding="x" * 257, codes=b"1")),
        ("token_codes.codes", pb.TokenCodes(encoding="int8")),
        ("token_codes.codes", pb.TokenCodes(encoding="int8", codes=bytes(262_145))),
    ],
)
def test_token_codes_have_a_name_and_bounds(store: Store, field: str, codes: pb.TokenCodes) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        store.put("zebra", token_codes=codes)
    assert store.find("zebra") is None


def test_token_codes_stay_with_their_content(store: Store) -> None:
    memory_id = store.put("zebra", token_codes=CODES, category="c", key="k").memory.id
    store.put("zebra", tags=["a"])
    assert found_codes(store, "zebra") == CODES
    store.delete_id(memory_id)
    store.put("zebra", category="c", key="k")
    assert found_codes(store, "zebra") == CODES
    store.put("zebra", b"", token_codes=OTHERS)
    assert found_codes(store, "zebra") == OTHERS
    store.put("gnu", category="c", key="k")
    assert found_codes(store, "gnu") is None


def test_an_update_to_the_same_content_takes_token_codes(store: Store) -> None:
    memory = store.put("zebra", token_codes=CODES).memory

    def update(codes: pb.TokenCodes | None, *, dry_run: bool = False) -> bool:
        request = pb.UpdateMemoryRequest(
            namespace=store.namespace,
            ref=Ref(id=memory.id),
            memory=Memory(content="zebra"),
            update_mask=FieldMask(paths=["content"]),
            vectors=vector(1),
            model_revision="model-1",
            token_codes=codes,
            dry_run=dry_run,
        )
        response = store.stub.UpdateMemory(request, timeout=SECONDS)
        assert response.memory == memory
        return response.changed

    assert not update(CODES)
    assert update(OTHERS, dry_run=True)
    assert found_codes(store, "zebra") == CODES
    assert update(OTHERS)
    assert not update(None)
    assert found_codes(store, "zebra") == OTHERS


def test_vectors_that_another_program_wrote_or_changed_are_searched(home: Path) -> None:
    with stub_of(home) as stub:
        store = Store(stub, "default")
        kept = store.put("kept", near(0.3) + near(0.9), token_codes=CODES).memory
        changed = store.put("changed", near(0.2) + near(0.95), token_codes=CODES).memory
        gone = store.add("gone", near(0.1))
    with opened(database(home)) as file:
        file.execute("UPDATE memory_embeddings SET content_embedding = ? WHERE rowid = ?", (near(0.5), changed.id))
        file.execute("UPDATE memories SET updated_at = updated_at + 1 WHERE id IN (?, ?)", (changed.id, kept.id))
        file.execute("DELETE FROM memory_embeddings WHERE rowid = ?", (gone.id,))
        file.execute("INSERT INTO memories (id, content_hash, content) VALUES (99, 'h', 'new')")
        file.execute("INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (99, ?)", (near(0.7),))
    with stub_of(home) as stub:
        store = Store(stub, "default")
        assert store.nearest(vector(1)) == ["kept", "new", "changed"]
        assert found_codes(store, "kept") == CODES
        assert found_codes(store, "changed") is None
    with opened(database(home)) as file:
        stored = rows(file, "SELECT memory_id, place FROM hippo_vectors ORDER BY memory_id, place")
        assert stored == [(kept.id, 0), (kept.id, 1), (changed.id, 0), (99, 0)]


def test_vectors_without_a_copy_get_one_at_the_next_start(home: Path) -> None:
    with stub_of(home) as stub:
        store = Store(stub)
        for cosine in (0.1, 0.9, 0.5):
            store.add(f"at {cosine}", near(cosine))
    with opened(database(home)) as file:
        copies = rows(file, "SELECT memory_id, place, vector FROM hippo_vectors ORDER BY memory_id")
        file.execute("DELETE FROM hippo_vectors")
    with stub_of(home) as stub:
        assert Store(stub, store.namespace).nearest(vector(1)) == ["at 0.9", "at 0.5", "at 0.1"]
    with opened(database(home)) as file:
        assert rows(file, "SELECT memory_id, place, vector FROM hippo_vectors ORDER BY memory_id") == copies
