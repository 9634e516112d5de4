"""Any sequence of what can be done to a store leaves what a plain model of the rules says, in every read.

The store runs in this process, checks included. HIPPOVAULT_TEST_SEQUENCES sets how many random sequences are tried in
place of a fixed few.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, Phase, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite.dense import depth
from hippovault_storage.sqlite.lockbox import Encryption
from hippovault_storage.vault import Mode
from support.model import (
    DIMENSIONS,
    VISIBILITIES,
    Kept,
    Life,
    Model,
    RefusedError,
    Row,
    hash_of,
    row_of,
    vectors_of,
    words,
)
from support.storage import Code, Filter, Memory, Ref, at, encrypted, entity, in_process, vector
from support.waiting import until

SEQUENCES = int(os.environ.get("HIPPOVAULT_TEST_SEQUENCES", "0"))
"""0: the same few in every run."""
Put = tuple[Memory, list[int], str, bytes, bool, bool]

PHASES = (Phase.generate, Phase.shrink) if SEQUENCES else (Phase.generate,)
STEPS = 30 if SEQUENCES else 25

NAMESPACES = ("default", "other")
CONTENTS = ("alpha", "beta", "gamma delta")
HINTS = ("epsilon", "zeta eta")
WORDS = ("alpha", "delta", "epsilon", "eta")
CATEGORIES = ("", "group")
KEYS = ("", "one", "two")
TAGS = ("x", "y", "z")
TYPES = ("", "note")
STATUSES = ("", "open")
METADATA = ("", '{"a":1}', '{"_hippo":{"mine":2}}', "{}")
INSTANTS = (1_000.5, 2_000.25)
PALETTE = [
    vector(*numbers, dimensions=DIMENSIONS)
    for numbers in ((1,), (0, 1), (1, 1, 1, 1), (1, -1, 1, -1), (-1,), (1, 1, -1, 1))
]
"""Their components are exact in any float, so equal cosines are equal to the last bit, and ties are many."""
FAR = b"".join(vector(*[0.0] * axis, 1, -1, dimensions=DIMENSIONS) for axis in range(4, 24))
"""Vectors at right angles to the palette, so many that a few memories make a code index."""
VECTORS_OF = [*PALETTE, FAR]
OF_HINTS = dict(zip(HINTS, PALETTE[2:], strict=False))
INDEX_MIN_VECTORS = 16
CANDIDATES = 16
"""Fewer than there are vectors, so that the index chooses."""
CLOCK_START = 1_800_000_000_000_000


class Clock:
    """The store's clock, in microseconds; it moves when it is told to."""

    def __init__(self) -> None:
        self.now = CLOCK_START

    def seconds(self) -> float:
        return self.now / 1e6


def several(values: tuple[str, ...], most: int = 2) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), max_size=most, unique=True)


def surprises() -> st.SearchStrategy[memory_pb2.Surprise | None]:
    def of(score: float) -> memory_pb2.Surprise:
        parts = memory_pb2.SurpriseComponents(embedding_outlier=score, prediction_loss=score or None)
        return memory_pb2.Surprise(score=score, components=parts, version=1)

    return st.none() | st.sampled_from([0.0, 0.25, 1.0]).map(of)


IN_NAMESPACE = st.sampled_from([*[NAMESPACES[0]] * 4, NAMESPACES[1]])
"""One more than the other, so that memories meet."""
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "content": st.sampled_from(CONTENTS),
    "category": st.sampled_from(CATEGORIES),
    "key": st.sampled_from(KEYS),
    "tags": several(TAGS),
    "hints": several(HINTS),
    "memory_type": st.sampled_from(TYPES),
    "status": st.sampled_from(STATUSES),
    "importance": st.sampled_from([None, 0.0, 0.5]),
    "metadata": st.sampled_from(METADATA),
    "created_at": st.sampled_from([None, *map(at, INSTANTS)]),
    "surprise": surprises(),
}
"""What a caller may set, by its name."""

