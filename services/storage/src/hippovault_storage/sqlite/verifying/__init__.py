"""Looking a whole store over. Nothing is changed and nobody is kept waiting; memory is bounded whatever the size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import faults
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex
from hippovault_storage.sqlite.verifying import codes, contents, history, models, pages, rows, vectors, words
from hippovault_storage.sqlite.verifying.findings import Findings


@dataclass(frozen=True)
class Check:
    """One thing that is looked at."""

    name: str
    look: Callable[[Connection, Findings], None]
    remedy: str
    """What to do about what is wrong."""


RESTORE = "restore a backup"
REINDEX = "`{reindex}` makes it anew"
REMEMBER = "purge it and remember it again while the store's model is served"
REOPEN = "another program may have changed the file: a restart takes its changes in"

CHECKS = (
    Check("integrity", pages.look, RESTORE),
    Check("rows", rows.look, REOPEN),
    Check("contents", contents.look, RESTORE),
    Check("tags", contents.look_at_tags, REINDEX),
    Check("words", words.look, REINDEX),
    Check("vectors", vectors.look, REINDEX),
    Check("pending", vectors.look_at_pending, ""),
    Check("models", models.look, REMEMBER),
    Check("history", history.look, RESTORE),
)


def answers(connection: Connection, path: Path, index: CodeIndex) -> Iterator[pb.VerifyResponse]:
    """Runs every check, and yields what each found.

    Args:
        connection: For reading; nobody else uses it.
        path: Its file, for errors.
        index: Is in step with the file.

    Raises:
        ServiceError: DEADLINE_EXCEEDED when nobody waits any more.
    """
    codes_check = Check("codes", lambda reader, findings: codes.look(reader, index, findings), REINDEX)
    for check in (*CHECKS, codes_check):
        yield _found(connection, path, check).answer


def problems(connection: Connection, path: Path) -> Iterator[str]:
    """Runs every check of a file that is not served, and yields the first problems of each, which name no contents.

    Args:
        connection: For reading; nobody else uses it.
        path: Its file, for errors.
    """
    for check in CHECKS:
        yield from (f"{check.name}: {problem}" for problem in _found(connection, path, check).problems)


def _found(connection: Connection, path: Path, check: Check) -> Findings:
    deadline.remaining()
    findings = Findings(check.name, check.remedy.format(reindex=command("reindex")))
    try:
        with faults.told_in_use(path):
            check.look(connection, findings)
    except ServiceError as error:
        if error.reason not in {"CORRUPT", "NOT_A_DATABASE"}:
            raise
        findings.wrong(f"the check could not go on: {error.message}")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return findings
