"""Runs the real `hippovault` command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.processes import environment

COMMAND = [sys.executable, "-m", "hippovault_gateway.cli"]
SECONDS = 100


def hippovault(
    home: Path, *arguments: str, stdin: bytes = b"", extra_environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end, in an environment of the test's own."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        env=environment(home, extra_environment),
        cwd=home.parent,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


def answer(home: Path, command: str, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    """Returns the JSON document that a command answers with; it must succeed."""
    ended = hippovault(home, command, "--json", *arguments, stdin=stdin)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document
