"""Verify: the whole store looked over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hippovault.storage.v1 import maintenance_pb2 as pb
from support import processes, storage
from support.storage import SECONDS, Store


@pytest.fixture(scope="module")
def process(module_home: Path) -> Iterator[processes.Process]:
    with storage.serving(module_home) as process:
        yield process


@pytest.fixture
def store(process: processes.Process) -> Iterator[Store]:
    with storage.connected(process) as stub:
        yield Store(stub)


def verified(process: processes.Process) -> dict[str, pb.VerifyResponse]:
    with storage.maintaining(process) as stub:
        answers = stub.Verify(pb.VerifyRequest(), timeout=SECONDS)
        return {answer.check: answer for answer in answers}


def test_a_sound_store_has_nothing_wrong(process: processes.Process, store: Store) -> None:
    store.add("one", tags=["a"], hints=["hint"])
    assert all(not answer.wrong and answer.checked for answer in verified(process).values())
