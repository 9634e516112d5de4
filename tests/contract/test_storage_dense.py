"""The dense arm in large namespaces: a code index finds what exact comparison finds, at every moment."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import distances, nearest, scope, writer, writes
from hippovault_storage.sqlite.dense import codes, depth, index, namespace
from hippovault_storage.sqlite.engine import SqliteEngine
from support.storage import DIMENSIONS, Filter, Ref, Store, at, connected, database, near, opened, rows, serving, vector
from support.waiting import until

MIN_VECTORS = 40
SPACE = "n"
RANDOM = np.random.default_rng(11)
TAGS, TYPES = ("half", "few", "one"), ("Note", "Decision")


BASIS = np.linalg.qr(RANDOM.normal(size=(DIMENSIONS, 6))).Q.T
"""Vectors lie in few directions, so that some are near and most are far, as those of a model are."""


def unit() -> bytes:
    """Some vector."""
    drawn = RANDOM.normal(size=len(BASIS)) @ BASIS
    return bytes((drawn / np.linalg.norm(drawn)).astype(np.float32).tobytes())


def request(number: int, embedded: bytes = b"", edition: str = "") -> pb.PutMemoryRequest:
    """A put whose tags, type and time follow from its number."""
    tags = [tag for tag, every in (("half", 2), ("few", 10), ("one", 1000)) if number % every == 0]
    memory = memory_pb2.Memory(
        namespace=SPACE,
        content=f"memory {number}{edition}",
        tags=tags,
        memory_type=TYPES[number % 3 == 0],
        category="c",
        key=str(number),
        status="open" if number % 4 else "done",
        created_at=at(1000 + number),
    )
    return pb.PutMemoryRequest(memory=memory, vectors=embedded or unit(), model_revision="m")


def fill(engine: SqliteEngine, numbers: range) -> None:
    requests = [request(number) for number in numbers]
    engine._writer.run(lambda connection: [writes.put(connection, each) for each in requests])


def indexed(engine: SqliteEngine) -> int:
    return engine.get_stats(pb.GetStatsRequest()).indexed_vectors


def ready(engine: SqliteEngine) -> None:
    """Waits until every vector of the namespace is found by its index."""
    until(lambda: indexed(engine) == engine.get_stats(pb.GetStatsRequest()).vectors)


def searched(engine: SqliteEngine) -> namespace.View:
    """The namespace's index as it is now."""
    view = engine._index.view(SPACE)
    assert view is not None
    return view


def tail(engine: SqliteEngine) -> int:
    """The vectors that have no codes yet."""
    return len(searched(engine).tail)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    """Has 300 memories, found by an index."""
    with SqliteEngine.open(path, DIMENSIONS, 2, index_min_vectors=MIN_VECTORS) as opened:
        fill(opened, range(300))
        ready(opened)
        yield opened


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets what is for large numbers happen with small ones."""
    monkeypatch.setattr(depth, "FEWEST", 60)
    monkeypatch.setattr(namespace, "MIN_TAIL", 30)


FILTERS = [
    Filter(),
    *(Filter(tags_any=[tag]) for tag in TAGS),
    Filter(tags_any=["few", "one"]),
    Filter(tags_all=["half", "few"]),
    Filter(tags_any=["none"]),
    Filter(memory_types=["Decision"]),
    Filter(memory_types=["Note", "Decision"], statuses=["done"], categories=["c"]),
    Filter(categories=["other"]),
    Filter(created_since=at(1100), created_before=at(1180)),
    Filter(tags_any=["half"], created_since=at(1250)),
]


def agrees(engine: SqliteEngine, k: int = 5, wanted: memory_pb2.Filter | None = None, to: bytes = b"") -> None:
    """The index finds what is found without, to the rank."""
    search = pb.SearchMemoriesRequest(namespace=SPACE, dense=pb.DenseArm(vector=to or unit(), k=k), filter=wanted)
    with engine._readers.borrow() as connection:
        moment = nearest.begin(connection)
        direction = distances.vector(search.dense.vector)
        within = scope.live(connection.vault, SPACE, search.filter)
        exact = nearest.exactly(connection, within, direction, k)
        found = nearest.find(connection, engine._index, search, direction, moment)
        assert list(found.items()) == list(exact.items())


def copies_are_in_step(engine: SqliteEngine) -> None:
    """What memory has of the vectors is what the file has of the entries that live, and nothing of the others."""
    until(lambda: not engine._index.is_behind)
    view = engine._index.view(SPACE)
    assert view
    assert view.base_vectors is not None
    with engine._readers.borrow() as connection:
        stored = dict(rows(connection, "SELECT id, vector FROM hippo_vectors"))
        live = "SELECT v.id FROM hippo_vectors v JOIN hippo_memories h USING (memory_id) WHERE deleted_at IS NULL"
        living = {vector_id for (vector_id,) in rows(connection, live)}
    entries = zip(view.base.values["vector_id"].tolist(), view.base_vectors, view.base_died == np.inf, strict=True)
    for vector_id, copy, lives in entries:
        assert vector_id in living or not lives
        assert copy.tobytes() == (stored[vector_id] if lives else bytes(2 * DIMENSIONS))


@pytest.fixture
def uncopied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no room in memory for vectors."""
    monkeypatch.setattr(index, "MAX_COPIED_BYTES", 0)


