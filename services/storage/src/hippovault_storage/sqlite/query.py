"""Queries that are read to their end.

A cursor that is dropped before its end may keep its statement open (apsw does not reset it when another cursor of the
connection was used meanwhile), and an open statement holds its connection to the moment at which it began: later reads
would not see later writes. So queries go through these functions.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt

CHUNK = 500
"""Rows fetched at a time by those who go through them one by one."""


@contextlib.contextmanager
def reading(connection: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> Iterator[apsw.Cursor]:
    """Yields the rows, of which any may be left: the statement ends with the context, also when it fails half-way."""
    cursor = connection.execute(sql, values)
    try:
        yield cursor
    finally:
        # By an empty statement, since apsw 3.54 never frees a cursor that was closed.
        with contextlib.suppress(apsw.Error):  # Of what failed in the context, told again.
            cursor.execute("")


def rows(connection: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> list[tuple[Any, ...]]:
    """Returns all rows."""
    with reading(connection, sql, values) as cursor:
        return cursor.fetchall()


def rows_of(
    connection: apsw.Connection, sql: str, ids: npt.NDArray[np.int64], values: tuple[apsw.SQLiteValue, ...] = ()
) -> list[tuple[Any, ...]]:
    """Returns all rows of a query whose first parameter are ids, for `carray`."""
    return rows(connection, sql, (apsw.carray(np.ascontiguousarray(ids)), *values)) if ids.size else []


def chunks(connection: apsw.Connection, sql: str, values: apsw.Bindings, size: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yields all rows, `size` at a time; to be read to its end, or closed."""
    with reading(connection, sql, values) as cursor:
        while rows := list(itertools.islice(cursor, size)):
            yield rows


def column(connection: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> list[Any]:
    """Returns the only column of all rows."""
    return [value for (value,) in rows(connection, sql, values)]


def value(connection: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> Any:
    """Returns the only column of the only row; None when there is no row."""
    found = rows(connection, sql, values)
    return found[0][0] if found else None


def quoted(name: str) -> str:
    """Returns a name, which another program may have made of anything, as a statement has it."""
    return '"' + name.replace('"', '""') + '"'


def each(connection: apsw.Connection, sql: str, values: apsw.Bindings = ()) -> Iterator[tuple[Any, ...]]:
    """Yields all rows, one at a time; to be read to its end, or closed."""
    for batch in chunks(connection, sql, values, CHUNK):
        yield from batch
