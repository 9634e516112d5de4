"""The code index: which namespaces have one, how it is brought up, and how it follows what is written.

The writer's thread tells it of each transaction before the commit, so that searches look at what it changed, and lets
it take in what has come together once there is much of it, or nothing else to do. What takes long runs on a thread of
its own: bringing an index up from the rows, and compacting it. A namespace is searched exactly until its index is
there, and when there can be none.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import apsw
import numpy as np
import structlog

from hippovault_storage.sqlite import query, schema
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense import columns
from hippovault_storage.sqlite.dense.changes import Change, Changes
from hippovault_storage.sqlite.dense.codes import Codes, Slots
from hippovault_storage.sqlite.dense.columns import Columns
from hippovault_storage.sqlite.dense.depth import QUERIES, Neighbours
from hippovault_storage.sqlite.dense.namespace import Compacted, NamespaceIndex, View
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.vectors import FLOAT16
from hippovault_storage.sqlite.writer import Writer

log = structlog.get_logger()

MIN_VECTORS = 1_000
"""Vectors from which on a namespace has an index: to compare so many exactly takes as long as to search an index."""

CHUNK = 4_096
"""Memories that are read at once."""
SAMPLE = 2_048
"""Memories whose vectors teach what the codes mean."""
GROWTH = 4
"""An index that has grown so many times is made anew, with codes learnt from all of its vectors."""

MAX_COPIED_BYTES = 96 * 1024**2
"""Of vectors that are kept in memory, all namespaces together: of 131,072 vectors of 384 components. A namespace that
does not fit has its candidates' vectors read from the file, which takes twice the time."""

TOGETHER = 128
"""Changed rows, two for a new memory, that are taken in at once, at the latest."""

WAIT_SECONDS = 0.1

NONE: Mapping[str, NamespaceIndex] = MappingProxyType({})

Task = Callable[[], None]

SIZES = """
SELECT h.namespace, count(*) FROM hippo_vectors v JOIN hippo_memories h ON h.memory_id = v.memory_id
WHERE h.deleted_at IS NULL GROUP BY h.namespace
"""
MEMBERS = "SELECT memory_id FROM hippo_memories WHERE namespace = ? AND deleted_at IS NULL"
OWNERS = """
SELECT h.memory_id, h.namespace FROM carray(?) c CROSS JOIN hippo_vectors v ON v.id = c.value
CROSS JOIN hippo_memories h ON h.memory_id = v.memory_id
"""


