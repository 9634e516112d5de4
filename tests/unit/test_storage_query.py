"""Queries leave nothing behind: neither an open statement nor memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest

from hippovault_storage.sqlite import query

NUMBERS = "SELECT n FROM numbers"
FAILS_HALF_WAY = "SELECT json(CASE n WHEN 3 THEN '{' ELSE '{}' END) FROM numbers"
CALLS = 500
FREE_BYTES = 20 * CALLS
"""Less than the smallest object of each call."""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(str(tmp_path / "numbers.db"))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE numbers (n)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(5)])
        yield connection


@pytest.fixture
def reader(writer: apsw.Connection) -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(writer.filename)) as connection:
        yield connection


def first_of(reader: apsw.Connection) -> None:
    with query.reading(reader, NUMBERS) as numbers:
        assert next(numbers) == (0,)


def chunk_while_others_read(reader: apsw.Connection) -> None:
    chunks = query.chunks(reader, NUMBERS, (), 1)
    assert next(chunks) == [(0,)]
    query.rows(reader, "SELECT 1")


def fails_half_way(reader: apsw.Connection) -> None:
    chunks = query.chunks(reader, FAILS_HALF_WAY, (), 1)
    assert next(chunks) == [("{}",)]
    query.rows(reader, "SELECT 1")
    with pytest.raises(apsw.SQLError):
        list(chunks)


QUERIES: dict[str, Callable[[apsw.Connection], object]] = {
    "rows": lambda reader: query.rows(reader, NUMBERS),
    "ids": lambda reader: query.rows_of(reader, "SELECT value FROM carray(?)", np.arange(3)),
    "chunks": lambda reader: list(query.chunks(reader, NUMBERS, (), 2)),
    "column": lambda reader: query.column(reader, NUMBERS),
    "value": lambda reader: query.value(reader, NUMBERS),
    "each": lambda reader: list(query.each(reader, NUMBERS)),
    "first of": first_of,
}
OF_TWO_AT_ONCE = {"chunk while others read": chunk_while_others_read, "fails half-way": fails_half_way}


@pytest.mark.parametrize("name", [*QUERIES, *OF_TWO_AT_ONCE])
def test_later_reads_see_later_writes(writer: apsw.Connection, reader: apsw.Connection, name: str) -> None:
    (QUERIES | OF_TWO_AT_ONCE)[name](reader)
    writer.execute("INSERT INTO numbers VALUES (5)")
    assert query.value(reader, "SELECT count(*) FROM numbers") == 6


@pytest.mark.parametrize("name", QUERIES)
def test_memory_stays_as_it_is(reader: apsw.Connection, name: str) -> None:
    ask = QUERIES[name]
    for _ in range(100):  # Statements are kept, up to a number.
        ask(reader)
    tracemalloc.start()
    try:
        for _ in range(CALLS):
            ask(reader)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < FREE_BYTES
