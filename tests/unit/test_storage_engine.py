"""The SQLite engine without a process: group commit, full disks, deadlines, and connections given back clean."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub, add_StorageServiceServicer_to_server
from hippovault_chassis import deadline, serving
from hippovault_chassis.errors import ServiceError
from hippovault_storage import capacity
from hippovault_storage.servicer import NAME, StorageServicer
from hippovault_storage.sqlite import adoption, connections, query, records, scope, writes
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.vault import PLAIN
from support.storage import DIMENSIONS, Code, near, opened, vector

READERS = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    with SqliteEngine.open(path, DIMENSIONS, READERS) as opened:
        yield opened


def request(content: str, embedded: bytes | None = None) -> pb.PutMemoryRequest:
    memory = memory_pb2.Memory(namespace="n", content=content)
    return pb.PutMemoryRequest(memory=memory, vectors=embedded or vector(1))


def put(engine: SqliteEngine, content: str, embedded: bytes | None = None) -> memory_pb2.Memory:
    return engine.put_memory(request(content, embedded)).memory


def lined_up(engine: SqliteEngine, contents: Iterable[str]) -> list[Future[pb.PutMemoryResponse]]:
    """Puts in line behind what the writer does."""

    def later(content: str) -> Future[pb.PutMemoryResponse]:
        return engine._writer.submit(lambda connection: writes.put(connection, request(content)))

    return [later(content) for content in contents]


def count(engine: SqliteEngine) -> int:
    return engine.get_stats(pb.GetStatsRequest()).live_memories


def held(engine: SqliteEngine) -> Callable[[], None]:
    """Keeps the writer's thread busy; returns what lets it go."""
    entered, released = threading.Event(), threading.Event()

    def hold(_: apsw.Connection) -> None:
        entered.set()
        assert released.wait(30)

    engine._writer.submit(hold)
    assert entered.wait(30)
    return released.set


def denying(statement: str) -> Callable[..., int]:
    """An authorizer under which SQLite refuses a statement, which fails it in earnest."""

    def authorize(operation: int, name: str | None, *_: object) -> int:
        denied = operation == apsw.SQLITE_TRANSACTION and name == statement
        return apsw.SQLITE_DENY if denied else apsw.SQLITE_OK

    return authorize


# ----------------------------------------------------------------------------------------------------- group commit


def test_writes_that_wait_together_are_committed_together(engine: SqliteEngine) -> None:
    commits = threading.Semaphore(0)

    def committing() -> bool:
        commits.release()
        return False

    release = held(engine)
    engine._writer._connection.set_commit_hook(committing)
    waiting = lined_up(engine, [f"memory {n}" for n in range(12)])
    release()
    assert len({write.result().memory.id for write in waiting}) == 12
    assert [commits.acquire(blocking=False) for _ in range(3)] == [True, True, False]  # What held it, then the twelve.