MEMORIES = st.builds(Memory, namespace=IN_NAMESPACE, **FIELDS)
VECTORS = st.lists(st.sampled_from(range(len(VECTORS_OF))), max_size=3)
CODES = st.sampled_from([b"", bytes([127, *[0] * (DIMENSIONS - 1)]), bytes([*[0] * (2 * DIMENSIONS - 1), 3])])
"""int8: none, a token along the first axis, a token that points nowhere and one along the last axis."""
TOKENS = vector(2, dimensions=DIMENSIONS) + vector(*[1] * DIMENSIONS, dimensions=DIMENSIONS)
"""Of a query."""
REVISIONS = st.sampled_from([*["model-0"] * 4, "model-1"])
REFS = (
    st.integers(1, 8).map(lambda number: Ref(id=number))
    | st.sampled_from(CONTENTS).map(lambda content: Ref(content_hash=hash_of(content)))
    | st.builds(entity, st.sampled_from(CATEGORIES), st.sampled_from(KEYS[1:]))
)
FILTERS = st.builds(
    Filter,
    tags_any=several(TAGS),
    tags_all=several(TAGS),
    memory_types=several(TYPES[1:]),
    categories=several(CATEGORIES[1:]),
    statuses=several(STATUSES[1:]),
    created_since=st.sampled_from([None, *map(at, INSTANTS)]),
    created_before=st.sampled_from([None, *map(at, INSTANTS)]),
)


def done_or_code(result: pb.PutMemoryResult) -> tuple[int, int, int] | Code:
    """What a put of many did, or the code with which it was refused."""
    if result.HasField("error"):
        return next(code for code in Code if code.value[0] == result.error.code)
    return result.done.id, result.done.outcome, result.done.version


def life_of(version: memory_pb2.MemoryVersion) -> Life:
    """The life that the store tells."""
    until = version.until.ToMicroseconds() if version.HasField("until") else None
    return Life(row_of(version.memory), version.since.ToMicroseconds(), until)


