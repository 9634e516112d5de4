"""Fixtures that every kind of test uses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stack import Stack, running


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


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A running memory that tests share; each uses a namespace of its own and stops nothing."""
    for home in _temporary_home():
        with running(home, {"HIPPOVAULT_HINTS_ENABLED": "1"}) as shared:
            yield shared
