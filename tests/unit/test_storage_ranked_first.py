"""The keyword arm ranks the whole store first where the scope is wide, and finds what ranking the scope alone does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import words
from hippovault_storage.sqlite.engine import SqliteEngine
from support.storage import DIMENSIONS, Filter, Memory, at, entity, vector

NAMESPACES = ("most", "some", "few", "none")
WORDS = ("zebra", "gnu", "quokka", "okapi", "tapir", "dugong")
MEMORIES = 600
DELETED = 120
ALIKE = 24
FILTERS = st.builds(
    Filter,
    tags_any=st.lists(st.sampled_from(["often", "seldom", "never"]), max_size=2, unique=True),
    tags_all=st.lists(st.sampled_from(["often", "seldom"]), max_size=1),
    memory_types=st.lists(st.sampled_from(["note", "fact"]), max_size=1),
    created_since=st.none() | st.integers(0, 10).map(at),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteEngine]:
    chance = np.random.default_rng(5)
    with SqliteEngine.open(tmp_path_factory.mktemp("words") / "memories.db", DIMENSIONS, 2) as opened:
        memories = [made(chance, number) for number in range(MEMORIES)]
        put = [*memories, *map(alike, range(ALIKE))]
        opened.put_memories([pb.PutMemoryRequest(memory=memory, vectors=vector(1)) for memory in put])
        for memory in memories[:: MEMORIES // DELETED]:
            ref = entity(memory.category, memory.key)
            opened.delete_memory(pb.DeleteMemoryRequest(namespace=memory.namespace, ref=ref))
        yield opened


def made(chance: np.random.Generator, number: int) -> Memory:
    """A memory as many others are: few words make the same scores, few instants the same times."""
    return Memory(
        namespace=chance.choice(NAMESPACES, p=(0.8, 0.15, 0.05, 0)),
        category="c",
        key=str(number),
        content=" ".join(chance.choice(WORDS, chance.integers(1, 5), p=(0.36, 0.24, 0.16, 0.12, 0.08, 0.04))),
        memory_type=chance.choice(["note", "fact"]),
        hints=chance.choice(WORDS, chance.integers(2)),
        tags=[tag for tag, share in (("often", 0.7), ("seldom", 0.1)) if chance.random() < share],
        created_at=at(int(chance.integers(11))),
    )


def alike(number: int) -> Memory:
    """A memory that matches as well as others do, and is newer than the ones before."""
    return Memory(
        namespace="most", category="alike", key=str(number), content="dingo", memory_type="note", created_at=at(number)
    )


def hits(engine: SqliteEngine, request: pb.SearchMemoriesRequest, wide_share: float) -> list[pb.SearchHit]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "WIDE_SHARE", wide_share)
        return list(engine.search_memories(request).hits)


@settings(max_examples=200, deadline=None)
@given(
    namespace=st.sampled_from(NAMESPACES),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
    conditions=FILTERS,
    k=st.sampled_from([1, 2, 5, 20, 100, 1000]),
)
def test_both_ways_find_the_same(engine: SqliteEngine, namespace: str, query: str, conditions: Filter, k: int) -> None:
    arm = pb.KeywordArm(query=query, k=k)
    request = pb.SearchMemoriesRequest(namespace=namespace, keyword=arm, filter=conditions)
    within = hits(engine, request, 2)
    assert hits(engine, request, 0) == within
    assert hits(engine, request, words.WIDE_SHARE) == within
    ranks = [hit.keyword.rank for hit in within]
    assert ranks == list(range(1, len(ranks) + 1))


def test_a_search_in_most_of_the_store_looks_at_no_match_that_is_not_among_the_best(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(words, "BEST_IN_SCOPE")
    arm = pb.KeywordArm(query="dugong tapir", k=1)
    assert engine.search_memories(pb.SearchMemoriesRequest(namespace="most", keyword=arm)).hits


@pytest.mark.parametrize("k", [1, 2, ALIKE])
def test_of_those_that_match_as_well_the_newest_are_found(engine: SqliteEngine, k: int) -> None:
    request = pb.SearchMemoriesRequest(namespace="most", keyword=pb.KeywordArm(query="dingo", k=k))
    assert [hit.created_at for hit in hits(engine, request, 0)] == [at(ALIKE - 1 - rank) for rank in range(k)]
