"""kill -9 of the storage process in the midst of all that it writes.

Every acknowledged write is there afterwards, none is half there, and the store finds itself whole.
HIPPOVAULT_TEST_KILLS multiplies the kills, and lets chance decide when they come.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from support.killing import ends_with_the_process, killed_after
from support.processes import Process, launch
from support.storage import (
    SECONDS,
    Store,
    assert_clean,
    at,
    connected,
    database,
    encrypted,
    in_process,
    maintaining,
    near,
    opened,
    rows,
    serving,
    write_fixture,
)
from support.tokens import NAMESPACE, Journal, State, all_memories, cosine, memory, stored, writing

TIMES = int(os.environ.get("HIPPOVAULT_TEST_KILLS", "0"))
"""0: once, with the same numbers in every run."""
ROUNDS = TIMES or 1
WRITERS = 6

IMPORTED = {f"k{number}": State(number, 1) for number in range(300)}
Work = Callable[[MaintenanceServiceStub], None]

pytestmark = pytest.mark.timeout(0 if TIMES else 120)


@pytest.fixture
def random() -> Random:
    return Random() if TIMES else Random(1)  # noqa: S311  # No secret.


@contextmanager
def store_of(home: Path, mode: str = "off") -> Iterator[tuple[Process, Store, MaintenanceServiceStub]]:
    """A process over a store that finds itself whole."""
    with (
        serving(home, environment=encrypted(mode)) as process,
        connected(process) as stub,
        maintaining(process) as keeper,
    ):
        assert_clean(process)
        yield process, Store(stub, NAMESPACE), keeper


def write_and_kill(home: Path, mode: str, random: Random, kills: int, work: Work | None = None) -> None:
    """Kills the process so often while writers write and it is at work, and looks at the store after each time."""
    journal = Journal()
    if work:
        with store_of(home, mode) as (_, _, keeper):
            keeper.ImportMemories(import_requests(IMPORTED), timeout=SECONDS)
        journal.acknowledged.update(IMPORTED)
    for _ in range(kills * ROUNDS):
        with store_of(home, mode) as (process, store, keeper):
            journal.check(store)
            with ThreadPoolExecutor(1) as pool, writing(store, journal, random, WRITERS):
                working = pool.submit(work, keeper) if work else None
                try:
                    for _ in range(random.randrange(5, 60)):
                        assert journal.answers.acquire(timeout=60)
                finally:
                    process.kill()
            if working:
                working.result()
    with store_of(home, mode) as (_, store, _):
        journal.check(store)


@pytest.mark.parametrize(("mode", "kills"), [("off", 8), ("values", 4), ("file", 4)])
def test_no_acknowledged_write_is_lost_and_none_is_half_there(
    home: Path, random: Random, mode: str, kills: int
) -> None:
    write_and_kill(home, mode, random, kills)


def reindex(keeper: MaintenanceServiceStub) -> None:
    with ends_with_the_process():
        while True:
            list(keeper.Reindex(maintenance_pb2.ReindexRequest(), timeout=SECONDS))


def rotate(keeper: MaintenanceServiceStub) -> None:
    with ends_with_the_process():
        while True:
            list(keeper.RotateKey(maintenance_pb2.RotateKeyRequest(data_key=True), timeout=SECONDS))


@pytest.mark.parametrize(
    ("mode", "work"), [("off", reindex), ("values", reindex), ("values", rotate), ("file", rotate)]
)
def test_writes_beside_work_on_the_whole_store_survive_too(home: Path, random: Random, mode: str, work: Work) -> None:
    write_and_kill(home, mode, random, 2, work)


FOREIGN_ROWS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000)
INSERT INTO memories (content_hash, content, tags, memory_type, metadata, created_at, updated_at)
SELECT 'hash ' || n, 'foreign memory ' || n, 'tag ' || n, 'note', '{"n":' || n || '}', n, n FROM numbers
"""


