"""Files of earlier versions and of other programs: opened, brought up to date, and left as their makers know them."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite import schema
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import Encryption
from hippovault_storage.vault import Mode
from support.processes import STOP_SECONDS, environment
from support.storage import (
    DIMENSIONS,
    UPDATED,
    Code,
    Memory,
    Ref,
    Store,
    assert_whole,
    at,
    entity,
    in_process,
    opened,
    rows,
    unit,
    write_fixture,
)

FOREIGN = ("claude_hippo_0_5", "mcp_memory_service_8", "mcp_memory_service_12")
FOREIGN_SEARCH = "SELECT rowid FROM memory_embeddings WHERE content_embedding MATCH ? AND k = 1 AND store = 'default'"
SURPRISE = memory_pb2.Surprise(
    score=0.5,
    components=memory_pb2.SurpriseComponents(embedding_outlier=0.75, engagement=0.5, explicit=0.25),
    version=1,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database will be."""
    return tmp_path / "memories.db"


def dump(path: Path) -> dict[str, list[Any]]:
    """All that another program can see in the file: the rows of every table that is not ours."""
    with opened(path) as file:
        shadows = ("hippo_", "sqlite_", "memory_embeddings_", "memory_content_fts_")
        tables = [name for (name,) in rows(file, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: rows(file, f"SELECT rowid, * FROM {name} ORDER BY rowid")  # noqa: S608
            for name in tables
            if not name.startswith(shadows)
        }


def file_version(path: Path) -> int:
    with opened(path) as file:
        return int(file.pragma("user_version"))


# ------------------------------------------------------------------------------------------------- our own version 1


def test_version_1_reads_back_equal(path: Path) -> None:
    write_fixture(path, "hippovault_1")
    with in_process(path) as (stub, _):
        store, work = Store(stub, "default"), Store(stub, "work")
        zebra, milk, meeting = store.get_id(1), store.get(entity("shopping", "milk")), work.get_id(3)
        assert zebra == Memory(
            id=1,
            namespace="default",
            content="The zebra crossing was repainted in May.",
            content_hash="7670199fbd2db4e1de4f6761beb4fd2622d13a3a1188c5c1d07a3bd8c14473fc",
            tags=["roads", "paint"],
            memory_type="Observation",
            importance=0.25,
            metadata=zebra.metadata,
            created_at=at(1_700_000_000),
            updated_at=at(1_700_000_100.25),
            surprise=SURPRISE,
            version=1,
            model_revision="model-1",
        )
        assert zebra.metadata.startswith('{"source":"diary","_hippo":')
        assert (milk.content, milk.version, milk.key) == ("Oat milk is out again.", 2, "milk")
        assert list(milk.hints) == ["What should I buy at the grocery?"]
        assert list(meeting.tags) == ["meeting"]
        assert store.listed() == [milk.content, zebra.content]
        assert store.matching("repaint") == store.nearest(unit(0), 1) == store.listed(tags_any=["paint"])
        assert store.matching("grocery") == store.nearest(unit(4), 1) == [milk.content]
        assert work.matching("金曜") == work.nearest(unit(2)) == [meeting.content]
        deleted = store.find("The old password hint.")
        assert deleted is not None
        assert deleted.deleted_at == at(1_700_000_104.25)
    assert file_version(path) == schema.SCHEMA_VERSION
    assert_whole(path)


# ------------------------------------------------------------------------------------------------- our own version 2


def test_version_2_reads_back_equal_and_takes_what_is_new(path: Path) -> None:
    write_fixture(path, "hippovault_2")
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        zebra, milk = store.get_id(1), store.get(entity("shopping", "milk"))
        assert (zebra.status, zebra.surprise, zebra.updated_at) == ("open", SURPRISE, at(1_700_000_101.25))
        assert (milk.content, milk.version, list(milk.hints)) == (
            "Oat milk is out again.", 2, ["What should I buy at the grocery?"],
        )  # fmt: skip
        assert store.as_of(entity("shopping", "milk"), 1_700_000_102.5).content == "Oat milk is out."
        assert store.nearest(unit(1), 1) == [zebra.content]
        assert store.similarities("zebra milk", unit(4) + unit(5)) == {milk.content: [1, 0], zebra.content: [0, 1]}
        request = store.request("Oat milk is out again.", b"", category="shopping", key="milk", hints=milk.hints)
        request.hint_vectors, request.model_revision = unit(6), "model-1"
        request.hint_token_codes.CopyFrom(pb.TokenCodes(encoding="float32", codes=unit(5)))
        stub.PutMemory(request)
        assert store.nearest(unit(6), 1) == [milk.content]
        assert store.similarities("milk", unit(4) + unit(5)) == {milk.content: [1, 1]}
    assert file_version(path) == schema.SCHEMA_VERSION
    assert_whole(path)


# ---------------------------------------------------------------------------------------------- what others have made


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_adopted_and_stays_as_its_maker_knows_it(path: Path, name: str) -> None:
    write_fixture(path, name)
    before = dump(path)
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        heron = store.get_id(1)
        assert heron.content.strip() == "The Heron nests by the mill."
        assert list(heron.tags) == ["birds", "river"]
        assert '"mood"' in heron.metadata
        assert heron.created_at == heron.updated_at == at(1_690_000_000.5)
        assert store.matching("heron") == store.nearest(unit(0), 1) == store.listed(tags_all=["river"])
        assert store.matching("ferry") == []
    after = dump(path)
    for table, found in before.items():
        # An older table of memories gets the column for deletions.
        assert [row[: len(old)] for row, old in zip(after[table], found, strict=True)] == found


def test_a_surprise_that_claude_hippo_wrote_is_read(path: Path) -> None:
    write_fixture(path, "claude_hippo_0_5")
    with in_process(path) as (stub, _):
        assert Store(stub, "default").get_id(1).surprise.score == 0.625


def test_memories_of_another_programs_stores_are_all_found(path: Path) -> None:
    write_fixture(path, "mcp_memory_service_12")
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        assert store.listed() == ["The mill is let.", " The Heron nests by the mill. "]
        assert store.nearest(unit(2), 1) == ["The mill is let."]


# ------------------------------------------------------------------------------------ our writes into others' files


def word_search(file: apsw.Connection, word: str) -> list[int]:
    sql = "SELECT rowid FROM memory_content_fts WHERE memory_content_fts MATCH ? ORDER BY rowid"
    return [rowid for (rowid,) in rows(file, sql, (word,))]


def test_what_we_write_is_found_by_mcp_memory_service(path: Path) -> None:
    """Its searches ask for the rows of a store by a partition key, and for words in an index of its own."""
    write_fixture(path, "mcp_memory_service_12")
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        store.add("Short.", unit(5), key="note")
        long = "A much longer text than all that were there, about a walrus and its many whiskers. " * 5
        assert store.put(long, unit(6), key="note").outcome == UPDATED
        store.add("The Heron nests by the mill no more.", unit(7))
        revived = store.add("The ferry was sold.", unit(1))
    with opened(path) as file:
        assert rows(file, FOREIGN_SEARCH, (unit(6),)) == [(4,)]
        assert rows(file, FOREIGN_SEARCH, (unit(7),)) == [(5,)]
        assert rows(file, FOREIGN_SEARCH, (unit(1),)) == [(revived.id,)]
        assert rows(file, "SELECT store, embedding_pending FROM memories WHERE id > 3") == [("default", 0)] * 2
        assert word_search(file, "walrus") == [4]
        assert word_search(file, "heron") == [1, 5]
        assert word_search(file, "short") == []
        file.execute("INSERT INTO memory_content_fts (memory_content_fts, rank) VALUES ('integrity-check', 1)")


def test_a_vector_of_ours_goes_to_the_store_of_its_memory(path: Path) -> None:
    write_fixture(path, "mcp_memory_service_12")
    with opened(path) as file:
        file.execute("DELETE FROM memory_embeddings WHERE rowid = 3")
    with in_process(path) as (stub, _):
        Store(stub, "default").put("The mill is let.", unit(3))
    with opened(path) as file:
        assert rows(file, "SELECT store FROM memory_embeddings WHERE rowid = 3") == [("work",)]


def test_a_table_of_vectors_that_we_could_not_fill_is_refused_untouched(path: Path) -> None:
    write_fixture(path, "claude_hippo_0_5")
    with opened(path) as file:
        file.execute(
            "DROP TABLE memory_embeddings; CREATE VIRTUAL TABLE memory_embeddings USING vec0("
            "content_embedding FLOAT[384] distance_metric=cosine, shelf TEXT)"
        )
    before = path.read_bytes()
    with pytest.raises(Exception, match="shelf"), SqliteEngine.open(path, DIMENSIONS, 1):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["off", "values"])
