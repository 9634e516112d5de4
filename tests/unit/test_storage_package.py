"""What a distribution ships beside its code."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("service", ["embedding", "storage"])
def test_a_distribution_carries_the_license(service: str) -> None:
    """A wheel cannot take a file from above its project, so each has a copy."""
    folder = ROOT / "services" / service
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
