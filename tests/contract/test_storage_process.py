"""The storage process: its file, its lock, what it refuses, and what other programs leave to it."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from support.processes import STOP_SECONDS, environment
from support.storage import (
    EXISTED,
    REVIVED,
    Code,
    Ref,
    Store,
    assert_whole,
    at,
    connected,
    database,
    near,
    opened,
    refused,
    rows,
    serving,
    stub_of,
    vector,
)

SERVICE = "hippovault.storage.v1.StorageService"
MORE_THAN_VEC0_ALLOWS = 4_100

BASE_SCHEMA = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content_hash TEXT UNIQUE NOT NULL, content TEXT NOT NULL, tags TEXT,
    memory_type TEXT, metadata TEXT, created_at REAL, updated_at REAL, created_at_iso TEXT, updated_at_iso TEXT,
    deleted_at REAL DEFAULT NULL, extra_column TEXT
);
CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE somebody_elses (anything TEXT);
CREATE VIRTUAL TABLE memory_embeddings USING vec0(content_embedding FLOAT[384] distance_metric=cosine);
CREATE VIRTUAL TABLE memory_content_fts USING fts5(
    content, content='memories', content_rowid='id', tokenize='trigram'
);
CREATE TRIGGER memories_fts_ai AFTER INSERT ON memories BEGIN
    INSERT INTO memory_content_fts(rowid, content) VALUES (new.id, new.content);
END;
"""


def lower_hash(content: str) -> str:
    """How one of the other programs hashes."""
    return hashlib.sha256(content.strip().lower().encode()).hexdigest()


def write_foreign(
    file: apsw.Connection,
    content: str,
    embedded: bytes | None = None,
    *,
    content_hash: str = "",
    tags: str | None = None,
    metadata: str | None = None,
    created_at: float | None = 1_600_000_000.5,
    deleted_at: float | None = None,
) -> int:
    """Writes a memory as another program does."""
    file.execute(
        "INSERT INTO memories (content_hash, content, tags, memory_type, metadata, created_at, updated_at, deleted_at) "
        "VALUES (?, ?, ?, 'Note', ?, ?, ?, ?)",
        (content_hash or lower_hash(content), content, tags, metadata, created_at, created_at, deleted_at),
    )
    memory_id = file.last_insert_rowid()
    if embedded is not None:
        sql = "INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (?, ?)"
        file.execute(sql, (memory_id, embedded))
    return memory_id


@pytest.fixture
def path(home: Path) -> Path:
    """Where the database will be; its directory exists."""
    result = database(home)
    result.parent.mkdir(parents=True)
    return result


def run(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs a process that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "hippovault_storage", *flags],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=STOP_SECONDS,
        check=False,
    )


def contents(directory: Path) -> dict[str, bytes]:
    # A lock and SQLite's index of its log are no data.
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith((".lock", "-shm"))}


def assert_refused(home: Path, *expected: str, flags: Sequence[str] = ()) -> None:
    """The process ends with one line that names what is expected, and every file stays as it was."""
    before = contents(database(home).parent)
    ended = run(home, *flags)
    assert ended.returncode == 1
    line = ended.stderr.strip().splitlines()[-1]
    for part in expected:
        assert part in line
    assert "Traceback" not in ended.stderr
    assert contents(database(home).parent) == before


# ------------------------------------------------------------------------------------------- lifetime and durability


def test_a_restart_keeps_everything(home: Path) -> None:
    with stub_of(home) as stub:
        store = Store(stub)
        kept = store.add("zebra", near(0.5), category="c", key="k", tags=["a"], hints=["yak"], metadata='{"n": 1}')
        gone = store.add("gone")
        store.delete_id(gone.id)
    assert_whole(database(home))
    with stub_of(home) as stub:
        store = Store(stub, store.namespace)
        assert store.get_id(kept.id) == kept
        assert store.listed() == store.matching("yak") == store.nearest(vector(1)) == ["zebra"]
        assert store.listed(tags_any=["a"]) == ["zebra"]
        assert store.compare(vector(1)) == pytest.approx([0.5], abs=3e-4)
        assert store.put("gone").outcome == REVIVED


