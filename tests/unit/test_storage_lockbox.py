"""What opening refuses: stores and keys that do not belong together. Nothing is written then."""

from __future__ import annotations

import base64
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite import lockbox
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import Encryption
from hippovault_storage.vault import Mode
from support.storage import DIMENSIONS, Code, vector

MODES: tuple[Mode, ...] = ("values", "file")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "memories.db"


@pytest.fixture
def source(tmp_path: Path) -> KeySource:
    return key_source(tmp_path / "key", 0)


def key_source(path: Path, *numbers: int) -> KeySource:
    path.touch(0o600)
    path.write_text("\n".join(base64.b64encode(bytes(range(n, n + 32))).decode() for n in numbers))
    return KeySource(path)


@contextlib.contextmanager
def opened(path: Path, mode: Mode, source: KeySource) -> Iterator[SqliteEngine]:
    with SqliteEngine.open(path, DIMENSIONS, 1, Encryption(mode, source)) as engine:
        yield engine


def make(path: Path, mode: Mode, source: KeySource) -> None:
    with opened(path, mode, source) as engine:
        memory = memory_pb2.Memory(namespace="n", content="Zebras run")
        engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=vector(1)))


def contents(engine: SqliteEngine) -> list[str]:
    page = engine.list_memories(pb.ListMemoriesRequest(namespace="n", page_size=10))
    return [memory.content for memory in page.memories]


def snapshot(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.suffix != ".lock"}


def refusal(path: Path, mode: Mode, source: KeySource, reason: str) -> str:
    """The message with which opening is refused; nothing was written."""
    before = snapshot(path)
    with pytest.raises(ServiceError) as caught, opened(path, mode, source):
        pass
    assert snapshot(path) == before
    assert caught.value.reason == reason, caught.value.message
    assert caught.value.code in {Code.FAILED_PRECONDITION, Code.DATA_LOSS}
    return caught.value.message


@pytest.mark.parametrize("mode", MODES)
def test_the_key_must_be_the_one_that_wraps(path: Path, source: KeySource, mode: Mode) -> None:
    make(path, mode, source)
    other = key_source(path.parent.parent / "other", 1)
    assert str(path.with_suffix(".keys")) in refusal(path, mode, other, "WRONG_KEY")
    refusal(path, mode, KeySource(), "KEY_MISSING")
    with opened(path, mode, key_source(path.parent.parent / "both", 1, 0)) as engine:
        assert contents(engine) == ["Zebras run"]


@pytest.mark.parametrize("mode", MODES)
def test_without_a_key_no_store_is_made(path: Path, mode: Mode) -> None:
    refusal(path, mode, KeySource(), "KEY_MISSING")
    refusal(path, mode, KeySource(path.parent.parent / "none"), "KEY_FILE_UNREADABLE")
    assert snapshot(path) == {}


@pytest.mark.parametrize("mode", MODES)
def test_the_settings_must_say_how_the_store_is_encrypted(path: Path, source: KeySource, mode: Mode) -> None:
    make(path, mode, source)
    message = refusal(path, "off", source, "ENCRYPTED")
    assert f"HIPPOVAULT_STORAGE_ENCRYPTION={mode}" in message
    assert "hippovault decrypt" in message
    (other,) = set(MODES) - {mode}
    message = refusal(path, other, source, "OTHER_ENCRYPTION")
    assert "hippovault encrypt" in message


@pytest.mark.parametrize("mode", MODES)
def test_a_plain_store_is_not_opened_as_an_encrypted_one(path: Path, source: KeySource, mode: Mode) -> None:
    make(path, "off", source)
    assert "hippovault encrypt" in refusal(path, mode, source, "NOT_ENCRYPTED")


@pytest.mark.parametrize("mode", MODES)
def test_keys_that_are_missing_or_damaged_are_told(path: Path, source: KeySource, mode: Mode) -> None:
    make(path, mode, source)
    keys = path.with_suffix(".keys")
    kept = keys.read_bytes()
    canary = kept.replace(b'"canary": "', b'"canary": "AAAA')
    for damaged in (b"", b"{}", b"[]", b"\xff", b'{"format": "1"}', b"[" * 100_000, kept[: len(kept) // 2], canary):
        keys.write_bytes(damaged)
        assert str(keys) in refusal(path, mode, source, "KEYS_DAMAGED")
    keys.write_bytes(kept.replace(b'"format": 1', b'"format": 2'))
    assert "format 2" in refusal(path, mode, source, "NEWER_KEYS")
    keys.unlink()
    refusal(path, mode, source, "KEYS_MISSING")
    refusal(path, "off", source, "KEYS_MISSING" if mode == "values" else "NOT_A_DATABASE")
    keys.write_bytes(kept)
    with opened(path, mode, source) as engine:
        assert contents(engine) == ["Zebras run"]


@pytest.mark.parametrize("mode", MODES)
def test_keys_say_what_they_are_of_and_it_cannot_be_changed(path: Path, source: KeySource, mode: Mode) -> None:
    make(path, mode, source)
    (other,) = set(MODES) - {mode}
    keys = path.with_suffix(".keys")
    keys.write_bytes(keys.read_bytes().replace(f'"{mode}"'.encode(), f'"{other}"'.encode()))
    refusal(path, mode, source, "OTHER_ENCRYPTION")
    refusal(path, other, source, "OTHER_DATABASE")


@pytest.mark.parametrize("mode", MODES)
def test_keys_belong_to_one_database(path: Path, source: KeySource, mode: Mode, tmp_path: Path) -> None:
    make(path, mode, source)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "memories.db"
    make(other, mode, source)
    kept = path.read_bytes()
    shutil.copyfile(other, path)
    refusal(path, mode, source, "OTHER_DATABASE" if mode == "values" else "NOT_A_DATABASE")
    path.unlink()
    refusal(path, mode, source, "DATABASE_MISSING")
    assert f"{path} is missing" in refusal(path, "off", source, "DATABASE_MISSING")
    path.write_bytes(kept)
    with opened(path, mode, source) as engine:
        assert contents(engine) == ["Zebras run"]


@pytest.mark.parametrize("mode", MODES)
def test_a_plain_database_beside_keys_is_refused(path: Path, source: KeySource, mode: Mode, tmp_path: Path) -> None:
    make(path, mode, source)
    plain = tmp_path / "plain.db"
    make(plain, "off", source)
    shutil.copyfile(plain, path)
    refusal(path, mode, source, "OTHER_DATABASE")


def test_a_store_that_was_not_made_to_its_end_is_made_anew(
    path: Path, source: KeySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lockbox, "write_label", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), opened(path, "file", source):
            pass
    assert not path.exists()
    make(path, "file", source)
    assert sorted(file.name for file in path.parent.iterdir()) == ["memories.db", "memories.keys", "memories.lock"]
