"""A storage process and one namespace of it, as a test uses them."""

from __future__ import annotations

import array
import base64
import copy
import math
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw
import grpc
import pytest
import sqlite_vec
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keys import KeySource
from hippovault_storage.maintenance import MaintenanceServicer
from hippovault_storage.servicer import StorageServicer
from hippovault_storage.sqlite.dense.index import MIN_VECTORS
from hippovault_storage.sqlite.engine import SqliteEngine
from hippovault_storage.sqlite.lockbox import OFF, Encryption
from hippovault_storage.vault import Mode
from support.processes import Process, start

Code = grpc.StatusCode
Memory = memory_pb2.Memory
Filter = memory_pb2.Filter
Ref = memory_pb2.MemoryRef

CREATED = memory_pb2.WRITE_OUTCOME_CREATED
EXISTED = memory_pb2.WRITE_OUTCOME_EXISTED
UPDATED = memory_pb2.WRITE_OUTCOME_UPDATED
REVIVED = memory_pb2.WRITE_OUTCOME_REVIVED

DIMENSIONS = 384
SECONDS = 60


def vector(*numbers: float, dimensions: int = DIMENSIONS) -> bytes:
    """The unit vector in the direction whose first components are given."""
    length = math.hypot(*numbers)
    scaled = [number / length for number in numbers]
    return struct.pack(f"<{dimensions}f", *scaled, *[0.0] * (dimensions - len(scaled)))


def near(cosine: float) -> bytes:
    """A unit vector of that cosine similarity to vector(1)."""
    return vector(cosine, math.sqrt(1 - cosine**2))


def at(seconds: float) -> Timestamp:
    """The instant, in seconds since 1970."""
    result = Timestamp()
    result.FromMicroseconds(round(seconds * 1e6))
    return result


def entity(category: str, key: str) -> Ref:
    """A reference by key."""
    return Ref(entity=memory_pb2.EntityKey(category=category, key=key))


