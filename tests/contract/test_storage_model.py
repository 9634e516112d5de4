"""Any sequence of puts and deletes leaves what a small model of the rules says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from support.storage import CREATED, EXISTED, REVIVED, UPDATED, Code, Ref, Store, entity, refused, stub_of

CONTENTS = ("alpha", "beta", "gamma")
KEYS = ("", "one", "two")
TAGS = ("x", "y", "z")


@dataclass
class Row:
    content: str
    key: str
    tags: list[str]
    version: int = 1
    live: bool = True


@dataclass
class Model:
    """The rules in their plainest form, over a list."""

    rows: list[Row] = field(default_factory=list)

    def find(self, content: str, key: str) -> Row | None:
        if key:
            keyed = [row for row in self.rows if row.key == key]
            same = [row for row in self.rows if row.content == content and not row.key]
            return next(iter([*keyed, *sorted(same, key=lambda row: not row.live)]), None)
        same = [row for row in self.rows if row.content == content]
        return next(iter(sorted(same, key=lambda row: (not row.live, bool(row.key)))), None)

    def put(self, content: str, key: str, tags: list[str]) -> tuple[int, Row]:
        row = self.find(content, key)
        if row is None:
            self.rows.append(Row(content, key, list(dict.fromkeys(tags))))
            return CREATED, self.rows[-1]
        if row.live and row.content == content:
            row.tags = list(dict.fromkeys([*row.tags, *tags]))
            row.key = key or row.key
            return EXISTED, row
        outcome = UPDATED if row.live else REVIVED
        row.version += row.content != content
        row.content, row.key, row.tags, row.live = content, key, list(dict.fromkeys(tags)), True
        return outcome, row

    def named(self, kind: str, value: str) -> list[Row]:
        live = [row for row in self.rows if row.live]
        if kind == "key":
            return [row for row in live if value and row.key == value]
        return sorted((row for row in live if row.content == value), key=lambda row: bool(row.key))


def reference(kind: str, value: str) -> Ref:
    if kind == "key":
        return entity("", value)
    return Ref(content_hash=hashlib.sha256(value.encode()).hexdigest())


PUTS = st.tuples(
    st.just("put"), st.sampled_from(CONTENTS), st.sampled_from(KEYS), st.lists(st.sampled_from(TAGS), max_size=2)
)
NO_TAGS: st.SearchStrategy[list[str]] = st.just([])
DELETES = st.tuples(st.just("delete"), st.just("content"), st.sampled_from(CONTENTS), NO_TAGS) | st.tuples(
    st.just("delete"), st.just("key"), st.sampled_from(KEYS[1:]), NO_TAGS
)


@pytest.fixture(scope="module")
def stub(module_home: Path) -> Iterator[StorageServiceStub]:
    with stub_of(module_home) as served:
        yield served


def assert_same(store: Store, model: Model) -> None:
    """Every read tells what the model has."""
    live = [row for row in model.rows if row.live]
    page = store.page()
    assert page.total_size == len(live)
    found = sorted((m.content, m.key, list(m.tags), m.version) for m in page.memories)
    assert found == sorted((row.content, row.key, row.tags, row.version) for row in live)
    for content in CONTENTS:
        assert store.matching(content) == [content] * sum(row.content == content for row in live)
        expected = model.find(content, "")
        memory = store.find(content)
        assert (memory is None) == (expected is None)
        if memory and expected:
            assert (memory.key, memory.HasField("deleted_at")) == (expected.key, not expected.live)
    for tag in TAGS:
        assert len(store.listed(tags_any=[tag])) == sum(tag in row.tags for row in live)


@given(st.lists(PUTS | DELETES, max_size=14))
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_store_does_what_the_model_does(
    stub: StorageServiceStub, steps: list[tuple[str, str, str, list[str]]]
) -> None:
    store, model = Store(stub), Model()
    for action, first, second, tags in steps:
        if action == "put":
            outcome, row = model.put(first, second, tags)
            response = store.put(first, key=second, tags=tags)
            memory = response.memory
            assert response.outcome == outcome
            assert (memory.content, memory.key, list(memory.tags), memory.version) == (
                row.content, row.key, row.tags, row.version,
            )  # fmt: skip
            continue
        named = model.named(first, second)
        if named:
            memory = store.get(reference(first, second))
            assert (memory.content, memory.key) == (named[0].content, named[0].key)
            assert len(store.delete(reference(first, second))) == len(named)
        else:
            with refused(Code.NOT_FOUND, "ref.entity" if first == "key" else "ref.content_hash"):
                store.delete(reference(first, second))
        for row in named:
            row.live = False
    assert_same(store, model)