class CodeIndex:
    """The indexes of the large namespaces.

    Args:
        min_vectors: Vectors from which on a namespace has an index.
    """

    _writer: Writer
    _readers: Readers

    def __init__(self, min_vectors: int) -> None:
        self._min_vectors = min_vectors
        self._indexes: dict[str, NamespaceIndex] = {}
        self._sizes: Counter[str] = Counter()
        """Vectors of the other namespaces, the dead and those of a moment ago perhaps twice among them."""
        self._changes = Changes()
        self._missed: set[int] | None = None
        """Memories that were changed while an index is being brought up."""
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._asked: set[str] = set()
        """Namespaces that are waiting for the other thread."""
        self._compacted: tuple[View, Compacted] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexer")

    def view(self, namespace: str) -> View | None:
        """Returns the namespace's index as it is now; None when it is to be searched exactly."""
        index = self._indexes.get(namespace)
        return index.view if index else None

    def changed_since(self, moment: float) -> Change:
        """Returns what is to be looked at beside a view that is taken later, see `Changes.since`."""
        return self._changes.since(moment)

    def size(self) -> int:
        """Returns how many vectors the indexes find."""
        return sum(index.view.living() for index in self._indexes.values())

    # ------------------------------------------------------------------------------------ called on the writer's thread

    def listen(self, connection: apsw.Connection) -> None:
        """Takes note of every row that the connection changes."""
        connection.set_update_hook(self._changes.note)

    def before_commit(self) -> None:
        """Lets searches look at what the transaction wrote."""
        self._changes.tell()

    @property
    def is_behind(self) -> bool:
        """Whether there is anything to catch up with."""
        return self._changes.waiting > 0

    def catch_up(self, connection: Connection, *, idle: bool) -> None:
        """Takes in what was written, when there is much of it or nothing else to do."""
        if self._changes.waiting >= (1 if idle else TOGETHER):
            self._take_in(connection)

    def _take_in(
        self, connection: Connection, arriving: Mapping[str, NamespaceIndex] = NONE, missed: Iterable[int] = ()
    ) -> None:
        """Takes in what waits.

        Args:
            connection: The writer's.
            arriving: Indexes that are searched from now on.
            missed: Memories that were changed since those were made.
        """
        change = self._changes.all_waiting(missed)
        met: set[str] = set()
        try:
            met = self._follow(connection, change, {**self._indexes, **arriving})
        except Exception as error:  # noqa: BLE001  # The writer's thread must not end with it.
            self._give_up(error)
        self._changes.taken(change)
        for namespace in met | self._indexes.keys():
            self._ask(namespace)

    def _follow(self, connection: Connection, change: Change, indexes: dict[str, NamespaceIndex]) -> set[str]:
        """Adds what was written, and lets die what that replaced or deleted; returns whose the new vectors are."""
        owners = query.rows_of(connection, OWNERS, np.fromiter(change.vectors, np.int64))
        self._sizes.update(namespace for _, namespace in owners)
        changed = change.memories.union(memory_id for memory_id, _ in owners)
        if (missed := self._missed) is not None:
            missed |= changed
        rows = columns.read(connection, np.fromiter(changed, np.int64)) if indexes else []
        for namespace, index in indexes.items():
            start = len(index.view.tail)
            if of_namespace := [row for row in rows if row[columns.NAMESPACE] == namespace]:
                index.add(Columns.of(of_namespace), columns.matrix(of_namespace, index.view.codes.dimensions))
            index.bury(changed, start)
        self._indexes = indexes
        return {namespace for _, namespace in owners}

    def _give_up(self, error: Exception) -> None:
        log.error("the code index is given up, searches go on exactly", error=type(error).__name__)
        self._indexes, self._missed = {}, None

    def _ask(self, namespace: str) -> None:
        """Asks the other thread for what is due in a namespace."""
        index = self._indexes.get(namespace)
        due = index.is_full if index else self._sizes[namespace] >= self._min_vectors
        if due and namespace not in self._asked:
            self._asked.add(namespace)
            self._tasks.put(partial(self._maintain, namespace))

    # ------------------------------------------------------------------------------------------- on a thread of its own

    def start(self, writer: Writer, readers: Readers) -> None:
        """Brings up the indexes in the background."""
        self._writer, self._readers = writer, readers
        self._tasks.put(self._take_census)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; before the writer is closed."""
        self._closing.set()
        self._tasks.put(None)
        if self._thread.ident:
            self._thread.join()

    def namespaces(self) -> list[str]:
        """Returns which namespaces have an index."""
        return sorted(self._indexes)

    def rebuild(self) -> Iterator[None]:
        """Makes all indexes anew from the rows; yields now and then, until they are there."""
        done = threading.Event()
        large = {namespace for namespace, size in list(self._sizes.items()) if size >= self._min_vectors}
        for namespace in large | self._indexes.keys():
            self._tasks.put(partial(self._bring_up, namespace))
        self._tasks.put(done.set)
        while not (done.wait(WAIT_SECONDS) or self._closing.is_set()):
            yield

    def _run(self) -> None:
        while (task := self._tasks.get()) and not self._closing.is_set():
            try:
                task()
            except Exception as error:  # noqa: BLE001  # Without an index the search is slower and as right.
                self._missed = None
                if not self._closing.is_set():
                    log.warning("a code index could not be brought up to date", error=type(error).__name__)
            _give_back_memory()

    def _take_census(self) -> None:
        with self._readers.apart() as connection:
            sizes: dict[str, int] = dict(query.rows(connection, SIZES))

        def note(_: Connection) -> None:
            self._sizes.update(sizes)
            for namespace in sizes:
                self._ask(namespace)

        self._writer.run_alone(note)

    def _maintain(self, namespace: str) -> None:
        try:
            self._make_or_compact(namespace)
        finally:  # What failed is tried again at the next commit.
            self._asked.discard(namespace)
        self._ask(namespace)  # For what has come meanwhile.

    def _make_or_compact(self, namespace: str) -> None:
        index = self._indexes.get(namespace)
        if index is None or len(index.view) > GROWTH * index.trained_at:
            self._bring_up(namespace)
        else:
            view = index.view
            fits = self._fits(namespace, len(view), view.codes.dimensions)
            self._compacted = (view, Compacted.of(view, with_vectors=fits))
            self._writer.run_alone(partial(self._take_over, index))

    def _take_over(self, index: NamespaceIndex, _: Connection) -> None:
        if self._compacted:
            index.take_over(*self._compacted)
            self._compacted = None  # Whoever keeps what was asked for shall not keep the old codes.

    def _bring_up(self, namespace: str) -> None:
        self._missed = set()
        with self._readers.apart() as connection:
            connection.execute("BEGIN")
            ids = np.array(sorted(query.column(connection, MEMBERS, (namespace,))), np.int64)
            index = self._made(namespace, connection, ids)

        self._writer.run_alone(partial(self._arrive, namespace, index))

    def _arrive(self, namespace: str, index: NamespaceIndex | None, connection: Connection) -> None:
        missed, self._missed = self._missed, None
        if missed is None:  # Indexes were given up: it may lack what was written, and is asked for again.
            return
        self._sizes[namespace] = len(index.view) if index else 0
        if index:
            self._take_in(connection, {namespace: index}, missed)
        else:  # Too few vectors are left for one; the one that there was is not kept, since it is not made anew.
            self._indexes = {name: other for name, other in self._indexes.items() if name != namespace}

    def _made(self, namespace: str, connection: Connection, ids: Slots) -> NamespaceIndex | None:
        """Returns an index over the memories; None when they have too few vectors."""
        dimensions, parts = schema.dimensions(connection), []
        sample = columns.matrix(columns.read(connection, ids[:: ids.size // SAMPLE + 1]), dimensions)
        codes = Codes.trained(sample if sample.size else np.zeros((1, dimensions), np.float32))
        neighbours = Neighbours(sample[:: len(sample) // QUERIES + 1])
        vectors = np.empty((0, dimensions), FLOAT16)
        fits = self._fits(namespace, ids.size, dimensions)
        for start in range(0, ids.size, CHUNK):
            if self._closing.is_set():
                raise InterruptedError
            rows = columns.read(connection, ids[start : start + CHUNK])
            matrix = columns.matrix(rows, dimensions)
            codes.add(matrix)
            neighbours.look_at(matrix)
            parts.append(Columns.of(rows))
            fits = fits and self._fits(namespace, len(codes), dimensions)
            # In place: chunks that are joined in the end would be in memory twice.
            vectors.resize((len(codes) if fits else 0, dimensions), refcheck=False)
            if fits:
                vectors[len(codes) - len(matrix) :] = matrix
        if len(codes) < self._min_vectors:
            return None
        codes.pack()
        copy = vectors if fits else None
        return NamespaceIndex(namespace, codes, Columns.joined(parts), copy, neighbours.share(codes))

    def _fits(self, namespace: str, vectors: int, dimensions: int) -> bool:
        """Tells whether a copy of a namespace's vectors may be kept beside those of others."""
        views = [index.view for name, index in self._indexes.items() if name != namespace]
        copied = sum(view.base_vectors.nbytes for view in views if view.base_vectors is not None)
        return copied + vectors * dimensions * FLOAT16.itemsize <= MAX_COPIED_BYTES


def _give_back_memory() -> None:
    """Lets the C library return what is free, of which making an index leaves as much as the index takes."""
    with contextlib.suppress(OSError, AttributeError):  # There are others.
        ctypes.CDLL(None).malloc_trim(0)
