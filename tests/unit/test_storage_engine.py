"""The SQLite engine without a process: group commit, full disks, deadlines, and connections given back clean."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import grpc
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, query, records, search
from hippovault_storage.sqlite.engine import SqliteEngine
from support.storage import DIMENSIONS, Code, near, vector

READERS = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    with SqliteEngine.open(path, DIMENSIONS, READERS) as opened:
        yield opened


def put(engine: SqliteEngine, content: str, embedded: bytes | None = None) -> memory_pb2.Memory:
    memory = memory_pb2.Memory(namespace="n", content=content)
    return engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=embedded or vector(1))).memory


def count(engine: SqliteEngine) -> int:
    return engine.get_stats(pb.GetStatsRequest()).live_memories


def held(engine: SqliteEngine, pool: ThreadPoolExecutor) -> Callable[[], None]:
    """Keeps the writer's thread busy; returns what lets it go."""
    entered, released = threading.Event(), threading.Event()

    def hold(_: apsw.Connection) -> None:
        entered.set()
        assert released.wait(30)

    pool.submit(engine._writer.run, hold)
    assert entered.wait(30)
    return released.set


# ----------------------------------------------------------------------------------------------------- group commit


def test_writes_that_wait_together_are_committed_together(engine: SqliteEngine) -> None:
    commits = threading.Semaphore(0)

    def committing() -> bool:
        commits.release()
        return False

    with ThreadPoolExecutor(16) as pool:
        release = held(engine, pool)
        engine._writer._connection.set_commit_hook(committing)
        waiting = [pool.submit(put, engine, f"memory {n}") for n in range(12)]
        wait_for(lambda: engine._writer._queue.qsize() == 12)
        release()
        assert len({write.result().id for write in waiting}) == 12
    assert [commits.acquire(blocking=False) for _ in range(3)] == [True, True, False]  # What held it, then the twelve.


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for threads of this process, which have nothing to announce themselves by."""
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def test_a_write_that_fails_undoes_itself_alone(engine: SqliteEngine) -> None:
    def fail(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO metadata (key, value) VALUES ('half', 'done')")
        raise ServiceError.invalid("field", "is wrong")

    with ThreadPoolExecutor(16) as pool:
        release = held(engine, pool)
        good = [pool.submit(put, engine, f"memory {n}") for n in range(4)]
        bad = pool.submit(engine._writer.run, fail)
        more = [pool.submit(put, engine, f"more {n}") for n in range(4)]
        release()
        with pytest.raises(ServiceError, match="field: is wrong"):
            bad.result()
        assert len({write.result().id for write in [*good, *more]}) == 8
    assert count(engine) == 8
    with engine._readers.borrow() as connection:
        assert query.value(connection, "SELECT count(*) FROM metadata") == 0


def test_too_many_waiting_writes_are_refused(engine: SqliteEngine) -> None:
    with ThreadPoolExecutor(connections.MAX_PENDING_WRITES) as pool:
        release = held(engine, pool)
        waiting = [pool.submit(put, engine, f"memory {n}") for n in range(connections.MAX_PENDING_WRITES - 1)]
        wait_for(lambda: engine._writer._queue.qsize() == len(waiting))
        with pytest.raises(ServiceError) as refused:
            put(engine, "one more")
        assert refused.value.code is Code.RESOURCE_EXHAUSTED
        assert count(engine) == 0  # Reads go on.
        release()
        assert all(write.result().id for write in waiting)
    assert put(engine, "one more").id


def test_a_write_that_waits_beyond_its_deadline_does_not_happen(engine: SqliteEngine) -> None:
    def late() -> memory_pb2.Memory:
        deadline.start(0.05)
        return put(engine, "late")

    with ThreadPoolExecutor(4) as pool:
        release = held(engine, pool)
        with pytest.raises(ServiceError) as ended:
            pool.submit(late).result()
        release()
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    put(engine, "in time")
    assert count(engine) == 1


# ------------------------------------------------------------------------------------------------------------ reads


def test_a_read_that_waits_beyond_its_deadline_says_so(engine: SqliteEngine) -> None:
    def late() -> int:
        deadline.start(0.05)
        return count(engine)

    with engine._readers.borrow(), engine._readers.borrow(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ServiceError) as ended:
            pool.submit(late).result()
        assert ended.value.code is Code.DEADLINE_EXCEEDED
    assert count(engine) == 0


def test_no_read_leaves_its_connection_at_an_old_moment(engine: SqliteEngine) -> None:
    for n in range(5):
        put(engine, f"memory {n}", near(n / 10))
    unknown = memory_pb2.MemoryRef(id=999)
    known = memory_pb2.MemoryRef(id=1)
    dense, keyword = pb.DenseArm(vector=vector(1), k=2), pb.KeywordArm(query="memory", k=2)
    reads: list[Callable[[], object]] = [
        lambda: engine.get_memory(pb.GetMemoryRequest(namespace="n", ref=known)),
        lambda: engine.get_memory(pb.GetMemoryRequest(namespace="n", ref=unknown)),
        lambda: engine.find_memory(pb.FindMemoryRequest(namespace="n", content="memory 1")),
        lambda: engine.list_memories(pb.ListMemoriesRequest(namespace="n", page_size=2)),
        lambda: engine.list_memories(pb.ListMemoriesRequest(namespace="n", page_size=2, page_token="x")),
        lambda: engine.delete_memory(pb.DeleteMemoryRequest(namespace="n", ref=known, dry_run=True)),
        lambda: engine.search_memories(pb.SearchMemoriesRequest(namespace="n", dense=dense, keyword=keyword)),
        lambda: engine.compare_to_newest(pb.CompareToNewestRequest(namespace="n", vector=vector(1), newest=2)),
        lambda: engine.summarize_memories(pb.SummarizeMemoriesRequest(namespace="n", top_tags=1, highlights=1)),
        lambda: engine.get_stats(pb.GetStatsRequest()),
    ]
    for read in reads:
        for _ in range(2):
            with contextlib.suppress(ServiceError):  # Two of them fail, which must leave nothing behind either.
                read()
        assert [c.txn_state() for c in engine._readers._idle.queue] == [apsw.SQLITE_TXN_NONE] * READERS


def test_closing_waits_for_reads_and_writes(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        lent, released = threading.Event(), threading.Event()

        def read_slowly(engine: SqliteEngine) -> int:
            with engine._readers.borrow() as connection:
                lent.set()
                assert released.wait(30)
                return int(query.value(connection, "SELECT count(*) FROM memories"))

        def open_and_close() -> None:
            with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
                put(engine, "first")
                reading.append(pool.submit(read_slowly, engine))
                assert lent.wait(30)
                release = held(engine, pool)
                writing.extend(pool.submit(put, engine, f"memory {n}") for n in range(3))
                wait_for(lambda: engine._writer._queue.qsize() == 3)
                release()

        reading: list[object] = []
        writing: list[object] = []
        closing = pool.submit(open_and_close)
        assert lent.wait(30)
        assert not closing.done()
        released.set()
        closing.result()
        for outcome in [*reading, *writing]:
            assert outcome.result()  # type: ignore[attr-defined]
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        assert count(engine) == 4


# ------------------------------------------------------------------------------------------------- a failing store


def limit_pages(engine: SqliteEngine, pages: int) -> None:
    engine._writer.run(lambda connection: query.value(connection, f"PRAGMA max_page_count = {pages}"))


def fill(engine: SqliteEngine) -> None:
    for n in range(50):
        put(engine, f"{n} " + "x" * 60_000)


def test_a_full_disk_is_told_and_heals(engine: SqliteEngine, path: Path) -> None:
    kept = put(engine, "kept")
    limit_pages(engine, 1)
    # A few still fit into the pages that are there.
    with pytest.raises(ServiceError) as full:
        fill(engine)
    assert full.value.code is Code.RESOURCE_EXHAUSTED
    assert str(path) in full.value.message
    stored = count(engine)
    limit_pages(engine, 1_000_000)
    assert put(engine, "after").id > kept.id
    assert count(engine) == stored + 1


def test_a_full_disk_fails_every_write_of_the_group_and_no_other(engine: SqliteEngine) -> None:
    limit_pages(engine, 1)
    with ThreadPoolExecutor(16) as pool:
        release = held(engine, pool)
        writes = [pool.submit(put, engine, f"{n} " + "x" * 60_000) for n in range(12)]
        wait_for(lambda: engine._writer._queue.qsize() == 12)
        release()
        failures = [error for write in writes if (error := write.exception())]
    assert failures
    assert all(isinstance(error, ServiceError) and error.reason == "DISK_FULL" for error in failures)
    assert count(engine) == 12 - len(failures)
    limit_pages(engine, 1_000_000)
    assert put(engine, "after").id


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (apsw.CorruptError, grpc.StatusCode.DATA_LOSS),
        (apsw.NotADBError, grpc.StatusCode.DATA_LOSS),
        (apsw.ReadOnlyError, grpc.StatusCode.FAILED_PRECONDITION),
        (apsw.IOError, grpc.StatusCode.UNAVAILABLE),
        (apsw.BusyError, grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_a_failure_of_the_file_names_it(
    engine: SqliteEngine, path: Path, fault: type[apsw.Error], code: grpc.StatusCode
) -> None:
    def fail(_: apsw.Connection) -> None:
        raise fault("as SQLite words it")

    with pytest.raises(ServiceError) as told:
        engine._writer.run(fail)
    assert told.value.code is code
    assert str(path) in told.value.message
    assert put(engine, "after").id


def test_a_reader_cannot_write(engine: SqliteEngine) -> None:
    with pytest.raises(ServiceError) as refused, engine._readers.borrow() as connection:
        connection.execute("DELETE FROM memories")
    assert refused.value.code is Code.FAILED_PRECONDITION


# ----------------------------------------------------------------------------------------------------------- search


def nearest(engine: SqliteEngine, k: int) -> list[tuple[int, str, float]]:
    request = pb.SearchMemoriesRequest(namespace="n", dense=pb.DenseArm(vector=vector(1), k=k))
    hits = sorted(engine.search_memories(request).hits, key=lambda hit: hit.dense.rank)
    return [(hit.dense.rank, hit.memory.content, hit.dense.score) for hit in hits]


def test_both_ways_to_find_the_nearest_agree_in_every_rank(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(120):
        put(engine, f"memory {n}", near((n * 7 % 40) / 40))  # Three of each: the k-th place is often shared.
    for k in (1, 2, 3, 50, 119, 120, 121, 4095, 4096, 100_000):
        monkeypatch.setattr(search, "SCAN_COST", 1)  # All is small.
        scanned = nearest(engine, k)
        monkeypatch.setattr(search, "SCAN_COST", 1_000_000)  # Nothing is.
        assert nearest(engine, k) == scanned
        assert len(scanned) == min(k, 120)


# ------------------------------------------------------------------------------------------------------- the rest


def test_an_answer_beyond_all_bounds_is_refused(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MIN_LARGE_ANSWER", 2)
    monkeypatch.setattr(search, "MAX_ANSWER_BYTES", 1_000)
    for n in range(2):
        put(engine, f"{n} " + "x" * 600)
    request = pb.SearchMemoriesRequest(namespace="n", dense=pb.DenseArm(vector=vector(1), k=10))
    with pytest.raises(ServiceError) as refused:
        engine.search_memories(request)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    request.dense.k = 1
    assert len(engine.search_memories(request).hits) == 1


def test_the_writers_pragmas_hold(engine: SqliteEngine) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "page_size": 8192, "trusted_schema": 0, "secure_delete": 2}
    found = engine._writer.run(lambda connection: {name: connection.pragma(name) for name in expected})
    assert found == expected


def test_scopes_are_answered_from_the_side_table_alone(engine: SqliteEngine) -> None:
    """No scope may read the wide rows: that is what the side table is for."""
    with engine._readers.borrow() as connection:
        plan = query.rows(
            connection,
            "EXPLAIN QUERY PLAN SELECT h.memory_id FROM hippo_memories h "
            "WHERE h.namespace = ? AND h.deleted_at IS NULL ORDER BY h.created_at DESC, h.memory_id DESC",
            ("n",),
        )
    assert "COVERING INDEX hippo_memories_newest" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


def test_split_tags_takes_what_other_programs_write() -> None:
    assert records.split_tags(None) == []
    assert records.split_tags(" a, b,,a ,") == ["a", "b"]
    assert records.join_tags(["a", "b"]) == "a,b"
    assert records.join_tags([]) is None
