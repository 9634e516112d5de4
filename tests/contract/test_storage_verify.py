"""Verify: the whole store looked over, and nothing changed by it."""

from __future__ import annotations

import base64
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import Encryption
from support.processes import Process
from support.storage import (
    DIMENSIONS,
    SECONDS,
    Memory,
    Store,
    connected,
    database,
    maintaining,
    near,
    opened,
    serving,
    vector,
)

CHECKS = ["integrity", "rows", "contents", "tags", "words", "vectors", "pending", "models", "history", "codes"]
NOTHING = {check: list[str]() for check in CHECKS}
NAMESPACE = "verified"
CONTENT = "the zebra crossed 東京都 by night"


def answers(process: Process) -> list[pb.VerifyResponse]:
    with maintaining(process) as stub:
        return list(stub.Verify(pb.VerifyRequest(), timeout=SECONDS))


def fill(process: Process) -> None:
    with connected(process) as stub:
        for namespace in (NAMESPACE, "default"):
            store = Store(stub, namespace)
            hinted = store.request(CONTENT, near(0.3), tags=["a", "b"], hints=["one", "two"], metadata='{"n": [1]}')
            hinted.hint_vectors = near(0.6) + near(0.7)
            stub.PutMemory(hinted, timeout=SECONDS)
            store.add("keyed", near(0.4), category="c", key="k", surprise={"score": 0.5, "version": 1})
            store.add("parts", vector(1) + near(0.2) + near(0.1), tags=["a"])
            store.delete_id(store.add("deleted", near(0.5), tags=["a"]).id)


@pytest.fixture(scope="module")
def filled(module_home: Path) -> Path:
    """A home whose store has something for every check, and is not served."""
    with serving(module_home) as process:
        fill(process)
        assert process.stop() == 0
    return module_home


@pytest.fixture
def path(filled: Path, home: Path) -> Path:
    """The database of a home of the test's own, as `filled`."""
    shutil.copytree(filled / "data", home / "data")
    return database(home)


def verified(home: Path) -> dict[str, pb.VerifyResponse]:
    with serving(home) as process:
        found = {answer.check: answer for answer in answers(process)}
        assert process.popen.poll() is None
        return found


def test_a_sound_store_has_nothing_wrong_and_stays_as_it_is(filled: Path) -> None:
    with serving(filled) as process:
        before = database(filled).read_bytes()
        found = answers(process)
        assert [answer.check for answer in found] == CHECKS
        assert [(answer.wrong, list(answer.problems)) for answer in found] == [(0, [])] * len(found)
        checked = {answer.check: answer.checked for answer in found}
        assert checked["integrity"] == len(before) // 8192
        assert (checked["rows"], checked["contents"], checked["tags"]) == (8, 8, 8)
        assert checked["words"] == 6
        assert checked["vectors"] == 16
        assert database(filled).read_bytes() == before


def test_an_empty_store_has_nothing_wrong(home: Path) -> None:
    assert [answer.wrong for answer in verified(home).values()] == [0] * len(CHECKS)


