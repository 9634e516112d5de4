"""A kill in the middle of a checkpoint: part of the log is in the database, which makes sense with the log alone."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, conversion, files, lockbox
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.vault import Mode
from support.storage import DIMENSIONS, encryption, engine_of, near, rows

MODES: tuple[Mode, ...] = ("off", "values", "file")
WRITTEN = [f"quokka {number} {'x' * 3_000}" for number in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "memories.db"


def put(engine: SqliteEngine, contents: Sequence[str]) -> None:
    for number, content in enumerate(contents):
        memory = memory_pb2.Memory(namespace="n", content=content)
        engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=near(number / 100)))


def killed(path: Path, mode: Mode) -> None:
    """Makes a store, and leaves what a kill would: the last writes in the log alone."""
    kept = path.parent.parent / "kept"
    with engine_of(path, mode) as engine:
        put(engine, WRITTEN[:3])
    with engine_of(path, mode) as engine:
        put(engine, WRITTEN[3:])
        shutil.copytree(path.parent, kept)
    shutil.rmtree(path.parent)
    kept.rename(path.parent)
    files.beside(path, files.INDEX).unlink()


def cut_checkpoints(path: Path, mode: Mode) -> list[bytes]:
    """What the database has when a kill ends its checkpoint after the first page, in its middle, before its last one.

    Pages go into it in the order of their numbers.
    """
    page, before = connections.PAGE_SIZE, path.read_bytes()
    whole = path.parent.parent / "whole" / path.name
    shutil.copytree(path.parent, whole.parent)
    box = lockbox.unlock(whole, encryption(path, mode))
    assert box
    with contextlib.closing(connections.connect(whole, box.vault)) as connection:
        rows(connection, "PRAGMA wal_checkpoint")
    after = whole.read_bytes()
    assert len(before) < len(after)
    return [after[: n * page] + before[n * page :] for n in (1, len(after) // page // 2, len(after) // page - 1)]


def assert_holds_everything(path: Path, mode: Mode) -> None:
    with engine_of(path, mode) as engine:
        page = engine.list_memories(pb.ListMemoriesRequest(namespace="n", page_size=100))
        assert sorted(memory.content for memory in page.memories) == sorted(WRITTEN)
        assert [check.problems for check in engine.verify() if check.wrong] == []


def snapshot(path: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith((".lock", files.INDEX))
    }


@contextlib.contextmanager
def refused(path: Path, reason: str) -> Iterator[None]:
    before = snapshot(path)
    with pytest.raises(ServiceError) as caught:
        yield
    assert caught.value.reason == reason, caught.value.message
    assert snapshot(path) == before


@pytest.mark.parametrize("mode", MODES)
def test_it_opens_and_holds_everything(path: Path, mode: Mode) -> None:
    killed(path, mode)
    log = files.beside(path, files.LOG)
    kept = log.read_bytes()
    for torn in cut_checkpoints(path, mode):
        path.write_bytes(torn)
        log.write_bytes(kept)
        assert_holds_everything(path, mode)
        assert not log.exists()


@pytest.mark.parametrize("cut", range(3))
@pytest.mark.parametrize(("mode", "wanted"), [("off", "values"), ("off", "file"), ("values", "off"), ("file", "off")])
def test_it_is_converted_with_everything(path: Path, mode: Mode, wanted: Mode, cut: int) -> None:
    killed(path, mode)
    path.write_bytes(cut_checkpoints(path, mode)[cut])
    conversion.convert(path, DIMENSIONS, encryption(path, wanted))
    assert_holds_everything(path, wanted)


@pytest.mark.parametrize("wanted", ["values", "file"])
def test_a_plain_one_is_not_taken_for_an_encrypted_one(path: Path, wanted: Mode) -> None:
    killed(path, "off")
    for torn in cut_checkpoints(path, "off"):
        path.write_bytes(torn)
        with refused(path, "NOT_ENCRYPTED"), engine_of(path, wanted):
            pass
    assert_holds_everything(path, "off")


@pytest.mark.parametrize("mode", ["values", "file"])
def test_one_without_its_keys_is_told_so(path: Path, mode: Mode) -> None:
    killed(path, mode)
    cuts = cut_checkpoints(path, mode)
    keys = path.with_suffix(".keys")
    kept = keys.read_bytes()
    keys.unlink()
    for torn in cuts:
        path.write_bytes(torn)
        for wanted in MODES:
            if (mode, wanted) != ("file", "off"):  # That could as well be no database at all.
                with refused(path, "KEYS_MISSING"), engine_of(path, wanted):
                    pass
            with refused(path, "KEYS_MISSING"):
                conversion.convert(path, DIMENSIONS, encryption(path, wanted))
    keys.write_bytes(kept)
    assert_holds_everything(path, mode)
