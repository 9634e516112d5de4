"""What the gateway keeps of queries."""

from __future__ import annotations

from hippovault_gateway.embedding import EmbeddedQuery
from hippovault_gateway.query_cache import CHARACTER_BYTES, ENTRY_BYTES, QueryCache

EMBEDDED = EmbeddedQuery(bytes(1000), bytes(9000), "revision", unknown=0.0)
ROOM = ENTRY_BYTES + CHARACTER_BYTES + 10_000
"""For one query of one letter."""


def test_the_least_recently_used_goes_first() -> None:
    cache = QueryCache(2 * ROOM)
    for query in "ab":
        cache.keep(query, EMBEDDED)
    assert cache.get("a") is EMBEDDED
    cache.keep("c", EMBEDDED)

    assert [cache.get(query) is not None for query in "abc"] == [True, False, True]


def test_what_is_larger_than_all_is_not_kept() -> None:
    cache = QueryCache(ROOM - 1)
    cache.keep("a", EMBEDDED)

    assert cache.get("a") is None


def test_what_is_cleared_is_gone() -> None:
    cache = QueryCache(ROOM)
    cache.keep("a", EMBEDDED)
    cache.clear()

    assert cache.get("a") is None
