"""How a long answer becomes a short one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hippovault_gateway.mcp import budget

MOST = 4_096


def memory(number: int, content: str, **further: Any) -> dict[str, Any]:
    return {"id": number, "content_hash": "f" * 64, "content": content, **further}


def test_what_fits_stays_as_it_is() -> None:
    document = {"hits": [memory(1, "c" * 1_000)], "omitted_hits": 0}
    before = copy.deepcopy(document)

    assert budget.fit(document, MOST) is None
    assert document == before


def test_a_long_content_becomes_a_preview_that_says_so() -> None:
    content = "🦛" * 5_000
    document = {"memory": memory(7, content)}

    assert budget.fit(document, MOST) is None
    cut: Any = document["memory"]
    assert content.startswith(cut["content"])
    assert MOST - 100 < budget.size(document) <= MOST
    assert (cut["id"], cut["content_hash"]) == (7, "f" * 64)
    assert (cut["cut"], cut["content_bytes"]) == (["content"], 20_000)
    assert "hippo_get_entity" in str(document["note"])


def test_short_contents_stay_whole_beside_a_long_one() -> None:
    document: Any = {"hits": [memory(1, "long " * 2_000), memory(2, "short"), memory(3, "brief")]}
    budget.fit(document, MOST)

    assert [hit["content"] for hit in document["hits"][1:]] == ["short", "brief"]
    assert [hit.get("cut") for hit in document["hits"]] == [["content"], None, None]
    assert budget.size(document) > MOST - 200


def test_details_go_before_a_whole_memory_does() -> None:
    document: Any = {"memories": [memory(number, "c", metadata={"a": "b" * 1_000}) for number in range(5)]}

    assert budget.fit(document, MOST) is None
    assert [one["cut"] for one in document["memories"]] == [["metadata"]] * 5
    assert [one["content"] for one in document["memories"]] == ["c"] * 5


def test_what_is_left_off_is_counted() -> None:
    document: Any = {"hits": [memory(number, "c" * 1_000) for number in range(50)], "omitted_hits": 2}
    left = budget.fit(document, MOST)

    assert left == len(document["hits"]) > 5
    assert document["omitted_hits"] == 2 + 50 - left
    assert [hit["id"] for hit in document["hits"]] == list(range(left))
    assert budget.size(document) <= MOST


def test_many_ids_are_bounded_too() -> None:
    ids: Any = {"ids": list(range(10_000)), "deleted": 10_000}
    budget.fit(ids, MOST)

    assert ids["omitted_ids"] + len(ids["ids"]) == 10_000
    assert budget.size(ids) <= MOST


def counts(length: int) -> dict[str, int]:
    return {f"{number}".rjust(length, '"'): number for number in range(100)}


@pytest.mark.parametrize("length", [1, 50, 256])
def test_of_what_is_counted_the_commonest_stay(length: int) -> None:
    summary: Any = {"by_type": counts(length), "top_tags": counts(length), "highlights": [memory(1, "c" * 9_000)]}
    resources: list[Any] = [{"tags": counts(length)}, {"namespace": {"by_type": counts(length)}}]
    for document in (summary, *resources):
        budget.fit(document, MOST)
        assert budget.size(document) <= MOST

    for part, name, counter in (
        (summary, "by_type", "omitted_types"),
        (summary, "top_tags", "omitted_tags"),
        (resources[0], "tags", "omitted_tags"),
        (resources[1]["namespace"], "by_type", "omitted_types"),
    ):
        left_off = part.get(counter, 0)
        assert 0 <= left_off < 100
        assert sorted(part[name].values()) == list(range(left_off, 100))
    assert summary["highlights"][0]["cut"] == ["content"]


contents = st.text(max_size=50) | st.builds(str.__mul__, st.text('"\\\n🦛a', max_size=5), st.integers(0, 2_000))
memories = st.lists(
    st.builds(memory, st.integers(1, 2**63 - 1), contents, metadata=st.dictionaries(st.just("m"), contents)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=40)
@given(name=st.sampled_from(["hits", "memories", "highlights"]), items=memories, most=st.integers(MOST, 20_000))
def test_any_answer_fits_and_nothing_vanishes(name: str, items: list[dict[str, Any]], most: int) -> None:
    document = {name: copy.deepcopy(items), "mode": "hybrid"}
    left = budget.fit(document, most)

    shown: Any = document[name]
    assert budget.size(document) <= most
    assert len(shown) == (left or len(items))
    assert document.get(f"omitted_{name}", 0) == len(items) - len(shown)
    for was, item in zip(items, shown, strict=False):
        assert item["id"] == was["id"]
        assert was["content"].startswith(item["content"])
        assert (item["content"] == was["content"]) is ("content" not in item.get("cut", []))
        assert item.get("content_bytes", 0) in {0, len(was["content"].encode())}
        assert ("metadata" in item) is ("metadata" not in item.get("cut", []))