def test_a_write_that_fails_undoes_itself_alone(engine: SqliteEngine) -> None:
    def fail(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO metadata (key, value) VALUES ('half', 'done')")
        raise ServiceError.invalid("field", "is wrong")

    release = held(engine)
    good = lined_up(engine, [f"memory {n}" for n in range(4)])
    bad = engine._writer.submit(fail)
    good += lined_up(engine, [f"more {n}" for n in range(4)])
    release()
    with pytest.raises(ServiceError, match="field: is wrong"):
        bad.result()
    assert len({write.result().memory.id for write in good}) == 8
    assert count(engine) == 8
    with engine._readers.borrow() as connection:
        assert query.value(connection, "SELECT count(*) FROM metadata") == 0


def test_too_many_waiting_writes_are_refused(engine: SqliteEngine) -> None:
    release = held(engine)
    waiting = lined_up(engine, [f"memory {n}" for n in range(capacity.MAX_WRITES - 1)])
    with pytest.raises(ServiceError) as refused:
        put(engine, "one more")
    assert (refused.value.code, refused.value.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_WRITES")
    assert str(capacity.MAX_WRITES) in refused.value.message
    assert count(engine) == 0  # Reads go on.
    release()
    assert all(write.result().memory.id for write in waiting)
    assert put(engine, "one more").id


def test_a_write_that_waits_beyond_its_deadline_does_not_happen(engine: SqliteEngine) -> None:
    def late() -> memory_pb2.Memory:
        deadline.start(0.05)
        return put(engine, "late")

    release = held(engine)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ServiceError) as ended:
        pool.submit(late).result()
    release()
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    put(engine, "in time")
    assert count(engine) == 1


def test_a_rollback_that_fails_is_tried_again_before_the_next_write(engine: SqliteEngine) -> None:
    def fail(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO metadata (key, value) VALUES ('half', 'done')")
        connection.authorizer = denying("ROLLBACK")
        raise ServiceError.invalid("field", "is wrong")

    with pytest.raises(ServiceError, match="field: is wrong"):
        engine._writer.run(fail)
    with pytest.raises(apsw.AuthError):
        put(engine, "while it fails")
    engine._writer._connection.authorizer = None
    assert put(engine, "after").id
    assert count(engine) == 1
    with engine._readers.borrow() as connection:
        assert query.value(connection, "SELECT count(*) FROM metadata") == 0


def test_a_closed_store_says_so_at_once(path: Path) -> None:
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        put(engine, "text")
    for use in (lambda: put(engine, "more"), lambda: count(engine)):
        for _ in range(READERS + 1):
            with pytest.raises(ServiceError) as refused:
                use()
            assert (refused.value.code, refused.value.reason) == (Code.UNAVAILABLE, "CLOSED")


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


def test_too_many_waiting_reads_are_refused(engine: SqliteEngine) -> None:
    for _ in range(capacity.MAX_READS):
        engine._readers._places.take()
    reads: list[Callable[[], object]] = [
        lambda: count(engine),
        lambda: engine.search_memories(
            pb.SearchMemoriesRequest(namespace="n", dense=pb.DenseArm(vector=vector(1), k=1))
        ),
        lambda: engine.delete_memory(
            pb.DeleteMemoryRequest(namespace="n", ref=memory_pb2.MemoryRef(id=1), dry_run=True)
        ),
    ]
    for read in reads:
        with pytest.raises(ServiceError) as refused:
            read()
        assert (refused.value.code, refused.value.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_READS")
        assert str(capacity.MAX_READS) in refused.value.message
    assert put(engine, "text").id  # Writes go on.
    engine._readers._places.give_back()
    assert count(engine) == 1
    assert count(engine) == 1  # A read that ended has given its place back.


def test_a_flood_of_reads_stops_neither_writes_nor_health(engine: SqliteEngine) -> None:
    service = serving.Service(NAME, StorageServicer(engine), add_StorageServiceServicer_to_server)
    answered = threading.Semaphore(0)
    with (
        serving.sync_server("127.0.0.1:0", [service], capacity.THREADS) as bound,
        grpc.insecure_channel(bound) as channel,
    ):
        stub = StorageServiceStub(channel)
        with engine._readers.borrow(), engine._readers.borrow():  # All connections are lent.
            flood = [stub.GetStats.future(pb.GetStatsRequest(), timeout=60) for _ in range(capacity.MAX_READS)]
            for call in flood:
                call.add_done_callback(lambda _: answered.release())
            for _ in range(READERS):  # So many too many.
                assert answered.acquire(timeout=30)
            assert stub.PutMemory(request("text"), timeout=30).memory.id
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
        codes = [call.code() for call in flood]
    assert codes.count(Code.RESOURCE_EXHAUSTED) == READERS
    assert codes.count(Code.OK) == capacity.MAX_READS - READERS


def close_it(connection: apsw.Connection) -> None:
    connection.close()


def deny_rollback(connection: apsw.Connection) -> None:
    connection.authorizer = denying("ROLLBACK")


@pytest.mark.parametrize("break_it", [close_it, deny_rollback])
def test_a_broken_connection_is_replaced(path: Path, break_it: Callable[[apsw.Connection], None]) -> None:
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        put(engine, "text")
        for _ in range(READERS + 1):
            with engine._readers.borrow() as connection:
                break_it(connection)
            assert count(engine) == 1
        with engine._readers.borrow(), engine._readers.borrow():
            pass  # All of them are there.


def test_a_broken_connection_that_cannot_be_replaced_is_given_back(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> apsw.Connection:
        raise apsw.CantOpenError("as SQLite words it")

    with monkeypatch.context() as patch:
        patch.setattr(connections, "connect_reader", refuse)
        with engine._readers.borrow() as connection:
            connection.close()
        for _ in range(READERS + 1):  # The last one used is the next one lent.
            with pytest.raises(apsw.ConnectionClosedError):
                count(engine)
    with pytest.raises(apsw.ConnectionClosedError):
        count(engine)
    assert [count(engine) for _ in range(READERS + 1)] == [0] * (READERS + 1)


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
        assert [c and c.txn_state() for c in engine._readers._idle.queue] == [apsw.SQLITE_TXN_NONE] * READERS


def test_closing_waits_for_reads_and_writes(path: Path) -> None:
    lent, left, released = threading.Event(), threading.Event(), threading.Event()
    written: list[Future[pb.PutMemoryResponse]] = []

    def read_slowly(engine: SqliteEngine) -> int:
        with engine._readers.borrow() as connection:
            lent.set()
            assert released.wait(30)
            return int(query.value(connection, "SELECT count(*) FROM memories"))

    def open_and_close(pool: ThreadPoolExecutor) -> Future[int]:
        with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
            put(engine, "first")
            reading = pool.submit(read_slowly, engine)
            assert lent.wait(30)
            release = held(engine)
            written.extend(lined_up(engine, [f"memory {n}" for n in range(3)]))
            release()
            left.set()
        return reading

    with ThreadPoolExecutor(2) as pool:
        closing = pool.submit(open_and_close, pool)
        assert left.wait(30)
        assert not closing.done()
        released.set()
        assert closing.result().result() > 0
    assert all(write.done() and write.result().memory.id for write in written)
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


def test_ids_that_another_program_used_up_are_told_as_that(path: Path) -> None:
    with SqliteEngine.open(path, DIMENSIONS, READERS):
        pass
    with opened(path) as other:
        sql = "INSERT INTO memories (id, content_hash, content) VALUES (?, 'hash', 'text')"
        other.execute(sql, (2**63 - 1,))
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        with pytest.raises(ServiceError) as told:
            put(engine, "more")
        assert (told.value.code, told.value.reason) == (Code.FAILED_PRECONDITION, "IDS_EXHAUSTED")
        assert str(path) in told.value.message
        assert count(engine) == 1


def test_a_full_disk_fails_every_write_of_the_group_and_no_other(engine: SqliteEngine) -> None:
    limit_pages(engine, 1)
    release = held(engine)
    waiting = lined_up(engine, [f"{n} " + "x" * 60_000 for n in range(12)])
    release()
    failures = [error for write in waiting if (error := write.exception())]
    assert failures
    assert all(isinstance(error, apsw.FullError) for error in failures)
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


def test_a_lock_of_another_program_is_told_soon(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_MILLISECONDS", 300)
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine, opened(path) as other, ThreadPoolExecutor(8) as pool:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        waiting = [pool.submit(put, engine, f"memory {n}") for n in range(8)]
        failures = [write.exception(30) for write in waiting]
        # One wait for those that came first, one for those that came during it; not one for each.
        assert 0.3 <= time.monotonic() - began < 0.3 * 5
        for failure in failures:
            assert isinstance(failure, ServiceError)
            assert (failure.code, failure.reason) == (Code.UNAVAILABLE, "LOCKED")
            assert str(path) in failure.message
        assert count(engine) == 0
        other.execute("ROLLBACK")
        assert put(engine, "after").id


def test_a_reader_cannot_write(engine: SqliteEngine) -> None:
    with pytest.raises(ServiceError) as refused, engine._readers.borrow() as connection:
        connection.execute("DELETE FROM memories")
    assert refused.value.code is Code.FAILED_PRECONDITION


# ------------------------------------------------------------------------------------------------------- the rest


def test_the_writers_pragmas_hold(engine: SqliteEngine) -> None:
    expected = {"journal_mode": "wal", "synchronous": 2, "page_size": 8192, "trusted_schema": 0, "secure_delete": 1}
    found = engine._writer.run(lambda connection: {name: connection.pragma(name) for name in expected})
    assert found == expected


def test_the_readers_pragmas_hold(engine: SqliteEngine) -> None:
    with engine._readers.borrow() as connection:
        assert connection.pragma("query_only") == 1
        assert connection.pragma("cache_size") == -8_192
        assert connection.pragma("mmap_size") == 2**29


def plan(
    engine: SqliteEngine,
    conditions: memory_pb2.Filter,
    visibility: memory_pb2.Visibility.ValueType = memory_pb2.VISIBILITY_LIVE,
) -> str:
    within = scope.visible(PLAIN, "n", conditions, visibility)
    listing = (
        f"EXPLAIN QUERY PLAN SELECT h.memory_id FROM hippo_memories h WHERE {within.condition} "  # noqa: S608
        "ORDER BY h.created_at DESC, h.memory_id DESC"
    )
    with engine._readers.borrow() as connection:
        return str(query.rows(connection, listing, within.parameters))


def test_scopes_are_answered_from_the_side_table_alone(engine: SqliteEngine) -> None:
    """No scope may read the wide rows: that is what the side table is for."""
    bare = plan(engine, memory_pb2.Filter())
    assert "COVERING INDEX hippo_memories_newest" in bare
    assert "TEMP B-TREE" not in bare
    since, two = Timestamp(seconds=1), ["a", "b"]
    timed = memory_pb2.Filter(created_since=since, created_before=since)
    assert "COVERING INDEX hippo_memories_newest" in plan(engine, timed)
    named = memory_pb2.Filter(tags_any=two, tags_all=two, memory_types=two, categories=two, created_since=since)
    full = plan(engine, named)
    assert "hippo_tags" in full
    assert not re.search(r"\b(SCAN|SEARCH) (m|memories)\b", full)


@pytest.mark.parametrize("visibility", [memory_pb2.VISIBILITY_ALL, memory_pb2.VISIBILITY_DELETED])
def test_no_page_sorts_all_that_there_is(engine: SqliteEngine, visibility: memory_pb2.Visibility.ValueType) -> None:
    assert "TEMP B-TREE" not in plan(engine, memory_pb2.Filter(), visibility)


@pytest.mark.parametrize("embedded", [5, 3])
def test_the_newest_are_those_that_have_a_vector(engine: SqliteEngine, embedded: int) -> None:
    for n in range(6):
        put(engine, f"memory {n}", near(n / 10))
    engine._writer.run(
        lambda connection: connection.execute("DELETE FROM hippo_vectors WHERE memory_id > ?", (embedded,))
    )
    compared = pb.CompareToNewestRequest(namespace="n", vector=vector(1), newest=2)
    expected = [(embedded - 1) / 10, (embedded - 2) / 10]
    assert engine.compare_to_newest(compared).cosine_similarities == pytest.approx(expected, abs=3e-4)


def test_a_place_without_a_write_ahead_log_is_refused(path: Path) -> None:
    # Under this locking SQLite has no shared memory, as on a network's file system.
    connection = connections.Connection(str(path), vfs="unix-dotfile")
    with pytest.raises(ServiceError) as refused:
        connections.prepare_writer(connection, path)
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert refused.value.reason == "NO_WRITE_AHEAD_LOG"
    assert str(path) in refused.value.message
    connection.close()


def test_adoption_goes_on_where_it_was_cut_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        ids = [put(engine, f"memory {n}").id for n in range(7)]
        engine._writer.run(lambda connection: query.rows(connection, "UPDATE memories SET updated_at = updated_at + 1"))
    read: list[int] = []
    whole = adoption._read

    def read_three(connection: connections.Connection, chunk: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        if len(read) == 4:
            raise apsw.IOError("as SQLite words it")
        read.extend(chunk)
        return whole(connection, chunk)

    monkeypatch.setattr(adoption, "CHUNK", 2)
    monkeypatch.setattr(adoption, "_read", read_three)
    with pytest.raises(ServiceError), SqliteEngine.open(path, DIMENSIONS, READERS):
        pass
    assert read == ids[:4]
    read.clear()
    with SqliteEngine.open(path, DIMENSIONS, READERS) as engine:
        assert read == ids[4:]
        assert count(engine) == 7


def test_split_tags_takes_what_other_programs_write() -> None:
    assert records.split_tags(None) == []
    assert records.split_tags(" a, b,,a ,") == ["a", "b"]
    assert records.join_tags(["a", "b"]) == "a,b"
    assert records.join_tags([]) is None