def test_an_acknowledged_write_is_on_disk_without_a_goodbye(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        store = Store(stub)
        memory = store.add("zebra")
        process.kill()
    with stub_of(home) as stub:
        assert Store(stub, store.namespace).get_id(memory.id) == memory


def test_files_and_directories_are_the_owners_alone(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        Store(stub).add("text")
        for directory in (home, home / "data", home / "run"):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        files = {file.name: file for file in (home / "data").iterdir()}
        assert {"memories.db", "memories.db-wal", "memories.lock"} <= files.keys()
        for file in files.values():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_foreign_files_mode_is_tightened(home: Path, path: Path) -> None:
    with opened(path) as file:
        file.execute(BASE_SCHEMA)
    path.chmod(0o644)
    with stub_of(home):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_sigterm_ends_it_with_what_it_was_doing_done(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, ThreadPoolExecutor(8) as pool:
        store = Store(stub)
        store.add("first")
        writes = [pool.submit(store.add, f"memory {n}") for n in range(64)]
        assert process.stop() == 0
        written = [write.result().id for write in writes if write.exception() is None]
    assert_whole(database(home))
    assert not path_with(home, "-wal").exists()
    with stub_of(home) as stub:
        assert {memory.id for memory in Store(stub, store.namespace).page().memories} >= set(written)


def path_with(home: Path, suffix: str) -> Path:
    return database(home).with_name(f"memories.db{suffix}")


def test_health_and_reflection_know_the_service(home: Path) -> None:
    with serving(home) as process, grpc.insecure_channel(process.status) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            status = health.Check(health_pb2.HealthCheckRequest(service=name)).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([request]))
        assert SERVICE in {service.name for service in answer.list_services_response.service}


def test_health_answers_while_another_program_locks_the_file(home: Path) -> None:
    with serving(home) as process, grpc.insecure_channel(process.status) as channel, connected(process) as stub:
        store = Store(stub)
        memory = store.add("text")
        with opened(database(home)) as other, ThreadPoolExecutor(8) as pool:
            other.execute("BEGIN IMMEDIATE")
            stuck = [pool.submit(store.add, f"waiting {n}") for n in range(8)]
            status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1).status
            assert status == health_pb2.HealthCheckResponse.SERVING
            assert store.get_id(memory.id) == memory
            other.execute("ROLLBACK")
            assert all(write.result().id for write in stuck)


# --------------------------------------------------------------------------------------------------- what is refused


def test_a_second_process_is_refused_with_the_first_ones_id(home: Path) -> None:
    with serving(home) as process:
        ended = run(home, "--listen", "127.0.0.1:0")
        assert ended.returncode == 1
        assert str(process.popen.pid) in ended.stderr
        assert str(database(home)) in ended.stderr
        assert process.popen.poll() is None


def test_a_successor_waits_for_its_draining_predecessor(home: Path) -> None:
    with serving(home) as first, connected(first) as stub:
        memory = (store := Store(stub)).add("text")
        first.popen.send_signal(signal.SIGTERM)
        with serving(home) as second, connected(second) as successor:
            assert Store(successor, store.namespace).get_id(memory.id) == memory
            assert first.popen.wait(STOP_SECONDS) == 0


def test_a_file_that_is_no_database_is_refused(home: Path, path: Path) -> None:
    path.write_text("not a database\n" * 200)
    assert_refused(home, str(path), "not a SQLite database")


def test_a_database_that_is_damaged_is_refused(home: Path, path: Path) -> None:
    with stub_of(home) as stub:
        Store(stub).add("text")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    assert_refused(home, str(path), "damaged")


def test_a_directory_in_the_files_place_is_refused(home: Path, path: Path) -> None:
    path.mkdir()
    ended = run(home)
    assert ended.returncode == 1
    assert str(path) in ended.stderr


@pytest.mark.parametrize("logged", [False, True])
def test_a_newer_file_is_refused_untouched(home: Path, path: Path, *, logged: bool) -> None:
    with stub_of(home) as stub:
        Store(stub).add("text")
    with opened(path) as file:
        if logged:  # As a crash leaves it: the new version stands in the log alone.
            file.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        file.execute("PRAGMA user_version = 99")
    assert_refused(home, str(path), "99", "up to 3")


def test_a_file_of_other_dimensions_is_refused_untouched(home: Path, path: Path) -> None:
    with opened(path) as file:
        file.execute(BASE_SCHEMA.replace("384", "768"))
        write_foreign(file, "text", struct.pack("<768f", 1, *[0] * 767))
    assert_refused(home, str(path), "768", "384")
    with serving(home, "--dimensions", "768") as process, connected(process) as stub:
        assert stub.GetStats(pb.GetStatsRequest()).dimensions == 768
        assert Store(stub, "default").nearest(vector(1, dimensions=768)) == ["text"]


def test_a_file_of_another_distance_is_refused_untouched(home: Path, path: Path) -> None:
    with opened(path) as file:
        file.execute(BASE_SCHEMA.replace(" distance_metric=cosine", ""))
    assert_refused(home, str(path), "cosine")


def test_a_file_of_another_shape_is_refused_untouched(home: Path, path: Path) -> None:
    with opened(path) as file:
        file.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, text TEXT)")
    assert_refused(home, str(path), "memories", "content_hash")