def test_it_runs_beside_writes_and_sees_whole_ones_alone(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, ThreadPoolExecutor(5) as pool:
        store = Store(stub)

        def write(number: int) -> None:
            memory = store.add(f"content {number} {os.urandom(4).hex()}", near(0.5), key=str(number % 40), tags=["t"])
            if number % 3 == 0:
                store.delete_id(memory.id)

        writing = pool.map(write, range(600))
        for _ in range(5):
            assert {answer.check: list(answer.problems) for answer in answers(process)} == NOTHING
        assert len(list(writing)) == 600


VECTOR = "UPDATE memory_embeddings SET content_embedding = x'%s' WHERE rowid = 1"
COPY = "UPDATE hippo_vectors SET vector = x'%s' WHERE memory_id = 1"
HALF = b"\0\x3c" + bytes(766)
NOT_A_NUMBER = b"\0\0\xc0\x7f" + bytes(1532)
OVERLAP = (
    "INSERT INTO hippo_history SELECT 1, n, n + 2, 1, '', '', 'x', NULL, '', NULL, NULL, '', '', 0, 0 "
    "FROM (SELECT 1 AS n UNION SELECT 2)"
)

BROKEN: list[tuple[str, str, list[str]]] = [
    (
        "a content",
        "UPDATE memories SET content = replace(content, 'zebra', 'zebrb') WHERE id = 1",
        ["contents", "words"],
    ),
    ("a content that is no text", "UPDATE memories SET content = CAST(x'ff' AS TEXT) WHERE id = 1", ["contents"]),
    ("a content that is a number", "UPDATE memories SET content = x'00' WHERE id = 1", ["contents", "words"]),
    ("a key", "UPDATE hippo_memories SET key = 'l' WHERE memory_id = 2", ["contents"]),
    ("a namespace", "UPDATE hippo_memories SET namespace = 'vefified' WHERE memory_id = 1", ["contents"]),
    ("metadata", "UPDATE memories SET metadata = replace(metadata, '[', '{') WHERE id = 1", ["contents"]),
    ("a surprise", "UPDATE hippo_memories SET surprise = 0.25 WHERE memory_id = 2", ["contents"]),
    ("hints", "UPDATE hippo_memories SET hints = replace(hints, 'two', 'twp') WHERE memory_id = 1", ["words"]),
    ("hints that are no JSON", "UPDATE hippo_memories SET hints = '{\"one\"' WHERE memory_id = 1", ["contents"]),
    ("tags", "UPDATE memories SET tags = 'a,c' WHERE id = 1", ["tags"]),
    ("an index of tags", "DELETE FROM hippo_tags WHERE memory_id = 1 AND tag = 'b'", ["tags"]),
    ("a type", "UPDATE memories SET memory_type = 'x' WHERE id = 1", ["rows"]),
    ("a time", "UPDATE hippo_memories SET created_at = created_at + 1 WHERE memory_id = 1", ["rows"]),
    ("no words", "DELETE FROM hippo_fts WHERE rowid = 1", ["words"]),
    (
        "other words",
        "REPLACE INTO hippo_fts (rowid, body, hints) VALUES (2, 'keyes', '')",
        ["words"],
    ),
    ("more words", "REPLACE INTO hippo_fts (rowid, body, hints) VALUES (2, 'keyed', 'h')", ["words"]),
    ("words of a deleted one", "INSERT INTO hippo_fts (rowid, body, hints) VALUES (4, 'x', '')", ["words"]),
    ("no vector", "DELETE FROM memory_embeddings WHERE rowid = 1", ["vectors"]),
    ("a vector of nobody", "UPDATE memory_embeddings_rowids SET rowid = 99 WHERE rowid = 1", ["vectors"]),
    ("a vector", VECTOR % vector(-1).hex(), ["vectors"]),
    ("a vector of no length", VECTOR % bytes(1536).hex(), ["vectors"]),
    (
        "a vector that is not a number",
        VECTOR % NOT_A_NUMBER.hex(),
        ["vectors"],
    ),
    ("a copy of a vector", COPY % HALF.hex(), ["vectors"]),
    ("no copy of a vector", "DELETE FROM hippo_vectors WHERE memory_id = 2", ["vectors"]),
    ("a vector of a part", "UPDATE hippo_vectors SET vector = zeroblob(768) WHERE place = 1", ["vectors"]),
    ("a short vector of a part", "UPDATE hippo_vectors SET vector = x'003c' WHERE place = 1", ["vectors"]),
    ("a gap", "DELETE FROM hippo_vectors WHERE place = 1", ["vectors"]),
    ("a vector of a hint", "UPDATE hippo_vectors SET vector = zeroblob(768) WHERE place = -1", ["vectors"]),
    ("a gap among hints", "DELETE FROM hippo_vectors WHERE place = -1", ["vectors"]),
    ("a hint without a vector", "DELETE FROM hippo_vectors WHERE place = -2", ["vectors"]),
    ("a vector of no hint", "UPDATE hippo_memories SET hints = '[\"one\"]' WHERE memory_id = 1", ["words", "vectors"]),
    ("vectors of hints alone", "DELETE FROM hippo_vectors WHERE memory_id = 1 AND place >= 0", ["vectors"]),
    (
        "a history that overlaps",
        OVERLAP,
        ["history"],
    ),
    (
        "what is left of one that is gone",
        "INSERT INTO hippo_token_codes (memory_id, encoding, codes) VALUES (99, 'int8', x'00')",
        ["rows"],
    ),
]


@pytest.mark.parametrize(("damage", "failing"), [rest for _, *rest in BROKEN], ids=[name for name, *_ in BROKEN])
def test_what_is_wrong_is_told_by_id(path: Path, damage: str, failing: list[str]) -> None:
    with SqliteEngine.open(path, DIMENSIONS, 1) as engine:
        with opened(path) as file:  # Now, since opening makes some of it right.
            file.execute(damage)
        found = {answer.check: answer for answer in engine.verify()}
    assert [check for check, answer in found.items() if answer.wrong] == failing
    for check in failing:
        assert found[check].wrong >= len(found[check].problems) >= 1
        for problem in found[check].problems:
            assert "memory " in problem
            assert "zebr" not in problem
            assert "restore" in problem or "reindex" in problem or "restart" in problem


def test_every_value_of_an_encrypted_store_is_opened(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    key = home / "key"
    key.write_text(base64.b64encode(bytes(32)).decode())
    key.chmod(0o600)
    with SqliteEngine.open(database(home), DIMENSIONS, 1, Encryption("values", KeySource(key))) as engine:
        for content in ("first", "second", "third"):
            memory = Memory(namespace=NAMESPACE, content=content, key="k", tags=["t"], hints=["h"])
            engine.put_memory(storage_pb2.PutMemoryRequest(memory=memory, vectors=vector(1), model_revision="m"))
        assert [list(answer.problems) for answer in engine.verify()] == [[]] * len(CHECKS)
        with opened(database(home)) as file:
            file.execute("UPDATE memories SET tags = content")
            file.execute("UPDATE hippo_history SET content = CAST(x'01' || content AS BLOB) WHERE version = 1")
        found = {answer.check: list(answer.problems) for answer in engine.verify() if answer.wrong}
    assert list(found) == ["contents", "history"]
    assert "column tags of memory 1" in found["contents"][0]
    assert "table hippo_history" in found["history"][0]
