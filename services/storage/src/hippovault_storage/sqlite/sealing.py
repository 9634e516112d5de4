"""Sealing every value of a store anew, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hippovault_storage.sqlite import query, records
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.vault import Place, Value

CHUNK = 500
"""Rows at a time: other writes wait a few milliseconds for them."""

Change = Callable[[Place, str, Value, str], Value]
"""Makes of a place, a column, its value and the table's name what the column shall hold."""


@dataclass(frozen=True)
class Table:
    """A table with values that a vault seals."""

    name: str
    row_id: str
    columns: tuple[str, ...]
    source: str
    """Where its rows come from, under the name `t`, and those of their memories, under `h`."""
    place: str = "h.namespace, h.category, h.key, h.version, h.memory_id"

    def rows(self) -> str:
        """Returns the statement that reads a chunk."""
        columns = ", ".join(f"t.{name}" for name in self.columns)
        return (
            f"SELECT {self.place}, t.{self.row_id}, {columns} FROM {self.source} "
            f"WHERE t.{self.row_id} > ? ORDER BY t.{self.row_id} LIMIT {CHUNK}"
        )


TABLES = (
    Table(
        "memories",
        "id",
        ("content", "tags", "metadata"),
        "memories t JOIN hippo_memories h ON h.memory_id = t.id",
    ),
    Table("hippo_memories", "memory_id", ("hints",), "hippo_memories t JOIN hippo_memories h USING (memory_id)"),
    Table(
        "hippo_history",
        "rowid",
        ("content", "tags", "metadata"),
        "hippo_history t JOIN hippo_memories h ON h.memory_id = t.memory_id",
        "h.namespace, t.category, t.key, t.version, t.memory_id",
    ),
)


def total(connection: Connection) -> int:
    """Returns how many rows there are."""
    return sum(int(query.value(connection, f"SELECT count(*) FROM {table.name}")) for table in TABLES)


def seal_chunk(connection: Connection, table: Table, after: int, change: Change) -> tuple[int, int]:
    """Changes the values of the rows that come after one.

    Returns:
        How many rows it looked at, and the last one's id.
    """
    found = query.rows(connection, table.rows(), (after,))
    parts = len(Place._fields)
    for row in found:
        place, row_id, values = Place(*row[:parts]), row[parts], row[parts + 1 :]
        changed = {
            name: sealed
            for name, value in zip(table.columns, values, strict=True)
            if not records.is_empty(name, value) and (sealed := change(place, name, value, table.name)) != value
        }
        if changed:
            settings = ", ".join(f"{name} = :{name}" for name in changed)
            sql = f"UPDATE {table.name} SET {settings} WHERE {table.row_id} = :row_id"
            connection.execute(sql, {**changed, "row_id": row_id})
    return len(found), found[-1][parts] if found else after


def seal_table(connection: Connection, table: Table, change: Change) -> None:
    """Changes the values of all rows."""
    seen, last = CHUNK, records.BEFORE_ALL
    while seen == CHUNK:
        seen, last = seal_chunk(connection, table, last, change)


def sealed_otherwise(connection: Connection, header: bytes) -> int:
    """Returns how many values do not begin with the header that a vault gives them."""
    return sum(
        int(
            query.value(
                connection,
                f"SELECT count(*) FROM {table.source} WHERE substr(t.{name}, 1, {len(header)}) <> ? "
                f"AND NOT ('{name}' = 'hints' AND t.{name} = '{records.NO_HINTS}')",
                (header,),
            )
        )
        for table in TABLES
        for name in table.columns
    )