@pytest.mark.parametrize(
    ("made", "version", "told"),
    [
        ("TABLE theirs (a)", 1, "hippo_memories"),
        ("VIEW memories AS SELECT 1 AS id", 0, "memories is a view"),
        ("VIEW hippo_tags AS SELECT 1 AS tag", 0, "hippo_tags is a view"),
        ("TABLE hippo_memories (a)", 0, "hippo_memories is another program's"),
        ("TABLE hippo_fts_data (a)", 0, "hippo_fts_data"),
        ("TABLE memory_embeddings_chunks (a)", 0, "memory_embeddings_chunks"),
        ("TABLE idx_created_at (a)", 0, "idx_created_at is a table"),
        ("TABLE memory_associations (a)", 0, "memory_associations lacks from_id"),
    ],
)
def test_what_is_in_the_way_is_told_and_left_untouched(
    home: Path, path: Path, made: str, version: int, told: str
) -> None:
    with opened(path) as file:
        file.execute(f"CREATE {made}; PRAGMA user_version = {version}")
    assert_refused(home, str(path), told)


def test_a_damaged_file_of_another_program_is_refused_untouched(home: Path, path: Path) -> None:
    with opened(path) as file:
        file.execute(BASE_SCHEMA)
        write_foreign(file, "text " * 10_000)
        page_size = file.pragma("page_size")
        (root,) = rows(file, "SELECT rootpage FROM sqlite_schema WHERE name = 'somebody_elses'")[0]
    whole = bytearray(path.read_bytes())
    whole[(root - 1) * page_size] ^= 0xFF  # What kind of page it is.
    path.write_bytes(whole)
    assert_refused(home, str(path), "damaged")


@pytest.mark.parametrize("flags", [("--read-connections", "0"), ("--dimensions", "0"), ("--listen", "0.0.0.0:1")])
def test_a_bad_setting_is_refused(home: Path, flags: tuple[str, ...]) -> None:
    ended = run(home, *flags)
    assert ended.returncode != 0
    assert flags[0].lstrip("-") in ended.stderr + ended.stdout


# ---------------------------------------------------------------------------------------- files of other programs


@pytest.fixture
def foreign(path: Path) -> Iterator[apsw.Connection]:
    """A file with the base schema, open for writing until the test closes it."""
    with opened(path) as file:
        file.execute(BASE_SCHEMA)
        yield file


