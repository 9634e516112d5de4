"""PurgeMemories: what is purged is gone, byte by byte."""

from __future__ import annotations

import contextvars
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import purge, query
from hippovault_storage.sqlite.connections import Connection
from support.storage import (
    CREATED,
    DIMENSIONS,
    SECONDS,
    Code,
    Memory,
    Ref,
    Store,
    assert_whole,
    connected,
    database,
    entity,
    in_process,
    opened,
    refused,
    rows,
    serving,
    stub_of,
    vector,
)
from support.waiting import until

FOREVER = 4e9

LETTERS = "bcdfghjklmnpqrstvwxz"
END = 9
"""Word indexes keep a word's beginning only once for all that share it, so its end is looked for."""


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


@pytest.fixture
def path(home: Path) -> Path:
    """The file of a store in this process."""
    home.mkdir()
    return home / "memories.db"


def random_vector(dice: np.random.Generator) -> bytes:
    return vector(*dice.standard_normal(DIMENSIONS))


def words(dice: np.random.Generator, number: int) -> list[str]:
    """Words that stand nowhere else."""
    return ["".join(letters) for letters in dice.choice(list(LETTERS), (number, 14))]


TABLES = (
    "SELECT id FROM memories",
    "SELECT rowid FROM memory_embeddings",
    "SELECT memory_id FROM hippo_memories",
    "SELECT memory_id FROM hippo_tags",
    "SELECT rowid FROM hippo_fts",
    "SELECT memory_id FROM hippo_history",
    "SELECT memory_id FROM hippo_vectors",
    "SELECT memory_id FROM hippo_token_codes",
)
"""The ids in every table that has memories."""


