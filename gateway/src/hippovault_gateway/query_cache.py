"""What queries were searched with lately: one that comes again costs no call of the embedder, and needs none."""

from __future__ import annotations

from cachetools import LRUCache

from hippovault_gateway.embedding import EmbeddedQuery

ENTRY_BYTES = 640
"""What an entry has in memory besides its vectors and its text."""
CHARACTER_BYTES = 4
"""Of a text in memory, at most."""


class QueryCache:
    """The least recently used go first. Keeps what storage has searched with, so that all are of its model.

    Args:
        size: Bytes of all entries; 0 keeps none.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: LRUCache[str, tuple[int, EmbeddedQuery]] = LRUCache(size, getsizeof=lambda entry: entry[0])

    def get(self, query: str) -> EmbeddedQuery | None:
        """Returns what a query was searched with."""
        entry = self._entries.get(query)
        return entry and entry[1]

    def keep(self, query: str, embedded: EmbeddedQuery) -> None:
        """Keeps it, unless it is larger than the whole cache."""
        vectors = len(embedded.vector) + len(embedded.token_vectors)
        size = ENTRY_BYTES + CHARACTER_BYTES * len(query) + vectors
        if size <= self._size:
            self._entries[query] = (size, embedded)

    def clear(self) -> None:
        """Forgets all."""
        self._entries.clear()
