"""Writers whose every write carries a token in each of its parts, and what must be there of it after a crash."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from support.killing import ends_with_the_process
from support.storage import SECONDS, Filter, Memory, Store, entity, near, vector

NAMESPACE = "tokens"
KEYS_A_WRITER = 12
FIELDS = ("content", "tags", "hints", "metadata")


@dataclass(frozen=True)
class State:
    """Of the memory of a key: which write made it, how many contents it had, and whether it is deleted."""

    token: int
    version: int
    live: bool = True


NEW = State(0, 0)


@dataclass(frozen=True)
class Call:
    """A call under way: the states that it leads its keys to, in order."""

    states: dict[str, State | None]
    in_parts: bool = False
    """A part of it, from its beginning on, may have happened without the rest."""


def memory(key: str, token: int) -> Memory:
    """Returns the memory that a write of this token makes."""
    text = f"{key}t{token}"
    return Memory(
        namespace=NAMESPACE,
        key=key,
        content=f"memory {text}",
        tags=[text],
        hints=[f"hint {text}"],
        metadata=json.dumps({"token": text}),
    )


def cosine(token: int) -> float:
    """Returns the similarity to vector(1) of a token's vector."""
    return token * 37 % 100 / 100


def put_request(key: str, token: int) -> pb.PutMemoryRequest:
    """Returns the put of this token."""
    return pb.PutMemoryRequest(memory=memory(key, token), vectors=near(cosine(token)), model_revision="model-1")


@dataclass
class Journal:
    """What was acknowledged, and what was under way when the process was killed."""

    acknowledged: dict[str, State | None] = field(default_factory=dict)
    under_way: list[Call] = field(default_factory=list)
    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def check(self, store: Store) -> None:
        """Fails unless every acknowledged write is there whole, and every other one whole or not at all."""
        found = stored(store)
        unsettled: set[str] = set()
        for call in self.under_way:
            happened = [found.get(key) == state for key, state in call.states.items()]
            assert happened == sorted(happened, reverse=True)
            assert call.in_parts or len(set(happened)) == 1
            unsettled.update(key for key, done in zip(call.states, happened, strict=True) if done)
        for key, state in self.acknowledged.items():
            assert key in unsettled or found.get(key) == state, key
        assert found.keys() <= self.acknowledged.keys() | unsettled
        self.acknowledged.update({key: found.get(key) for key in unsettled})
        self.under_way.clear()


def stored(store: Store) -> dict[str, State]:
    """Returns the state of every memory by its key; each must agree with itself."""
    memories = list(all_memories(store))
    found = {}
    for there in memories:
        token = int(there.content.rpartition("t")[2])
        expected = memory(there.key, token)
        assert [getattr(there, name) for name in FIELDS] == [getattr(expected, name) for name in FIELDS]
        found[there.key] = State(token, there.version, not there.HasField("deleted_at"))
    assert len(found) == len(memories)
    hits = store.search(vector(1), k=10_000).hits
    by_id = {there.id: found[there.key] for there in memories}
    assert {hit.id for hit in hits} == {memory_id for memory_id, state in by_id.items() if state.live}
    assert [hit.dense.score for hit in hits] == pytest.approx([cosine(by_id[hit.id].token) for hit in hits], abs=1e-3)
    return found


def all_memories(store: Store) -> Iterator[Memory]:
    """Yields every memory of the namespace, live and deleted."""
    request = pb.ListMemoriesRequest(
        namespace=store.namespace, page_size=1000, visibility=memory_pb2.VISIBILITY_ALL, filter=Filter()
    )
    while True:
        page = store.stub.ListMemories(request, timeout=SECONDS)
        yield from page.memories
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


