"""Reindex makes anew what is derived from the memories, and finds it as it was where it was right."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import reindexing, writes
from hippovault_storage.sqlite.engine import SqliteEngine
from support.processes import Process
from support.storage import (
    DIMENSIONS,
    SECONDS,
    Store,
    assert_whole,
    connected,
    database,
    maintaining,
    near,
    opened,
    rows,
    serving,
    vector,
)
from support.waiting import until

DERIVED = {
    "words": "SELECT term, doc, col, offset FROM temp.words ORDER BY term, doc, col, offset",
    "sizes": "SELECT id, sz FROM hippo_fts_docsize ORDER BY id",
    "tags": "SELECT tag, memory_id FROM hippo_tags ORDER BY tag, memory_id",
    "vectors": "SELECT memory_id, place, vector FROM hippo_vectors ORDER BY memory_id, place",
    "codes": "SELECT * FROM hippo_token_codes ORDER BY memory_id",
}


def derived(path: Path) -> dict[str, list[Any]]:
    """All that a reindex makes."""
    with opened(path) as file:
        file.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'hippo_fts', 'instance')")
        return {name: rows(file, sql) for name, sql in DERIVED.items()}


def fill(store: Store) -> None:
    for number in range(30):
        store.put(
            f"Zebra number {number} läuft 東京の雨",
            near(number / 30) + near(-number / 40),
            token_codes=pb.TokenCodes(encoding="int8", codes=bytes([number])),
            tags=["a", f"tag {number % 3}"],
            hints=["where do the zebras run"] if number % 2 else [],
            category="c",
            key=str(number),
        )
    for number in (3, 4):
        store.delete_id(store.find(f"Zebra number {number} läuft 東京の雨", "c", str(number)).id)  # type: ignore[union-attr]
    store.put("another text", near(0.35), category="c", key="5")


def reindexed(process: Process) -> list[maintenance_pb2.ReindexResponse]:
    with maintaining(process) as stub:
        return list(stub.Reindex(maintenance_pb2.ReindexRequest(), timeout=SECONDS))


def problems(process: Process) -> list[str]:
    with maintaining(process) as stub:
        answers = stub.Verify(maintenance_pb2.VerifyRequest(), timeout=SECONDS)
        return [problem for answer in answers for problem in answer.problems]


def test_what_is_made_anew_equals_what_was_there(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        fill(Store(stub))
        before = derived(database(home))
        told = reindexed(process)
        assert derived(database(home)) == before
        assert (told[-1].done, told[-1].total) == (30, 30)
    assert_whole(database(home))


DAMAGES = {
    "words gone": "DELETE FROM hippo_fts WHERE rowid % 2",
    "words of others": "REPLACE INTO hippo_fts (rowid, body, hints) VALUES (1, 'strange', ''), (900, 'nobody', '')",
    "words of the deleted": "REPLACE INTO hippo_fts (rowid, body, hints) VALUES (4, 'zebra', '')",
    "tags": "DELETE FROM hippo_tags WHERE memory_id < 9; INSERT INTO hippo_tags VALUES ('x', 9), ('y', 900)",
    "vectors": "UPDATE hippo_vectors SET vector = zeroblob(768) WHERE place = 0 AND memory_id < 9",
    "no word index": "DELETE FROM hippo_fts_data WHERE id > 10",
    "broken word index": "UPDATE hippo_fts_data SET block = x'ffffffffffff' WHERE id > 10",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_found_and_made_right(home: Path, damage: str) -> None:
    with serving(home) as process, connected(process) as stub:
        store = Store(stub)
        fill(store)
        before = derived(database(home))
        with opened(database(home)) as file:
            file.execute(DAMAGES[damage])
        assert problems(process)
        reindexed(process)
        after = derived(database(home))
        if damage == "vectors":  # With a vector go its parts and token codes, which were made with it.
            for name in ("words", "sizes", "tags"):
                assert after[name] == before[name]
        else:
            assert after == before
        assert problems(process) == []
        assert len(store.matching("zebras", 100)) == 27
        assert store.nearest(vector(1), 1) == ["Zebra number 29 läuft 東京の雨"]


def test_searches_are_right_throughout_and_the_work_may_be_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindexing, "CHUNK", 7)
    path = tmp_path / "memories.db"
    with SqliteEngine.open(path, DIMENSIONS, 2, index_min_vectors=20) as engine:
        memories = [memory_pb2.Memory(namespace="n", content=f"zebra {number}") for number in range(50)]
        requests = [
            pb.PutMemoryRequest(memory=memory, vectors=near(number / 50)) for number, memory in enumerate(memories)
        ]
        engine._writer.run(lambda connection: [writes.put(connection, request) for request in requests])
        before = derived(path)
        search = pb.SearchMemoriesRequest(
            namespace="n", keyword=pb.KeywordArm(query="zebra", k=100), dense=pb.DenseArm(vector=vector(1), k=100)
        )
        right = engine.search_memories(search).hits
        shares = []
        for answer in itertools.islice(engine.reindex(), 3):
            shares.append(answer.done)
            assert engine.search_memories(search).hits == right
        assert shares == [7, 14, 21]
        assert derived(path) == before
        for _ in engine.reindex():
            assert engine.search_memories(search).hits == right
        assert derived(path) == before


def test_ids_below_zero_are_verified_and_reindexed_too(tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    with SqliteEngine.open(path, DIMENSIONS, 1):
        pass
    with opened(path) as file:  # As another program may.
        rows(file, "INSERT INTO memories (id, content_hash, content, tags) VALUES (-3, 'f', 'zebra', 'a')")
    with SqliteEngine.open(path, DIMENSIONS, 1) as engine:
        engine._writer.run(lambda connection: connection.execute("DELETE FROM hippo_fts; DELETE FROM hippo_tags"))
        assert len(told(engine)) == 3  # Its tags, how many words, and which.
        for _ in engine.reindex():
            pass
        assert told(engine) == []


def test_a_kill_amid_the_work_loses_nothing(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        fill(Store(stub))
        before = derived(database(home))
        with maintaining(process) as maintenance:
            next(maintenance.Reindex(maintenance_pb2.ReindexRequest(), timeout=SECONDS))
            process.kill()
    with serving(home) as process:
        assert problems(process) == []
        reindexed(process)
        assert derived(database(home)) == before


def test_an_index_that_finds_too_little_is_told_and_made_right(tmp_path: Path) -> None:
    with SqliteEngine.open(tmp_path / "memories.db", DIMENSIONS, 2, index_min_vectors=20) as engine:
        random = np.random.default_rng(3)
        drawn = random.normal(size=(600, 6)) @ random.normal(size=(6, DIMENSIONS))  # Some near, most far.
        drawn = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype("<f4")
        requests = [
            pb.PutMemoryRequest(
                memory=memory_pb2.Memory(namespace="n", content=f"memory {number}"), vectors=row.tobytes()
            )
            for number, row in enumerate(drawn)
        ]
        engine._writer.run(lambda connection: [writes.put(connection, request) for request in requests])
        until(lambda: engine._index.size() == 600)
        for _ in engine.reindex():
            pass
        assert told(engine) == []
        index = engine._index._indexes["n"]
        order = np.arange(len(index.view.base))[::-1].copy()
        codes = index.view.codes.rearranged(np.empty((0, DIMENSIONS), np.float32), order)
        index.view = replace(index.view, codes=codes)
        assert "of the 10 nearest" in told(engine)[0]
        for _ in engine.reindex():
            pass
        assert told(engine) == []


def test_an_index_of_few_memories_with_many_vectors_finds_them_all(tmp_path: Path) -> None:
    with SqliteEngine.open(tmp_path / "memories.db", DIMENSIONS, 2, index_min_vectors=20) as engine:
        for number in range(3):
            rows_of_one = b"".join(near((number + 3 * row) / 100) for row in range(20))
            memory = memory_pb2.Memory(namespace="n", content=f"memory {number}")
            engine.put_memory(pb.PutMemoryRequest(memory=memory, vectors=rows_of_one))
        until(lambda: engine._index.size() == 60)
        assert told(engine) == []


def told(engine: SqliteEngine) -> list[str]:
    return [problem for answer in engine.verify() for problem in answer.problems]