@pytest.mark.parametrize("wanted", FILTERS[:6], ids=str)
@pytest.mark.usefixtures("uncopied")
def test_it_finds_the_same_without_vectors_in_memory(engine: SqliteEngine, wanted: memory_pb2.Filter) -> None:
    view = engine._index.view(SPACE)
    assert view
    assert view.base_vectors is None
    for k in (1, 5, 40):
        agrees(engine, k, wanted)
    assert Local(engine).delete(3)
    fill(engine, range(300, 340))
    until(lambda: tail(engine) < 30)
    agrees(engine, 5, wanted)


def test_vectors_in_memory_follow_every_change(engine: SqliteEngine) -> None:
    store = Local(engine)
    copies_are_in_step(engine)
    for number in range(5):
        assert store.delete(number)
    store.put(request(5, unit(), " anew"))
    copies_are_in_step(engine)
    store.purge(6)
    store.purge(4)
    copies_are_in_step(engine)
    fill(engine, range(300, 340))
    until(lambda: tail(engine) < 30)
    copies_are_in_step(engine)
    store.put(request(2, vector(1)))
    assert store.nearest(vector(1), 1) == ["memory 2"]
    assert [*engine.reindex()]
    copies_are_in_step(engine)
    agrees(engine, 20)


def test_what_a_filter_lets_through_may_all_lie_far_away(engine: SqliteEngine) -> None:
    for number in range(150):
        put = request(1000 + number, near(-0.9 + number / 1000))
        put.memory.memory_type = "Far"
        Local(engine).put(put)
    until(lambda: tail(engine) < 60)
    for _ in range(2):
        agrees(engine, 5, Filter(memory_types=["Far"]), vector(1))
        agrees(engine, 5, Filter(memory_types=["Far"], tags_any=["half"]), vector(1))


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_the_index_finds_what_exact_search_finds(engine: SqliteEngine, wanted: memory_pb2.Filter) -> None:
    for k in (1, 5, 40, 299, 300, 10_000):
        agrees(engine, k, wanted)


