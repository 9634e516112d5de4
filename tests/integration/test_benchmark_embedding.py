"""The embedding benchmark runs, on made texts and in the small: what it measures is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.processes import environment

ROOT = Path(__file__).parents[2]
SMALL: tuple[str, ...] = (
    "--queries",
    "4",
    "--callers",
    "2",
    "--rate",
    "99",
    "--documents",
    "1",
    "--rounds",
    "1",
    "--idle",
    "0.1",
)
SOAK: tuple[str, ...] = ("--soak", "2")
SECONDS = 300


class Ended(NamedTuple):
    """What became of a run."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def runs(module_home: Path) -> Iterator[dict[tuple[str, ...], subprocess.Popen[str]]]:
    """Both kinds side by side, since much of each is waiting."""
    running = {arguments: _started(module_home, arguments) for arguments in (SMALL, SOAK)}
    yield running
    for run in running.values():
        run.terminate()
        run.wait(SECONDS)


def _started(home: Path, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmark.embedding", *arguments, "--reports", str(home.parent / "reports")],
        cwd=ROOT,
        env=environment(home, {"TMPDIR": str(home.parent)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(run: subprocess.Popen[str]) -> Ended:
    stdout, stderr = run.communicate(timeout=SECONDS)
    return Ended(run.returncode, stdout, stderr)


def report(home: Path, name: str) -> dict[str, Any]:
    results = json.loads((home.parent / "reports" / f"{name}.json").read_text())["results"]
    assert isinstance(results, dict)
    return results


def test_it_prints_a_table_and_writes_a_report(
    module_home: Path, runs: dict[tuple[str, ...], subprocess.Popen[str]]
) -> None:
    done = ended(runs[SMALL])
    assert done.code == 0, done.stderr
    assert "query over gRPC" in done.stdout
    assert "queries beside a load" in done.stderr
    assert "100%" in done.stderr
    figures = report(module_home, "embedding_synthetic")["figures"]
    assert {figure["verdict"] for figure in figures if figure["bound"]} <= {"met", "missed"}
    assert all(figure["measured"] > 0 for figure in figures if figure["unit"] in {"ms", "MB", "tokens/s"})


def test_a_soak_counts_answers_by_status_code(
    module_home: Path, runs: dict[tuple[str, ...], subprocess.Popen[str]]
) -> None:
    done = ended(runs[SOAK])
    assert "rounds" in done.stderr
    results = report(module_home, "embedding_synthetic_soak")
    assert results["answers"]["bad input: INVALID_ARGUMENT"] > 0
    figures = {figure["figure"]: figure for figure in results["figures"]}
    assert figures["answers that are not what they must be"]["measured"] == 0, done.stdout
    assert done.code == any(figure["verdict"] == "missed" for figure in figures.values())