@dataclass
class Store:
    """One namespace of a storage process."""

    stub: StorageServiceStub
    namespace: str = field(default_factory=lambda: uuid.uuid4().hex)

    def put(
        self,
        content: str,
        embedded: bytes | None = None,
        token_codes: pb.TokenCodes | None = None,
        **fields: Any,
    ) -> pb.PutMemoryResponse:
        """Puts a memory, with vector(1) where none is given."""
        return self.stub.PutMemory(self.request(content, embedded, token_codes, **fields), timeout=SECONDS)

    def request(
        self,
        content: str,
        embedded: bytes | None = None,
        token_codes: pb.TokenCodes | None = None,
        **fields: Any,
    ) -> pb.PutMemoryRequest:
        """What `put` sends."""
        memory = Memory(**{"namespace": self.namespace, "content": content, **fields})
        embedded = vector(1) if embedded is None else embedded
        model = "model-1" if embedded else ""
        return pb.PutMemoryRequest(memory=memory, vectors=embedded, model_revision=model, token_codes=token_codes)

    def batch(self, *requests: pb.PutMemoryRequest) -> list[pb.PutMemoryResult]:
        """Puts many memories in one request."""
        response = self.stub.BatchPutMemories(pb.BatchPutMemoriesRequest(requests=requests), timeout=SECONDS)
        return list(response.results)

    def stream(self, requests: Iterable[pb.PutMemoryRequest]) -> Iterator[pb.PutMemoryResult]:
        """Puts many memories in a stream."""
        messages = (pb.StreamPutMemoriesRequest(request=request) for request in requests)
        for response in self.stub.StreamPutMemories(messages, timeout=SECONDS):
            yield response.result

    def add(self, content: str, embedded: bytes | None = None, **fields: Any) -> Memory:
        """Puts a memory and returns it."""
        return self.put(content, embedded, **fields).memory

    def find(self, content: str, category: str = "", key: str = "") -> Memory | None:
        """What a put of this would write to."""
        request = pb.FindMemoryRequest(namespace=self.namespace, content=content, category=category, key=key)
        response = self.stub.FindMemory(request, timeout=SECONDS)
        return response.memory if response.HasField("memory") else None

    def get(self, ref: Ref, **fields: Any) -> Memory:
        """The live memory, unless the fields say otherwise."""
        request = pb.GetMemoryRequest(namespace=self.namespace, ref=ref, **fields)
        return self.stub.GetMemory(request, timeout=SECONDS).memory

    def as_of(self, ref: Ref, instant: float) -> Memory:
        """What the memory was then."""
        return self.get(ref, as_of=at(instant))

    def versions(self, ref: Ref, size: int = 1000, token: str = "") -> pb.ListMemoryVersionsResponse:
        """A page of what the memory was."""
        request = pb.ListMemoryVersionsRequest(namespace=self.namespace, ref=ref, page_size=size, page_token=token)
        return self.stub.ListMemoryVersions(request, timeout=SECONDS)

    def update(
        self, ref: Ref, embedded: bytes = b"", *, mask: Sequence[str] = (), dry_run: bool = False, **fields: Any
    ) -> pb.UpdateMemoryResponse:
        """Sets these fields; the mask names others that become empty."""
        expected_version = fields.pop("expected_version", 0)
        request = pb.UpdateMemoryRequest(
            namespace=self.namespace,
            ref=ref,
            memory=Memory(**fields),
            update_mask=FieldMask(paths=[*fields, *mask]),
            vectors=embedded,
            model_revision="model-1" if embedded else "",
            expected_version=expected_version,
            dry_run=dry_run,
        )
        return self.stub.UpdateMemory(request, timeout=SECONDS)

    def undelete(self, ref: Ref, *, dry_run: bool = False) -> list[int]:
        """Brings deleted memories back."""
        request = pb.UndeleteMemoryRequest(namespace=self.namespace, ref=ref, dry_run=dry_run)
        return list(self.stub.UndeleteMemory(request, timeout=SECONDS).ids)

    def get_id(self, memory_id: int) -> Memory:
        """The live memory of that id."""
        return self.get(Ref(id=memory_id))

    def delete(self, ref: Ref, *, dry_run: bool = False) -> list[int]:
        """Deletes softly."""
        request = pb.DeleteMemoryRequest(namespace=self.namespace, ref=ref, dry_run=dry_run)
        return list(self.stub.DeleteMemory(request, timeout=SECONDS).ids)

    def delete_id(self, memory_id: int) -> list[int]:
        """Deletes by id."""
        return self.delete(Ref(id=memory_id))

    def purge(self, ref: Ref | None = None, *, before: float = 0, dry_run: bool = False) -> pb.PurgeMemoriesResponse:
        """Erases what the reference names, or else what was deleted before then."""
        request = pb.PurgeMemoriesRequest(namespace=self.namespace, dry_run=dry_run)
        if ref:
            request.ref.CopyFrom(ref)
        else:
            request.deleted_before.CopyFrom(at(before))
        return self.stub.PurgeMemories(request, timeout=SECONDS)

    def page(
        self,
        size: int = 1000,
        token: str = "",
        skip: int = 0,
        visibility: memory_pb2.Visibility.ValueType = memory_pb2.VISIBILITY_UNSPECIFIED,
        **conditions: Any,
    ) -> pb.ListMemoriesResponse:
        """A page of the listing."""
        request = pb.ListMemoriesRequest(
            namespace=self.namespace,
            page_size=size,
            page_token=token,
            skip=skip,
            filter=Filter(**conditions),
            visibility=visibility,
        )
        return self.stub.ListMemories(request, timeout=SECONDS)

    def listed(self, **conditions: Any) -> list[str]:
        """Contents of the first page, newest first."""
        return [memory.content for memory in self.page(**conditions).memories]

    def search(
        self, dense: bytes = b"", keyword: str = "", k: int = 10, **conditions: Any
    ) -> pb.SearchMemoriesResponse:
        """A search with the arms that are given."""
        request = pb.SearchMemoriesRequest(namespace=self.namespace, filter=Filter(**conditions))
        if dense:
            request.dense.CopyFrom(pb.DenseArm(vector=dense, k=k))
        if keyword:
            request.keyword.CopyFrom(pb.KeywordArm(query=keyword, k=k))
        return self.stub.SearchMemories(request, timeout=SECONDS)

    def similarities(self, keyword: str, tokens: bytes, **fields: Any) -> dict[str, list[float]]:
        """What each memory that the keyword arm returned is told of its tokens, by its content."""
        request = pb.SearchMemoriesRequest(
            namespace=self.namespace,
            keyword=pb.KeywordArm(query=keyword, k=1000),
            late_interaction=pb.LateInteraction(token_vectors=tokens, **{"depth": 1000, **fields}),
        )
        hits = self.stub.SearchMemories(request, timeout=SECONDS).hits
        return {hit.memory.content: array.array("f", hit.token_similarities).tolist() for hit in hits}

    def nearest(self, dense: bytes, k: int = 10, **conditions: Any) -> list[str]:
        """Contents that the dense arm returned, best first."""
        hits = self.search(dense=dense, k=k, **conditions).hits
        return [hit.memory.content for hit in sorted(hits, key=lambda hit: hit.dense.rank)]

    def matching(self, query: str, k: int = 10, **conditions: Any) -> list[str]:
        """Contents that the keyword arm returned, best first."""
        hits = self.search(keyword=query, k=k, **conditions).hits
        return [hit.memory.content for hit in sorted(hits, key=lambda hit: hit.keyword.rank)]

    def compare(self, embedded: bytes, newest: int = 50) -> list[float]:
        """Cosine similarities to the newest."""
        request = pb.CompareToNewestRequest(namespace=self.namespace, vector=embedded, newest=newest)
        return list(self.stub.CompareToNewest(request, timeout=SECONDS).cosine_similarities)

    def compare_nearest(self, embedded: bytes, nearest: int) -> list[float]:
        """Cosine similarities to the nearest."""
        request = pb.CompareToNewestRequest(namespace=self.namespace, vector=embedded, nearest=nearest)
        return list(self.stub.CompareToNewest(request, timeout=SECONDS).nearest_cosine_similarities)

    def summary(self, since: float | None = None, top_tags: int = 10, highlights: int = 10) -> memory_pb2.Summary:
        """What was created since then."""
        request = pb.SummarizeMemoriesRequest(
            namespace=self.namespace,
            since=None if since is None else at(since),
            top_tags=top_tags,
            highlights=highlights,
        )
        return self.stub.SummarizeMemories(request, timeout=SECONDS).summary