class Traces:
    """What must not be found in the files of a store."""

    def __init__(self, path: Path) -> None:
        self._files = [path, path.with_name(f"{path.name}-wal")]
        self._ends: set[bytes] = set()
        self._parts: set[bytes] = set()

    def add_words(self, *texts: str) -> None:
        """Each word of the texts."""
        self._ends |= {word[-END:].encode() for text in texts for word in text.split()}

    def add_vector(self, embedded: bytes) -> None:
        """Any part of it, in either form."""
        halves = np.frombuffer(embedded, "<f4").astype("<f2").tobytes()
        self._parts |= {form[at : at + 24] for form in (embedded, halves) for at in range(0, len(form), len(form) // 4)}

    def found(self) -> int:
        """How many of them stand anywhere in a file."""
        data = b"".join(file.read_bytes() for file in self._files if file.exists())
        runs = re.findall(rb"[%b]{%d,}" % (LETTERS.encode(), END), data)
        ends = {run[at : at + END] for run in runs for at in range(len(run) - END + 1)}
        return len(self._ends & ends) + sum(part in data for part in self._parts)


# ------------------------------------------------------------------------------------------------------ what is gone


def test_no_byte_of_what_is_purged_stays(home: Path) -> None:
    dice = np.random.default_rng(7)
    with serving(home) as process, connected(process) as stub:
        store, traces = Store(stub), Traces(database(home))
        kept: list[tuple[Memory, bytes]] = []
        gone = []
        for number in range(80):
            content, later, hint, tag, note = (
                " ".join(words(dice, size)) for size in (int(dice.choice([2, 5, 900])), 4, 2, 1, 1)
            )
            fields = {"hints": [hint], "tags": [tag], "metadata": f'{{"note":"{note}"}}', "status": note[::-1]}
            embedded, other = random_vector(dice), random_vector(dice)
            store.add(content, embedded + other, key=f"k{number}", **fields)
            last = store.add(later, embedded, key=f"k{number}", **fields) if number % 3 == 0 else None
            if number % 2:
                gone.append(number)
                traces.add_words(*content.split()[:4], hint, tag, note, note[::-1], *([later] if last else []))
                if len(gone) % 4 == 0:
                    traces.add_vector(embedded)
            else:
                kept.append((store.get(entity("", f"k{number}")), embedded))
        assert traces.found() > len(gone) * 8
        for number in gone:
            if number % 5:
                store.delete(entity("", f"k{number}"))
        total = store.purge(before=FOREVER).total
        for number in gone:
            if number % 5 == 0:
                total += store.purge(entity("", f"k{number}")).total
        assert total == len(gone)
        assert traces.found() == 0
        for memory, _ in kept:
            assert store.get_id(memory.id) == memory
        for memory, embedded in kept[:20]:
            assert store.matching(memory.hints[0]) == store.matching(memory.content.split()[-1]) == [memory.content]
            assert store.nearest(embedded, k=1) == [memory.content]
        assert process.stop() == 0
    assert traces.found() == 0
    assert_whole(database(home))


def test_every_table_forgets_what_is_purged(path: Path) -> None:
    with in_process(path) as (stub, _):
        store = Store(stub)
        one, two = store.add("one", key="k", tags=["t"]), store.add("two")
        store.put("other", token_codes=pb.TokenCodes(encoding="e", codes=b"codes"), key="k")
    with opened(path) as file:
        for pair in ((one.id, two.id), (two.id, one.id), (two.id, 99)):
            rows(file, "INSERT INTO memory_associations VALUES (?, ?, 1, 1)", pair)
    with in_process(path) as (stub, _):
        store.stub = stub
        assert store.purge(Ref(id=one.id)) == pb.PurgeMemoriesResponse(ids=[one.id], total=1)
        assert store.listed() == ["two"]
        assert store.add("new").id == two.id + 1
    with opened(path) as file:
        assert rows(file, "SELECT from_id, to_id FROM memory_associations") == [(two.id, 99)]
        for ids in TABLES:
            assert one.id not in {memory_id for (memory_id,) in rows(file, ids)}
        assert rows(file, "SELECT name FROM hippo_state WHERE name GLOB 'erasing*' OR name GLOB 'zeros*'") == []
    assert_whole(path)


def test_what_another_program_left_free_is_overwritten(path: Path) -> None:
    dice, traces = np.random.default_rng(8), Traces(path)
    with in_process(path) as (stub, _):
        store = Store(stub)
        memory = store.add("text")
    with opened(path) as file:
        left = [" ".join(words(dice, 2000)) for _ in range(40)]
        traces.add_words(*(word for text in left for word in text.split()[:10]))
        file.execute("PRAGMA secure_delete = OFF; CREATE TABLE theirs (text)").fetchall()
        file.executemany("INSERT INTO theirs VALUES (?)", [(text,) for text in left])
        file.execute("DROP TABLE theirs")
    assert traces.found() > 300
    with in_process(path) as (stub, _):
        store.stub = stub
        store.purge(Ref(id=memory.id))
        assert traces.found() == 0
    assert_whole(path)


def test_the_words_of_another_programs_index_go_too(path: Path) -> None:
    dice, traces = np.random.default_rng(9), Traces(path)
    with in_process(path) as (stub, _):
        store = Store(stub)
        kept = store.add("kept words")
        gone = [store.add(" ".join(words(dice, 5))) for _ in range(20)]
    with opened(path) as file:
        rows(
            file, "CREATE VIRTUAL TABLE memory_content_fts USING fts5(content, content='memories', content_rowid='id')"
        )
        rows(file, "INSERT INTO memory_content_fts (rowid, content) SELECT id, content FROM memories")
        rows(
            file,
            "CREATE TRIGGER memories_fts_ad AFTER DELETE ON memories BEGIN "
            "DELETE FROM memory_content_fts WHERE rowid = old.id; END",
        )
    traces.add_words(*(memory.content for memory in gone))
    with in_process(path) as (stub, _):
        store.stub = stub
        for memory in gone:
            store.delete_id(memory.id)
        assert store.purge(before=FOREVER).total == 20
        assert traces.found() == 0
    with opened(path) as file:
        rows(file, "INSERT INTO memory_content_fts (memory_content_fts) VALUES ('integrity-check')")
        found = rows(file, "SELECT rowid FROM memory_content_fts WHERE memory_content_fts MATCH 'kept OR words'")
        assert found == [(kept.id,)]


def test_a_purge_that_was_cut_short_is_finished_at_the_next_opening(path: Path) -> None:
    dice, traces = np.random.default_rng(10), Traces(path)
    with in_process(path) as (stub, _):
        store = Store(stub)
        gone = [store.add(" ".join(words(dice, 5))) for _ in range(30)]
        kept = store.add("kept")
    traces.add_words(*(memory.content for memory in gone))
    with opened(path) as file:  # As the first half of a purge leaves it.
        file.execute("PRAGMA secure_delete = OFF").fetchall()
        for memory in gone:
            for statement in (
                "DELETE FROM memories WHERE id = ?",
                "DELETE FROM memory_embeddings WHERE rowid = ?",
                "DELETE FROM hippo_memories WHERE memory_id = ?",
                "DELETE FROM hippo_fts WHERE rowid = ?",
                "DELETE FROM hippo_vectors WHERE memory_id = ?",
            ):
                rows(file, statement, (memory.id,))
        rows(file, "INSERT INTO hippo_state VALUES ('erasing', 1)")
    assert traces.found() > 0
    with in_process(path) as (stub, _):
        store.stub = stub
        other = store.add("other")
        store.purge(Ref(id=other.id))  # Waits for what is under way.
        assert store.listed() == [kept.content]
        assert traces.found() == 0
    assert_whole(path)


def test_who_reads_for_long_delays_the_erasing_but_does_not_prevent_it(path: Path) -> None:
    dice, traces = np.random.default_rng(11), Traces(path)
    with in_process(path) as (stub, _):
        store = Store(stub)
        gone, other = store.add(" ".join(words(dice, 9))), store.add("other")
        traces.add_words(gone.content)

        def in_half_a_second() -> None:
            deadline.start(0.5)
            store.purge(Ref(id=gone.id))

        with opened(path) as reader:
            reader.execute("BEGIN")
            assert rows(reader, "SELECT count(*) FROM memories") == [(2,)]
            with pytest.raises(ServiceError) as caught:
                contextvars.copy_context().run(in_half_a_second)
            assert (caught.value.code, caught.value.reason) == (Code.DEADLINE_EXCEEDED, "STILL_ERASING")
            assert store.listed() == ["other"]
            assert traces.found() > 0
        store.purge(Ref(id=other.id))
        assert traces.found() == 0


def test_a_purge_whose_time_ends_erases_what_it_has_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "CHUNK", 10)
    dice, traces = np.random.default_rng(12), Traces(path)
    remove, go_on = purge.remove, threading.Event()
    with in_process(path) as (stub, _):
        store = Store(stub)
        gone = [store.add(" ".join(words(dice, 5))) for _ in range(20)]
        traces.add_words(*(memory.content for memory in gone))
        for memory in gone:
            store.delete_id(memory.id)

        def remove_late(
            connection: Connection, request: pb.PurgeMemoriesRequest, so_far: pb.PurgeMemoriesResponse
        ) -> tuple[pb.PurgeMemoriesResponse, bool]:
            first = query.value(connection, "SELECT count(*) FROM memories") == len(gone)
            if not first:  # This part is removed when nobody waits for it any more.
                assert go_on.wait(SECONDS)
            return remove(connection, request, so_far)

        def in_half_a_second() -> None:
            deadline.start(0.5)
            store.purge(before=FOREVER)

        monkeypatch.setattr(purge, "remove", remove_late)
        with pytest.raises(ServiceError) as caught:
            contextvars.copy_context().run(in_half_a_second)
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        assert traces.found() > 0
        go_on.set()
        until(lambda: traces.found() == 0)


# --------------------------------------------------------------------------------------------------- what is purged


def test_the_time_of_the_deletion_counts_and_the_namespace(store: Store) -> None:
    other = Store(store.stub)
    early, late, live = store.add("early"), store.add("late"), store.add("live")
    elsewhere = other.add("elsewhere")
    other.delete_id(elsewhere.id)
    store.delete_id(early.id)
    store.delete_id(late.id)
    deleted = store.get(Ref(id=late.id), visibility=memory_pb2.VISIBILITY_DELETED).deleted_at
    before = deleted.ToMicroseconds() / 1e6
    assert store.purge(before=before, dry_run=True) == pb.PurgeMemoriesResponse(ids=[early.id], total=1)
    assert store.purge(before=before) == pb.PurgeMemoriesResponse(ids=[early.id], total=1)
    assert store.purge(before=before) == pb.PurgeMemoriesResponse()
    assert store.purge(before=before + 1e-6).ids == [late.id]
    assert store.listed() == [live.content]
    assert other.undelete(Ref(id=elsewhere.id)) == [elsewhere.id]


def test_a_reference_purges_live_and_deleted_memories(store: Store) -> None:
    live, dead = store.add("text", key="a"), store.add("text", key="b")
    store.delete_id(dead.id)
    ref = Ref(content_hash=live.content_hash)
    for dry_run in (True, False):
        assert store.purge(ref, dry_run=dry_run) == pb.PurgeMemoriesResponse(ids=[live.id, dead.id], total=2)
    for dry_run in (True, False):
        with refused(Code.NOT_FOUND, "ref.content_hash"):
            store.purge(ref, dry_run=dry_run)
    for read in (store.get, store.versions, store.undelete):
        with refused(Code.NOT_FOUND, "ref.id"):
            read(Ref(id=live.id))
    with refused(Code.NOT_FOUND, "ref.id"):
        store.as_of(Ref(id=live.id), live.updated_at.seconds + 1)
    assert store.put("text", key="a").outcome == CREATED


def test_a_dry_run_changes_nothing(store: Store) -> None:
    memory = store.add("text", tags=["t"], hints=["hint"], key="k")
    store.add("newer", key="k", tags=["t"], hints=["hint"])
    before = store.get_id(memory.id)
    store.purge(Ref(id=memory.id), dry_run=True)
    assert store.get_id(memory.id) == before
    assert len(store.versions(Ref(id=memory.id)).versions) == 2
    assert store.matching("hint") == store.listed(tags_any=["t"]) == ["newer"]


def test_a_purge_names_what_it_is_of(store: Store) -> None:
    with refused(Code.INVALID_ARGUMENT, "ref"):
        store.stub.PurgeMemories(pb.PurgeMemoriesRequest(namespace=store.namespace), timeout=SECONDS)
    with refused(Code.INVALID_ARGUMENT, "deleted_before"):
        request = pb.PurgeMemoriesRequest(namespace=store.namespace)
        request.deleted_before.seconds = 10**15
        store.stub.PurgeMemories(request, timeout=SECONDS)


def test_a_large_purge_tells_the_first_and_counts_all(store: Store) -> None:
    requests = [store.request(f"text {number}") for number in range(1000)]
    ids = [result.done.id for result in store.batch(*requests)]
    ids += [result.done.id for result in store.batch(*[store.request(f"more {number}") for number in range(200)])]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.delete_id, ids))
    assert store.purge(before=FOREVER, dry_run=True).total == 1200
    purged = store.purge(before=FOREVER)
    assert (len(purged.ids), purged.total) == (1000, 1200)
    assert store.page(visibility=memory_pb2.VISIBILITY_ALL).total_size == 0


def test_others_read_and_write_while_purges_run(store: Store) -> None:
    kept = store.add("kept")
    done = threading.Event()

    def work(worker: int) -> int:
        number = 0
        while not done.is_set():
            number += 1
            if worker % 2:
                assert store.get_id(kept.id) == kept
                assert "kept" in store.matching("kept")
            else:
                store.put(f"{worker} {number}", key=f"{worker}")
        return number

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, worker) for worker in range(4)]
        for number in range(8):
            memory = store.add(f"short-lived {number}")
            assert store.purge(Ref(id=memory.id)).total == 1
        done.set()
        assert all(worker.result() > 1 for worker in workers)
    assert sorted(memory.key for memory in store.page().memories) == ["", "0", "2"]
