"""The storage benchmark runs, on made data and in the small: what it measures is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.processes import environment

ROOT = Path(__file__).parents[2]


def test_it_prints_a_table_and_writes_a_report(home: Path) -> None:
    small = ["--rows", "60", "--queries", "2", "--writes", "10", "--varied", "90"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.storage", *small, "--reports", str(home.parent / "reports")],
        cwd=ROOT,
        env=environment(home, {"TMPDIR": str(home.parent)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "write of one memory" in done.stdout
    report = json.loads((home.parent / "reports" / "storage_synthetic.json").read_text())
    assert report["dataset"] == {"name": "synthetic"}
    figures = report["results"]["figures"] + report["results"]["varied_figures"]
    assert {figure["verdict"] for figure in figures if figure["bound"]} <= {"met", "missed"}
    assert all(figure["measured"] >= 0 for figure in figures)