@pytest.mark.parametrize("name", ["hippovault_1", "mcp_memory_service_12"])
def test_a_start_that_is_killed_is_made_up_for_by_a_later_one(home: Path, random: Random, name: str) -> None:
    path, whole = database(home), home.parent / "whole.db"
    path.parent.mkdir(parents=True, mode=0o700)
    write_fixture(path, name)
    with opened(path) as file:
        rows(file, FOREIGN_ROWS)
    shutil.copy(path, whole)
    for _ in range(4 * ROUNDS):
        popen = launch(["hippovault_storage"], home, home.parent / "storage.log")
        with killed_after(random.randrange(1, 300), path.parent, popen):
            popen.wait()
    with in_process(whole) as (stub, _):
        expected = list(all_memories(Store(stub, "default")))
    assert len(expected) > 3000
    with serving(home) as process, connected(process) as stub:
        assert list(all_memories(Store(stub, "default"))) == expected
        assert_clean(process)


@pytest.mark.parametrize("mode", ["values", "file"])
def test_a_first_start_that_is_killed_leaves_nothing_in_the_way(home: Path, random: Random, mode: str) -> None:
    database(home).parent.mkdir(parents=True, mode=0o700)
    for _ in range(2 * ROUNDS):
        popen = launch(["hippovault_storage"], home, home.parent / "storage.log", encrypted(mode))
        with killed_after(random.randrange(1, 30), database(home).parent, popen):
            popen.wait()
    with store_of(home, mode) as (_, store, _):
        assert stored(store) == {}


def test_an_import_that_is_killed_can_be_sent_again(home: Path, random: Random) -> None:
    for _ in range(4 * ROUNDS):
        with store_of(home) as (process, store, keeper):
            assert stored(store).items() <= IMPORTED.items()
            changes = random.randrange(1, 200)
            with killed_after(changes, database(home).parent, process.popen), ends_with_the_process():
                keeper.ImportMemories(import_requests(IMPORTED), timeout=SECONDS)
    with store_of(home) as (_, store, keeper):
        result = keeper.ImportMemories(import_requests(IMPORTED), timeout=SECONDS)
        assert (result.imported + result.kept, result.failed) == (len(IMPORTED), 0)
        assert stored(store) == IMPORTED


def import_requests(states: Mapping[str, State]) -> Iterator[maintenance_pb2.ImportMemoriesRequest]:
    for key, state in states.items():
        record = maintenance_pb2.MemoryRecord(memory=memory(key, state.token), vectors=near(cosine(state.token)))
        record.memory.version = state.version
        record.memory.created_at.CopyFrom(at(state.token))
        record.memory.updated_at.CopyFrom(at(state.token))
        yield maintenance_pb2.ImportMemoriesRequest(record=record)


def test_a_backup_that_is_killed_harms_nothing(home: Path, random: Random) -> None:
    for _ in range(2 * ROUNDS):
        with store_of(home) as (process, _, keeper):
            answers = keeper.Backup(maintenance_pb2.BackupRequest(), timeout=SECONDS)
            for _ in zip(range(random.randrange(3)), answers, strict=False):
                pass
            process.kill()
    with store_of(home):
        left = {path.name for path in database(home).parent.iterdir()}
        assert left == {database(home).with_suffix(suffix).name for suffix in (".db", ".db-wal", ".db-shm", ".lock")}


@pytest.mark.parametrize("mode", ["values", "file"])
def test_a_conversion_that_is_killed_leaves_a_whole_store(home: Path, random: Random, mode: str) -> None:
    with store_of(home) as (_, _, keeper):
        keeper.ImportMemories(import_requests(IMPORTED), timeout=SECONDS)
    for _ in range(ROUNDS):
        for command, after in (("encrypt", mode), ("decrypt", "off")):
            arguments = [f"hippovault_storage.{command}"], home, home.parent / "convert.log", encrypted(mode)
            for _ in range(2):
                popen = launch(*arguments)
                with killed_after(random.randrange(1, 100), database(home).parent, popen):
                    popen.wait()
            launch(*arguments).wait(SECONDS)
            with store_of(home, after) as (_, store, _):
                assert stored(store) == IMPORTED
