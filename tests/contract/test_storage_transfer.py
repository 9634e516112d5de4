"""Export and import: whole memories out of one store and into another, with nothing lost."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite.lockbox import OFF, Encryption
from support.storage import (
    SECONDS,
    Code,
    Memory,
    Ref,
    Store,
    assert_whole,
    at,
    connected,
    entity,
    in_process,
    maintaining,
    near,
    serving,
    unit,
    vector,
    write_fixture,
)

Record = maintenance_pb2.MemoryRecord
Version = memory_pb2.MemoryVersion
SURPRISE = memory_pb2.Surprise(
    score=0.5,
    components=memory_pb2.SurpriseComponents(embedding_outlier=0.75, engagement=0.5, prediction_loss=0.125),
    version=1,
)
MEBIBYTE = 1024 * 1024


def exported(maintenance: MaintenanceServiceStub, namespace: str = "", **flags: bool) -> list[Record]:
    request = maintenance_pb2.ExportMemoriesRequest(namespace=namespace, **flags)
    return [answer.record for answer in maintenance.ExportMemories(request, timeout=SECONDS)]


def imported(maintenance: MaintenanceServiceStub, records: Iterable[Record]) -> maintenance_pb2.ImportMemoriesResponse:
    requests = (maintenance_pb2.ImportMemoriesRequest(record=record) for record in records)
    return maintenance.ImportMemories(requests, timeout=SECONDS)


@dataclass
class Both:
    """A store with both of its services."""

    store: Store
    maintenance: MaintenanceServiceStub

    def exported(self, namespace: str = "", **flags: bool) -> list[Record]:
        return exported(self.maintenance, namespace, **flags)

    def imported(self, *records: Record) -> tuple[int, int, int]:
        answer = imported(self.maintenance, records)
        return answer.imported, answer.kept, answer.failed


@contextmanager
def both(path: Path, encryption: Encryption = OFF) -> Iterator[Both]:
    with in_process(path, encryption=encryption) as (stub, maintenance):
        yield Both(Store(stub, "default"), maintenance)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Both]:
    """A store with nothing in it."""
    with both(tmp_path / "target.db") as result:
        yield result
    assert_whole(tmp_path / "target.db", embedded=False)


def without_ids(records: Iterable[Record]) -> list[Record]:
    result = []
    for record in records:
        copy = Record()
        copy.CopyFrom(record)
        for memory in (copy.memory, *(version.memory for version in copy.history)):
            memory.ClearField("id")
        result.append(copy)
    return result


def record_of(content: str, updated: float = 200, **fields: Any) -> Record:
    memory = Memory(content=content, created_at=at(100), updated_at=at(updated), **fields)
    return Record(memory=memory)


def fill(store: Store) -> None:
    """Writes a memory of every kind."""
    first = store.add(
        "The zebra crossed.",
        near(0.25),
        tags=["a", "b"],
        hints=["Who crossed?"],
        memory_type="Note",
        importance=0.5,
        metadata='{"mine": {"nested": [1, 2.50]}}',
        status="open",
        created_at=at(1_000.25),
        surprise=SURPRISE,
    )
    store.add("Oat milk is out.", near(0.5), category="shopping", key="milk")
    store.add("Oat milk is out again.", near(0.75), category="shopping", key="milk")
    store.delete_id(store.add("It was deleted.", near(0.1)).id)
    store.delete_id(first.id)
    store.add("The zebra crossed.", near(0.25), hints=["Who crossed again?"], surprise=SURPRISE)
    request = pb.PutMemoryRequest(
        memory=Memory(namespace="work", content="Of several parts.", hints=["Of how many?", "Of which?"]),
        vectors=unit(0) + unit(1) + vector(0.6, 0.8),
        model_revision="model-1",
        token_codes=pb.TokenCodes(encoding="int8", codes=b"\x00\xffcodes"),
        hint_vectors=unit(7) + vector(0.8, 0.6),
        hint_token_codes=pb.TokenCodes(encoding="sign", codes=b"\xff\x00"),
    )
    store.stub.PutMemory(request, timeout=SECONDS)


# ----------------------------------------------------------------------------------------------------- nothing is lost


def test_an_import_of_an_export_exports_the_same(tmp_path: Path, target: Both) -> None:
    with both(tmp_path / "source.db") as source:
        fill(source.store)
        records = source.exported()
    assert target.imported(*records) == (len(records), 0, 0)
    assert without_ids(target.exported()) == without_ids(records)
    assert sum(record.memory.HasField("deleted_at") for record in records) == 1


def test_what_was_imported_is_found(tmp_path: Path, target: Both) -> None:
    with both(tmp_path / "source.db") as source:
        fill(source.store)
        target.imported(*source.exported())
    store = target.store
    assert store.matching("zebras") == store.nearest(near(0.25), 1) == ["The zebra crossed."]
    assert store.get(entity("shopping", "milk")).version == 2
    assert store.matching("crossed") == ["The zebra crossed."]
    assert store.matching("deleted") == []
    assert Store(store.stub, "work").nearest(vector(0.6, 0.8), 1) == ["Of several parts."]
    (hit,) = Store(store.stub, "work").search(dense=unit(7)).hits
    assert hit.dense.score == pytest.approx(1, abs=1e-3)


def test_importing_twice_changes_nothing(tmp_path: Path, target: Both) -> None:
    with both(tmp_path / "source.db") as source:
        fill(source.store)
        records = source.exported()
    target.imported(*records)
    before = target.exported()
    assert target.imported(*records) == (0, len(records), 0)
    assert target.exported() == before


@pytest.mark.parametrize("mode", ["values", "file"])
def test_an_encrypted_store_exports_what_it_says_and_seals_what_it_takes_in(
    tmp_path: Path, mode: Literal["values", "file"]
) -> None:
    key = tmp_path / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    encryption = Encryption(mode, KeySource(key))
    with both(tmp_path / "plain.db") as plain:
        fill(plain.store)
        records = plain.exported()
    sealed = tmp_path / "sealed" / "memories.db"
    sealed.parent.mkdir()
    with both(sealed, encryption) as store:
        assert store.imported(*records) == (len(records), 0, 0)
        assert without_ids(store.exported()) == without_ids(records)
        assert store.imported(*records) == (0, len(records), 0)
        assert store.imported(*later(records)) == (len(records), 0, 0)
        again = store.exported()
        assert store.store.matching("zebras") == ["The zebra crossed."]
        written = b"".join(file.read_bytes() for file in sealed.parent.iterdir())
    assert without_ids(again) == without_ids(later(records))
    for word in ("The zebra crossed.", "Oat milk is out", "Who crossed", "nested"):
        assert word.encode() not in written


def later(records: Iterable[Record]) -> list[Record]:
    """The records, each changed once more and of a higher version."""
    result = []
    for record in records:
        copy = Record()
        copy.CopyFrom(record)
        copy.memory.version += 1
        copy.memory.updated_at.FromSeconds(record.memory.updated_at.seconds + 100)
        result.append(copy)
    return result


def test_a_namespace_and_no_vectors_may_be_asked_for(tmp_path: Path) -> None:
    with both(tmp_path / "source.db") as source:
        fill(source.store)
        (record,) = source.exported("work")
        assert len(record.vectors) == 3 * len(unit(0))
        assert record.token_codes.codes == b"\x00\xffcodes"
        assert record.hint_vectors[: len(unit(7))] == unit(7)
        assert np.frombuffer(record.hint_vectors, "<f4")[384:386] == pytest.approx([0.8, 0.6], abs=1e-3)
        assert record.hint_token_codes == pb.TokenCodes(encoding="sign", codes=b"\xff\x00")
        (bare,) = source.exported("work", without_vectors=True)
        assert not bare.vectors
        assert not bare.hint_vectors
        assert not any(bare.HasField(field) for field in ("token_codes", "hint_token_codes"))
        assert bare.memory == record.memory


def test_a_history_of_any_length_comes_in_parts(tmp_path: Path, target: Both) -> None:
    versions = [
        Version(
            memory=Memory(content=f"{n} {'x' * 60_000}", created_at=at(100), version=n + 1),
            since=at(1_000 + n),
            until=at(1_001 + n),
        )
        for n in range(120)
    ]
    record = record_of("now", 2_000, version=121)
    record.since.CopyFrom(at(2_000))
    parts = [record, *(Record(history=[version]) for version in versions)]
    assert target.imported(*parts, record_of("another")) == (2, 0, 0)
    answers = target.exported()
    assert len(answers) > 3
    assert all(answer.ByteSize() < 4 * MEBIBYTE for answer in answers)
    with both(tmp_path / "second.db") as second:
        assert second.imported(*answers) == (2, 0, 0)
        assert second.exported() == answers
    read = [version.memory.content for answer in answers for version in answer.history]
    assert read == [version.memory.content for version in versions]


def test_vectors_of_parts_are_as_near_as_they_were(tmp_path: Path, target: Both) -> None:
    rows = np.random.default_rng(1).normal(size=(5, 384)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    target.store.stub.PutMemory(
        pb.PutMemoryRequest(memory=Memory(content="text"), vectors=rows.tobytes()), timeout=SECONDS
    )
    (record,) = target.exported()
    with both(tmp_path / "second.db") as second:
        second.imported(record)
        assert second.exported() == [record]
    read = np.frombuffer(record.vectors, "<f4").reshape(rows.shape)
    assert (read[0] == rows[0]).all()
    assert np.abs(read - rows).max() < 1e-3


@pytest.mark.parametrize("name", ["hippovault_1", "claude_hippo_0_5", "mcp_memory_service_8", "mcp_memory_service_12"])
def test_what_older_and_other_programs_wrote_is_carried_over(tmp_path: Path, target: Both, name: str) -> None:
    write_fixture(tmp_path / "source.db", name)
    with both(tmp_path / "source.db") as source:
        records = source.exported()
    assert target.imported(*records) == (len(records), 0, 0)
    assert without_ids(target.exported()) == without_ids(records)
    assert target.store.nearest(unit(0), 1) == [records[0].memory.content]


def test_what_no_caller_could_put_but_another_program_wrote_is_carried_over(target: Both) -> None:
    record = record_of("long " * 20_000, tags=[f"tag {n}" for n in range(50)], memory_type="a\tb", metadata="{ }")
    assert target.imported(record) == (1, 0, 0)
    (back,) = target.exported()
    assert (back.memory.content, list(back.memory.tags)) == (record.memory.content, list(record.memory.tags))
    assert target.store.matching("long")


# -------------------------------------------------------------------------------------------- what is there already


def test_the_memory_that_was_changed_last_stays(target: Both) -> None:
    key = {"category": "c", "key": "k"}
    assert target.imported(record_of("second", 200, hints=["h"], **key)) == (1, 0, 0)
    assert target.imported(record_of("first", 100.5, **key)) == (0, 1, 0)
    assert target.store.listed() == ["second"]
    assert target.imported(record_of("third", 300, version=3, **key)) == (1, 0, 0)
    third = target.store.get(entity("c", "k"))
    assert (third.content, third.version, third.updated_at, list(third.hints)) == ("third", 3, at(300), [])
    assert target.store.matching("second") == []


def test_a_deletion_is_a_change(target: Both) -> None:
    living, deleted = record_of("text", 200), record_of("text", 200, deleted_at=at(300))
    assert target.imported(living) == (1, 0, 0)
    assert target.imported(deleted) == (1, 0, 0)
    assert target.store.listed() == target.store.matching("text") == []
    assert target.imported(living) == (0, 1, 0)
    assert target.imported(record_of("text", 400)) == (1, 0, 0)
    assert target.store.listed() == target.store.matching("text") == ["text"]


def test_with_and_without_a_key_the_same_content_stays_two_memories(target: Both) -> None:
    assert target.imported(record_of("text", key="k"), record_of("text"), record_of("text", key="l")) == (3, 0, 0)
    assert target.imported(record_of("text"), record_of("text", key="l")) == (0, 2, 0)
    assert [memory.key for memory in target.store.page().memories] == ["l", "", "k"]


def test_a_record_without_a_vector_is_found_by_words_and_gets_one_later(target: Both) -> None:
    target.imported(record_of("zebra", model_revision="model-0"))
    assert [memory.model_revision for memory in target.store.page().memories] == [""]
    assert target.store.matching("zebra") == ["zebra"]
    assert target.store.nearest(vector(1)) == []
    target.store.add("zebra")
    assert target.store.nearest(vector(1)) == ["zebra"]


def test_a_later_record_takes_the_vectors_of_the_one_before(target: Both) -> None:
    record = record_of("text", 200)
    record.vectors = unit(3) + unit(4)
    record.token_codes.CopyFrom(pb.TokenCodes(encoding="int8", codes=b"codes"))
    record.memory.hints.append("hint")
    record.hint_vectors = unit(5)
    target.imported(record)
    assert target.imported(record_of("text", 300)) == (1, 0, 0)
    (back,) = target.exported()
    assert back.vectors == back.hint_vectors == b""
    assert not back.HasField("token_codes")
    assert target.store.nearest(unit(4)) == target.store.nearest(unit(5)) == []


# ------------------------------------------------------------------------------------------------------ what is wrong


def of_history(since: float, until: float) -> Version:
    return Version(memory=Memory(content="old", created_at=at(1)), since=at(since), until=at(until))


WRONG: list[tuple[str, Record]] = [
    ("memory", Record(vectors=unit(0))),
    ("content", record_of("  ")),
    ("content", record_of("a\x00b")),
    ("namespace", record_of("text", namespace="a\nb")),
    ("key", record_of("text", key="k" * 300)),
    ("tags[1]", record_of("text", tags=["a", "b,c"])),
    ("hints", record_of("text", hints=["h"] * 4)),
    ("importance", record_of("text", importance=2)),
    ("metadata", record_of("text", metadata="[1]")),
    ("surprise", record_of("text", surprise=memory_pb2.Surprise(score=float("nan")))),
    ("version", record_of("text", version=-1)),
    ("version", record_of("text", version=2**31 - 1)),
    ("surprise.version", record_of("text", surprise=memory_pb2.Surprise(version=-1))),
    ("vectors", Record(memory=record_of("text").memory, vectors=unit(0) + np.full(384, 2, "<f4").tobytes())),
    ("created_at", Record(memory=Memory(content="text"))),
    ("vectors", Record(memory=record_of("text").memory, vectors=vector(1, dimensions=8))),
    ("vectors", Record(memory=record_of("text").memory, vectors=unit(0) * 65)),
    ("vectors", Record(memory=record_of("text").memory, vectors=np.full(384, np.nan, "<f4").tobytes())),
    ("token_codes.encoding", Record(memory=record_of("text").memory, token_codes=pb.TokenCodes(codes=b"c"))),
    ("hint_vectors", Record(memory=record_of("text").memory, vectors=unit(0), hint_vectors=unit(1))),
    ("hint_vectors", Record(memory=record_of("text", hints=["h"]).memory, hint_vectors=unit(1))),
    ("hint_vectors", Record(memory=record_of("text", hints=["h"]).memory, vectors=unit(0), hint_vectors=unit(1) * 2)),
    ("hint_token_codes", Record(memory=record_of("text").memory, hint_token_codes=pb.TokenCodes(codes=b"c"))),
    ("history", Record(memory=record_of("text").memory, history=[of_history(2, 1)])),
    ("history", Record(memory=record_of("text").memory, history=[of_history(1, 3), of_history(2, 4)])),
    (
        "history[0].until",
        Record(memory=record_of("text").memory, history=[Version(memory=record_of("o").memory, since=at(1))]),
    ),
    ("history[0].content", Record(memory=record_of("text").memory, history=[Version()])),
]


def test_what_is_wrong_is_told_by_its_place_and_leaves_no_trace(target: Both) -> None:
    records = [record for _, wrong in WRONG for record in (wrong, record_of("right"))]
    answer = imported(target.maintenance, records)
    assert (answer.imported, answer.kept, answer.failed) == (1, len(WRONG) - 1, len(WRONG))
    told = {place: (error.field, error.code) for place, error in answer.errors.items()}
    assert told == {2 * n: (field, Code.INVALID_ARGUMENT.value[0]) for n, (field, _) in enumerate(WRONG)}
    assert target.store.listed() == ["right"]


def test_what_was_taken_in_is_sound(target: Both) -> None:
    records = [record_of("twice", tags=["a", "b", "a"]), record_of("long", model_revision="m")]
    records[1].vectors = np.full(384, 2, "<f4").tobytes()
    assert imported(target.maintenance, records).imported == 2
    assert target.store.page().memories[1].tags == ["a", "b"]
    assert [check.check for check in target.maintenance.Verify(maintenance_pb2.VerifyRequest()) if check.wrong] == []


def test_of_many_errors_the_first_thousand_are_told(target: Both) -> None:
    answer = imported(target.maintenance, [record_of("") for _ in range(1_100)])
    assert (answer.failed, len(answer.errors)) == (1_100, 1_000)
    assert sorted(answer.errors) == list(range(1_000))


def test_no_content_is_in_an_error(target: Both) -> None:
    answer = imported(target.maintenance, [record_of("secret\x01word", tags=["secret"], hints=["secret"])])
    assert "secret" not in answer.errors[0].message


# ------------------------------------------------------------------------------------------------- through the process


def test_an_export_is_of_one_moment_and_holds_nobody_up(home: Path) -> None:
    with serving(home, "--read-connections", "1") as process, connected(process) as stub:
        store = Store(stub, "default")
        contents = [f"{n} {'text ' * 10_000}" for n in range(200)]  # More than the stream buffers.
        for content in contents:
            store.add(content)
        with maintaining(process) as maintenance:
            stream = maintenance.ExportMemories(maintenance_pb2.ExportMemoriesRequest(), timeout=SECONDS)
            read = [next(stream).record.memory.content]
            store.add("written meanwhile")
            store.delete(Ref(id=store.page(1, skip=3).memories[0].id))
            assert store.listed(tags_any=[]) != []
            read += [answer.record.memory.content for answer in stream]
            assert read == contents
            assert imported(maintenance, exported(maintenance)).kept == len(contents) + 1
