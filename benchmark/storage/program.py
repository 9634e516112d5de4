"""What a hand-written program would do over the same tables: plain apsw and the same SQL, with nothing else around it.

It has the rows before its clock runs, and keeps a statement's text, so that apsw finds it compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import sqlite_vec

from hippovault_storage.sqlite import text

COPIED = {
    "memories": "id",
    "hippo_memories": "memory_id",
    "hippo_tags": "memory_id",
    "memory_embeddings": "rowid",
    "hippo_vectors": "memory_id",
}
"""Tables of which a new memory has rows, and the column that names it. FTS5 keeps no text, so its row is made."""

FIND = "SELECT memory_id FROM hippo_memories WHERE namespace = ? AND content_hash = ?"
WORDS = "INSERT INTO hippo_fts (rowid, body, hints) VALUES (?, ?, '')"
NEAREST = "SELECT rowid FROM memory_embeddings WHERE content_embedding MATCH ? AND k = ? ORDER BY distance"
MATCHING = "SELECT rowid FROM hippo_fts WHERE hippo_fts MATCH ? ORDER BY rank LIMIT ?"

PRAGMAS = (
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; "
    "PRAGMA mmap_size = 2147483648"
)


@dataclass(frozen=True)
class Rows:
    """What one memory is in every table."""

    identity: tuple[str, str]
    inserts: list[tuple[str, list[tuple[Any, ...]]]]
    """Statements, each with the rows that it inserts."""


class Program:
    """A program with one connection to a file that has the tables.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.enable_load_extension(True)  # noqa: FBT003  # apsw names it so.
        self.connection.load_extension(sqlite_vec.loadable_path())
        self.connection.execute(PRAGMAS).fetchall()

    def read(self, memory_id: int) -> Rows:
        """Returns the rows of a memory, for `write` into another file."""
        inserts = [insert for table, key in COPIED.items() if (insert := self._insert(table, key, memory_id))[1]]
        ((namespace, content_hash, content),) = self._all(
            "SELECT h.namespace, h.content_hash, m.content FROM hippo_memories h JOIN memories m ON m.id = h.memory_id "
            "WHERE h.memory_id = ?",
            memory_id,
        )
        inserts.append((WORDS, [(memory_id, text.indexed(content))]))
        return Rows((namespace, content_hash), inserts)

    def write(self, rows: Rows) -> None:
        """Looks whether the memory is there, and inserts it, in one transaction."""
        execute, execute_many = self.connection.execute, self.connection.executemany
        execute("BEGIN IMMEDIATE")
        if not execute(FIND, rows.identity).fetchall():
            for statement, values in rows.inserts:
                if len(values) == 1:
                    execute(statement, values[0])
                else:
                    execute_many(statement, values)
        execute("COMMIT")

    def nearest(self, vector: bytes, k: int) -> list[int]:
        """Returns ids by vec0's scan of all float32 vectors, best first."""
        return [row[0] for row in self._all(NEAREST, vector, k)]

    def matching(self, expression: str, k: int) -> list[int]:
        """Returns ids by BM25, best first."""
        return [row[0] for row in self._all(MATCHING, expression, k)]

    def _insert(self, table: str, key: str, memory_id: int) -> tuple[str, list[tuple[Any, ...]]]:
        named = [column for (column,) in self._all("SELECT name FROM pragma_table_info(?)", table)]
        columns = ", ".join(dict.fromkeys([key, *named]))  # A virtual table does not tell its rowid.
        found = self._all(f"SELECT {columns} FROM {table} WHERE {key} = ?", memory_id)
        marks = ", ".join("?" * len(columns.split(", ")))
        return f"INSERT INTO {table} ({columns}) VALUES ({marks})", found

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connection.execute(sql, values)) as cursor:
            return cursor.fetchall()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Program]:
    """A program over the file while the context lasts."""
    program = Program(path)
    try:
        yield program
    finally:
        program.connection.close()
