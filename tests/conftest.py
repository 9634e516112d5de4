"""Fixtures that every kind of test uses."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hypothesis.configuration
import pytest

from support.processes import private_variables
from support.stack import Stack, running

# What fails is told with the example in full; nothing is kept in the repository between runs, so each run makes its
# tables of characters anew, which takes a busy machine longer than an example may.
hypothesis.settings.register_profile(
    "stateless", database=None, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("stateless")


@contextmanager
def _temporary_home() -> Iterator[Path]:
    # Short, since a Unix socket's path has at most 103 bytes and pytest's own directories spend most of them.
    directory = Path(tempfile.mkdtemp(prefix="hv-"))
    try:
        yield directory / "home"
    finally:
        shutil.rmtree(directory)


def pytest_configure(config: pytest.Config) -> None:
    """Keeps code that runs in the tests' own process away from the data of whoever runs them."""
    guard = ExitStack()
    home = guard.enter_context(_temporary_home())
    patch = guard.enter_context(pytest.MonkeyPatch.context())
    for name, value in private_variables(home).items():
        patch.setenv(name, value)
    hypothesis.configuration.set_hypothesis_home_dir(home.parent / "hypothesis")
    config.add_cleanup(guard.close)


@pytest.fixture
def home() -> Iterator[Path]:
    """A HIPPOVAULT_HOME of the test's own, not made yet; its parent is the test's too."""
    with _temporary_home() as home:
        yield home


@pytest.fixture(scope="module")
def module_home() -> Iterator[Path]:
    """A HIPPOVAULT_HOME that a module's tests share."""
    with _temporary_home() as home:
        yield home


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A running memory that tests share; each uses a namespace of its own and stops nothing."""
    with _temporary_home() as home, running(home, {"HIPPOVAULT_HINTS_ENABLED": "1"}) as shared:
        yield shared
