"""Encrypting and decrypting a store at rest."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from itertools import count, permutations
from pathlib import Path

import apsw
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import conversion, creation, ownership, sealing
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.vault import Mode
from support.storage import DIMENSIONS, Code, encryption, engine_of, near, opened, rows, vector

MODES: tuple[Mode, ...] = ("off", "values", "file")
WORDS = (b"quokka", b"whither", b"tarantella", b"bartholomew", b"wombat")
REST = ["memories.db", "memories.keys", "memories.lock"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "memories.db"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "CHUNK", 3)


def convert(path: Path, mode: Mode) -> None:
    conversion.convert(path, DIMENSIONS, encryption(path, mode))


def put(engine: SqliteEngine, content: str, number: int = 1, **fields: object) -> memory_pb2.Memory:
    memory = memory_pb2.Memory(**{"namespace": "n", "content": content, **fields})  # type: ignore[arg-type]
    return engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=near(number / 100))).memory


def fill(path: Path, mode: Mode) -> None:
    with engine_of(path, mode) as engine:
        for number in range(10):
            hints, tags = [f"whither {number}"], ["tarantella", f"t{number}"]
            put(engine, f"wombat {number}", number, key=str(number), hints=hints, tags=tags)
            put(
                engine,
                f"quokka {number}",
                number,
                key=str(number),
                hints=hints,
                tags=tags,
                metadata='{"b": "Bartholomew"}',
            )
        put(engine, "quokka of all", namespace="default")
        put(engine, "[]", tags=["[]"])  # What stands for no hints.
        put(engine, "quokka of all", namespace="default", key="k")
        ref = memory_pb2.MemoryRef(id=3)
        engine.delete_memory(pb.DeleteMemoryRequest(namespace="n", ref=ref, request_id="without the wombat"))


def everything(engine: SqliteEngine) -> list[object]:
    """All that is told of the memories, and what searches find."""
    told: list[object] = []
    for namespace in ("n", "default"):
        visible = memory_pb2.VISIBILITY_ALL
        page = engine.list_memories(pb.ListMemoriesRequest(namespace=namespace, page_size=100, visibility=visible))
        for memory in page.memories:
            ref = memory_pb2.MemoryRef(id=memory.id)
            versions = pb.ListMemoryVersionsRequest(namespace=namespace, ref=ref, page_size=100)
            told += [memory, *engine.list_memory_versions(versions).versions]
            by_hash = memory_pb2.MemoryRef(content_hash=memory.content_hash)
            if not memory.HasField("deleted_at"):
                told.append(engine.get_memory(pb.GetMemoryRequest(namespace=namespace, ref=by_hash)).memory.id)
    search = pb.SearchMemoriesRequest(namespace="n", filter=memory_pb2.Filter(tags_all=["tarantella"]))
    search.dense.CopyFrom(pb.DenseArm(vector=vector(1), k=5))
    search.keyword.CopyFrom(pb.KeywordArm(query="whither the quokkas", k=5))
    hits = engine.search_memories(search).hits
    return [*told, *sorted((hit.id, hit.dense.rank, hit.keyword.rank) for hit in hits)]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def words(path: Path) -> set[bytes]:
    return {word for file in path.parent.iterdir() for word in WORDS if word in file.read_bytes().lower()}


def test_ids_below_zero_are_encrypted_too(path: Path) -> None:
    fill(path, "off")
    with opened(path) as file:
        rows(file, "INSERT INTO memories (id, content_hash, content, tags) VALUES (-3, 'f', 'wombats below', 'below')")
    with engine_of(path, "off"):  # It is adopted.
        pass
    convert(path, "values")
    with opened(path) as file:
        assert rows(file, "SELECT tag FROM hippo_tags WHERE tag = 'below'") == []
    with engine_of(path, "values") as engine:
        listing = pb.ListMemoriesRequest(page_size=9, namespace="default", filter=memory_pb2.Filter(tags_all=["below"]))
        assert [memory.id for memory in engine.list_memories(listing).memories] == [-3]
        assert [check.problems for check in engine.verify() if check.wrong] == []


@pytest.mark.parametrize(("before", "after"), list(permutations(MODES, 2)))
def test_a_store_is_the_same_however_it_is_encrypted(path: Path, before: Mode, after: Mode) -> None:
    fill(path, before)
    with engine_of(path, before) as engine:
        told = everything(engine)
    convert(path, after)
    assert sorted(file.name for file in path.parent.iterdir()) == [
        name for name in REST if after != "off" or "keys" not in name
    ]
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert not (after == "file" and words(path))
    with engine_of(path, after) as engine:
        assert everything(engine) == told
        assert [check.problems for check in engine.verify() if check.wrong] == []
        put(engine, "quokka 5", key="5", tags=["one more"])
    for wanted in {*MODES} - {after}:
        with pytest.raises(ServiceError), engine_of(path, wanted):
            pass


def test_sealed_values_leave_no_plaintext_outside_of_the_word_index(path: Path) -> None:
    fill(path, "off")
    whole = {b"quokka 7", b"wombat 7", b"whither 7", b"tarantella", b"bartholomew"}
    assert {text for text in whole if text in path.read_bytes().lower()} == whole
    convert(path, "values")
    assert {text for text in whole if text in path.read_bytes().lower()} == set()


def test_what_is_so_already_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "PATIENCE_SECONDS", 0)
    for mode in MODES:
        with pytest.raises(ServiceError) as refused:
            convert(path, mode)
        assert refused.value.reason == "NO_DATABASE"
        assert not path.exists()
    fill(path, "file")
    with pytest.raises(ServiceError) as refused:
        convert(path, "file")
    assert refused.value.reason == "ALREADY_SO"
    with engine_of(path, "file"), pytest.raises(ServiceError) as refused:
        convert(path, "off")
    assert refused.value.reason == "ALREADY_RUNNING"


@pytest.mark.parametrize("mode", ["values", "file"])
@pytest.mark.parametrize("wanted", MODES)
def test_a_store_without_its_keys_is_told_so_and_left_alone(path: Path, mode: Mode, wanted: Mode) -> None:
    fill(path, mode)
    keys = path.with_suffix(".keys")
    keys.unlink()
    before = path.read_bytes()
    with pytest.raises(ServiceError) as refused:
        convert(path, wanted)
    assert refused.value.reason == "KEYS_MISSING"
    assert f"{keys}, which would have its keys, is missing" in refused.value.message
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("CREATE TABLE somebody_elses (a)", "somebody_elses"),
        ("CREATE VIRTUAL TABLE memory_content_fts USING fts5(content, content='memories')", "memory_content_fts"),
        ("ALTER TABLE memories ADD COLUMN summary; UPDATE memories SET summary = 'quokka'", "memories.summary"),
        ("INSERT INTO memories (content_hash, content) VALUES ('00', x'00')", "ids [13]"),
    ],
)
def test_what_values_would_leave_readable_is_refused(path: Path, made: str, told: str) -> None:
    fill(path, "off")
    with opened(path) as file:
        file.execute(made)
    with pytest.raises(ServiceError) as refused:
        convert(path, "values")
    assert refused.value.reason == "NOT_OURS"
    assert told in refused.value.message
    with engine_of(path, "off") as engine:
        assert everything(engine)
    convert(path, "file")
    assert words(path) == set()


def test_a_value_that_is_not_authentic_stops_the_conversion(path: Path) -> None:
    fill(path, "values")
    with opened(path) as file:
        file.execute("UPDATE memories SET tags = 'forged' WHERE id = 2")
    before = path.read_bytes()
    with pytest.raises(ServiceError) as refused:
        convert(path, "off")
    assert refused.value.code is Code.DATA_LOSS
    assert "table memories, column tags of memory 2" in refused.value.message
    assert path.read_bytes() == before
    assert names(path) == REST


class Killed(BaseException):
    """As good as SIGKILL between two calls of the system: nothing after it is done."""


class KilledBeforeChange:
    """Ends what runs before its change of that number to the names in a directory."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        for name in ("rename", "replace", "unlink"):
            patch.setattr(Path, name, self._ending(getattr(Path, name)))

    def _ending(self, real: Callable[..., object]) -> Callable[..., object]:
        def change(*arguments: object, **options: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return real(*arguments, **options)

        return change


@pytest.mark.parametrize(("before", "after"), [("off", "file"), ("file", "values"), ("values", "off")])
def test_killed_at_any_point_it_leaves_the_old_or_the_new_store(path: Path, before: Mode, after: Mode) -> None:
    with engine_of(path, before) as engine:
        put(engine, "quokka")
        told = everything(engine)
    data, origin, modes = path.parent, path.parent.parent / "origin", list[Mode]()
    shutil.copytree(data, origin)
    for number in count():
        shutil.rmtree(data)
        shutil.copytree(origin, data)
        with pytest.MonkeyPatch.context() as patch:
            killed = KilledBeforeChange(patch, number)
            with contextlib.suppress(Killed):
                convert(path, after)
        modes.append(mode := now(path, before, after))
        with engine_of(path, mode) as engine:
            assert everything(engine) == told
        assert names(path) == [name for name in REST if mode != "off" or "keys" not in name]
        if killed.left >= 0:
            break
    assert {before, after} == {*modes}
    assert modes == sorted(modes, key=(before, after).index)


def now(path: Path, *modes: Mode) -> Mode:
    """The mode in which the store can be opened."""
    opening = []
    for mode in modes:
        with contextlib.suppress(ServiceError), engine_of(path, mode):
            opening.append(mode)
    (only,) = opening
    return only


def test_a_full_disk_leaves_the_store_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "off")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(conversion, "_write_copy", full)
    with pytest.raises(ServiceError) as refused:
        convert(path, "file")
    assert refused.value.reason == "DISK_FULL"
    assert path.read_bytes() == before
    assert names(path) == ["memories.db", "memories.lock"]
    with engine_of(path, "off") as engine:
        assert everything(engine)


def test_a_conversion_that_fails_leaves_nothing_decrypted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "file")
    readable = []

    def fail(*_: object) -> None:
        readable.append(words(path))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(conversion, "_check", fail)
    with pytest.raises(OSError, match="No space"):
        convert(path, "off")
    assert readable[0]
    assert words(path) == set()
    assert names(path) == REST


def test_a_copy_that_cannot_be_opened_is_told_without_its_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "off")
    monkeypatch.setattr(creation, "begin_copy", lambda path: path.parent / "gone" / "copy")
    with pytest.raises(ServiceError) as refused:
        convert(path, "file")
    assert refused.value.reason == "CANNOT_OPEN"
    assert str(path.parent / "gone" / "copy") in refused.value.message
    assert "key" not in refused.value.message


def test_tables_of_any_name_come_along(path: Path) -> None:
    fill(path, "off")
    with opened(path) as file:
        file.execute('CREATE TABLE "some""body\'s [else]" (a)')
    convert(path, "file")
    convert(path, "off")
    with opened(path) as file:
        assert file.execute('SELECT count(*) FROM "some""body\'s [else]"').fetchall() == [(0,)]
