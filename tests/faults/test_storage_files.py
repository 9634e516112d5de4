"""Files that fail: an error says which one and what to do, what was stored stays, and the process stays up."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import grpc
import pytest

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import files, restoring
from support.processes import Process, environment
from support.storage import (
    DIMENSIONS,
    SECONDS,
    Code,
    Store,
    assert_whole,
    connected,
    database,
    encrypted,
    maintaining,
    near,
    refused,
    serving,
    stub_of,
)

NAMESPACE = "failing"
PAGE_SIZE = 8192
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24

OPEN = """
import sys
from pathlib import Path
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite.engine import SqliteEngine
try:
    with SqliteEngine.open(Path(sys.argv[1]), 384, 1):
        pass
except ServiceError as error:
    sys.exit(f"{error.reason}: {error}")
"""


@contextmanager
def limited(process: Process, size: int) -> Iterator[None]:
    """No file of the process can grow beyond the size meanwhile, as on a disk that is full."""
    resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    yield
    resource.prlimit(process.popen.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def log_of(home: Path) -> Path:
    return files.beside(database(home), files.LOG)


def large(number: int) -> str:
    return f"{number} {'x' * 60_000}"


def contents(home: Path) -> dict[str, bytes]:
    """The bytes of every file that is data."""
    return {
        file.name: file.read_bytes()
        for file in database(home).parent.iterdir()
        if not file.name.endswith((".lock", files.INDEX)) and file.stat().st_size
    }


def run(*arguments: str, home: Path, powerless: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a program that ends by itself; a powerless one minds the modes of files, whoever runs the tests."""

    def start() -> subprocess.CompletedProcess[str]:
        if powerless:  # Of this thread, which is about to end; nobody but root has it anyway.
            for power in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
                ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, power, 0, 0, 0)
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(start).result()


def assert_not_started(home: Path, *told: str, powerless: bool = False) -> None:
    """The process ends with a line that tells these, and every file stays as it was."""
    before = contents(home)
    ended = run("-m", "hippovault_storage", home=home, powerless=powerless)
    assert ended.returncode == 1
    line = ended.stderr.strip().splitlines()[-1]
    assert all(part in line for part in told), line
    assert "Traceback" not in ended.stderr
    assert contents(home) == before


# ----------------------------------------------------------------------------------------------------- a full disk


def test_a_disk_that_is_full_loses_nothing_and_heals(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        store = Store(stub, NAMESPACE)
        acknowledged = [store.add("first").content]
        with limited(process, log_of(home).stat().st_size + 400_000):
            with pytest.raises(grpc.RpcError) as full:
                acknowledged.extend(store.add(large(number)).content for number in count())
            error = ServiceError.from_rpc(full.value, "storage")
            assert error.code in {Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE}
            assert str(database(home)) in error.message
            assert sorted(store.listed()) == sorted(acknowledged)
            assert process.popen.poll() is None
        acknowledged.append(store.add("after").content)
        process.kill()
    with stub_of(home) as stub:
        assert sorted(Store(stub, NAMESPACE).listed()) == sorted(acknowledged)
    assert_whole(database(home))


def test_a_backup_that_does_not_fit_leaves_nothing(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, maintaining(process) as maintenance:
        store = Store(stub, NAMESPACE)
        for number in range(20):
            store.add(large(number))
        with limited(process, 500_000):
            with pytest.raises(grpc.RpcError) as full:
                list(maintenance.Backup(pb.BackupRequest(), timeout=SECONDS))
            assert str(database(home)) in ServiceError.from_rpc(full.value, "storage").message
            assert not [name for name in contents(home) if ".backup-" in name]
        assert list(maintenance.Backup(pb.BackupRequest(), timeout=SECONDS))
        assert len(store.listed()) == 20


@pytest.mark.parametrize("mode", ["values", "file"])
def test_keys_that_do_not_fit_stay_as_they_were(home: Path, mode: str) -> None:
    with serving(home, environment=encrypted(mode)) as process, maintaining(process) as maintenance:
        before = contents(home)
        for data_key in (False, True):
            with limited(process, 10), pytest.raises(grpc.RpcError) as full:
                list(maintenance.RotateKey(pb.RotateKeyRequest(data_key=data_key), timeout=SECONDS))
            message = ServiceError.from_rpc(full.value, "storage").message
            assert f"{files.keys(database(home))} cannot be read or written" in message
            assert contents(home) == before
        list(maintenance.RotateKey(pb.RotateKeyRequest(data_key=True), timeout=SECONDS))
        assert contents(home).keys() == before.keys()
        assert process.stop() == 0
    with serving(home, environment=encrypted(mode)) as process:
        assert process.stop() == 0


def test_a_restore_that_does_not_fit_leaves_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_of(home) as stub:
        Store(stub, NAMESPACE).add("stays")
    backup = home.parent / "backup.db"
    shutil.copy(database(home), backup)

    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:PAGE_SIZE])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    before = contents(home)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        restoring.restore(database(home), backup, DIMENSIONS)
    assert contents(home) == before


# ---------------------------------------------------------------------------------------------- what cannot be written


@pytest.fixture
def stopped(home: Path) -> Path:
    """A home whose store has a memory, and is not served."""
    with stub_of(home) as stub:
        Store(stub, NAMESPACE).add("stays")
    return home


