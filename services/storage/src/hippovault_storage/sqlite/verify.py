"""Looking a whole store over. Nothing is changed, and nobody is kept waiting: each check reads a moment of its own."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_storage.sqlite import query

MAX_PROBLEMS = 20
"""Problems that one answer tells; all are counted."""


def checks(connection: apsw.Connection) -> Iterator[pb.VerifyResponse]:
    """Runs every check, and yields what each found."""
    yield _integrity(connection)


def damages(connection: apsw.Connection) -> list[str]:
    """Returns what SQLite finds wrong with pages, indexes, constraints and the word index, a line each."""
    return [line for line in query.column(connection, "PRAGMA integrity_check") if line != "ok"]


def _integrity(connection: apsw.Connection) -> pb.VerifyResponse:
    """Has SQLite look at every page, index and constraint, and at the word index, which reads its own tables."""
    found = damages(connection)
    pages = query.value(connection, "PRAGMA page_count")
    return pb.VerifyResponse(check="integrity", checked=pages, wrong=len(found), problems=found[:MAX_PROBLEMS])