@contextmanager
def refused(code: grpc.StatusCode, field: str = "", reason: str = "", message: str = "") -> Iterator[None]:
    """Expects a call inside to fail so."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = ServiceError.from_rpc(caught.value, "storage")
    assert (error.code, error.field) == (code, field), error.message
    assert reason in error.reason
    assert message in error.message


@contextmanager
def serving(home: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Runs the storage process while the context lasts."""
    process = start(["hippovault_storage", *flags], home, "storage", environment)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.kill()


@contextmanager
def connected(process: Process) -> Iterator[StorageServiceStub]:
    """A client of the process, without retries."""
    with grpc.insecure_channel(process.status) as channel:
        yield StorageServiceStub(channel)


@contextmanager
def maintaining(process: Process) -> Iterator[MaintenanceServiceStub]:
    """A client of the process that does with the store as a whole what its keeper does, without retries."""
    with grpc.insecure_channel(process.status) as channel:
        yield MaintenanceServiceStub(channel)


def encrypted(mode: str, key: bytes = bytes(range(32))) -> dict[str, str]:
    """The variables with which a store is encrypted so; "off" for not at all."""
    given = {"HIPPOVAULT_STORAGE_KEY": base64.b64encode(key).decode()}
    return {"HIPPOVAULT_STORAGE_ENCRYPTION": mode, **({} if mode == "off" else given)}


@contextmanager
def stub_of(home: Path, environment: Mapping[str, str] | None = None) -> Iterator[StorageServiceStub]:
    """A client of a process that runs while the context lasts, and is asked to stop at its end."""
    with serving(home, environment=environment) as process, connected(process) as stub:
        yield stub
        assert process.stop() == 0