def test_a_file_that_cannot_be_written_is_refused_as_it_is(stopped: Path) -> None:
    path = database(stopped)
    path.chmod(0o400)
    assert_not_started(stopped, str(path), "cannot be written", "mode", powerless=True)
    assert path.stat().st_mode & 0o777 == 0o400
    path.chmod(0o600)
    with stub_of(stopped) as stub:
        assert Store(stub, NAMESPACE).listed() == ["stays"]


@pytest.mark.parametrize("owned_before", [False, True])
def test_a_directory_that_cannot_be_written_is_refused(stopped: Path, *, owned_before: bool) -> None:
    path = database(stopped)
    if not owned_before:
        path.with_suffix(".lock").unlink()
    before = contents(stopped)
    path.parent.chmod(0o500)
    ended = run("-c", OPEN, str(path), home=stopped, powerless=True)
    path.parent.chmod(0o700)
    assert ended.returncode == 1
    assert str(path) in ended.stderr
    assert "READ_ONLY" in ended.stderr or "CANNOT_OPEN" in ended.stderr
    assert contents(stopped) == before


# --------------------------------------------------------------------------------------------------------- damage


def damage(path: Path, content: bytes) -> None:
    """Overwrites the page that has the content."""
    data = path.read_bytes()
    assert data.count(content) == 1
    page = data.index(content) // PAGE_SIZE
    with path.open("r+b") as file:
        file.seek(page * PAGE_SIZE)
        file.write(b"\xa5" * PAGE_SIZE)


@pytest.fixture
def backup(home: Path) -> Path:
    """A backup of the store, which has three memories, each of many pages."""
    with serving(home) as process, connected(process) as stub, maintaining(process) as maintenance:
        store = Store(stub, NAMESPACE)
        for number in range(3):
            store.add(f"{'x' * 30_000}marker-{number}{'y' * 30_000}", near(0.1 + number / 10))
        parts = list(maintenance.Backup(pb.BackupRequest(), timeout=SECONDS))
        assert process.stop() == 0
    file = home.parent / parts[0].header.name
    file.write_bytes(b"".join(part.chunk for part in parts))
    return file


def test_a_damaged_page_is_told_by_those_who_meet_it_alone(home: Path, backup: Path) -> None:
    path = database(home)
    damage(path, struct.pack("<2e", 0.1, math.sqrt(1 - 0.1**2)) + bytes(16))
    with serving(home) as process, connected(process) as stub, maintaining(process) as maintenance:
        store = Store(stub, NAMESPACE)
        for told in (str(path), f"hippovault verify --home {home}`", f"hippovault restore --home {home}`"):
            with refused(Code.DATA_LOSS, reason="CORRUPT", message=told):
                store.compare(near(0.5))
        assert len(store.listed()) == 3
        found = {answer.check: answer for answer in maintenance.Verify(pb.VerifyRequest(), timeout=SECONDS)}
        assert found["integrity"].wrong
        assert any("restore" in problem for problem in found["integrity"].problems)
        assert process.popen.poll() is None
        assert process.stop() == 0
    restoring.restore(path, backup, DIMENSIONS)
    with stub_of(home) as stub:
        assert len(Store(stub, NAMESPACE).listed()) == 3


def test_a_truncated_file_is_refused(stopped: Path) -> None:
    path = database(stopped)
    os.truncate(path, path.stat().st_size // 2 // PAGE_SIZE * PAGE_SIZE)
    assert_not_started(stopped, str(path), "damaged", f"hippovault restore --home {stopped}`")


def test_a_file_of_a_few_bytes_is_refused(stopped: Path) -> None:
    path = database(stopped)
    os.truncate(path, 50)
    assert_not_started(stopped, str(path), "not a SQLite database")


# ------------------------------------------------------------------------------------------------ another file's log


def killed_with_a_log(home: Path, *texts: str) -> None:
    with serving(home) as process, connected(process) as stub:
        for text in texts:
            Store(stub, NAMESPACE).add(text)
        process.kill()
    assert log_of(home).stat().st_size


def test_the_log_of_another_store_is_refused(stopped: Path) -> None:
    other = stopped.parent / "other"
    killed_with_a_log(other, "theirs")
    shutil.copy(log_of(other), log_of(stopped))
    assert_not_started(stopped, str(log_of(stopped)), "another database", "move it away")
    log_of(stopped).unlink()
    with stub_of(stopped) as stub:
        assert Store(stub, NAMESPACE).listed() == ["stays"]


def test_a_log_left_beside_a_backup_that_was_copied_into_place_is_refused(home: Path, backup: Path) -> None:
    killed_with_a_log(home, *map(large, range(5)))
    shutil.copy(backup, database(home))
    assert_not_started(home, str(log_of(home)), "another database")


def test_a_log_that_does_not_fit_its_file_is_refused(home: Path, backup: Path) -> None:
    """The number of file and log is the same, as when a store's own older copy is put back."""
    older = backup.with_suffix(".older")
    shutil.copy(database(home), older)
    with stub_of(home) as stub:
        for number in range(20):
            Store(stub, NAMESPACE).add(large(number))
    killed_with_a_log(home, "last")
    shutil.copy(older, database(home))
    assert_not_started(home, str(database(home)), "damaged")


def test_its_own_log_is_taken_in(home: Path, backup: Path) -> None:
    killed_with_a_log(home, "last")
    assert backup.exists()
    with stub_of(home) as stub:
        assert "last" in Store(stub, NAMESPACE).listed()
    assert_whole(database(home))