def test_hints_that_cannot_be_read_do_not_end_a_start_in_a_traceback(path: Path, mode: Mode) -> None:
    key = path.parent / "key"
    key.touch(0o600)
    key.write_bytes(base64.b64encode(bytes(32)))
    encryption = Encryption(mode, KeySource(key))
    with in_process(path, encryption=encryption) as (stub, _):
        memory = Store(stub, "n").put("The mill is let.", hints=["who has the mill?"]).memory
    with opened(path) as file:
        file.execute("UPDATE hippo_memories SET hints = 'neither JSON nor sealed'")
        file.execute("UPDATE memories SET updated_at = updated_at + 1")
    with pytest.raises(ServiceError) as told, in_process(path, encryption=encryption) as (stub, _):
        Store(stub, "n").get(Ref(id=memory.id))
    assert told.value.code is Code.DATA_LOSS
    assert "neither" not in told.value.message


def test_of_what_another_program_erased_nothing_stays(path: Path) -> None:
    write_fixture(path, "hippovault_1")
    with in_process(path) as (stub, _):
        assert (
            Store(stub, "default").put("Oat milk is back.", unit(5), category="shopping", key="milk").outcome == UPDATED
        )
        request = pb.PutMemoryRequest(
            memory=Memory(content="Oat milk is back."), token_codes=pb.TokenCodes(encoding="int8", codes=b"codes")
        )
        assert stub.PutMemory(request).memory.id == 2
    with opened(path) as file:
        ours = [name for (name,) in rows(file, "SELECT name FROM sqlite_schema WHERE sql LIKE '%memory_id INTEGER%'")]
        left = {name: rows(file, f"SELECT count(*) FROM {name} WHERE memory_id = 2") for name in ours}  # noqa: S608
        assert left["hippo_history"] == left["hippo_token_codes"] == [(1,)]
        file.execute("DELETE FROM memories WHERE id = 2; DELETE FROM memory_embeddings WHERE rowid = 2")
    with in_process(path) as (stub, _):
        assert Store(stub, "default").matching("milk") == []
    with opened(path) as file:
        for name in ours:
            assert rows(file, f"SELECT count(*) FROM {name} WHERE memory_id = 2") == [(0,)], name  # noqa: S608
    assert_whole(path)


