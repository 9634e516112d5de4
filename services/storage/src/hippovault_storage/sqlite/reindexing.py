"""Making anew what is derived from the memories: words, tags, copies of vectors and the code index.

A chunk is a transaction, complete in itself, so that searches are right throughout and the work may be cut short and
begun again at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import apsw

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import deadline
from hippovault_storage.sqlite import hint_vectors, query, readable, records, schema, vectors, writes
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.writer import Writer

CHUNK = 500
"""Memories a transaction."""

LEFT = """
DELETE FROM hippo_fts WHERE rowid IN (SELECT id FROM hippo_fts_docsize EXCEPT SELECT memory_id FROM hippo_memories);
DELETE FROM hippo_tags WHERE memory_id NOT IN (SELECT memory_id FROM hippo_memories);
DELETE FROM hippo_vectors WHERE memory_id NOT IN (SELECT memory_id FROM hippo_memories);
DELETE FROM hippo_token_codes WHERE memory_id NOT IN (SELECT memory_id FROM hippo_memories);
"""
"""Takes out what belongs to no memory."""


def reindex(writer: Writer, readers: Readers, index: CodeIndex) -> Iterator[pb.ReindexResponse]:
    """Makes all that is derived anew and yields how many memories are done."""
    if not _has_sound_words(readers):
        writer.run_alone(_make_words)
    with readers.borrow() as connection:
        total = query.value(connection, "SELECT count(*) FROM hippo_memories")
    done, last = 0, records.BEFORE_ALL
    while ids := writer.run(partial(_reindex_chunk, last=last)):
        done, last = done + len(ids), ids[-1]
        yield pb.ReindexResponse(done=min(done, total), total=total)
    writer.run(lambda connection: connection.execute(LEFT))
    for _ in index.rebuild():
        deadline.remaining()
    yield pb.ReindexResponse(done=total, total=total)


def _has_sound_words(readers: Readers) -> bool:
    with readers.apart() as connection:
        try:
            return query.column(connection, "PRAGMA integrity_check(hippo_fts)") == ["ok"]
        except apsw.CorruptError:
            return False


def _make_words(connection: Connection) -> None:
    """Makes the index of words anew, in one transaction: a damaged one takes no changes."""
    with connection:
        connection.execute("DROP TABLE hippo_fts")
        connection.execute(schema.WORDS)
        last = records.BEFORE_ALL
        while ids := query.column(connection, records.NEXT_IDS, (last, CHUNK)):
            last = ids[-1]
            writes.write_words(connection, [memory for memory in readable.alone(connection, ids) if _lives(memory)])


def _reindex_chunk(connection: Connection, *, last: int) -> list[int]:
    """Does the memories that follow an id; returns theirs."""
    ids = query.column(connection, records.NEXT_IDS, (last, CHUNK))
    memories = readable.alone(connection, ids)  # What is derived from the others stays.
    writes.write_tags(connection, memories)
    writes.remove_words(connection, [memory.id for memory in memories if not _lives(memory)])
    writes.write_words(connection, [memory for memory in memories if _lives(memory)])
    vectors.refresh(connection, ids)
    for memory_id in hint_vectors.unfit(connection, memories):
        vectors.write_of_hints(connection, memory_id, b"")
    return ids


def _lives(memory: memory_pb2.Memory) -> bool:
    return not memory.HasField("deleted_at")
