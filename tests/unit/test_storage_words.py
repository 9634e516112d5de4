"""The keyword arm of a large store: common terms do not vote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import words, writes
from hippovault_storage.sqlite.engine import SqliteEngine
from support.storage import DIMENSIONS, vector


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteEngine]:
    monkeypatch.setattr(words, "LARGE", 20)
    with SqliteEngine.open(tmp_path / "memories.db", DIMENSIONS, 2) as opened:
        put(opened, [f"zebras run {number}" for number in range(25)])
        put(opened, ["a gnu runs", "gnu and zebra", "東京都の雨", "東京の雪"])
        yield opened


def put(engine: SqliteEngine, contents: Iterable[str]) -> None:
    requests = [
        pb.PutMemoryRequest(memory=memory_pb2.Memory(namespace="n", content=content), vectors=vector(1))
        for content in contents
    ]
    engine._writer.run(lambda connection: [writes.put(connection, request) for request in requests])


def matching(engine: SqliteEngine, query: str) -> set[str]:
    search = pb.SearchMemoriesRequest(namespace="n", keyword=pb.KeywordArm(query=query, k=1000))
    return {hit.memory.content for hit in engine.search_memories(search).hits}


def test_common_terms_do_not_vote_beside_others(engine: SqliteEngine) -> None:
    assert matching(engine, "zebra gnu") == {"a gnu runs", "gnu and zebra"}
    assert matching(engine, "running gnus") == {"a gnu runs", "gnu and zebra"}


def test_a_query_of_common_terms_alone_is_answered(engine: SqliteEngine) -> None:
    assert len(matching(engine, "zebra")) == 26
    assert len(matching(engine, "zebras running")) == 27


def test_phrases_and_prefixes_are_weighed_as_words_are(engine: SqliteEngine) -> None:
    assert matching(engine, "zebra 東京") == {"東京都の雨", "東京の雪"}
    assert matching(engine, "zebra 雪") == {"東京の雪"}
    put(engine, [f"東京 {number}" for number in range(12)])
    assert matching(engine, "東京 gnu") == {"a gnu runs", "gnu and zebra"}


def test_a_small_store_lets_every_term_vote(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "LARGE", 1000)
    assert len(matching(engine, "zebra gnu")) == 27


def test_what_is_common_changes_with_the_store(engine: SqliteEngine) -> None:
    assert matching(engine, "zebra gnu") == {"a gnu runs", "gnu and zebra"}
    put(engine, [f"gnu number {number}" for number in range(200)])
    assert len(matching(engine, "zebra gnu")) == 26


def test_what_is_known_of_terms_has_bounds(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_KNOWN_TERMS", 5)
    matching(engine, " ".join(f"word{number}" for number in range(50)))
    assert len(engine._terms._known.common) <= 5
    assert matching(engine, "zebra gnu") == {"a gnu runs", "gnu and zebra"}
