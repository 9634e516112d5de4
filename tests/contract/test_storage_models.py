"""A store's vectors are of one model: those of another one are refused, and told where they are there already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite.lockbox import OFF, Encryption
from hippovault_storage.vault import Mode
from support.storage import (
    DIMENSIONS,
    SECONDS,
    Code,
    Memory,
    Ref,
    Store,
    at,
    connected,
    encryption,
    in_process,
    near,
    opened,
    refused,
    rows,
    serving,
    vector,
    write_fixture,
)


@dataclass
class Models:
    """A store with both of its services, and what is written to it with a revision of its own."""

    store: Store
    maintenance: MaintenanceServiceStub

    @property
    def revision(self) -> str:
        """What the store says of itself."""
        return self.store.stub.GetStats(pb.GetStatsRequest(), timeout=SECONDS).model_revision

    def request(self, content: str, revision: str) -> pb.PutMemoryRequest:
        request = self.store.request(content)
        request.model_revision = revision
        return request

    def put(self, content: str, revision: str) -> Memory:
        return self.store.stub.PutMemory(self.request(content, revision), timeout=SECONDS).memory

    def update(self, memory_id: int, content: str, revision: str, *, dry_run: bool = False) -> Memory:
        request = pb.UpdateMemoryRequest(
            namespace=self.store.namespace,
            ref=Ref(id=memory_id),
            memory=Memory(content=content),
            update_mask=FieldMask(paths=["content"]),
            vectors=near(0.5),
            model_revision=revision,
            dry_run=dry_run,
        )
        return self.store.stub.UpdateMemory(request, timeout=SECONDS).memory

    def search(self, revision: str) -> list[int]:
        request = pb.SearchMemoriesRequest(
            namespace=self.store.namespace, dense=pb.DenseArm(vector=vector(1), k=9, model_revision=revision)
        )
        return [hit.id for hit in self.store.stub.SearchMemories(request, timeout=SECONDS).hits]

    def compare(self, revision: str) -> list[float]:
        request = pb.CompareToNewestRequest(
            namespace=self.store.namespace, vector=vector(1), newest=9, model_revision=revision
        )
        return list(self.store.stub.CompareToNewest(request, timeout=SECONDS).cosine_similarities)

    def imported(self, *records: maintenance_pb2.MemoryRecord) -> maintenance_pb2.ImportMemoriesResponse:
        requests = (maintenance_pb2.ImportMemoriesRequest(record=record) for record in records)
        return self.maintenance.ImportMemories(requests, timeout=SECONDS)

    def problems(self) -> list[str]:
        answers = self.maintenance.Verify(maintenance_pb2.VerifyRequest(), timeout=SECONDS)
        return [problem for answer in answers for problem in answer.problems]


@contextmanager
def models_of(path: Path, encryption: Encryption = OFF, dimensions: int = DIMENSIONS) -> Iterator[Models]:
    with in_process(path, dimensions, encryption) as (stub, maintenance):
        yield Models(Store(stub, "default"), maintenance)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "memories.db"


@pytest.fixture
def models(path: Path) -> Iterator[Models]:
    with models_of(path) as result:
        yield result


@contextmanager
def mismatch(other: str = "model-2", stored: str = "model-1") -> Iterator[None]:
    with pytest.raises(ServiceError) as caught:
        yield
    assert (caught.value.code, caught.value.reason) == (Code.FAILED_PRECONDITION, "MODEL_MISMATCH")
    for part in (f"of the model {other}", f"of {stored}", "serve the model that the store was made with", "new home"):
        assert part in caught.value.message


def record(content: str, revision: str, vectors: bytes) -> maintenance_pb2.MemoryRecord:
    memory = Memory(content=content, created_at=at(100), updated_at=at(200), model_revision=revision)
    return maintenance_pb2.MemoryRecord(memory=memory, vectors=vectors)


# ------------------------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "write",
    [
        lambda models, _: models.put("new", "model-2"),
        lambda models, there: models.update(there, "changed", "model-2"),
        lambda models, there: models.update(there, "changed", "model-2", dry_run=True),
        lambda models, _: models.search("model-2"),
        lambda models, _: models.compare("model-2"),
    ],
)
def test_vectors_of_another_model_are_neither_written_nor_compared(
    models: Models, write: Callable[[Models, int], object]
) -> None:
    there = models.put("there", "model-1")
    with mismatch():
        write(models, there.id)
    assert models.store.page().memories == [there]
    assert (models.search("model-1"), models.compare("model-1")) == ([there.id], [1.0])
    assert (models.search(""), models.compare("")) == ([there.id], [1.0])
    assert models.problems() == []


def test_the_refusal_comes_over_the_wire(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        store = Store(stub)
        store.add("there")
        request = store.request("new")
        request.model_revision = "model-2"
        with refused(Code.FAILED_PRECONDITION, reason="MODEL_MISMATCH", message="of the model model-2"):
            stub.PutMemory(request, timeout=SECONDS)


@pytest.mark.parametrize("streamed", [False, True])
def test_of_many_those_of_another_model_are_refused_each(models: Models, streamed: bool) -> None:  # noqa: FBT001
    requests = [models.request(name, revision) for name, revision in (("a", "m"), ("b", "n"), ("c", "m"), ("d", ""))]
    results = list(models.store.stream(requests)) if streamed else models.store.batch(*requests)
    assert [result.error.reason for result in results] == ["", "MODEL_MISMATCH", "", ""]
    assert models.store.listed() == ["d", "c", "a"]
    assert models.revision == "m"


def test_a_duplicate_keeps_its_vector_whatever_model_would_make_another(models: Models) -> None:
    first = models.put("there", "model-1")
    assert models.put("there", "model-2") == first


@pytest.mark.parametrize("of_hints", [False, True])
@pytest.mark.parametrize("with_vectors", [False, True])
def test_token_codes_of_another_model_are_not_written_either(
    models: Models,
    with_vectors: bool,  # noqa: FBT001
    of_hints: bool,  # noqa: FBT001
) -> None:
    """Where the vectors stay, since the content does."""

    def codes(number: int) -> pb.TokenCodes:
        return pb.TokenCodes(encoding="float32", codes=vector(*[0] * number, 1))

    hints = ["owl"]
    there = models.store.stub.PutMemory(
        models.store.request("zebra", token_codes=codes(1), hints=hints), timeout=SECONDS
    ).memory
    given = {"hint_token_codes" if of_hints else "token_codes": codes(2)}
    put = models.store.request("zebra", vector(1) if with_vectors else b"", hints=hints)
    put.MergeFrom(pb.PutMemoryRequest(model_revision="model-2", **given))  # type: ignore[arg-type]
    with mismatch():
        models.store.stub.PutMemory(put, timeout=SECONDS)
    for dry_run in (True, False):
        update = pb.UpdateMemoryRequest(
            namespace=models.store.namespace,
            ref=Ref(id=there.id),
            memory=Memory(content="zebra", hints=hints),
            update_mask=FieldMask(paths=["content", "hints"]),
            vectors=vector(1),
            model_revision="model-2",
            dry_run=dry_run,
            **given,  # type: ignore[arg-type]
        )
        with mismatch():
            models.store.stub.UpdateMemory(update, timeout=SECONDS)
    both = models.store.similarities("zebra", vector(0, 1) + vector(0, 0, 1))
    assert both == {"zebra": [1, 0]}


def test_records_of_another_model_are_refused_each_and_come_in_without_vectors(models: Models) -> None:
    answer = models.imported(
        record("a", "m", near(0.1)), record("b", "n", near(0.2)), record("c", "m", near(0.3)), record("d", "n", b"")
    )
    assert (answer.imported, answer.kept, answer.failed) == (3, 0, 1)
    assert {place: error.reason for place, error in answer.errors.items()} == {1: "MODEL_MISMATCH"}
    assert sorted(models.store.listed()) == ["a", "c", "d"]
    assert models.revision == "m"


# ------------------------------------------------------------------------------------------------- which model it is


def test_a_store_without_vectors_takes_any_model(models: Models) -> None:
    assert (models.revision, models.search("any"), models.compare("any")) == ("", [], [])
    for revision in ("model-1", "model-2"):
        memory = models.put("a memory", revision)
        assert models.revision == revision
        models.store.delete_id(memory.id)
        with mismatch("another", revision):  # It could come back.
            models.put("a further one", "another")
        models.store.purge(Ref(id=memory.id))
        assert models.revision == ""


def test_a_refused_first_write_leaves_no_model(models: Models) -> None:
    request = models.store.request("without a vector", b"")
    request.model_revision = "model-1"
    [result] = models.store.batch(request)
    assert result.error.reason == "VECTOR_REQUIRED"
    models.put("a memory", "model-2")
    assert models.revision == "model-2"


def test_an_emptied_store_does_not_remember_its_model_over_vectors_of_none(models: Models) -> None:
    models.store.purge(Ref(id=models.put("a memory", "model-1").id))
    models.put("unknown", "")
    assert models.revision == ""
    models.put("known", "model-2")
    assert models.revision == "model-2"


@pytest.mark.parametrize("mode", ["off", "values", "file"])
def test_the_model_is_the_stores_for_good(path: Path, mode: Mode) -> None:
    with models_of(path, encryption(path, mode)) as models:
        models.put("there", "model-1")
    with models_of(path, encryption(path, mode)) as models:
        assert models.revision == "model-1"
        with mismatch():
            models.put("new", "model-2")


@pytest.mark.parametrize("name", ["claude_hippo_0_5", "mcp_memory_service_12"])
def test_vectors_that_another_program_wrote_are_of_the_first_model_that_is_known(path: Path, name: str) -> None:
    write_fixture(path, name)
    with models_of(path) as models:
        assert models.revision == ""
        assert models.search("model-1")
        models.put("ours", "model-1")
        with mismatch():
            models.search("model-2")


def test_an_older_store_has_the_model_of_its_vectors(path: Path) -> None:
    write_fixture(path, "hippovault_1")
    with models_of(path) as models:
        assert models.revision == "model-1"
        with mismatch():
            models.put("new", "model-2")


def test_a_store_that_two_models_filled_has_that_of_most_and_verify_tells_the_others(path: Path) -> None:
    with models_of(path) as models:
        ids = [models.put(content, "model-1").id for content in ("a", "b", "c")]
    with opened(path) as file:
        file.execute("UPDATE hippo_memories SET model_revision = 'model-2' WHERE memory_id = ?", (ids[1],))
        file.execute("DELETE FROM hippo_state WHERE name = 'model_revision'")
    with models_of(path) as models:
        assert models.revision == "model-1"
        [problem] = models.problems()
        assert f"memory {ids[1]}: " in problem
        assert "model-2" in problem
        assert "the store's is model-1" in problem
        assert "remember it again" in problem


@pytest.mark.parametrize("mode", ["off", "values", "file"])
def test_a_store_without_vectors_takes_another_length_and_one_with_them_does_not(path: Path, mode: Mode) -> None:
    with models_of(path, encryption(path, mode)) as models:
        models.store.purge(Ref(id=models.put("a memory", "model-1").id))
        models.imported(record("words alone", "", b""))
    with models_of(path, encryption(path, mode), 8) as models:
        request = models.store.request("eight", vector(1, dimensions=8))
        there = models.store.stub.PutMemory(request, timeout=SECONDS).memory
        assert models.store.nearest(vector(1, dimensions=8)) == ["eight"]
        assert models.store.matching("words") == ["words alone"]
        assert models.problems() == []
    with pytest.raises(ServiceError) as caught, models_of(path, encryption(path, mode)):
        pass
    assert caught.value.reason == "OTHER_DIMENSIONS"
    assert "8 dimensions, this program is set to 384" in caught.value.message
    with models_of(path, encryption(path, mode), 8) as models:
        assert models.store.get_id(there.id) == there


def test_opening_again_writes_nothing(path: Path) -> None:
    write_fixture(path, "claude_hippo_0_5")
    with models_of(path):
        pass
    with opened(path) as file:
        before = rows(file, "SELECT * FROM hippo_state")
    stamp = path.read_bytes()
    with models_of(path):
        pass
    assert path.read_bytes() == stamp
    with opened(path) as file:
        assert rows(file, "SELECT * FROM hippo_state") == before
