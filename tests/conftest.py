"""Fixtures that every kind of test uses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _temporary_home() -> Iterator[Path]:
    # Short, since a Unix socket's path has at most 103 bytes and pytest's own directories spend most of them.
    directory = Path(tempfile.mkdtemp(prefix="hv-"))
    yield directory / "home"
    shutil.rmtree(directory)


@pytest.fixture
def home() -> Iterator[Path]:
    """A HIPPOVAULT_HOME of the test's own, not made yet; its parent is the test's too."""
    yield from _temporary_home()


@pytest.fixture(scope="module")
def module_home() -> Iterator[Path]:
    """A HIPPOVAULT_HOME that a module's tests share."""
    yield from _temporary_home()
