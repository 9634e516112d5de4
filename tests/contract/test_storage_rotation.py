"""New keys for a store that is in use."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import apsw
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keyring import Keyring, read
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite import connections, files, query, rotation, sealing
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import Encryption
from hippovault_storage.vault import Mode
from support.storage import DIMENSIONS, Code, near

MODES: tuple[Mode, ...] = ("values", "file")
MEMORIES = 40


class Killed(BaseException):
    """As good as SIGKILL: nothing after it is done."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "memories.db"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "CHUNK", 7)
    monkeypatch.setattr(rotation, "STEP_PAGES", 5)


def line(number: int) -> str:
    return base64.b64encode(bytes(range(number, number + 32))).decode()


def key_source(path: Path, *numbers: int) -> KeySource:
    key = path.parent.parent / "key"
    key.touch(0o600)
    key.write_text("\n".join(map(line, numbers)))
    return KeySource(key)


@contextlib.contextmanager
def opened(path: Path, mode: Mode, *numbers: int) -> Iterator[SqliteEngine]:
    with SqliteEngine.open(path, DIMENSIONS, 2, Encryption(mode, key_source(path, *numbers or (0,)))) as engine:
        yield engine


def put(engine: SqliteEngine, number: int, **fields: object) -> int:
    memory = memory_pb2.Memory(
        namespace="n",
        content=f"memory {number}",
        hints=[f"hint {number}"],
        tags=[f"tag {number % 3}"],
        metadata=f'{{"n": {number}}}',
        key=str(number),
        **fields,  # type: ignore[arg-type]
    )
    return engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=near(number % 1000 / 1000))).memory.id


def contents(engine: SqliteEngine) -> set[str]:
    page = engine.list_memories(pb.ListMemoriesRequest(namespace="n", page_size=1000))
    for memory in page.memories:
        number = memory.content.removeprefix("memory ")
        assert (list(memory.hints), memory.metadata) == ([f"hint {number}"], f'{{"n": {number}}}')
    return {memory.content for memory in page.memories}


def rotate(engine: SqliteEngine, *, data_key: bool = True) -> list[maintenance_pb2.RotateKeyResponse]:
    return list(engine.rotate_key(maintenance_pb2.RotateKeyRequest(data_key=data_key)))


def data_keys(path: Path, *numbers: int) -> tuple[bytes, ...]:
    document = read(files.keys(path))
    assert document is not None
    return Keyring.unwrapped(document, key_source(path, *numbers or (0,)).read(), files.keys(path)).data_keys


ALL = {f"memory {number}" for number in range(MEMORIES)}


@pytest.mark.parametrize("mode", MODES)
def test_another_key_wraps_what_it_wrapped_before(path: Path, mode: Mode) -> None:
    with opened(path, mode, 0) as engine:
        put(engine, 1)
        before, database = data_keys(path), path.read_bytes()
        key_source(path, 1, 0)
        (answer,) = rotate(engine, data_key=False)
        assert answer.key_id == key_source(path, 1).read()[0].id
        assert data_keys(path, 1) == before
        assert path.read_bytes() == database
        put(engine, 2)
    with opened(path, mode, 1) as engine:
        assert contents(engine) == {"memory 1", "memory 2"}
    with pytest.raises(ServiceError) as refused, opened(path, mode, 0):
        pass
    assert refused.value.reason == "WRONG_KEY"


@pytest.mark.parametrize("mode", MODES)
def test_a_new_data_key_encrypts_everything(path: Path, mode: Mode) -> None:
    with opened(path, mode) as engine:
        for number in range(MEMORIES):
            put(engine, number)
        put(engine, 1, status="open")
        engine.delete_memory(pb.DeleteMemoryRequest(namespace="n", ref=memory_pb2.MemoryRef(id=1)))
        (before,) = data_keys(path)
        answers = rotate(engine)
        assert [answer.done for answer in answers] == sorted(answer.done for answer in answers)
        assert answers[-1].done == answers[-1].total > 0
        (after,) = data_keys(path)
        assert after != before
        assert contents(engine) == ALL - {"memory 0"}
        put(engine, MEMORIES)
    with opened(path, mode) as engine:
        assert contents(engine) == ALL - {"memory 0"} | {f"memory {MEMORIES}"}
        assert put(engine, 0) == 1
        assert [check.problems for check in engine.verify() if check.wrong] == []
    assert sorted(file.name for file in path.parent.iterdir()) == ["memories.db", "memories.keys", "memories.lock"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_who_began_to_read_before_sees_what_was_sealed_with_the_former_key(path: Path) -> None:
    with opened(path, "values") as engine:
        for number in range(MEMORIES):
            put(engine, number)
        export = engine.export_memories(maintenance_pb2.ExportMemoriesRequest())
        exported = [next(export)]
        rotate(engine)
        rotate(engine)
        exported += export
        assert {answer.record.memory.content for answer in exported} == ALL


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_meanwhile_is_there_and_under_the_new_key(path: Path, mode: Mode) -> None:
    with opened(path, mode) as engine:
        for number in range(MEMORIES):
            put(engine, number)
        (before,) = data_keys(path)
        written: list[int] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                put(engine, 1000 + len(written))
                written.append(len(written))
                assert contents(engine) >= ALL

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3):
            rotate(engine)
        stop.set()
        writer.join()
        assert before not in data_keys(path)
        assert contents(engine) == ALL | {f"memory {1000 + number}" for number in written}
    with opened(path, mode) as engine:
        assert contents(engine) == ALL | {f"memory {1000 + number}" for number in written}
        checks = list(engine.verify())
        assert [check.problems for check in checks if check.wrong] == []


