"""What another program has in the file beside the drop-in tables, and what our writes must do for it.

mcp-memory-service gives its table of vectors a further column, `store`, by which its searches choose rows, and keeps
word indexes of its own, which triggers on `memories` bring up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import apsw

from hippovault_storage.sqlite import query

VECTOR_COLUMNS = frozenset({"rowid", "content_embedding"})

WORDS = "memory_content_fts"
"""An FTS5 index over `memories.content` that reads the words of a row from the row itself (`content='memories'`)."""


def vector_columns(connection: apsw.Connection) -> list[str]:
    """Returns the further columns of the table of vectors. In a row of ours they repeat those of the memory's row."""
    names = query.column(connection, "SELECT name FROM pragma_table_info('memory_embeddings')")
    return [name for name in names if name not in VECTOR_COLUMNS]


@contextmanager
def changing_content(connection: apsw.Connection, memory_id: int) -> Iterator[None]:
    """Keeps the other program's words right while the context changes the content of a memory's row.

    Its trigger runs after the change and takes out the words that the row has by then. Those never were in the index,
    and FTS5 may call that a damaged file. So the trigger rests, and the old words go before the change.
    """
    if not _has_words(connection):
        yield
        return
    with removing_rows(connection, [memory_id]):
        yield
    connection.execute(
        f"INSERT INTO {WORDS} (rowid, content) SELECT id, content FROM memories WHERE id = ?", (memory_id,)
    )


@contextmanager
def removing_rows(connection: apsw.Connection, ids: Iterable[int]) -> Iterator[None]:
    """Keeps the other program's words right while the context removes the rows of memories, in the same way."""
    if not _has_words(connection):
        yield
        return
    remove_words(connection, ids)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def word_indexes(connection: apsw.Connection) -> list[str]:
    """Returns the FTS5 tables that have words of memories: ours and the other program's."""
    return ["hippo_fts", *([WORDS] if _has_words(connection) else [])]


def remove_words(connection: apsw.Connection, ids: Iterable[int]) -> None:
    """Takes memories out of the other program's words, which must be done while their rows are there."""
    if _has_words(connection):
        connection.executemany(f"DELETE FROM {WORDS} WHERE rowid = ?", [(memory_id,) for memory_id in ids])


def _has_words(connection: apsw.Connection) -> bool:
    return bool(query.value(connection, "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = ?)", (WORDS,)))