def test_memories_of_another_program_are_adopted(home: Path, foreign: apsw.Connection) -> None:
    surprise = {"score": 0.5, "components": {"engagement": 0.25, "prediction_loss": None}, "version": "0.5.0"}
    metadata = json.dumps({"mine": 1, "_hippo": {"surprise": surprise}})
    first = write_foreign(foreign, "Zebras run", near(0.5), tags="net, api,,net", metadata=metadata)
    write_foreign(foreign, "dead zebra", near(0.9), deleted_at=1_600_000_001.0)
    write_foreign(foreign, "odd zebra", metadata="not json", created_at=None)
    foreign.close()
    with stub_of(home) as stub:
        store = Store(stub, "default")
        memory = store.get_id(first)
        assert memory.content_hash == hashlib.sha256(b"Zebras run").hexdigest()
        assert list(memory.tags) == ["net", "api"]
        assert (memory.memory_type, memory.version, memory.model_revision) == ("Note", 1, "")
        assert memory.created_at == at(1_600_000_000.5)
        assert memory.metadata == metadata
        assert memory.surprise.score == 0.5
        assert memory.surprise.components.engagement == 0.25
        assert memory.surprise.version == 0
        assert store.matching("zebra running") == ["Zebras run", "odd zebra"]
        assert store.nearest(vector(1)) == ["Zebras run"]
        assert store.listed(tags_any=["api"], memory_types=["Note"]) == ["Zebras run"]
        assert store.summary(since=0).mean_surprise == pytest.approx(0.5)
        odd = store.matching("odd")
        assert odd == ["odd zebra"]
        assert store.find("odd zebra")
        assert stub.GetStats(pb.GetStatsRequest()).deleted_memories == 1
        assert store.put("dead zebra").outcome == REVIVED
        assert store.put("odd zebra", near(0.25)).outcome == EXISTED
        assert sum(abs(cosine - 0.25) < 3e-4 for cosine in store.compare(vector(1), newest=1000)) == 1


UNREADABLE = {
    "no UTF-8": "CAST(x'736563726574ff' AS TEXT)",
    "a lone surrogate": "CAST(x'736563726574eda080' AS TEXT)",
    "bytes": "x'736563726574'",
    "a NUL": "'secret' || char(0) || 'zebra'",
    "an escape": "'secret' || char(27)",
    "blank": "' ' || char(10)",
    "empty": "''",
}


