"""Whether SQLite finds the file whole."""

from __future__ import annotations

import apsw

from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.verifying.findings import Findings


def damages(connection: apsw.Connection) -> list[str]:
    """Returns what SQLite finds wrong with pages, indexes, constraints and the word index, a line each."""
    return [line for line in query.column(connection, "PRAGMA integrity_check") if line != "ok"]


def look(connection: apsw.Connection, findings: Findings) -> None:
    """Counts pages."""
    findings.looked_at(query.value(connection, "PRAGMA page_count"))
    for line in damages(connection):
        findings.wrong(f"SQLite: {' '.join(line.split())}")