# ------------------------------------------------------------------------------------------------- a step cut short

KILLED = """
import os, signal, sys
from pathlib import Path

import apsw
from hippovault_storage.sqlite import schema
from hippovault_storage.sqlite.engine import SqliteEngine

database, step = Path(sys.argv[1]), int(sys.argv[2])

def arm(connection):
    if connection.filename == str(database):
        connection.create_scalar_function("end", lambda: os.kill(os.getpid(), signal.SIGKILL), 0)
    else:  # One in memory, by which the file is checked.
        connection.create_scalar_function("end", lambda: None, 0)

apsw.connection_hooks.append(arm)
steps = list(schema.MIGRATIONS)
steps[step] += "; SELECT end();"
schema.MIGRATIONS = tuple(steps)
with SqliteEngine.open(database, 384, 1):
    pass
"""


def seen(path: Path) -> dict[str, list[Any]]:
    """What the file says once it is open, whatever its age."""
    with SqliteEngine.open(path, DIMENSIONS, 1) as engine:
        found = engine.list_memories(pb.ListMemoriesRequest(namespace="default", page_size=100))
    return {"memories": [memory.SerializeToString(deterministic=True) for memory in found.memories]}


def steps_of(names: Sequence[str]) -> list[tuple[str, int]]:
    first = {"hippovault_1": 1}
    return [(name, step) for name in names for step in range(first.get(name, 0), schema.SCHEMA_VERSION)]


@pytest.mark.parametrize(("name", "step"), steps_of(("hippovault_1", "mcp_memory_service_8")))
def test_a_step_that_fails_leaves_the_version_before_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    write_fixture(path, name)
    write_fixture(whole := tmp_path / "whole.db", name)
    before = dump(path)
    with monkeypatch.context() as patch:
        steps = list(schema.MIGRATIONS)
        steps[step] += "; SELECT no_such_function();"
        patch.setattr(schema, "MIGRATIONS", tuple(steps))
        with pytest.raises(Exception, match="no_such_function"), SqliteEngine.open(path, DIMENSIONS, 1):
            pass
    assert file_version(path) <= step
    after = dump(path)
    assert {table: after[table] for table in before} == before
    assert seen(path) == seen(whole)


@pytest.mark.parametrize(("name", "step"), steps_of(("hippovault_1", "mcp_memory_service_12")))
def test_a_kill_within_a_step_leaves_the_version_before_it(
    home: Path, path: Path, tmp_path: Path, name: str, step: int
) -> None:
    write_fixture(path, name)
    write_fixture(whole := tmp_path / "whole.db", name)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(step)],
        env=environment(home),
        timeout=STOP_SECONDS,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -9, killed.stderr.decode()
    assert file_version(path) == step
    assert seen(path) == seen(whole)