def pages(call: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    """The answers to a request, page by page."""
    while True:
        page = call(request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def answer(call: Callable[[], Any]) -> Any:
    """What a call returns, or the code with which it is refused."""
    try:
        return call()
    except (ServiceError, RefusedError) as error:
        return error.code


def put_request(
    memory: Memory,
    palette: list[int],
    revision: str,
    codes: bytes,
    of_hints: bool,  # noqa: FBT001
    pending: bool = False,  # noqa: FBT001, FBT002
) -> pb.PutMemoryRequest:
    """A put of vectors by their places in the palette, and perhaps of vectors and codes of the hints."""
    request = pb.PutMemoryRequest(
        memory=memory,
        vectors=b"".join(VECTORS_OF[place] for place in palette),
        model_revision=revision,
        pending=pending,
    )
    if codes and not (pending and not palette):
        request.token_codes.CopyFrom(pb.TokenCodes(encoding="int8", codes=codes))
    if of_hints and memory.hints:
        request.hint_vectors = b"".join(OF_HINTS[hint] for hint in memory.hints)
        request.hint_token_codes.CopyFrom(pb.TokenCodes(encoding="int8", codes=bytes([1] * DIMENSIONS)))
    return request


PUTS = st.tuples(MEMORIES, VECTORS, REVISIONS, CODES, st.booleans(), st.booleans())


class StoreMachine(RuleBasedStateMachine):
    """A store and its model, side by side."""

    directory: Path
    clock: Clock
    encryption: Encryption

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.exported: tuple[list[maintenance_pb2.MemoryRecord], list[Kept]] = ([], [])
        self.clock.now = CLOCK_START
        self.home = Path(tempfile.mkdtemp(dir=self.directory))
        self.open()

    def open(self) -> None:
        self.opened = ExitStack()
        path = self.home / "memories.db"
        self.store, self.maintenance = self.opened.enter_context(
            in_process(path, DIMENSIONS, self.encryption, INDEX_MIN_VECTORS)
        )

    def teardown(self) -> None:
        with self.opened:
            checks = self.maintenance.Verify(maintenance_pb2.VerifyRequest())
            assert not [check for check in checks if check.wrong]

    @rule()
    def reindex(self) -> None:
        progress = list(self.maintenance.Reindex(maintenance_pb2.ReindexRequest()))
        assert progress[-1].done == progress[-1].total

    @precondition(lambda self: self.encryption.mode != "off")
    @rule(data_key=st.booleans())
    def rotate_key(self, data_key: bool) -> None:  # noqa: FBT001  # Hypothesis gives names.
        for _ in self.maintenance.RotateKey(maintenance_pb2.RotateKeyRequest(data_key=data_key)):
            pass

    @rule(microseconds=st.sampled_from([-5_000_000, 1, 1_000_000]))
    def clock_moves(self, microseconds: int) -> None:
        self.clock.now += microseconds

    @initialize()
    def put_what_is_far(self) -> None:
        for content in ("far", "farther"):
            self.put((Memory(namespace=NAMESPACES[0], content=content), [len(PALETTE)], "model-0", b"", False, False))

    @rule()
    def restart(self) -> None:
        self.opened.close()
        self.open()

    @rule(with_vectors=st.booleans())
    def export(self, with_vectors: bool) -> None:  # noqa: FBT001
        asked = maintenance_pb2.ExportMemoriesRequest(without_vectors=not with_vectors)
        records = [told.record for told in self.maintenance.ExportMemories(asked)]
        kept = [kept.record(with_vectors=with_vectors) for _, kept in sorted(self.model.kept.items())]
        self.exported = records, kept

    @rule()
    def import_again(self) -> None:
        records, kept = self.exported
        requests = (maintenance_pb2.ImportMemoriesRequest(record=record) for record in records)
        told = self.maintenance.ImportMemories(requests)
        assert (told.imported, told.kept, told.failed) == self.model.take_in(kept)

    @rule()
    def move(self) -> None:
        self.opened.close()
        self.home = Path(tempfile.mkdtemp(dir=self.directory))
        self.open()
        self.model = Model()
        self.import_again()

    @rule(given=PUTS)
    def put(self, given: Put) -> None:
        request = put_request(*given)

        def told() -> tuple[Row, int]:
            response = self.store.PutMemory(request)
            return row_of(response.memory), response.outcome

        assert answer(told) == answer(lambda: self.model.put(request, self.clock.now))

    @rule(given=st.lists(PUTS, min_size=2, max_size=4), streamed=st.booleans())
    def put_many(self, given: list[Put], streamed: bool) -> None:  # noqa: FBT001
        requests = [put_request(*one) for one in given]
        expected = [answer(partial(self.model.put, request, self.clock.now)) for request in requests]
        if streamed:
            asked = (pb.StreamPutMemoriesRequest(request=request) for request in requests)
            results = [told.result for told in self.store.StreamPutMemories(asked)]
        else:
            results = list(self.store.BatchPutMemories(pb.BatchPutMemoriesRequest(requests=requests)).results)
        assert [done_or_code(result) for result in results] == [
            told if isinstance(told, Code) else (told[0].id, told[1], told[0].version) for told in expected
        ]

    @rule(
        namespace=IN_NAMESPACE,
        ref=REFS,
        memory=MEMORIES,
        mask=st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3, unique=True),
        palette=VECTORS,
        codes=CODES,
        of_hints=st.booleans(),
        version=st.sampled_from([0, 0, 0, 1, 2]),
        dry_run=st.booleans(),
        revision=REVISIONS,
    )
    def update(
        self,
        namespace: str,
        ref: Ref,
        memory: Memory,
        mask: list[str],
        palette: list[int],
        codes: bytes,
        of_hints: bool,  # noqa: FBT001
        version: int,
        dry_run: bool,  # noqa: FBT001
        revision: str,
    ) -> None:
        assume("created_at" not in mask or memory.HasField("created_at"))
        embedded = "content" in mask and bool(palette)
        of_hints = of_hints and "hints" in mask
        given = put_request(memory, palette if embedded else [], revision, codes if embedded else b"", of_hints)
        request = pb.UpdateMemoryRequest(
            namespace=namespace,
            ref=ref,
            memory=given.memory,
            vectors=given.vectors,
            model_revision=given.model_revision,
            token_codes=given.token_codes if given.HasField("token_codes") else None,
            hint_vectors=given.hint_vectors,
            hint_token_codes=given.hint_token_codes if given.HasField("hint_token_codes") else None,
            expected_version=version,
            dry_run=dry_run,
            pending="content" in mask and not palette,
        )
        request.update_mask.paths[:] = mask

        def told() -> tuple[Row, bool]:
            response = self.store.UpdateMemory(request)
            return row_of(response.memory), response.changed

        assert answer(told) == answer(lambda: self.model.update(request, self.clock.now))

    @rule(
        number=st.integers(1, 8),
        memory=MEMORIES,
        palette=VECTORS,
        revision=REVISIONS,
        codes=CODES,
        of_hints=st.booleans(),
        is_late=st.sampled_from([False, False, True]),
    )
    def embed(
        self,
        number: int,
        memory: Memory,
        palette: list[int],
        revision: str,
        codes: bytes,
        of_hints: bool,  # noqa: FBT001
        is_late: bool,  # noqa: FBT001
    ) -> None:
        if number in self.model.kept:
            row = self.model.kept[number].row
            memory.namespace, memory.version, memory.hints[:] = row.namespace, row.version - is_late, row.hints
        given = put_request(memory, palette, revision, codes, of_hints)
        memory.id = number
        request = pb.EmbedMemoryRequest(
            memory=memory,
            vectors=given.vectors,
            model_revision=given.model_revision,
            token_codes=given.token_codes if given.HasField("token_codes") else None,
            hint_vectors=given.hint_vectors,
            hint_token_codes=given.hint_token_codes if given.HasField("hint_token_codes") else None,
        )
        told = answer(lambda: self.store.EmbedMemory(request).written)
        assert told == answer(lambda: self.model.embed(request))

    @rule(namespace=IN_NAMESPACE, ref=REFS, dry_run=st.booleans())
    def delete(self, namespace: str, ref: Ref, dry_run: bool) -> None:  # noqa: FBT001
        request = pb.DeleteMemoryRequest(namespace=namespace, ref=ref, dry_run=dry_run)
        told = answer(lambda: list(self.store.DeleteMemory(request).ids))
        assert told == answer(lambda: self.model.delete(namespace, ref, self.clock.now, dry_run=dry_run))

    @rule(namespace=IN_NAMESPACE, ref=REFS, dry_run=st.booleans())
    def undelete(self, namespace: str, ref: Ref, dry_run: bool) -> None:  # noqa: FBT001
        request = pb.UndeleteMemoryRequest(namespace=namespace, ref=ref, dry_run=dry_run)
        told = answer(lambda: list(self.store.UndeleteMemory(request).ids))
        assert told == answer(lambda: self.model.undelete(namespace, ref, self.clock.now, dry_run=dry_run))

    @rule(namespace=IN_NAMESPACE, ref=st.none() | REFS, seconds=st.sampled_from([-5, 0]), dry_run=st.booleans())
    def purge(self, namespace: str, ref: Ref | None, seconds: int, dry_run: bool) -> None:  # noqa: FBT001
        request = pb.PurgeMemoriesRequest(namespace=namespace, ref=ref, dry_run=dry_run)
        if ref is None:
            request.deleted_before.FromMicroseconds(self.clock.now + seconds * 1_000_000)

        def told() -> list[int]:
            response = self.store.PurgeMemories(request)
            assert response.total == len(response.ids)
            return sorted(response.ids)

        assert answer(told) == answer(lambda: self.model.purge(request))

    @rule(
        namespace=IN_NAMESPACE, conditions=FILTERS, query=st.sampled_from(PALETTE), number=st.integers(1, 4), ref=REFS
    )
    def read(self, namespace: str, conditions: Filter, query: bytes, number: int, ref: Ref) -> None:
        self.search(namespace, conditions, query, number)
        self.compare_to_newest(namespace, query, number)
        for visibility in VISIBILITIES:
            self.list_pages(namespace, conditions, visibility, number)
            self.get(namespace, ref, visibility)
        self.get_many(namespace, [number, 1, number + 2])
        for since in INSTANTS:
            self.summarize(namespace, since)

    def search(self, namespace: str, conditions: Filter, query: bytes, k: int) -> None:
        scope = self.model.in_scope(namespace, conditions)
        expected = self.model.nearest(scope, vectors_of(query)[0])[:k]
        for word in WORDS:
            request = pb.SearchMemoriesRequest(
                namespace=namespace,
                filter=conditions,
                dense=pb.DenseArm(vector=query, k=k),
                keyword=pb.KeywordArm(query=word, k=1000),
                late_interaction=pb.LateInteraction(token_vectors=TOKENS, depth=1000),
            )
            hits = self.store.SearchMemories(request).hits
            near = {hit.dense.rank: hit for hit in hits if hit.dense.rank}
            assert [near[rank].id for rank in sorted(near)] == [memory_id for memory_id, _ in expected]
            cosines = [near[rank].dense.score for rank in sorted(near)]
            assert cosines == pytest.approx([cosine for _, cosine in expected], abs=1e-4)
            matching = {hit.id for hit in hits if hit.keyword.rank}
            assert matching == {kept.row.id for kept in scope if word in words(kept.row)}
            for hit in hits:
                assert row_of(hit.memory) == self.model.kept[hit.id].row
                similarities = np.frombuffer(hit.token_similarities, np.float32)
                assert similarities == pytest.approx(self.model.kept[hit.id].similarities(vectors_of(TOKENS)), abs=1e-6)

    def compare_to_newest(self, namespace: str, query: bytes, newest: int) -> None:
        request = pb.CompareToNewestRequest(namespace=namespace, vector=query, newest=newest)
        told = list(self.store.CompareToNewest(request).cosine_similarities)
        scope = [kept.vectors[0] for kept in self.model.in_scope(namespace, Filter()) if len(kept.vectors)]
        expected = [float(first @ vectors_of(query)[0]) for first in scope[:newest]]
        assert told == pytest.approx(expected, abs=1e-4)

    def list_pages(
        self, namespace: str, conditions: Filter, visibility: memory_pb2.Visibility.ValueType, size: int
    ) -> None:
        expected = [kept.row for kept in self.model.in_scope(namespace, conditions, visibility)]
        request = pb.ListMemoriesRequest(namespace=namespace, page_size=size, filter=conditions, visibility=visibility)
        listed: list[Row] = []
        for page in pages(self.store.ListMemories, request):
            assert page.total_size == len(expected)
            listed += map(row_of, page.memories)
        assert listed == expected

    def get(self, namespace: str, ref: Ref, visibility: memory_pb2.Visibility.ValueType) -> None:
        request = pb.GetMemoryRequest(namespace=namespace, ref=ref, visibility=visibility)
        told = answer(lambda: row_of(self.store.GetMemory(request).memory))
        assert told == answer(lambda: self.model.named(namespace, ref, visibility)[0].row)

    def get_many(self, namespace: str, ids: list[int]) -> None:
        told = self.store.BatchGetMemories(pb.BatchGetMemoriesRequest(namespace=namespace, ids=ids)).memories
        live = {kept.row.id: kept.row for kept in self.model.in_scope(namespace, Filter())}
        assert [row_of(memory) for memory in told] == [live[memory_id] for memory_id in ids if memory_id in live]

    def summarize(self, namespace: str, since: float) -> None:
        request = pb.SummarizeMemoriesRequest(namespace=namespace, since=at(since), top_tags=100, highlights=100)
        told = self.store.SummarizeMemories(request).summary
        expected = self.model.summary(namespace, at(since).ToMicroseconds())
        assert [memory.id for memory in told.highlights] == [memory.id for memory in expected.highlights]
        assert told.mean_surprise == pytest.approx(expected.mean_surprise)
        assert (told.total_memories, told.by_type) == (expected.total_memories, expected.by_type)
        # An encrypted store does not know the order of tags that are as common as each other.
        assert sorted(told.top_tags, key=lambda tag: (-tag.count, tag.tag)) == list(expected.top_tags)
        assert [tag.count for tag in told.top_tags] == [tag.count for tag in expected.top_tags]

    @invariant()
    def every_read_tells_what_the_model_has(self) -> None:
        self.count()
        self.list_unembedded()
        for namespace in NAMESPACES:
            self.search(namespace, Filter(), PALETTE[2], 3)
            self.compare_to_newest(namespace, PALETTE[2], 2)
            for visibility in VISIBILITIES:
                self.list_pages(namespace, Filter(), visibility, 1000)
            for content, key in product(CONTENTS, KEYS):
                self.find(namespace, content, key)
        for kept in self.model.kept.values():
            self.look_back(kept)

    def look_back(self, kept: Kept) -> None:
        ref, lives = Ref(id=kept.row.id), kept.lives
        request = pb.ListMemoryVersionsRequest(namespace=kept.row.namespace, ref=ref, page_size=2)
        told = [life_of(version) for page in pages(self.store.ListMemoryVersions, request) for version in page.versions]
        assert told == lives
        for instant in {
            moment - early for life in lives for moment in (life.since, life.until or 0) for early in (0, 1)
        }:
            assert answer(partial(self.was, kept.row, instant)) == answer(partial(kept.as_of, instant))

    def was(self, row: Row, instant: int) -> Row:
        as_of = Timestamp()
        as_of.FromMicroseconds(instant)
        request = pb.GetMemoryRequest(namespace=row.namespace, ref=Ref(id=row.id), as_of=as_of)
        return row_of(self.store.GetMemory(request).memory)

    def list_unembedded(self) -> None:
        for encoding in ("", "int8"):
            told = self.store.ListUnembedded(pb.ListUnembeddedRequest(page_size=1000, token_encoding=encoding)).memories
            assert [memory.id for memory in told] == self.model.unembedded(with_codes=bool(encoding))
            for memory in told:
                kept = self.model.kept[memory.id]
                assert row_of(memory) == kept.row
                assert memory.pending == (not len(kept.vectors))

    def count(self) -> None:
        stats = self.store.GetStats(pb.GetStatsRequest())
        live = [kept for kept in self.model.kept.values() if kept.row.deleted is None]
        assert (stats.live_memories, stats.deleted_memories) == (len(live), len(self.model.kept) - len(live))
        assert stats.pending_memories == sum(not len(kept.vectors) for kept in live)
        assert stats.namespaces == len({kept.row.namespace for kept in live})
        vectors = Counter(kept.row.namespace for kept in live for _ in kept.searched)
        assert stats.vectors == vectors.total()
        large = sum(number for number in vectors.values() if number >= INDEX_MIN_VECTORS)
        until(lambda: large <= self.store.GetStats(pb.GetStatsRequest()).indexed_vectors <= vectors.total())

    def find(self, namespace: str, content: str, key: str) -> None:
        request = pb.FindMemoryRequest(namespace=namespace, content=content, key=key)
        response = self.store.FindMemory(request)
        kept = self.model.find(namespace, content, "", key)
        assert response.HasField("memory") == (kept is not None)
        if kept:
            assert row_of(response.memory) == kept.row
            assert response.has_vector == bool(len(kept.vectors))


@pytest.mark.timeout(0 if SEQUENCES else 120)
@pytest.mark.parametrize(("mode", "number"), [("off", 1), ("values", 2), ("file", 3)])
def test_the_store_does_what_the_model_does(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, number: int
) -> None:
    home.mkdir()
    for name, value in encrypted(mode).items():
        monkeypatch.setenv(name, value)

    class Machine(StoreMachine):
        directory = home
        clock = Clock()
        encryption = Encryption(mode)

    monkeypatch.setattr(depth, "FEWEST", CANDIDATES)
    monkeypatch.setattr(times, "now", Machine.clock.seconds)
    run_state_machine_as_test(
        Machine if SEQUENCES else seed(number)(Machine),
        settings=settings(
            max_examples=SEQUENCES or 12,
            stateful_step_count=STEPS,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