def test_rows_that_cannot_be_memories_are_left_alone_until_they_can(home: Path, foreign: apsw.Connection) -> None:
    first = write_foreign(foreign, "first zebra", near(0.5))
    bad = [write_foreign(foreign, f"zebra {kind}", near(0.9)) for kind in UNREADABLE]
    for memory_id, content in zip(bad, UNREADABLE.values(), strict=True):
        foreign.execute(f"UPDATE memories SET content = {content} WHERE id = ?", (memory_id,))  # noqa: S608
    for column in ("tags", "memory_type"):
        for value in ("x'ff'", "CAST(x'ff' AS TEXT)"):
            bad.append(write_foreign(foreign, f"secret zebra {column} {value}", near(0.9)))
            foreign.execute(f"UPDATE memories SET {column} = {value} WHERE id = ?", (bad[-1],))  # noqa: S608
    bytes_of_metadata = write_foreign(foreign, "metadata zebra", near(0.4))
    foreign.execute("UPDATE memories SET metadata = x'ff' WHERE id = ?", (bytes_of_metadata,))
    last = write_foreign(
        foreign, "last zebra", near(0.3), metadata='{"_hippo": {"surprise": {"score": 1' + "0" * 400 + "}}}"
    )
    as_written = f"SELECT CAST(content AS BLOB), tags IS NULL, updated_at FROM memories WHERE id IN ({marks(bad)})"  # noqa: S608
    before = rows(foreign, as_written, bad)
    foreign.close()
    with serving(home) as process, connected(process) as stub:
        store = Store(stub, "default")
        expected = ["first zebra", "metadata zebra", "last zebra"]
        assert store.nearest(vector(1)) == expected
        assert set(store.matching("zebra")) == set(expected)
        assert store.compare(vector(1)) == pytest.approx([0.3, 0.4, 0.5], abs=3e-4)
        assert store.get_id(bytes_of_metadata).metadata == ""
        assert not store.get_id(last).HasField("surprise")
        assert stub.GetStats(pb.GetStatsRequest()).live_memories == 3
        with refused(Code.NOT_FOUND, "ref.id"):
            store.get_id(bad[0])
        assert process.stop() == 0
        logged = [line for line in process.log.read_text().splitlines() if "cannot be memories" in line]
    (warning,) = map(json.loads, logged)
    assert (warning["level"], warning["count"], warning["ids"]) == ("warning", len(bad), bad)
    assert "secret" not in process.log.read_text()
    with opened(database(home)) as file:
        assert rows(file, as_written, bad) == before
        assert rows(file, "SELECT count(*) FROM memory_embeddings") == [(len(bad) + 3,)]
        file.execute("UPDATE memories SET content = 'mended zebra' WHERE id = ?", (bad[0],))
        file.execute("UPDATE memories SET content = x'00', updated_at = 9e9 WHERE id = ?", (first,))
    with stub_of(home) as stub:
        store = Store(stub, "default")
        assert store.nearest(vector(1)) == ["mended zebra", "metadata zebra", "last zebra"]
        assert set(store.matching("zebra")) == set(store.listed()) == {"mended zebra", "metadata zebra", "last zebra"}


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def test_a_memory_without_a_vector_is_scored_when_it_gets_one(home: Path, foreign: apsw.Connection) -> None:
    scored = json.dumps({"mine": 1, "_hippo": {"surprise": {"score": 0.25}, "cluster_id": 7}})
    bare = write_foreign(foreign, "bare", metadata='{"mine":  1, "_hippo": {"cluster_id": 7}}')
    write_foreign(foreign, "scored", metadata=scored)
    write_foreign(foreign, "embedded", near(0.5))
    foreign.close()
    surprise = memory_pb2.Surprise(score=0.75, components=memory_pb2.SurpriseComponents(engagement=0.5), version=1)
    with stub_of(home) as stub:
        store = Store(stub, "default")
        before = store.get_id(bare)
        assert store.put("bare", b"", surprise=surprise).memory == before
        response = store.put("bare", near(0.9), surprise=surprise)
        memory = response.memory
        assert (response.outcome, memory.id) == (EXISTED, bare)
        assert (memory.surprise, memory.model_revision) == (surprise, "model-1")
        metadata = json.loads(memory.metadata)
        assert (metadata["mine"], metadata["_hippo"]["cluster_id"]) == (1, 7)
        assert metadata["_hippo"]["surprise"]["score"] == 0.75
        assert memory.updated_at.ToNanoseconds() > before.updated_at.ToNanoseconds()
        assert store.nearest(vector(1)) == ["bare", "embedded"]
        other = memory_pb2.Surprise(score=0.125)
        assert store.put("bare", near(0.1), surprise=other).memory == memory
        kept = store.put("scored", near(0.8), surprise=surprise).memory
        assert (kept.surprise.score, kept.metadata, kept.model_revision) == (0.25, scored, "model-1")
        unscored = store.put("embedded", near(0.1), surprise=surprise).memory
        assert (unscored.HasField("surprise"), unscored.model_revision) == (False, "")
        assert store.summary(since=0).mean_surprise == pytest.approx(0.5)


def test_what_is_theirs_is_left_alone(home: Path, foreign: apsw.Connection) -> None:
    first = write_foreign(foreign, "Zebra", near(0.5), tags=" a , b", metadata="not json", created_at=None)
    foreign.execute("UPDATE memories SET extra_column = 'kept'; INSERT INTO somebody_elses VALUES ('kept')")
    columns = f"SELECT content_hash, metadata, created_at, extra_column, tags FROM memories WHERE id = {first}"  # noqa: S608
    before = rows(foreign, columns)
    foreign.close()
    with stub_of(home) as stub:
        Store(stub, "default").add("Zebra", hints=["a hint"])
    with opened(database(home)) as file:
        assert rows(file, columns) == before
    with stub_of(home) as stub:
        Store(stub, "default").add("Zebra", tags=["new"], category="mine")
    with opened(database(home)) as file:
        assert rows(file, columns) == [(*before[0][:-1], "a,b,new")]
        assert rows(file, "SELECT anything FROM somebody_elses") == [("kept",)]


