"""Vectors of texts that were embedded lately."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from hippovault_embedding.backend import Options, Row

ENTRY_BYTES = 640
"""What an entry has in memory besides its rows, as measured."""
ROW_BYTES = 130
"""What a row has besides its vector and codes."""


@dataclass(frozen=True)
class Embedding:
    """What became of one text."""

    rows: Sequence[Row]
    """Its windows, at least one."""
    token_count: int
    truncated: bool = False
    unknown: int = 0
    """Tokens that the vocabulary does not have."""
    cached: bool = False

    @property
    def size(self) -> int:
        """Bytes of its vectors and codes."""
        return sum(len(row.vector) + len(row.token_codes) for row in self.rows)

    @property
    def refused(self) -> str:
        """Why there is no vector, where the text itself is to blame; empty when there is one."""
        return next((row.refused for row in self.rows if row.refused), "")


Key = tuple[bytes, str, Options]


class EmbeddingCache:
    """The least recently used go first. Texts themselves are not kept, only their digests.

    Args:
        size: Bytes of all entries; 0 keeps none.
    """

    def __init__(self, size: int) -> None:
        self._entries: LRUCache[Key, Embedding] = LRUCache(size, getsizeof=_memory)

    @staticmethod
    def key(revision: str, options: Options, text: str) -> Key:
        """Returns what tells texts apart; the digest is long enough that two never share one."""
        return hashlib.blake2b(text.encode(), digest_size=32).digest(), revision, options

    def get(self, key: Key) -> Embedding | None:
        """Returns what is known of a text."""
        return self._entries.get(key)

    def put(self, key: Key, embedding: Embedding) -> None:
        """Keeps it, unless it is larger than the whole cache."""
        if _memory(embedding) <= self._entries.maxsize:
            self._entries[key] = embedding


def _memory(entry: Embedding) -> int:
    """Returns the bytes of an entry in memory."""
    return ENTRY_BYTES + ROW_BYTES * len(entry.rows) + entry.size
