"""SearchMemories and CompareToNewest: both arms, inside one scope."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1.memory_pb2 import Surprise
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import (
    SECONDS,
    Code,
    Filter,
    Ref,
    Store,
    at,
    connected,
    encrypted,
    maintaining,
    near,
    refused,
    serving,
    stub_of,
    vector,
)


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def put_all(store: Store, memories: list[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda memory: store.put(**memory), memories))


# -------------------------------------------------------------------------------------------------------- dense arm


def test_the_nearest_come_first_with_their_cosine(store: Store) -> None:
    for cosine in (0.1, 0.9, -0.5, 0.5):
        store.add(f"at {cosine}", near(cosine))
    hits = sorted(store.search(dense=vector(1), k=3).hits, key=lambda hit: hit.dense.rank)
    assert [hit.memory.content for hit in hits] == ["at 0.9", "at 0.5", "at 0.1"]
    assert [hit.dense.rank for hit in hits] == [1, 2, 3]
    assert [hit.dense.score for hit in hits] == pytest.approx([0.9, 0.5, 0.1], abs=3e-4)
    assert not any(hit.HasField("keyword") for hit in hits)
    assert hits[0].memory == store.get_id(hits[0].memory.id)


def test_tombstones_and_other_scopes_never_shorten_the_answer(store: Store) -> None:
    other = Store(store.stub)
    put_all(store, [{"content": f"dead {n}", "embedded": near(1 - n / 1e5)} for n in range(150)])
    put_all(other, [{"content": f"foreign {n}", "embedded": near(1 - n / 1e5)} for n in range(150)])
    put_all(store, [{"content": f"filtered {n}", "embedded": near(1 - n / 1e5), "tags": ["no"]} for n in range(150)])
    put_all(store, [{"content": f"wanted {n}", "embedded": near(0.5 - n / 100), "tags": ["yes"]} for n in range(12)])
    for memory in store.page().memories:
        if memory.content.startswith("dead"):
            store.delete_id(memory.id)
    wanted = [f"wanted {n}" for n in range(12)]
    assert store.nearest(vector(1), 10, tags_any=["yes"]) == wanted[:10]
    assert store.nearest(vector(1), 100, tags_any=["yes"]) == wanted
    assert store.nearest(vector(1), 200) == [f"filtered {n}" for n in range(150)] + wanted


def test_equals_are_ranked_newest_first_then_by_id(store: Store) -> None:
    store.add("far", near(-0.5))
    for content, seconds in (("old", 10), ("new", 30), ("middle one", 20), ("middle two", 20)):
        store.add(content, vector(1), created_at=at(seconds))
    order = ["new", "middle one", "middle two", "old"]
    for k in (1, 2, 3, 4):
        assert store.nearest(vector(1), k) == order[:k]
    assert store.nearest(vector(1), 6) == [*order, "far"]


def test_every_filter_holds_in_both_arms(store: Store) -> None:
    store.add("zebra one", near(0.9), tags=["a"], memory_type="Note", category="c", key="1", created_at=at(10))
    store.add("zebra two", near(0.8), tags=["b"], memory_type="Decision", category="d", key="2", created_at=at(20))
    for conditions, expected in (
        ({"tags_any": ["b"]}, ["zebra two"]),
        ({"tags_all": ["a", "b"]}, []),
        ({"memory_types": ["Note"]}, ["zebra one"]),
        ({"categories": ["d"]}, ["zebra two"]),
        ({"created_since": at(15)}, ["zebra two"]),
        ({"created_before": at(15)}, ["zebra one"]),
    ):
        assert store.nearest(vector(1), **conditions) == expected
        assert store.matching("zebra", **conditions) == expected


# ------------------------------------------------------------------------------------------------------ keyword arm


def test_the_keyword_arm_ranks_by_bm25(store: Store) -> None:
    store.add("a zebra and a long tail of words that have nothing to do with it at all")
    store.add("zebra zebra")
    for n in range(20):
        store.add(f"filler {n}")
    hits = sorted(store.search(keyword="zebra").hits, key=lambda hit: hit.keyword.rank)
    assert [hit.memory.content[:5] for hit in hits] == ["zebra", "a zeb"]
    assert hits[0].keyword.score > hits[1].keyword.score > 0
    assert not any(hit.HasField("dense") for hit in hits)


def test_equal_scores_are_ranked_newest_first_then_by_id(store: Store) -> None:
    for content, seconds in (("zebra a", 10), ("zebra b", 30), ("zebra c", 20), ("zebra d", 20)):
        store.add(content, created_at=at(seconds))
    order = ["zebra b", "zebra c", "zebra d", "zebra a"]
    for k in (1, 2, 3, 4):
        assert store.matching("zebra", k) == order[:k]


@pytest.mark.parametrize("query", ["running", "ran runs", "RUN", "the run of it", "re-run"])
def test_english_inflections_match(store: Store, query: str) -> None:
    store.add("She runs every morning")
    assert store.matching(query) == ["She runs every morning"]


@pytest.mark.parametrize("query", ["東京", "北海道", "東京都庁", "都", "京", "ラーメン", "ﾗｰﾒﾝ", "東京で何を食べたの"])
def test_words_of_a_language_without_spaces_match(store: Store, query: str) -> None:
    content = "昨日は東京都庁の近くでラーメンを食べた。北海道ではない。"
    store.add(content)
    store.add("大阪でうどんを食べなかった")
    assert store.matching(query, 1) == [content]


def test_a_word_is_not_found_in_pieces(store: Store) -> None:
    store.add("京東の店と京都の店")
    assert store.matching("東京") == []
    assert store.matching("都京") == []


def test_korean_and_mixed_text_match(store: Store) -> None:
    store.add("서울에서 Kubernetes를 배웠다")
    assert store.matching("서울") == store.matching("kubernetes") == ["서울에서 Kubernetes를 배웠다"]


def test_full_width_letters_are_the_letters(store: Store) -> None:
    store.add("ＡＰＩの設定")
    assert store.matching("api") == ["ＡＰＩの設定"]


def test_accents_do_not_matter(store: Store) -> None:
    store.add("Das Caf\u00e9 in Z\u00fcrich")
    assert store.matching("cafe") == store.matching("zurich") == store.matching("cafe\u0301") == ["Das Café in Zürich"]


@pytest.mark.parametrize(
    ("content", "other", "query"),
    [
        (
            "\u0926\u093f\u0928 \u0905\u091a\u094d\u091b\u093e",
            "\u0926\u093e\u0928 \u0926\u093e\u0928 \u0926\u0940\u0928",
            "\u0926\u093f\u0928",
        ),  # Hindi: day, gift
        (
            "\u0643\u062a\u0628 \u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f",
            "\u062d\u0645\u062f",
            "\u0645\u062d\u0645\u062f",
        ),  # Arabic with vowel signs, without
        (
            "\u0643\u062a\u0628 \u0645\u062d\u0645\u062f",
            "\u062d\u0645\u062f",
            "\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f",
        ),
        (
            "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
            "\u05dc\u05d5\u05dd",
            "\u05e9\u05dc\u05d5\u05dd",
        ),  # Hebrew with points, without
        ("\u0b95\u0bbe\u0bb2\u0bcd", "\u0b95\u0bb2\u0bcd", "\u0b95\u0bbe\u0bb2\u0bcd"),  # Tamil: leg, stone
        (
            "\u0e1c\u0e39\u0e49\u0e0a\u0e32\u0e22\u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27",
            "\u0e19\u0e49\u0e33",
            "\u0e02\u0e49\u0e32\u0e27",
        ),  # Thai: the man eats rice; water; rice
        ("ti\u1ebfng Vi\u1ec7t", "vit", "tieng viet"),
        ("pizza \u2764\ufe0f", "\u2600\ufe0f", "pizza \u2600\ufe0f"),  # The variant selector of a picture is no word.
    ],
)
def test_marks_belong_to_words_and_vowel_points_do_not(store: Store, content: str, other: str, query: str) -> None:
    store.add(content)
    store.add(other)
    assert store.matching(query) == [content]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "AND",
        "OR",
        "NOT",
        "NEAR(",
        "a*b",
        "C++ -x:y ^z",
        "' OR 1=1 --",
        "body:zebra",
        "zebra*",
        "{zebra}",
        '"zebra',
    ],
)
def test_nothing_in_a_query_is_syntax(store: Store, query: str) -> None:
    store.add("nothing of interest")
    store.search(keyword=query)


def test_the_words_of_a_query_with_operators_still_count(store: Store) -> None:
    store.add("we write C++ here")
    store.add("zebras sleep")
    assert store.matching("C++ -x:y ^z") == ["we write C++ here"]
    assert store.matching('"zebras NEAR(') == ["zebras sleep"]
    assert store.matching("body:zebra*") == ["zebras sleep"]


@pytest.mark.parametrize("query", ["what does the", "!?", "— … «»", "the a of", "isn't it?", "👋"])
def test_a_query_without_a_word_that_tells_anything_finds_nothing(store: Store, query: str) -> None:
    store.add("what does the user have? isn't it 👋")
    assert store.matching(query) == []


def test_stop_words_do_not_vote(store: Store) -> None:
    store.add("the the the of and to in it what does")
    store.add("a zebra")
    assert store.matching("what does the zebra do in it") == ["a zebra"]


def test_a_very_long_query_is_answered(store: Store) -> None:
    store.add("zebra")
    assert store.matching("zebra " + " ".join(f"w{n}" for n in range(1_400))) == ["zebra"]


def test_text_after_odd_characters_is_found(store: Store) -> None:
    store.add("tab\tand\r\nline \u2028 \ufeff zebra")
    assert len(store.matching("zebra")) == 1


def test_hints_are_found_replaced_and_cleared(store: Store) -> None:
    store.add("The gateway binds to 8443.", hints=["what port does the api listen on"])
    store.add("unrelated text")
    assert store.matching("port") == store.matching("listening") == ["The gateway binds to 8443."]
    store.add("The gateway binds to 8443.", hints=["which socket"])
    assert store.matching("port") == []
    assert store.matching("socket") == ["The gateway binds to 8443."]
    store.add("The gateway binds to 8443.")
    assert store.matching("socket") == ["The gateway binds to 8443."]
    store.add("The gateway binds to 8443.", key="address")
    assert store.matching("socket") == []
    assert store.matching("gateway") == ["The gateway binds to 8443."]


def test_hints_come_back_with_a_revival_only_when_given(store: Store) -> None:
    memory = store.add("text", hints=["zebra"])
    store.delete_id(memory.id)
    assert store.matching("zebra") == []
    store.add("text")
    assert store.matching("zebra") == []


CONTENT, HINT, DENSE = memory_pb2.MATCHED_BY_CONTENT, memory_pb2.MATCHED_BY_HINT, memory_pb2.MATCHED_BY_DENSE


def ways(store: Store, query: str, dense: bytes = b"", k: int = 10) -> dict[str, list[memory_pb2.MatchedBy.ValueType]]:
    """How each hit was found."""
    return {hit.memory.content: list(hit.matched_by) for hit in store.search(dense=dense, keyword=query, k=k).hits}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("gateway", [CONTENT]),
        ("port", [HINT]),
        ("listening", [HINT]),
        ("Which port does the gateway have?", [CONTENT, HINT]),
        ("bind", [CONTENT, HINT]),
        ("東京", [CONTENT]),
        ("大阪", [HINT]),
        ("雨", [CONTENT, HINT]),
        ("東京 大阪", [CONTENT, HINT]),
    ],
)
def test_a_hit_tells_where_the_words_are(store: Store, query: str, found: list[memory_pb2.MatchedBy.ValueType]) -> None:
    content = "The gateway binds to 8443. 東京の雨"
    store.add(content, hints=["what port does the api listen on", "does it bind 大阪の雨"])
    store.add("unrelated text", hints=["of nothing"])
    assert ways(store, query) == {content: found}


def test_a_stop_word_in_the_content_or_the_hints_is_no_match(store: Store) -> None:
    store.add("what is the zebra", hints=["what is the gnu"])
    assert ways(store, "what is the") == {}
    assert ways(store, "what is the zebra") == {"what is the zebra": [CONTENT]}
    assert ways(store, "what is the gnu") == {"what is the zebra": [HINT]}


def test_a_hit_tells_which_arms_returned_it(store: Store) -> None:
    store.add("near", near(0.9), hints=["zebra"])
    store.add("nearer", near(0.95))
    store.add("zebra", near(0.1), hints=["gnu"])
    assert ways(store, "zebra", vector(1), k=2) == {"near": [HINT, DENSE], "nearer": [DENSE], "zebra": [CONTENT]}
    assert ways(store, "what is the?", vector(1), k=1) == {"nearer": [DENSE]}
    assert ways(store, "", vector(1), k=1) == {"nearer": [DENSE]}


def test_what_a_hit_was_matched_by_follows_the_memory(store: Store) -> None:
    memory = store.add("zebra", hints=["gnu", "zebra"])
    ref = Ref(id=memory.id)
    assert ways(store, "zebra gnu") == {"zebra": [CONTENT, HINT]}
    store.update(ref, hints=["gnu"])
    assert ways(store, "zebra") == {"zebra": [CONTENT]}
    store.delete(ref)
    assert ways(store, "zebra gnu") == {}
    store.undelete(ref)
    assert ways(store, "gnu") == {"zebra": [HINT]}
    store.update(ref, mask=["hints"])
    assert ways(store, "gnu") == {}
    assert ways(store, "zebra gnu") == {"zebra": [CONTENT]}


@pytest.mark.parametrize("mode", ["off", "values"])
def test_a_reindex_leaves_what_hits_are_matched_by(home: Path, mode: str) -> None:
    with serving(home, environment=encrypted(mode)) as process, connected(process) as stub:
        store = Store(stub)
        store.add("zebra", hints=["gnu"])
        store.add("gnu", hints=["gnu"])
        found = {"zebra": [HINT], "gnu": [CONTENT, HINT]}
        assert ways(store, "gnu") == found
        with maintaining(process) as maintenance:
            list(maintenance.Reindex(maintenance_pb2.ReindexRequest(), timeout=SECONDS))
        assert ways(store, "gnu") == found


# -------------------------------------------------------------------------------------------------------- both arms


def test_both_arms_make_one_union_where_every_hit_has_its_cosine(store: Store) -> None:
    store.add("near and zebra", near(0.9))
    store.add("near", near(0.8))
    store.add("far zebra", near(-0.25))
    store.add("far", near(-0.5))
    hits = {hit.memory.content: hit for hit in store.search(dense=vector(1), keyword="zebra", k=2).hits}
    assert hits.keys() == {"near and zebra", "near", "far zebra"}
    assert [hits[name].dense.rank for name in ("near and zebra", "near", "far zebra")] == [1, 2, 0]
    assert hits["far zebra"].dense.score == pytest.approx(-0.25, abs=3e-4)
    assert not hits["near"].HasField("keyword")
    assert {hits[name].keyword.rank for name in ("near and zebra", "far zebra")} == {1, 2}


def test_a_keyword_arm_without_words_leaves_the_dense_one(store: Store) -> None:
    store.add("text", near(0.9))
    (hit,) = store.search(dense=vector(1), keyword="what is the?").hits
    assert hit.dense.rank == 1
    assert not hit.HasField("keyword")


def test_an_empty_namespace_has_no_hits(store: Store) -> None:
    assert not store.search(dense=vector(1), keyword="zebra").hits


def test_the_same_search_gives_the_same_answer(store: Store) -> None:
    put_all(store, [{"content": f"zebra {n % 7} {n}", "embedded": near((n % 10) / 10)} for n in range(100)])
    first = store.search(dense=vector(1), keyword="zebra 3", k=30).hits
    for _ in range(3):
        assert store.search(dense=vector(1), keyword="zebra 3", k=30).hits == first


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("dense", pb.SearchMemoriesRequest()),
        ("dense.vector", pb.SearchMemoriesRequest(dense=pb.DenseArm(vector=b"1234", k=1))),
        ("dense.vector", pb.SearchMemoriesRequest(dense=pb.DenseArm(k=1))),
        ("dense.k", pb.SearchMemoriesRequest(dense=pb.DenseArm(vector=vector(1)))),
        ("dense.k", pb.SearchMemoriesRequest(dense=pb.DenseArm(vector=vector(1), k=-1))),
        ("dense.k", pb.SearchMemoriesRequest(dense=pb.DenseArm(vector=vector(1), k=100_001))),
        ("keyword.query", pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query=" \n", k=1))),
        ("keyword.query", pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query="x" * 8_193, k=1))),
        ("keyword.query", pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query="a\x00b", k=1))),
        ("keyword.k", pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query="a"))),
        ("keyword.k", pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query="a", k=100_001))),
        (
            "filter.memory_types[0]",
            pb.SearchMemoriesRequest(keyword=pb.KeywordArm(query="a", k=1), filter=Filter(memory_types=["t" * 257])),
        ),
    ],
)
def test_a_bad_search_is_refused(stub: StorageServiceStub, field: str, request_: pb.SearchMemoriesRequest) -> None:
    with refused(Code.INVALID_ARGUMENT, field):
        stub.SearchMemories(request_)


# ----------------------------------------------------------------------------------------------- compare to newest


def test_similarities_to_the_newest_come_newest_first(store: Store) -> None:
    for n, cosine in enumerate((0.1, 0.9, -0.5)):
        store.add(f"memory {n}", near(cosine), created_at=at(n))
    Store(store.stub).add("elsewhere", near(0.3))
    assert store.compare(vector(1)) == pytest.approx([-0.5, 0.9, 0.1], abs=3e-4)
    assert store.compare(vector(1), newest=2) == pytest.approx([-0.5, 0.9], abs=3e-4)
    store.delete_id(store.page(1).memories[0].id)
    assert store.compare(vector(1), newest=2) == pytest.approx([0.9, 0.1], abs=3e-4)


def test_an_empty_namespace_has_no_similarities(store: Store) -> None:
    assert store.compare(vector(1)) == []


def test_similarities_to_the_nearest_come_best_first(store: Store) -> None:
    *_, nearest = [store.add(f"at {cosine}", near(cosine)).id for cosine in (0.1, -0.5, 0.5, 0.9)]
    Store(store.stub).add("elsewhere", near(0.8))
    assert store.compare_nearest(vector(1), 2) == pytest.approx([0.9, 0.5], abs=3e-4)
    store.delete_id(nearest)
    assert store.compare_nearest(vector(1), 100) == pytest.approx([0.5, 0.1, -0.5], abs=3e-4)


def test_an_empty_namespace_has_no_nearest(store: Store) -> None:
    assert store.compare_nearest(vector(1), 10) == []


@pytest.mark.parametrize("nearest", [-1, 101])
def test_a_bad_number_of_nearest_is_refused(store: Store, nearest: int) -> None:
    with refused(Code.INVALID_ARGUMENT, "nearest"):
        store.compare_nearest(vector(1), nearest)


@pytest.mark.parametrize("newest", [0, -1, 1001])
def test_a_bad_number_of_newest_is_refused(store: Store, newest: int) -> None:
    with refused(Code.INVALID_ARGUMENT, "newest"):
        store.compare(vector(1), newest=newest)


def test_a_bad_vector_is_not_compared(store: Store) -> None:
    with refused(Code.INVALID_ARGUMENT, "vector"):
        store.compare(b"")


def test_only_the_best_hits_carry_their_memory_when_few_are_wanted_whole(store: Store) -> None:
    for number in range(4):
        store.add(f"whale {number}", vector(number + 1), surprise=Surprise(score=number / 10))
    request = pb.SearchMemoriesRequest(
        namespace=store.namespace,
        dense=pb.DenseArm(vector=vector(1), k=4),
        keyword=pb.KeywordArm(query="whale", k=4),
        whole=1,
    )
    hits = store.stub.SearchMemories(request, timeout=SECONDS).hits
    assert len(hits) == 4
    [whole] = [hit for hit in hits if hit.HasField("memory")]
    assert min(whole.dense.rank, whole.keyword.rank) == 1
    for hit in hits:
        memory = store.get_id(hit.id)
        assert hit.created_at == memory.created_at
        assert hit.surprise == memory.surprise.score
    request.whole = 0
    assert not any(hit.HasField("memory") for hit in store.stub.SearchMemories(request, timeout=SECONDS).hits)


def test_no_answer_exceeds_what_a_client_takes(store: Store) -> None:
    for number in range(60):
        store.add(f"whale {number} " + "x" * 65_000, surprise=Surprise(score=number / 60))
    response = store.search(keyword="whale", k=60)  # A larger answer would fail: the client takes 4 MiB.
    assert len(response.hits) == 60
    assert 40 < sum(hit.HasField("memory") for hit in response.hits) < 60
    request = pb.SummarizeMemoriesRequest(namespace=store.namespace, top_tags=1, highlights=100)
    summary = store.stub.SummarizeMemories(request, timeout=SECONDS).summary
    assert 40 < len(summary.highlights) < 60
    assert summary.highlights[0].content.startswith("whale 59 ")


def test_all_that_a_memory_has_counts_in_an_answer(store: Store) -> None:
    tags, hints, name = [f"{number:02}" + "t" * 126 for number in range(32)], ["h" * 200] * 3, "n" * 250
    fields: dict[str, Any] = {"tags": tags, "hints": hints, "category": name, "memory_type": name, "status": name}
    requests = [store.request(str(number), key=f"{number} {name}"[:256], **fields) for number in range(800)]
    ids = [result.done.id for half in (requests[:400], requests[400:]) for result in store.batch(*half)]
    response = store.search(vector(1), k=len(ids))
    assert len(response.hits) == len(ids)
    assert 400 < sum(hit.HasField("memory") for hit in response.hits) < len(ids)
    batch = pb.BatchGetMemoriesRequest(namespace=store.namespace, ids=ids)
    assert 400 < len(store.stub.BatchGetMemories(batch, timeout=SECONDS).memories) < len(ids)


def test_a_batch_is_in_the_order_asked_for_and_leaves_out_what_is_not_live(store: Store) -> None:
    other = Store(store.stub)
    ids = [store.add(text).id for text in ("one", "two", "three")]
    foreign = other.add("elsewhere").id
    store.delete_id(ids[1])
    request = pb.BatchGetMemoriesRequest(namespace=store.namespace, ids=[ids[2], 10**9, ids[1], foreign, ids[0]])
    response = store.stub.BatchGetMemories(request, timeout=SECONDS)
    assert [memory.content for memory in response.memories] == ["three", "one"]


def test_a_batch_too_large_for_an_answer_goes_on_where_it_ended(store: Store) -> None:
    ids = [store.add(f"{number} " + "x" * 65_000).id for number in range(60)]
    got: list[int] = []
    while len(got) < len(ids):
        request = pb.BatchGetMemoriesRequest(namespace=store.namespace, ids=ids[len(got) :])
        answer = store.stub.BatchGetMemories(request, timeout=SECONDS)
        got += [memory.id for memory in answer.memories]
    assert got == ids


@pytest.mark.parametrize("count", [0, 1_001])
def test_a_batch_has_bounds(store: Store, count: int) -> None:
    with refused(Code.INVALID_ARGUMENT, "ids"):
        store.stub.BatchGetMemories(pb.BatchGetMemoriesRequest(ids=[1] * count), timeout=SECONDS)
