"""Readers beside writers: what is read of a memory is of one moment, and nobody reads on for a caller that has gone."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, query, search
from hippovault_storage.sqlite.engine import SqliteEngine
from support.storage import DIMENSIONS, Code, Memory, Store, near, stub_of

ResultT = TypeVar("ResultT")

MEMORIES, WRITES, WRITERS = 5, 15, 3
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def write(store: Store, writer: int) -> None:
    """Gives every memory other content, tags, hints, metadata and importance, all of one token."""
    for number in range(WRITES):
        token = f"w{writer}n{number}"
        for key in range(MEMORIES):
            store.add(
                f"steady {token} {key}",
                near(0.5),
                key=str(key),
                tags=["t", token],
                hints=[token],
                metadata=f'{{"token":"{token}"}}',
                memory_type=token,
                status=token,
            )


def assert_of_one_moment(memory: Memory) -> None:
    token = memory.content.split()[1]
    assert list(memory.tags) == ["t", token]
    assert list(memory.hints) == [token]
    assert memory.metadata == f'{{"token":"{token}"}}'
    assert (memory.memory_type, memory.status) == (token, token)


def read(store: Store, ended: threading.Event) -> int:
    """Reads in every way until the writers have ended; returns how many memories it saw."""
    seen = 0
    while not ended.is_set():
        for found in (
            store.page(tags_all=["t"]).memories,
            [hit.memory for hit in store.search(near(0.5), "steady", k=50).hits],
            [store.get_id(memory_id) for memory_id in range(1, MEMORIES + 1)],
        ):
            assert len(found) == MEMORIES
            for memory in found:
                assert_of_one_moment(memory)
            seen += len(found)
    return seen


def test_readers_see_no_torn_state(home: Path) -> None:
    ended = threading.Event()
    with stub_of(home) as stub, ThreadPoolExecutor(WRITERS + 3) as pool:
        store = Store(stub)
        for key in range(MEMORIES):
            first = {"tags": ["t", "first"], "hints": ["first"], "memory_type": "first", "status": "first"}
            store.add(f"steady first {key}", near(0.5), key=str(key), metadata='{"token":"first"}', **first)
        reading = [pool.submit(read, store, ended) for _ in range(3)]
        writing = [pool.submit(write, store, writer) for writer in range(WRITERS)]
        try:
            for writer in writing:
                writer.result()
        finally:
            ended.set()
        assert all(reader.result() for reader in reading)


# --------------------------------------------------------------------------------------------------- reads that end


@pytest.fixture
def engine(home: Path) -> Iterator[SqliteEngine]:
    home.mkdir()
    with SqliteEngine.open(home / "memories.db", DIMENSIONS, 1) as engine:
        yield engine


def as_request(seconds: float, work: Callable[[Callable[[], None]], ResultT]) -> ResultT:
    """Runs the work with so much time; it is given what ends the time."""

    def run() -> ResultT:
        return work(deadline.start(seconds))

    return contextvars.copy_context().run(run)


def test_a_read_ends_with_its_time(engine: SqliteEngine) -> None:
    def read_on(_: Callable[[], None]) -> None:
        with engine._readers.borrow() as connection:
            query.value(connection, ENDLESS)

    with pytest.raises(ServiceError) as ended:
        as_request(0.1, read_on)
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    with engine._readers.borrow() as connection:  # The only connection reads again.
        assert query.value(connection, "SELECT 1") == 1


def test_a_read_ends_when_its_caller_has_gone(engine: SqliteEngine) -> None:
    def read_on(gone: Callable[[], None]) -> None:
        with engine._readers.borrow() as connection, ThreadPoolExecutor(1) as other:
            other.submit(gone)
            query.value(connection, ENDLESS)

    with pytest.raises(ServiceError) as ended:
        as_request(60, read_on)
    assert ended.value.code is Code.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "request_",
    [
        pb.SearchMemoriesRequest(namespace="n", dense=pb.DenseArm(vector=near(0.5), k=5)),
        pb.SearchMemoriesRequest(namespace="n", keyword=pb.KeywordArm(query="text", k=5)),
    ],
)
def test_a_search_ends_so_in_both_arms(
    home: Path, monkeypatch: pytest.MonkeyPatch, request_: pb.SearchMemoriesRequest
) -> None:
    monkeypatch.setattr(connections, "STEPS_BETWEEN_LOOKS", 1)
    home.mkdir()
    with SqliteEngine.open(home / "memories.db", DIMENSIONS, 1) as engine:
        memory = Memory(namespace="n", content="text")
        engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=near(0.5), model_revision="m"))

        def find(gone: Callable[[], None]) -> None:
            with engine._readers.borrow() as connection:
                gone()
                search.search(connection, engine._index, engine._terms, request_)

        with pytest.raises(ServiceError) as ended:
            as_request(60, find)
        assert ended.value.code is Code.DEADLINE_EXCEEDED
        assert engine.search_memories(request_).hits