def test_a_value_that_cannot_be_read_keeps_the_former_key(path: Path) -> None:
    with opened(path, "values") as engine:
        ids = [put(engine, number) for number in range(3)]
        (before,) = data_keys(path)
        spoil = "UPDATE memories SET content = (SELECT content FROM memories WHERE id = ?) WHERE id = ?"
        engine._writer.run(lambda connection: query.rows(connection, spoil, (ids[0], ids[1])))
        with pytest.raises(ServiceError) as caught:
            rotate(engine)
        assert (caught.value.code, caught.value.reason) == (Code.DATA_LOSS, "VALUE_NOT_AUTHENTIC")
        assert str(ids[1]) in caught.value.message
        assert data_keys(path)[1:] == (before,)


@pytest.mark.parametrize(("mode", "first_step"), [("values", (sealing, "total")), ("file", (connections, "copying"))])
def test_one_at_a_time(
    path: Path, mode: Mode, first_step: tuple[ModuleType, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going_on, real = threading.Event(), threading.Event(), getattr(*first_step)

    def held(*arguments: object) -> object:
        begun.set()
        going_on.wait(30)
        return real(*arguments)

    with opened(path, mode) as engine, ThreadPoolExecutor() as pool:
        for number in range(MEMORIES):
            put(engine, number)
        monkeypatch.setattr(*first_step, held)
        first = pool.submit(rotate, engine)
        begun.wait(30)
        with pytest.raises(ServiceError) as refused:
            rotate(engine)
        going_on.set()
        assert refused.value.reason == "ROTATING"
        assert first.result()
        assert rotate(engine)
        assert contents(engine) == ALL


def test_a_store_that_is_not_encrypted_has_no_key_to_rotate(path: Path) -> None:
    with SqliteEngine.open(path, DIMENSIONS, 1) as engine, pytest.raises(ServiceError) as refused:
        rotate(engine)
    assert (refused.value.code, refused.value.reason) == (Code.FAILED_PRECONDITION, "NOT_ENCRYPTED")


def test_a_key_that_cannot_be_read_changes_nothing(path: Path) -> None:
    with opened(path, "values") as engine:
        put(engine, 1)
        before = files.keys(path).read_bytes()
        key_source(path).file.write_text("swordfish")  # type: ignore[union-attr]
        with pytest.raises(ServiceError) as refused:
            rotate(engine)
        assert refused.value.reason == "KEY_INVALID"
        assert files.keys(path).read_bytes() == before
        assert contents(engine) == {"memory 1"}


def test_sealing_anew_that_was_cut_short_goes_on_at_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path, "values") as engine:
        for number in range(MEMORIES):
            put(engine, number)
        (before,) = data_keys(path)
        with monkeypatch.context() as patch:
            whole, calls = sealing.seal_chunk, []

            def cut(*arguments: object) -> tuple[int, int]:
                calls.append(1)
                if len(calls) > 2:
                    raise ServiceError.unavailable("x", "cut short")
                return whole(*arguments)  # type: ignore[arg-type]

            patch.setattr(sealing, "seal_chunk", cut)
            with pytest.raises(ServiceError):
                rotate(engine)
        new, old = data_keys(path)
        assert old == before
        assert contents(engine) == ALL
    with opened(path, "values") as engine:
        assert contents(engine) == ALL
        task = engine._rotation._task
        assert task is not None
        task._thread.join()
        assert data_keys(path) == (new,)
        assert contents(engine) == ALL


class FailingNames:
    """Fails from a change of that number on to the names in a directory."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        for name in ("rename", "replace", "unlink"):
            patch.setattr(Path, name, self._failing(getattr(Path, name)))

    def _failing(self, real: Callable[..., object]) -> Callable[..., object]:
        def change(*arguments: object, **options: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **options)

        return change


def test_the_store_is_whole_wherever_the_exchange_of_files_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path, "file") as engine:
        put(engine, 1)
    renewed, number, failing = set(), 0, None
    while failing is None or failing.left < 0:
        before = data_keys(path)
        with opened(path, "file") as engine:
            with monkeypatch.context() as patch:
                failing = FailingNames(patch, number)
                with contextlib.suppress(OSError, ServiceError):
                    rotate(engine)
            with contextlib.suppress(apsw.Error):  # It may have to be opened again.
                put(engine, 1, status=str(number))
                assert contents(engine) == {"memory 1"}
        with opened(path, "file") as engine:
            assert contents(engine) == {"memory 1"}
            renewed.add(data_keys(path) != before)
        assert sorted(file.name for file in path.parent.iterdir()) == ["memories.db", "memories.keys", "memories.lock"]
        number += 1
    assert renewed == {True, False}
