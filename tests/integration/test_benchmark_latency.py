"""The latency benchmark runs, on made texts and in the small: what it measures is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.processes import environment

ROOT = Path(__file__).parents[2]


def test_it_prints_its_tables_and_writes_a_report(home: Path) -> None:
    small = ["--memories", "30", "--queries", "1", "--starts", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.latency", *small, "--reports", str(home.parent / "reports")],
        cwd=ROOT,
        env=environment(home, {"TMPDIR": str(home.parent)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "repeated query, MCP stdio, raw client" in done.stdout
    assert "where the time of a recall goes" in done.stdout
    report = json.loads((home.parent / "reports" / "latency_synthetic.json").read_text())
    assert report["results"]["memories"] == 30
    figures = report["results"]["figures"]
    assert {figure["verdict"] for figure in figures if figure["bound"]} <= {"met", "missed"}
    assert all(figure["measured"] > 0 for figure in figures)