@pytest.fixture(params=[0, 60], ids=["taken in at once", "waiting"])
def patience(request: pytest.FixtureRequest, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long changes wait until the index of the engine, which is up, takes them in."""
    assert not engine._index.is_behind
    monkeypatch.setattr(writer, "IDLE_SECONDS", request.param)


@pytest.mark.usefixtures("patience")
def test_every_change_is_seen_by_the_next_search(engine: SqliteEngine) -> None:
    store = Local(engine)
    store.put(request(1, near(0.9), " anew"))
    store.put(request(2, near(0.8), " anew"))
    assert store.nearest(vector(1), 2) == ["memory 1 anew", "memory 2 anew"]
    assert store.delete(1)
    assert store.nearest(vector(1), 1) == ["memory 2 anew"]
    store.put(request(1, near(0.7)))  # Revived, with another vector.
    assert store.nearest(vector(1), 2) == ["memory 2 anew", "memory 1"]
    store.update(2, tags=["new"], memory_type="Other", status="closed", created_at=at(5))
    for wanted in (
        Filter(tags_any=["new"]),
        Filter(memory_types=["Other"]),
        Filter(statuses=["closed"]),
        Filter(created_before=at(6)),
    ):
        assert store.nearest(vector(1), 1, wanted) == ["memory 2 anew"]
    assert store.nearest(vector(1), 1, Filter(tags_any=["half"])) != ["memory 2 anew"]
    store.update(2, category="moved", key="x")
    assert store.nearest(vector(1), 1, Filter(categories=["moved"])) == ["memory 2 anew"]
    agrees(engine, 50)


@pytest.mark.usefixtures("patience")
def test_a_memory_that_is_purged_or_brought_back_is_seen_so_by_the_next_search(engine: SqliteEngine) -> None:
    store = Local(engine)
    for number, embedded in ((1, near(0.9)), (2, near(0.8)), (400, near(0.7))):
        store.put(request(number, embedded, " anew"))
    assert store.delete(1)
    assert store.delete(400)
    assert store.nearest(vector(1), 1) == ["memory 2 anew"]
    engine.undelete_memory(pb.UndeleteMemoryRequest(namespace=SPACE, ref=store.ref(400)))
    assert store.nearest(vector(1), 2) == ["memory 2 anew", "memory 400 anew"]
    engine.purge_memories(pb.PurgeMemoriesRequest(namespace=SPACE, ref=store.ref(1)))
    store.put(request(401, near(0.75)))  # Perhaps with the id of the purged one.
    assert store.nearest(vector(1), 3) == ["memory 2 anew", "memory 401", "memory 400 anew"]
    agrees(engine, 50)


def test_memories_that_all_move_away_at_once_hide_none_that_stay(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = unit()
    engine.put_memories([request(number, to) for number in range(60)])
    until(lambda: not engine._index.is_behind)
    monkeypatch.setattr(writer, "IDLE_SECONDS", 60)
    away = (-np.frombuffer(to, np.float32)).tobytes()
    engine.put_memories([request(number, away, " anew") for number in range(60)])
    assert engine._index.is_behind
    for k in (1, 5, 50):
        agrees(engine, k, to=to)


def test_a_search_finds_what_was_there_at_its_moment_for_a_moment_alone(engine: SqliteEngine) -> None:
    store = Local(engine)
    search = pb.SearchMemoriesRequest(namespace=SPACE, dense=pb.DenseArm(vector=vector(1), k=3))
    store.put(request(1, near(0.9), " for a moment"))
    store.put(request(400, near(0.8)))
    store.update(2, status="for a moment")
    with engine._readers.borrow() as connection:
        moment = nearest.begin(connection)
        store.put(request(1, near(-0.9), " anew"))
        assert store.delete(400)
        store.update(2, status="other")
        until(lambda: not engine._index.is_behind)
        to = distances.vector(search.dense.vector)
        for wanted in (Filter(), Filter(statuses=["for a moment"])):
            search.filter.CopyFrom(wanted)
            exact = nearest.exactly(connection, scope.live(connection.vault, SPACE, wanted), to, 3)
            assert nearest.find(connection, engine._index, search, to, moment) == exact
    agrees(engine, 50)


@pytest.mark.parametrize("moved", [30, 100])
@pytest.mark.parametrize("wanted", [Filter(), Filter(tags_any=["half"])], ids=["all", "half"])
@pytest.mark.parametrize("copied", [index.MAX_COPIED_BYTES, 0], ids=["in memory", "in the file"])
def test_many_that_move_after_its_moment_hide_nothing_from_a_search(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, moved: int, wanted: memory_pb2.Filter, copied: int
) -> None:
    monkeypatch.setattr(index, "MAX_COPIED_BYTES", copied)
    monkeypatch.setattr(namespace, "MIN_TAIL", 1_000)
    for _ in engine.reindex():
        pass
    fill(engine, range(300, 400))
    until(lambda: not engine._index.is_behind)
    to = unit()
    direction = distances.vector(to)
    with engine._readers.borrow() as connection:
        moment = nearest.begin(connection)
        engine.put_memories([request(number, to, " anew") for number in range(250, 250 + moved)])
        until(lambda: not engine._index.is_behind)
        for k in (1, 5, 20):
            search = pb.SearchMemoriesRequest(namespace=SPACE, dense=pb.DenseArm(vector=to, k=k), filter=wanted)
            within = scope.live(connection.vault, SPACE, wanted)
            for sought in (direction, -direction):
                exact = nearest.exactly(connection, within, sought, k)
                assert nearest.find(connection, engine._index, search, sought, moment) == exact


def test_many_changes_are_taken_in_though_writes_never_cease(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 60)
    for number in range(400, 500):
        Local(engine).put(request(number))
    assert indexed(engine) >= 364
    agrees(engine, 20)


@pytest.mark.usefixtures("patience")
def test_a_write_that_fails_leaves_nothing_in_the_index(engine: SqliteEngine) -> None:
    before = indexed(engine)
    wrong = unit()

    def fails(connection: apsw.Connection) -> None:
        writes.put(connection, request(1000, wrong))  # type: ignore[arg-type]
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # Its own.
        engine._writer.run(fails)
    assert indexed(engine) == before
    agrees(engine, 5, to=wrong)


def test_a_memory_is_as_near_as_its_nearest_vector(engine: SqliteEngine) -> None:
    store = Local(engine)
    store.put(request(1001, near(0.1) + near(-0.5) + near(0.95)))
    store.put(request(1002, near(0.9)))
    assert store.nearest(vector(1), 2) == ["memory 1001", "memory 1002"]
    assert store.scores(vector(1), 2) == pytest.approx([0.95, 0.9], abs=3e-4)
    until(lambda: indexed(engine) == 304)


def test_equals_that_fill_all_candidates_are_ranked_newest_first(engine: SqliteEngine) -> None:
    for number in range(120):
        Local(engine).put(request(number, vector(1), " anew"))
    newest = [f"memory {number} anew" for number in reversed(range(120))]
    for k in (1, 5, 60, 120):
        assert Local(engine).nearest(vector(1), k) == newest[:k]


@pytest.mark.parametrize("spread", [0.2, 100], ids=["nearly alike", "no structure"])
def test_vectors_that_codes_tell_little_of_take_more_candidates(path: Path, spread: float) -> None:
    """With the usual number a tenth of what lies near would not be found."""
    random = np.random.default_rng(5)
    drawn = random.normal(size=(20, DIMENSIONS))[random.integers(20, size=3000)] + spread * random.normal(
        size=(3000, DIMENSIONS)
    )
    drawn = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype("<f4")
    with SqliteEngine.open(path, DIMENSIONS, 2, index_min_vectors=500) as engine:
        requests = [request(number, row.tobytes()) for number, row in enumerate(drawn)]
        for start in range(0, 3000, 500):
            engine.put_memories(requests[start : start + 500])
        ready(engine)
        found = 0
        for to in drawn[::60]:
            right = np.sort(drawn @ to)[-10]
            found += sum(score >= right - 1e-4 for score in Local(engine).scores(to.tobytes(), 10))
        assert found >= 0.98 * 500
        assert not any(check.problems for check in engine.verify())


def test_the_index_is_there_after_a_restart(path: Path, engine: SqliteEngine) -> None:
    to = unit()
    found = Local(engine).nearest(to, 10)
    with opened(path) as file:
        file.execute("VACUUM INTO ?", (str(path.with_name("other.db")),))
    with SqliteEngine.open(path.with_name("other.db"), DIMENSIONS, 2, index_min_vectors=MIN_VECTORS) as again:
        assert Local(again).nearest(to, 10) == found  # Be its index there or not.
        ready(again)
        assert indexed(again) == 300
        assert Local(again).nearest(to, 10) == found
        agrees(again, 20)


def test_a_namespace_that_outgrows_its_index_gets_another(engine: SqliteEngine) -> None:
    for start in range(300, 1500, 100):
        fill(engine, range(start, start + 100))
        agrees(engine, 20)
    until(lambda: tail(engine) < 130)
    assert indexed(engine) == 1500
    agrees(engine, 100)


def delete(engine: SqliteEngine, numbers: range) -> None:
    """Deletes in one transaction."""
    refs = [Local(engine).ref(number) for number in numbers]
    requests = [pb.DeleteMemoryRequest(namespace=SPACE, ref=ref) for ref in refs]
    engine._writer.run(lambda connection: [writes.delete(connection, each) for each in requests])


@pytest.mark.parametrize("left", [0, 1, 15])
def test_a_namespace_of_which_nearly_all_went_is_searched_as_right(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(namespace, "GRACE_SECONDS", 0)
    delete(engine, range(left, 300))
    until(lambda: indexed(engine) == left and len(searched(engine)) == left)
    assert len(searched(engine).base) == left
    monkeypatch.setattr(namespace, "MIN_TAIL", 1_000)
    fill(engine, range(300, 700))  # None of them has codes.
    until(lambda: indexed(engine) == left + 400)
    for wanted in FILTERS:
        for _ in range(2):  # What a filter lets through is kept.
            agrees(engine, 5, wanted)


def test_what_is_repaired_in_a_namespace_too_small_for_its_index_is_found(engine: SqliteEngine) -> None:
    def damage(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM hippo_tags; UPDATE hippo_memories SET status = status")

    engine._writer.run(damage)
    delete(engine, range(20, 300))
    until(lambda: indexed(engine) == 20)
    for _ in engine.reindex():
        pass
    assert len(Local(engine).nearest(unit(), 20, Filter(tags_any=["half"]))) == 10
    agrees(engine, 20, Filter(tags_any=["half"]))
    assert indexed(engine) == 0
    fill(engine, range(300, 400))
    ready(engine)
    agrees(engine, 20)


def test_small_namespaces_have_no_index(engine: SqliteEngine) -> None:
    other = Store(engine)  # type: ignore[arg-type]
    put = request(1, vector(1))
    put.memory.namespace = other.namespace
    engine.put_memory(put)
    assert engine._index.view(other.namespace) is None
    assert indexed(engine) == 300


@pytest.mark.parametrize(("broken", "step"), [(codes.Codes, "add"), (codes.Codes, "pack"), (namespace.Compacted, "of")])
def test_an_index_that_cannot_be_made_costs_no_answer_and_is_made_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, broken: type, step: str
) -> None:
    failed = threading.Event()

    def fails(*_: object, **__: object) -> None:
        failed.set()
        raise MemoryError

    with (
        SqliteEngine.open(path, DIMENSIONS, 2, index_min_vectors=MIN_VECTORS) as engine,
        monkeypatch.context() as patched,
    ):
        patched.setattr(broken, step, fails)
        fill(engine, range(MIN_VECTORS))
        if step == "of":
            ready(engine)
            fill(engine, range(100, 140))
        assert failed.wait(30)
        fill(engine, range(200, 210))
        agrees(engine, 20)
        patched.undo()
        numbers = itertools.count(300)

        def tried_again() -> bool:
            fill(engine, range(number := next(numbers), number + 1))  # Each commit may ask again.
            return engine._index.view(SPACE) is not None and tail(engine) < 30

        until(tried_again)
        ready(engine)
        agrees(engine, 20)


@pytest.mark.parametrize("broken", ["add", "bury"])
def test_an_index_that_fails_amid_a_write_is_given_up_and_made_again(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(namespace.NamespaceIndex, broken, fails)
        Local(engine).put(request(7, vector(1), " anew"))
        until(lambda: engine._index.size() == 0)
    assert Local(engine).nearest(vector(1), 1) == ["memory 7 anew"]
    Local(engine).put(request(8, vector(1), " anew"))
    ready(engine)
    assert Local(engine).nearest(vector(1), 2) == ["memory 8 anew", "memory 7 anew"]
    agrees(engine, 20)


def test_an_index_that_was_being_made_when_all_were_given_up_lacks_nothing(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, makings = index.CodeIndex._made, itertools.count()

    def made(*given: Any) -> namespace.NamespaceIndex | None:
        result = make(*given)
        if next(makings) == 0:
            with monkeypatch.context() as patched:
                patched.setattr(index, "OWNERS", "SELECT what is not there")
                Local(engine).put(request(7, vector(1), " anew"))
                until(lambda: not engine._index.is_behind)
        return result

    monkeypatch.setattr(index.CodeIndex, "_made", made)
    for _ in engine.reindex():
        pass
    Local(engine).put(request(8, vector(1), " anew"))
    ready(engine)
    assert Local(engine).nearest(vector(1), 2) == ["memory 8 anew", "memory 7 anew"]
    agrees(engine, 20)


def test_searches_agree_amid_writes_deletes_and_compactions(engine: SqliteEngine) -> None:
    store = Local(engine)
    chance = random.Random(5)  # noqa: S311  # No secret.
    stop = threading.Event()

    def search() -> int:
        number = 0
        while not stop.is_set():
            # Number 0 is never deleted, and always has one vector or the other: it is there at every moment.
            assert store.nearest(vector(1), 1)[0] in {"memory 0 a", "memory 0 b"}
            assert len(store.nearest(unit(), 20)) == 20
            number += 1
        return number

    def change() -> None:
        for _ in range(100):
            number = chance.randrange(1, 400)
            store.put(request(0, *chance.choice([(near(0.99), " a"), (near(0.98), " b")])))
            if chance.random() < 0.5 or not store.delete(number):
                store.put(request(number, unit(), f" {chance.random()}"))

    store.put(request(0, near(0.99), " a"))
    with ThreadPoolExecutor(4) as pool:
        searching = [pool.submit(search) for _ in range(2)]
        try:
            for _ in range(3):
                for changing in [pool.submit(change) for _ in range(2)]:
                    changing.result()
                for wanted in FILTERS:
                    agrees(engine, 10, wanted)
        finally:
            stop.set()
        assert all(searched.result() > 0 for searched in searching)


def test_the_process_takes_the_threshold_and_counts(home: Path) -> None:
    variables = {"HIPPOVAULT_STORAGE_INDEX_MIN_VECTORS": "5"}
    with serving(home, environment=variables) as process, connected(process) as stub:
        store = Store(stub)
        for number in range(8):
            store.add(f"memory {number}", near(number / 10))
        until(lambda: stub.GetStats(pb.GetStatsRequest()).indexed_vectors == 8)
        assert store.nearest(vector(1), 2) == ["memory 7", "memory 6"]
        store.delete(Ref(id=store.get_id(1).id))
        until(lambda: stub.GetStats(pb.GetStatsRequest()).indexed_vectors == 7)
        assert stub.GetStats(pb.GetStatsRequest()).vectors == 7
    with opened(database(home)) as file:
        assert rows(file, "SELECT count(*) FROM hippo_vectors") == [(8,)]


class Local:
    """The namespace, without a process."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    def put(self, given: pb.PutMemoryRequest) -> None:
        self._engine.put_memory(given)

    def ref(self, number: int) -> Ref:
        return Ref(entity=memory_pb2.EntityKey(category="c", key=str(number)))

    def delete(self, number: int) -> bool:
        try:
            self._engine.delete_memory(pb.DeleteMemoryRequest(namespace=SPACE, ref=self.ref(number)))
        except ServiceError:
            return False
        return True

    def purge(self, number: int) -> None:
        assert self._engine.purge_memories(pb.PurgeMemoriesRequest(namespace=SPACE, ref=self.ref(number))).total == 1

    def update(self, number: int, **fields: object) -> None:
        self._engine.update_memory(
            pb.UpdateMemoryRequest(
                namespace=SPACE,
                ref=self.ref(number),
                memory=memory_pb2.Memory(**fields),  # type: ignore[arg-type]
                update_mask={"paths": list(fields)},  # type: ignore[arg-type]
            )
        )

    def _hits(self, to: bytes, k: int, wanted: memory_pb2.Filter | None) -> list[pb.SearchHit]:
        search = pb.SearchMemoriesRequest(namespace=SPACE, dense=pb.DenseArm(vector=to, k=k), filter=wanted)
        return sorted(self._engine.search_memories(search).hits, key=lambda hit: hit.dense.rank)

    def nearest(self, to: bytes, k: int, wanted: memory_pb2.Filter | None = None) -> list[str]:
        return [hit.memory.content for hit in self._hits(to, k, wanted)]

    def scores(self, to: bytes, k: int) -> list[float]:
        return [hit.dense.score for hit in self._hits(to, k, None)]
