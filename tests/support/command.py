"""Runs the real `hippovault` command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hippovault_gateway.cli import app
from support.processes import environment

Run = Callable[..., tuple[int, dict[str, Any]]]
"""Runs a command; returns its exit code and the JSON document that it answers with."""

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


def in_process(
    variables: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    warns: bool = False,
) -> Run:
    """Returns what runs commands within this process, which spares their start.

    Args:
        variables: What they find in the environment.
        monkeypatch: The test's.
        capsys: The test's.
        warns: Whether they may write to stderr.
    """
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = app.run([*arguments, "--json"])
        shown = capsys.readouterr()
        assert warns or shown.err == ""
        document: dict[str, Any] = json.loads(shown.out)
        return code, document

    return run


def in_terminal(home: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Runs a command whose three streams are a terminal; returns exit code and what the terminal got."""
    master, slave = pty.openpty()
    kept = {name: value for name, value in environment(home).items() if name not in ("NO_COLOR", "COLUMNS", "CI")}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env={**kept, "TERM": "xterm", **variables}
    )
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:  # How a terminal says that nobody writes to it any more.
        pass
    os.close(master)
    return process.wait(60), shown.decode()