def test_another_program_reads_what_is_stored(home: Path) -> None:
    with stub_of(home) as stub:
        memory = Store(stub, "default").add(
            "Zebras run", near(0.5), tags=["a", "b"], memory_type="Note", created_at=at(1_600_000_000.25)
        )
    with opened(database(home)) as file:
        columns = "content_hash, content, tags, memory_type, metadata, created_at, created_at_iso, deleted_at"
        assert rows(file, f"SELECT {columns} FROM memories WHERE id = ?", (memory.id,)) == [  # noqa: S608
            (
                memory.content_hash, "Zebras run", "a,b", "Note", None, 1_600_000_000.25,
                "2020-09-13T12:26:40.250000Z", None,
            )
        ]  # fmt: skip
        nearest = "SELECT rowid FROM memory_embeddings WHERE content_embedding MATCH ? AND k = 1"
        assert rows(file, nearest, (vector(1),)) == [(memory.id,)]


def test_what_another_program_does_between_two_runs_is_seen(home: Path) -> None:
    with stub_of(home) as stub:
        store = Store(stub, "default")
        ids = {name: store.add(name, tags=["old"], key=name).id for name in ("kept", "deleted", "purged", "changed")}
    with opened(database(home)) as file:
        write_foreign(file, "written zebra", near(0.5))
        file.execute("UPDATE memories SET deleted_at = 5 WHERE id = ?", (ids["deleted"],))
        file.execute("DELETE FROM memories WHERE id = ?", (ids["purged"],))
        sql = "UPDATE memories SET content = 'altered yak', tags = 'new', updated_at = 9e9 WHERE id = ?"
        file.execute(sql, (ids["changed"],))
    with stub_of(home) as stub:
        store = Store(stub, "default")
        assert set(store.listed()) == {"kept", "written zebra", "altered yak"}
        assert store.matching("zebra") == ["written zebra"]
        assert store.matching("yak") == ["altered yak"]
        assert store.matching("changed deleted purged") == []
        assert store.listed(tags_any=["new"]) == ["altered yak"]
        changed = store.get_id(ids["changed"])
        assert (changed.key, changed.version) == ("changed", 2)
        assert changed.content_hash == hashlib.sha256(b"altered yak").hexdigest()
        with refused(Code.NOT_FOUND, "ref.id"):
            store.get(Ref(id=ids["purged"]))
        assert store.put("purged", key="purged").memory.id > max(ids.values())
    assert_whole(database(home))


def test_hashes_of_other_programs_are_no_obstacle(home: Path, foreign: apsw.Connection) -> None:
    # Its hash is the plain one of another content, which must be storable all the same.
    write_foreign(foreign, "Set PASSWORD", near(0.5))
    # Two programs that hash differently have both written this content.
    twins = [
        write_foreign(foreign, "Twice", near(0.6), content_hash=hash_of(b"Twice").hexdigest())
        for hash_of in (hashlib.sha256, hashlib.sha512)
    ]
    foreign.close()
    with stub_of(home) as stub:
        store = Store(stub, "default")
        assert store.add("set password").id > max(twins)
        assert sorted(store.listed()) == ["Set PASSWORD", "Twice", "Twice", "set password"]
        assert store.put("Twice").memory.id == twins[0]
        assert store.delete(Ref(content_hash=hashlib.sha256(b"Twice").hexdigest())) == twins


def test_more_neighbours_than_vec0_allows(home: Path, foreign: apsw.Connection) -> None:
    randomness = random.Random(1)  # noqa: S311  # Not a secret.
    cosines = {f"memory {n}": randomness.uniform(-1, 1) for n in range(MORE_THAN_VEC0_ALLOWS)}
    with foreign:
        for content, cosine in cosines.items():
            write_foreign(foreign, content, near(cosine))
    foreign.close()
    best = sorted(cosines, key=lambda content: -cosines[content])
    with stub_of(home) as stub:
        store = Store(stub, "default")
        for k in (10, 4095, 4096, 4097, 10_000):
            found = {hit.memory.content: hit.dense for hit in store.search(dense=vector(1), k=k).hits}
            assert len(found) == min(k, MORE_THAN_VEC0_ALLOWS)
            assert sorted(arm.rank for arm in found.values()) == list(range(1, len(found) + 1))
            for content, arm in found.items():
                assert arm.score == pytest.approx(cosines[content], abs=3e-4)
            assert min(arm.score for arm in found.values()) == pytest.approx(cosines[best[len(found) - 1]], abs=3e-4)