@dataclass
class Writer:
    """Writes to keys of its own until the process is gone."""

    name: str
    journal: Journal
    random: Random

    def run(self, store: Store) -> None:
        """Writes; returns when the process no longer answers."""
        with ends_with_the_process():
            while True:
                self._write(store)

    def _write(self, store: Store) -> None:
        keys = [f"{self.name}k{number}" for number in self.random.sample(range(KEYS_A_WRITER), 4)]
        if self.random.random() < 0.2:
            self._batch(store, keys)
        elif self.random.random() < 0.2:
            self._stream(store, keys)
        else:
            self._single(store, keys[0])

    def _single(self, store: Store, key: str) -> None:
        state = self._state(key)
        ref = entity("", key)
        if state is None:
            self._put(store, key)
        elif not state.live:
            with self._call(Call({key: replace(state, live=True)})):
                store.stub.UndeleteMemory(pb.UndeleteMemoryRequest(namespace=NAMESPACE, ref=ref), timeout=SECONDS)
        else:
            self.random.choice((self._put, self._update, self._delete, self._purge))(store, key)

    def _put(self, store: Store, key: str) -> None:
        after = self._next(key)
        with self._call(Call({key: after})):
            store.stub.PutMemory(put_request(key, after.token), timeout=SECONDS)

    def _update(self, store: Store, key: str) -> None:
        after = self._next(key)
        request = pb.UpdateMemoryRequest(
            namespace=NAMESPACE, ref=entity("", key), memory=memory(key, after.token), vectors=near(cosine(after.token))
        )
        request.update_mask.paths[:] = FIELDS
        with self._call(Call({key: after})):
            store.stub.UpdateMemory(request, timeout=SECONDS)

    def _delete(self, store: Store, key: str) -> None:
        state = self._state(key)
        assert state
        with self._call(Call({key: replace(state, live=False)})):
            store.delete(entity("", key))

    def _purge(self, store: Store, key: str) -> None:
        with self._call(Call({key: None})):
            request = pb.PurgeMemoriesRequest(namespace=NAMESPACE, ref=entity("", key))
            store.stub.PurgeMemories(request, timeout=SECONDS)

    def _batch(self, store: Store, keys: list[str]) -> None:
        after = {key: self._next(key) for key in keys}
        requests = [put_request(key, state.token) for key, state in after.items()]
        with self._call(Call({**after})):
            answer = store.stub.BatchPutMemories(pb.BatchPutMemoriesRequest(requests=requests), timeout=SECONDS)
            assert [told.done.version for told in answer.results] == [state.version for state in after.values()]

    def _stream(self, store: Store, keys: list[str]) -> None:
        after = {key: self._next(key) for key in keys}
        call = Call({**after}, in_parts=True)
        requests = (pb.StreamPutMemoriesRequest(request=put_request(key, state.token)) for key, state in after.items())
        with self._call(call):
            answers = store.stub.StreamPutMemories(requests, timeout=SECONDS)
            for (key, state), answer in zip(after.items(), answers, strict=True):
                assert answer.result.done.version == state.version
                self.journal.acknowledged[key] = state
                del call.states[key]

    @contextmanager
    def _call(self, call: Call) -> Iterator[None]:
        """Notes a call as under way until it is answered."""
        self.journal.under_way.append(call)
        yield
        self.journal.acknowledged.update(call.states)
        self.journal.under_way.remove(call)
        self.journal.answers.release()

    def _state(self, key: str) -> State | None:
        return self.journal.acknowledged.get(key)

    def _next(self, key: str) -> State:
        """Returns the state after new content."""
        return State(self.random.getrandbits(40), (self._state(key) or NEW).version + 1)


@contextmanager
def writing(store: Store, journal: Journal, random: Random, writers: int) -> Iterator[None]:
    """Runs so many writers, which must end by the end of the context: by the end of the process."""
    seeds = [Random(random.random()) for _ in range(writers)]  # noqa: S311  # No secrets.
    with ThreadPoolExecutor(writers) as pool:
        running = [pool.submit(Writer(f"w{n}", journal, seed).run, store) for n, seed in enumerate(seeds)]
        yield
    for writer in running:
        writer.result()
