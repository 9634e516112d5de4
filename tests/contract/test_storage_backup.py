"""Backup by RPC, and restore: `python -m hippovault_storage.restore`."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite import files, restoring
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import OFF, Encryption
from hippovault_storage.vault import Mode
from support.processes import Process, environment
from support.storage import (
    DIMENSIONS,
    SECONDS,
    Code,
    Memory,
    Store,
    assert_whole,
    connected,
    database,
    maintaining,
    opened,
    refused,
    rows,
    serving,
    stub_of,
    vector,
)

NAMESPACE = "kept"
CHUNK_BYTES = 1024 * 1024


@dataclass
class Taken:
    """A backup as it came."""

    header: pb.BackupHeader
    chunks: list[bytes]
    trailer: pb.BackupTrailer

    def save(self, directory: Path) -> Path:
        file = directory / self.header.name
        file.write_bytes(b"".join(self.chunks))
        return file


def taken(process: Process) -> Taken:
    with maintaining(process) as stub:
        first, *middle, last = list(stub.Backup(pb.BackupRequest(), timeout=SECONDS))
    return Taken(first.header, [part.chunk for part in middle], last.trailer)


def fill(process: Process, *contents: str) -> None:
    with connected(process) as stub:
        for content in contents:
            Store(stub, NAMESPACE).add(content, tags=["t"], hints=["hint"])


def held(path: Path, encryption: Encryption = OFF) -> list[str]:
    """What the store has, in order; the store is opened for it, as at a start."""
    with SqliteEngine.open(path, DIMENSIONS, 1, encryption) as engine:
        page = engine.list_memories(storage_pb2.ListMemoriesRequest(namespace=NAMESPACE, page_size=1000))
    return sorted(memory.content for memory in page.memories)


def beside(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


def run_restore(home: Path, file: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "hippovault_storage.restore", str(file), *flags]
    return subprocess.run(
        arguments, env=environment(home), capture_output=True, text=True, timeout=SECONDS, check=False
    )


def put(engine: SqliteEngine, content: str) -> None:
    memory = Memory(namespace=NAMESPACE, content=content, tags=["t"], hints=["hint"])
    engine.put_memory(storage_pb2.PutMemoryRequest(memory=memory, vectors=vector(1), model_revision="model-1"))


@pytest.fixture
def path(home: Path) -> Path:
    (home / "data").mkdir(parents=True)
    home.chmod(0o700)
    return database(home)


def with_key(home: Path, mode: Mode, first: int = 0) -> Encryption:
    file = home.parent / f"key-{first}"
    file.write_text(base64.b64encode(bytes(range(first, first + 32))).decode())
    file.chmod(0o600)
    return Encryption(mode, KeySource(file))


def taken_in_process(path: Path, encryption: Encryption) -> Path:
    """Returns a backup of a store that has `before`, and then gets `after`; its keys, if any, beside it."""
    with SqliteEngine.open(path, DIMENSIONS, 1, encryption) as engine:
        put(engine, "before")
        first, *middle, _ = list(engine.backup())
        put(engine, "after")
    header = first.header
    file = path.parent.parent.parent / header.name
    file.write_bytes(b"".join(part.chunk for part in middle))
    if header.keys:
        Path(f"{file}.keys").write_bytes(header.keys)
    return file


@pytest.fixture
def backup(path: Path) -> Path:
    """A backup of a store that has `before`, and then gets `after`."""
    return taken_in_process(path, OFF)


def test_a_backup_is_the_store_of_one_moment(home: Path) -> None:
    with serving(home) as process:
        contents = [f"{number} {'x' * 40_000}" for number in range(60)]
        fill(process, *contents)
        began = datetime.now(UTC)
        backup, other = taken(process), taken(process)
        header = backup.header
        assert abs(header.taken_at.ToDatetime(UTC) - began) < timedelta(seconds=SECONDS)
        assert (header.memories, header.encryption, header.keys) == (60, "", b"")
        assert header.size_bytes == sum(map(len, backup.chunks))
        assert {len(chunk) for chunk in backup.chunks[:-1]} == {CHUNK_BYTES}
        assert backup.trailer.sha256 == hashlib.sha256(b"".join(backup.chunks)).hexdigest()
        assert header.name != other.header.name
        assert not [name for name in beside(database(home)) if "backup" in name]
        file = backup.save(home.parent)
        assert_whole(file)
        with opened(file) as copy:
            assert header.schema_version == copy.pragma("user_version")
            assert rows(copy, "SELECT content FROM memories ORDER BY id") == [(content,) for content in contents]


def test_writes_go_on_during_a_backup(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, maintaining(process) as maintenance:
        fill(process, *(f"{number} {'x' * 60_000}" for number in range(150)))
        answers = maintenance.Backup(pb.BackupRequest(), timeout=SECONDS)
        header = next(answers).header  # The rest waits in the process until it is read.
        Store(stub, NAMESPACE).add("meanwhile")
        assert header.memories == 150
        file = home.parent / header.name
        file.write_bytes(b"".join(answer.chunk for answer in answers))
    assert_whole(file)
    with opened(file) as copy:
        assert rows(copy, "SELECT count(*) FROM memories WHERE content = 'meanwhile'") == [(0,)]


def test_a_backup_taken_among_writers_is_whole(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, ThreadPoolExecutor(4) as pool:
        store = Store(stub, NAMESPACE)
        writing = [pool.submit(store.add, f"content {n}", tags=["t"], key=str(n % 50)) for n in range(400)]
        backups = [taken(process) for _ in range(3)]
        for writer in writing:
            writer.result()
    for backup in backups:
        assert_whole(backup.save(home.parent))


def test_a_client_that_goes_away_leaves_nothing(home: Path) -> None:
    with serving(home) as process, maintaining(process) as maintenance:
        fill(process, *(f"{number} {'x' * 60_000}" for number in range(150)))
        answers = maintenance.Backup(pb.BackupRequest(), timeout=SECONDS)
        next(answers)
        assert [name for name in beside(database(home)) if ".backup-" in name]
        answers.cancel()
        assert process.stop() == 0
        assert not [name for name in beside(database(home)) if ".backup-" in name]


def test_what_a_kill_left_of_a_backup_is_removed_at_the_next_open(home: Path) -> None:
    with serving(home) as process, maintaining(process) as maintenance:
        fill(process, *(f"{number} {'x' * 60_000}" for number in range(150)))
        answers = maintenance.Backup(pb.BackupRequest(), timeout=SECONDS)
        next(answers)
        process.kill()
    assert [name for name in beside(database(home)) if ".backup-" in name]
    with stub_of(home):
        assert not [name for name in beside(database(home)) if ".backup-" in name]


def test_a_damaged_store_gives_no_backup(home: Path) -> None:
    with stub_of(home) as stub:
        Store(stub, NAMESPACE).add("one")
    with opened(database(home)) as file:
        root = rows(file, "SELECT rootpage FROM sqlite_schema WHERE name = 'hippo_tags_memory'")[0][0]
        size = file.pragma("page_size")
    with database(home).open("r+b") as damaged:
        damaged.seek((root - 1) * size)
        damaged.write(os.urandom(size))
    with serving(home) as process:
        with refused(Code.DATA_LOSS, reason="CORRUPT", message=str(database(home))):
            taken(process)
        assert not [name for name in beside(database(home)) if ".backup-" in name]


def test_restoring_brings_back_what_was_and_keeps_what_is(home: Path, path: Path, backup: Path) -> None:
    done = run_restore(home, backup)
    assert done.returncode == 0, done.stderr
    kept = next(path.parent.glob("memories.db.replaced-*"))
    assert str(kept) in done.stdout
    assert held(path) == ["before"]
    assert_whole(path)
    assert restoring.restore(path, kept, DIMENSIONS) != kept
    assert held(path) == ["after", "before"]
    assert all(file.stat().st_mode & 0o077 == 0 for file in path.parent.iterdir())


def test_restoring_into_a_new_home(home: Path, backup: Path) -> None:
    other = home.parent / "other"
    done = run_restore(home, backup, "--home", str(other))
    assert done.returncode == 0, done.stderr
    assert held(database(other)) == ["before"]
    assert "kept" not in done.stdout


def test_a_log_of_the_former_store_does_not_reach_the_restored_one(home: Path, path: Path, backup: Path) -> None:
    before = held(path)
    with serving(home) as process:
        fill(process, "in the log alone")
        process.kill()
    assert files.beside(path, files.LOG).stat().st_size
    kept = restoring.restore(path, backup, DIMENSIONS)
    assert held(path) == ["before"]
    assert kept
    log = files.beside(kept, files.LOG).read_bytes()
    restoring.restore(path, kept, DIMENSIONS)
    assert held(path) == sorted([*before, "in the log alone"])
    assert files.beside(kept, files.LOG).read_bytes() == log
    with opened(kept) as former:
        assert ("in the log alone",) in rows(former, "SELECT content FROM memories")


def test_a_served_store_is_not_replaced(home: Path, path: Path, backup: Path) -> None:
    with serving(home) as process:
        done = run_restore(home, backup)
        assert done.returncode
        assert f"pid {process.popen.pid}" in done.stderr
    assert held(path) == ["after", "before"]


def test_a_damaged_store_is_replaced_and_kept(path: Path, backup: Path) -> None:
    path.write_bytes(b"no database")
    kept = restoring.restore(path, backup, DIMENSIONS)
    assert held(path) == ["before"]
    assert kept
    assert kept.read_bytes() == b"no database"


class Killed(BaseException):
    """As good as SIGKILL between two calls of the system: nothing after it is done."""


@contextmanager
def killed_before_change(number: int) -> Iterator[None]:
    """Ends what runs inside before its change of that number to the names in a directory."""
    with pytest.MonkeyPatch.context() as patch:
        changes = count()
        for name in ("rename", "replace", "unlink"):
            real = getattr(Path, name)

            def change(self: Path, *rest: Any, real: Any = real, **options: Any) -> Any:
                if next(changes) >= number:
                    raise Killed
                return real(self, *rest, **options)

            patch.setattr(Path, name, change)
        yield


@pytest.mark.parametrize("mode", ["off", "values"])
def test_killed_at_any_point_it_leaves_the_old_or_the_new_store(home: Path, path: Path, mode: Mode) -> None:
    encryption = with_key(home, mode)
    backup = taken_in_process(path, encryption)
    if mode != "off":  # From now on the keys are others than the backup's.
        with SqliteEngine.open(path, DIMENSIONS, 1, encryption) as engine:
            list(engine.rotate_key(pb.RotateKeyRequest(data_key=True)))
    files.beside(path, files.LOG).touch()
    data, seen = path.parent, list[list[str]]()
    shutil.copytree(data, data.with_name("origin"))
    for number in count():
        shutil.rmtree(data)
        shutil.copytree(data.with_name("origin"), data)
        try:
            with killed_before_change(number):
                restoring.restore(path, backup, DIMENSIONS, encryption)
            break
        except Killed:
            seen.append(held(path, encryption))
            assert not [name for name in beside(path) if "arriv" in name or "copying" in name]
    assert seen == sorted(seen)
    assert seen[0] == ["after", "before"]
    assert seen[-1] == ["before"]
    assert held(path, encryption) == ["before"]


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def torn(file: Path) -> None:
    with opened(file) as copy:
        root = rows(copy, "SELECT rootpage FROM sqlite_schema WHERE name = 'hippo_tags'")[0][0]
        size = copy.pragma("page_size")
    with file.open("r+b") as damaged:
        damaged.seek((root - 1) * size)
        damaged.write(os.urandom(size))


def of_a_newer_schema(file: Path) -> None:
    with opened(file) as copy:
        copy.pragma("user_version", 999)


def of_another_kind(file: Path) -> None:
    file.unlink()
    with opened(file) as copy:
        copy.execute("CREATE TABLE t (a)")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


BAD: list[tuple[Any, str]] = [
    (truncated, "damaged"),
    (torn, "damaged"),
    (of_a_newer_schema, "schema version 999"),
    (of_another_kind, "no table memories"),
    (a_directory, "is not a file"),
    (Path.unlink, "is not a file"),
    (lambda file: file.write_bytes(b""), "is empty"),
    (lambda file: file.write_bytes(b"no database " * 1000), "not a SQLite database"),
    (lambda file: Path(f"{file}-wal").write_bytes(b"log"), "in use"),
]


@pytest.mark.parametrize(("spoil", "told"), BAD)
def test_what_is_no_sound_backup_changes_nothing(path: Path, backup: Path, spoil: Any, told: str) -> None:
    spoil(backup)
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(ServiceError) as caught:
        restoring.restore(path, backup, DIMENSIONS)
    assert str(backup) in caught.value.message
    assert told in caught.value.message
    assert "hippovault " not in caught.value.message  # Neither verify nor restore is of use here.
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def changed(statement: str) -> Any:
    def change(file: Path) -> None:
        with opened(file) as copy:
            copy.execute(statement)

    return change


LOST_WORDS = "DELETE FROM hippo_fts_data WHERE id > 10"  # All but its two records about itself.
DAMAGES: list[tuple[Any, str]] = [
    (changed("UPDATE memories SET content = 'forged'"), "contents: memory 1: its content is not what was written"),
    (changed("DELETE FROM hippo_tags"), "tags: memory 1: "),
    (changed(LOST_WORDS), "words: "),
    (torn, "integrity: "),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGES)
def test_a_backup_in_which_something_is_wrong_is_taken_only_where_that_is_accepted(
    home: Path, path: Path, backup: Path, damage: Any, told: str
) -> None:
    damage(backup)
    with pytest.raises(ServiceError, match="take another backup, or this one as it is, with --accept-damage") as caught:
        restoring.restore(path, backup, DIMENSIONS)
    assert told in caught.value.message
    assert held(path) == ["after", "before"]
    done = run_restore(home, backup, "--accept-damage")
    assert (done.returncode, done.stderr) == (0, "")
    with opened(path) as file:
        assert rows(file, "SELECT count(*) FROM memories") == [(1,)]


def test_what_another_program_wrote_is_no_damage(path: Path, backup: Path) -> None:
    changed("INSERT INTO memories (content_hash, content) VALUES ('ff', 'theirs')")(backup)
    restoring.restore(path, backup, DIMENSIONS)
    with opened(path) as file:
        assert rows(file, "SELECT content FROM memories ORDER BY id") == [("before",), ("theirs",)]


def test_of_a_truncated_backup_nothing_can_be_accepted(path: Path, backup: Path) -> None:
    truncated(backup)
    with pytest.raises(ServiceError, match="take another backup, this one cannot be read"):
        restoring.restore(path, backup, DIMENSIONS, demands=restoring.Demands(sound=False))
    assert held(path) == ["after", "before"]


def test_a_backup_must_have_the_sum_that_is_given(home: Path, path: Path, backup: Path) -> None:
    sha256 = hashlib.sha256(backup.read_bytes()).hexdigest()
    for wrong, told in (("0" * 64, f"another SHA-256 than {'0' * 64}, {sha256}"), ("12", "64 hexadecimal digits")):
        ended = run_restore(home, backup, "--sha256", wrong)
        assert ended.returncode == 1
        assert told in ended.stderr
    assert held(path) == ["after", "before"]
    assert run_restore(home, backup, "--sha256", sha256.upper()).returncode == 0
    assert held(path) == ["before"]


def test_a_backup_of_other_dimensions_is_refused(path: Path, backup: Path) -> None:
    with pytest.raises(ServiceError, match=r"384 dimensions.* 768"):
        restoring.restore(path, backup, 768)
    assert held(path) == ["after", "before"]


def test_the_store_itself_is_no_backup(path: Path, backup: Path) -> None:
    assert backup.exists()
    with pytest.raises(ServiceError, match="is the store itself"):
        restoring.restore(path, path, DIMENSIONS)
    assert held(path) == ["after", "before"]


# ------------------------------------------------------------------------------------------------ encrypted stores


@pytest.mark.parametrize("mode", ["values", "file"])
def test_an_encrypted_store_is_backed_up_encrypted_and_restored_with_its_keys(
    home: Path, path: Path, mode: Mode
) -> None:
    encryption = with_key(home, mode)
    file = taken_in_process(path, encryption)
    # The words of the index stay readable where values are encrypted one by one. A stem, long enough for no chance.
    assert (b"befor" in file.read_bytes()) == (mode == "values")
    assert b'"hint"' not in file.read_bytes()
    with SqliteEngine.open(path, DIMENSIONS, 1, encryption) as engine:
        assert not [problem for answer in engine.verify() for problem in answer.problems]
        list(engine.rotate_key(pb.RotateKeyRequest(data_key=True)))  # The backup has the former key.
    rotated = path.with_suffix(".keys").read_bytes()
    kept = restoring.restore(path, file, DIMENSIONS, encryption)
    assert Path(f"{kept}.keys").read_bytes() == rotated
    assert path.with_suffix(".keys").read_bytes() == Path(f"{file}.keys").read_bytes() != rotated
    assert held(path, encryption) == ["before"]


def test_a_backup_is_restored_through_a_link_with_what_lies_beside_it(home: Path, path: Path) -> None:
    encryption = with_key(home, "values")
    file = taken_in_process(path, encryption)
    link = home.parent / "link.db"
    link.symlink_to(file)
    restoring.restore(path, link, DIMENSIONS, encryption)
    assert held(path, encryption) == ["before"]
    Path(f"{file}-wal").write_bytes(b"log")
    with pytest.raises(ServiceError, match=f"{file}-wal"):
        restoring.restore(path, link, DIMENSIONS, encryption)


def test_an_encrypted_backup_wants_its_keys_and_the_mode_and_key_of_the_store(home: Path, path: Path) -> None:
    encryption = with_key(home, "file")
    file = taken_in_process(path, encryption)
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    for other in (with_key(home, "values"), with_key(home, "file", 1), Encryption()):
        with pytest.raises(ServiceError, match=str(file)):
            restoring.restore(path, file, DIMENSIONS, other)
    keys = Path(f"{file}.keys")
    keys.rename(home.parent / "elsewhere")
    with pytest.raises(ServiceError, match=f"{keys}.* is missing"):
        restoring.restore(path, file, DIMENSIONS, encryption)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert held(path, encryption) == ["after", "before"]


def test_a_plain_backup_is_not_restored_into_an_encrypted_store(home: Path, path: Path, backup: Path) -> None:
    told = f"{backup} is not encrypted.* set it to off to restore this backup"
    with pytest.raises(ServiceError, match=told):
        restoring.restore(path, backup, DIMENSIONS, with_key(home, "values"))
    assert held(path) == ["after", "before"]
