"""The embedding benchmark runs, on made texts and in the small: what it measures is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.processes import environment

ROOT = Path(__file__).parents[2]


def benchmark(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmark.embedding", *arguments, "--reports", str(home.parent / "reports")],
        cwd=ROOT,
        env=environment(home, {"TMPDIR": str(home.parent)}),
        capture_output=True,
        text=True,
        check=False,
    )


def report(home: Path, name: str) -> dict[str, Any]:
    results = json.loads((home.parent / "reports" / f"{name}.json").read_text())["results"]
    assert isinstance(results, dict)
    return results


def test_it_prints_a_table_and_writes_a_report(home: Path) -> None:
    small = ["--queries", "4", "--callers", "4", "--rate", "50", "--documents", "8", "--rounds", "1", "--idle", "0.1"]
    done = benchmark(home, *small)
    assert done.returncode == 0, done.stderr
    assert "query over gRPC" in done.stdout
    figures = report(home, "embedding_synthetic")["figures"]
    assert {figure["verdict"] for figure in figures if figure["bound"]} <= {"met", "missed"}
    assert all(figure["measured"] > 0 for figure in figures if figure["unit"] in {"ms", "MB", "tokens/s"})


def test_a_soak_counts_answers_by_status_code(home: Path) -> None:
    done = benchmark(home, "--soak", "2")
    results = report(home, "embedding_synthetic_soak")
    assert results["answers"]["bad input: INVALID_ARGUMENT"] > 0
    figures = {figure["figure"]: figure for figure in results["figures"]}
    assert figures["answers that are not what they must be"]["measured"] == 0, done.stdout
    assert done.returncode == any(figure["verdict"] == "missed" for figure in figures.values())
