"""`hippovault export` and `hippovault import` of what it wrote, and of databases of other programs."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite.lockbox import Encryption
from support.command import hippovault
from support.storage import (
    SECONDS,
    Memory,
    Store,
    connected,
    in_process,
    near,
    opened,
    rows,
    serving,
    unit,
    vector,
    write_fixture,
)


class Keeper:
    """The commands over a running store."""

    def __init__(self, home: Path, address: str, store: Store) -> None:
        self.store = store
        self._home = home
        self._address = address

    def run(self, command: str, *arguments: str) -> CompletedProcess[bytes]:
        return hippovault(self._home, command, *arguments, "--storage", self._address)

    def answer(self, command: str, *arguments: str) -> dict[str, Any]:
        ended = self.run(command, *arguments, "--json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        document: dict[str, Any] = json.loads(ended.stdout)
        return document


@contextmanager
def keeping(home: Path) -> Iterator[Keeper]:
    with serving(home) as process, connected(process) as stub:
        yield Keeper(home, process.status, Store(stub, "default"))


@pytest.fixture(scope="module")
def source(module_home: Path) -> Iterator[Keeper]:
    """A store with memories of every kind."""
    with keeping(module_home) as keeper:
        store = keeper.store
        surprise = memory_pb2.Surprise(score=0.5, components=memory_pb2.SurpriseComponents(explicit=1))
        fields: dict[str, Any] = {"tags": ["a", "b"], "hints": ["Who?"], "importance": 0.0, "metadata": '{"n": 1.50}'}
        store.add('Zebra "crossing"\n\tin 東京.', near(0.25), surprise=surprise, status="open", **fields)
        for content in ("Oat milk is out.", "Oat milk is out again."):
            store.add(content, near(0.5), category="shopping", key="milk")
        store.delete_id(store.add("It was deleted.").id)
        request = pb.PutMemoryRequest(
            memory=Memory(namespace="work", content="Of parts."),
            vectors=unit(0) + vector(0.6, 0.8),
            token_codes=pb.TokenCodes(encoding="int8", codes=b"\x00\xff"),
        )
        store.stub.PutMemory(request, timeout=SECONDS)
        yield keeper


@pytest.fixture
def target(home: Path) -> Iterator[Keeper]:
    """A store with nothing in it."""
    with keeping(home) as keeper:
        yield keeper


def test_an_export_comes_back_whole(source: Keeper, target: Keeper, tmp_path: Path) -> None:
    file = tmp_path / "memories.jsonl"
    assert source.answer("export", str(file)) == {"file": str(file), "memories": 4}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = file.read_bytes().splitlines()
    header = json.loads(lines[0])
    assert (header["format"], header["version"], len(lines)) == ("hippovault-memories", 1, 5)
    first = json.loads(lines[1])
    assert first["memory"]["content"] == 'Zebra "crossing"\n\tin 東京.'
    assert first["memory"]["hints"] == ["Who?"]
    assert "id" not in first["memory"]
    assert target.answer("import", str(file)) == {"lines": 4, "imported": 4, "kept": 0, "failed": 0, "errors": []}
    again = target.run("export", "-")
    assert again.stdout.splitlines() == lines
    assert again.stderr == b"hippovault: exported: 4 memories\n"
    assert target.run("import", str(file)).stdout == b"4 lines: 0 imported, 4 kept, 0 failed\n"


def test_an_export_overwrites_nothing(source: Keeper, tmp_path: Path) -> None:
    for name in ("memories.jsonl", "memories.db"):
        file = tmp_path / name
        file.write_text("mine")
        ended = source.run("export", str(file))
        assert ended.returncode == 1
        assert str(file).encode() in ended.stderr
        assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memories.db", "memories.jsonl"]


def test_a_database_is_exported_and_comes_back(source: Keeper, target: Keeper, tmp_path: Path) -> None:
    file = tmp_path / "memories.db"
    assert source.answer("export", str(file))["memories"] == 4
    assert [path.name for path in tmp_path.iterdir()] == ["memories.db"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert target.answer("import", str(file))["imported"] == 4
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["memories.db"]
    assert target.run("export", "-").stdout == source.run("export", "-").stdout
    with opened(file) as database:
        knn = "SELECT rowid FROM memory_embeddings WHERE content_embedding MATCH ? AND k = 1"
        ((found,),) = rows(database, knn, (near(0.25),))
        assert rows(database, "SELECT tags FROM memories WHERE id = ?", (found,)) == [("a,b",)]


def test_a_database_of_another_program_comes_in_and_stays_as_it_is(target: Keeper, tmp_path: Path) -> None:
    file = tmp_path / "theirs.sqlite"
    write_fixture(file, "mcp_memory_service_12")
    before = file.read_bytes()
    assert target.answer("import", str(file)) == {"lines": 3, "imported": 3, "kept": 0, "failed": 0, "errors": []}
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.sqlite"]
    assert target.store.matching("heron") == target.store.nearest(unit(0), 1) == [" The Heron nests by the mill. "]


def test_a_link_to_a_database_in_use_brings_what_is_in_its_log(target: Keeper, tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "theirs.db", tmp_path / "link.db"
    real.parent.mkdir()
    link.symlink_to(real)
    write_fixture(real, "mcp_memory_service_12")
    with opened(real) as theirs:
        rows(theirs, "PRAGMA journal_mode = WAL")
        theirs.execute("INSERT INTO memories (content_hash, content, created_at) VALUES ('0', 'in the log', 1)")
        assert target.answer("import", str(link))["imported"] == 4
    assert target.store.matching("log") == ["in the log"]


def test_an_encrypted_store_is_no_file_to_import(source: Keeper, tmp_path: Path) -> None:
    file, key = tmp_path / "sealed.db", tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(base64.b64encode(bytes(32)))
    with in_process(file, encryption=Encryption("values", KeySource(key))) as (stub, _):
        Store(stub).add("secret")
    ended = source.run("import", str(file))
    assert ended.returncode == 1
    assert f"{file} is encrypted".encode() in ended.stderr
    assert f"{tmp_path}/sealed.keys".encode() in ended.stderr


def test_what_is_wrong_in_an_export_is_told_by_its_line(target: Keeper, tmp_path: Path) -> None:
    file = tmp_path / "memories.jsonl"
    memory = '{"memory":{"content":"%s","created_at":"2026-01-31T12:00:00Z"}}'
    history = '{"history":[{"memory":{"content":"secret","created_at":"2026-01-31T12:00:00Z"}}]}'
    lines = [
        '{ "format" : "hippovault-memories", "version": 1 }',
        memory % "first",
        "{nonsense",
        history,
        "",
        '{"memory":{"content":"secret","version":"secret"}}',
        '{"memory":{"content":"secret","bogus":"secret"}}',
        memory % "  ",
        memory % "last",
    ]
    file.write_text("\n".join(lines))
    ended = target.run("import", str(file), "--json")
    assert ended.returncode == 1
    counted = json.loads(ended.stdout)
    assert (counted["lines"], counted["imported"], counted["failed"]) == (7, 2, 5)
    assert [(one["line"], one["field"]) for one in counted["errors"]] == [
        (3, "line"), (4, "line"), (6, "memory.version"), (7, "memory.bogus"), (8, "content"),
    ]  # fmt: skip
    assert b"secret" not in ended.stdout + ended.stderr
    assert sorted(target.store.listed()) == ["first", "last"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"format":"hippovault-memories","version":2}\n', b"has version 2"),
        (b"SQLite format 3\0" + b"\xff" * 4096, b"memories.db"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(source: Keeper, tmp_path: Path, content: bytes, told: bytes) -> None:
    file = tmp_path / "memories.db"
    file.write_bytes(content)
    ended = source.run("import", str(file))
    assert ended.returncode == 1
    assert told in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert b"`hippovault" not in ended.stderr  # What helps the store does not help this file.
    assert file.read_bytes() == content
