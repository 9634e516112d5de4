"""Whether the keyword index has the words of every live memory: how many by its own count, which ones for a sample."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault_storage.sqlite import query, readable, records, text
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.verifying import contents
from hippovault_storage.sqlite.verifying.findings import Findings

SAMPLE = 500
PHRASE_WORDS = 200
"""Of a sampled text, its first words are looked up, as one phrase."""

CONTINUES = 0x80
"""The bit of a byte that says that the integer goes on."""

NOT_LIVE = """
SELECT d.id FROM hippo_fts_docsize d LEFT JOIN hippo_memories h ON h.memory_id = d.id AND h.deleted_at IS NULL
WHERE h.memory_id IS NULL
"""
SIZES = "SELECT id, sz FROM hippo_fts_docsize WHERE id IN (SELECT value FROM json_each(?))"
SAMPLED = "SELECT memory_id FROM hippo_memories WHERE deleted_at IS NULL ORDER BY random() LIMIT ?"
FOUND = "SELECT EXISTS(SELECT 1 FROM hippo_fts WHERE hippo_fts MATCH ? AND rowid = ?)"

Tokenizer = Callable[[str], int]
"""Returns how many words a text has."""


def look(connection: Connection, findings: Findings) -> None:
    """Counts live memories."""
    for (memory_id,) in query.each(connection, NOT_LIVE):
        findings.wrong(f"memory {memory_id}: it is not live, yet its words are in the index")
    count = _counter(connection)
    for ids in contents.batches(connection):
        sizes = dict(query.rows(connection, SIZES, (records.as_json(ids),)))
        for memory in _live(connection, ids):
            findings.looked_at(1)
            expected = [count(part) for part in _indexed(memory)]
            if memory.id not in sizes or _varints(sizes[memory.id]) != expected:
                findings.wrong(f"memory {memory.id}: the index has not as many words of it as it has")
    connection.execute("BEGIN")
    for memory in _live(connection, query.column(connection, SAMPLED, (SAMPLE,))):
        if not all(query.value(connection, FOUND, (phrase, memory.id)) for phrase in _phrases(memory, count)):
            findings.wrong(f"memory {memory.id}: the index has other words of it than it has")


def _live(connection: Connection, ids: Sequence[int]) -> Iterator[memory_pb2.Memory]:
    for _, memory in readable.each(connection, ids):
        if not isinstance(memory, str) and not memory.HasField("deleted_at"):
            yield memory


def _indexed(memory: memory_pb2.Memory) -> tuple[str, str]:
    """Returns what the index's two columns are made of."""
    return text.indexed(memory.content), text.indexed_hints(memory.hints)


def _counter(connection: apsw.Connection) -> Tokenizer:
    name, *arguments = shlex.split(text.TOKENIZER)
    tokenizer = connection.fts5_tokenizer(name, arguments)
    return lambda part: sum(
        1 for _ in tokenizer(part.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False)
    )


def _phrases(memory: memory_pb2.Memory, count: Tokenizer) -> Iterator[str]:
    for column, indexed in zip(("body", "hints"), _indexed(memory), strict=True):
        beginning = " ".join(indexed.split()[:PHRASE_WORDS])
        if count(beginning):
            quoted = beginning.replace('"', '""')
            yield f'{column} : "{quoted}"'


def _varints(data: bytes) -> list[int]:
    """Returns SQLite's integers of variable length."""
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & ~CONTINUES
        if not byte & CONTINUES:
            numbers.append(number)
            number = 0
    return numbers