class _Local:
    """Calls a servicer as a stub calls the process."""

    def __init__(self, servicer: object) -> None:
        self._servicer = servicer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._servicer, name)

        def call(request: Any, timeout: float = SECONDS) -> Any:
            # A servicer brings a request to its stored form in place; the caller's stays as it is.
            return method(copy.deepcopy(request) if isinstance(request, Message) else request, timeout)

        return call


@contextmanager
def in_process(
    path: Path, dimensions: int = DIMENSIONS, encryption: Encryption = OFF, index_min_vectors: int = MIN_VECTORS
) -> Iterator[tuple[StorageServiceStub, MaintenanceServiceStub]]:
    """Both services over a file of this process, for tests that need no process of the store's own."""
    with SqliteEngine.open(path, dimensions, 1, encryption, index_min_vectors) as engine:
        yield (
            cast("StorageServiceStub", _Local(StorageServicer(engine))),
            cast("MaintenanceServiceStub", _Local(MaintenanceServicer(engine))),
        )


def encryption(path: Path, mode: Mode) -> Encryption:
    """That mode, with a key in a file beside the directory of the database."""
    key = path.parent.parent / "key"
    key.touch(0o600)
    key.write_bytes(base64.b64encode(bytes(32)))
    return Encryption(mode, KeySource(key))


@contextmanager
def engine_of(path: Path, mode: Mode) -> Iterator[SqliteEngine]:
    """The engine over a database, encrypted so."""
    with SqliteEngine.open(path, DIMENSIONS, 1, encryption(path, mode)) as engine:
        yield engine


def database(home: Path) -> Path:
    """The file in which the memories of a home are."""
    return home / "data" / "memories.db"


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    """The file, as another program opens it."""
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)  # noqa: FBT003
    connection.load_extension(sqlite_vec.loadable_path())
    try:
        yield connection
    finally:
        connection.close()


def write_fixture(path: Path, name: str) -> None:
    """Makes the file that a text of tests/data describes; its directory exists."""
    text = (Path(__file__).parents[1] / "data" / f"{name}.sql").read_text(encoding="utf-8")
    with opened(path) as file:
        file.create_scalar_function("unit", lambda *axis: unit(cast("int", axis[0])), 1)
        file.create_scalar_function("half", lambda *axis: half(cast("int", axis[0])), 1)
        rows(file, text)


def unit(axis: int) -> bytes:
    """The unit vector along an axis."""
    return vector(*[0.0] * axis, 1)


def half(axis: int) -> bytes:
    """The same in half the bytes."""
    return struct.pack(f"<{DIMENSIONS}e", *[0.0] * axis, 1.0, *[0.0] * (DIMENSIONS - axis - 1))


def rows(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query."""
    return connection.execute(sql, values).fetchall()


def assert_clean(process: Process) -> None:
    """The store finds nothing wrong with itself."""
    with maintaining(process) as stub:
        checks = stub.Verify(maintenance_pb2.VerifyRequest(), timeout=SECONDS)
        wrong = [check for check in checks if check.wrong]
        assert not wrong, wrong


def assert_whole(path: Path, *, embedded: bool = True) -> None:
    """SQLite finds no fault; every memory has its side row and vector once, and its words once if it lives.

    Args:
        path: The file.
        embedded: Whether every memory must have a vector.
    """
    with opened(path) as file:
        assert rows(file, "PRAGMA integrity_check") == [("ok",)]
        file.execute("INSERT INTO hippo_fts (hippo_fts) VALUES ('integrity-check')")
        ids = rows(file, "SELECT id FROM memories ORDER BY id")
        live = rows(file, "SELECT id FROM memories WHERE deleted_at IS NULL ORDER BY id")
        assert rows(file, "SELECT memory_id FROM hippo_memories ORDER BY memory_id") == ids
        vectors = rows(file, "SELECT rowid FROM memory_embeddings ORDER BY rowid")
        assert vectors == ids if embedded else set(vectors) <= set(ids)
        assert rows(file, "SELECT rowid FROM hippo_fts ORDER BY rowid") == live
        agreeing = (
            "SELECT m.id FROM memories m JOIN hippo_memories h ON h.memory_id = m.id "
            "WHERE m.deleted_at IS h.deleted_at ORDER BY m.id"
        )
        assert rows(file, agreeing) == ids
