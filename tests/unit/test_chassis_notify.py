"""Telling the parent that a process serves."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hippovault_chassis import notify


@pytest.fixture
def path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = home.parent / "n"
    monkeypatch.setenv(notify.VARIABLE, str(path))
    return path


def test_the_parent_is_told(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as parent:
        parent.bind(str(path))
        notify.ready("an address")

        assert parent.recv(1024).startswith(b"READY=1\n")


@pytest.mark.parametrize("was_there", [False, True])
def test_a_parent_that_is_gone_stops_nothing(path: Path, *, was_there: bool) -> None:
    if was_there:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as parent:
            parent.bind(str(path))

    notify.ready("an address")
