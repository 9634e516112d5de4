"""What the cache keeps: the entries used last, as many as its bytes hold."""

from __future__ import annotations

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_embedding.backend import Options, Row
from hippovault_embedding.cache import ENTRY_BYTES, ROW_BYTES, Embedding, EmbeddingCache

OPTIONS = Options()
OF_ONE = ENTRY_BYTES + ROW_BYTES + 100


def entry(size: int = 100, rows: int = 1) -> Embedding:
    return Embedding([Row(bytes(size))] * rows, token_count=3)


def test_the_least_recently_used_go_first() -> None:
    cache = EmbeddingCache(3 * OF_ONE)
    keys = [cache.key("r", OPTIONS, text) for text in "abcd"]
    for key in keys[:3]:
        cache.put(key, entry())
    assert cache.get(keys[0])
    cache.put(keys[3], entry())
    assert [bool(cache.get(key)) for key in keys] == [True, False, True, True]


def test_bytes_count_and_not_entries() -> None:
    cache = EmbeddingCache(3 * OF_ONE)
    small = [cache.key("r", OPTIONS, text) for text in "abc"]
    for key in small:
        cache.put(key, entry())
    large = cache.key("r", OPTIONS, "large")
    cache.put(large, entry(size=2 * OF_ONE - ENTRY_BYTES - ROW_BYTES))
    assert cache.get(large)
    assert [bool(cache.get(key)) for key in small] == [False, False, True]


def test_codes_and_windows_count() -> None:
    cache = EmbeddingCache(2 * OF_ONE)
    key = cache.key("r", OPTIONS, "long")
    cache.put(key, entry(rows=20))
    assert cache.get(key) is None
    cache.put(key, Embedding([Row(b"", bytes(2 * OF_ONE))], 3))
    assert cache.get(key) is None


def test_what_is_larger_than_the_cache_drives_nothing_out() -> None:
    cache = EmbeddingCache(2 * OF_ONE)
    small, large = cache.key("r", OPTIONS, "small"), cache.key("r", OPTIONS, "large")
    cache.put(small, entry())
    cache.put(large, entry(size=10 * OF_ONE))
    assert cache.get(small)
    assert cache.get(large) is None


def test_a_size_of_0_keeps_nothing() -> None:
    cache = EmbeddingCache(0)
    key = cache.key("r", OPTIONS, "a")
    cache.put(key, entry(size=0))
    assert cache.get(key) is None


def test_texts_revisions_and_options_are_told_apart() -> None:
    cache = EmbeddingCache(1_000_000)
    keys = [
        cache.key("r", OPTIONS, "a"),
        cache.key("r", OPTIONS, "A"),
        cache.key("r", OPTIONS, "a "),
        cache.key("other", OPTIONS, "a"),
        cache.key("r", Options(query=True), "a"),
        cache.key("r", Options(max_windows=2), "a"),
        *(cache.key("r", Options(token_encoding=encoding), "a") for encoding in pb.TokenEncoding.values()[1:]),
    ]
    for count, key in enumerate(keys):
        cache.put(key, Embedding([Row(b"")], token_count=count))
    assert [embedding.token_count for key in keys if (embedding := cache.get(key))] == list(range(len(keys)))


def test_it_has_no_texts() -> None:
    assert b"secret" not in repr(EmbeddingCache.key("r", OPTIONS, "secret")).encode()
