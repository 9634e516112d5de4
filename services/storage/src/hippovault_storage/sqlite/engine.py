"""The engine over one SQLite file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self, TypeVar

import apsw
import structlog

from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import (
    adoption,
    backup,
    comparing,
    creation,
    files,
    history,
    lockbox,
    models,
    pairing,
    purge,
    query,
    reads,
    reindexing,
    requests,
    schema,
    search,
    transfer,
    unembedded,
    updates,
    vectors,
    verifying,
    writes,
)
from hippovault_storage.sqlite.connections import Connection, connect_as_left, prepare_writer
from hippovault_storage.sqlite.dense.index import MIN_VECTORS, CodeIndex
from hippovault_storage.sqlite.erasing import Eraser
from hippovault_storage.sqlite.faults import told_at_open, told_in_use
from hippovault_storage.sqlite.lockbox import Encryption, Lockbox
from hippovault_storage.sqlite.ownership import own
from hippovault_storage.sqlite.readers import Readers
from hippovault_storage.sqlite.rotation import Rotation
from hippovault_storage.sqlite.words import Terms
from hippovault_storage.sqlite.writer import Writer

log = structlog.get_logger()

ChangeT = TypeVar("ChangeT", pb.UpdateMemoryRequest, pb.DeleteMemoryRequest, pb.UndeleteMemoryRequest)
ResultT = TypeVar("ResultT", pb.UpdateMemoryResponse, pb.DeleteMemoryResponse, pb.UndeleteMemoryResponse)

MAX_LOGGED_IDS = 100


class SqliteEngine:
    """An `engine.Engine` over one file, which it alone has open among this program's processes."""

    def __init__(
        self, path: Path, dimensions: int, writer: Writer, readers: Readers, *, index: CodeIndex, box: Lockbox
    ) -> None:
        self._path = path
        self._box = box
        self._rotation = Rotation(box, writer, readers)
        self._dimensions = dimensions
        self._writer = writer
        self._readers = readers
        self._index = index
        self._terms = Terms()
        self._eraser = Eraser(writer, readers)

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        dimensions: int,
        read_connections: int,
        encryption: Encryption = lockbox.OFF,
        index_min_vectors: int = MIN_VECTORS,
    ) -> Iterator[Self]:
        """Opens the file while the context lasts, makes it where there is none, and brings an older one up to date.

        Args:
            path: The file; its directory must exist.
            dimensions: Length of the vectors.
            read_connections: Reads that run at the same time.
            encryption: How the file is encrypted; a new one is from its first byte.
            index_min_vectors: Vectors from which on a namespace has a code index.

        Raises:
            ServiceError: The file is another process's, damaged, of a newer schema version, of other dimensions, or
                where it cannot have a write-ahead log, or encrypted otherwise than told or with another key; the file
                is as it was.
        """
        with ExitStack() as cleanup:
            cleanup.enter_context(own(path))
            with told_at_open(path):
                box = lockbox.unlock(path, encryption) or creation.create(path, dimensions, encryption)
                if not box.vault.file_key:
                    schema.check_file(path)
                index = CodeIndex(index_min_vectors)
                writer = Writer(open_writer(path, dimensions, box), path, index)
                cleanup.callback(writer.close)
                readers = Readers(path, read_connections, box.vault)
                cleanup.callback(readers.close)
            engine = cls(path, dimensions, writer, readers, index=index, box=box)
            cleanup.callback(engine._rotation.close)
            cleanup.callback(engine._eraser.close)
            engine._eraser.resume()
            cleanup.callback(index.close)
            index.start(writer, readers)
            yield engine

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""
        return self._dimensions

    def put_memory(self, request: pb.PutMemoryRequest) -> pb.PutMemoryResponse:
        """Stores, merges, updates or revives a memory, see `merging`."""
        return self._writer.run(lambda connection: writes.put(connection, request))

    def put_memories(self, requests: Sequence[pb.PutMemoryRequest]) -> list[pb.PutMemoryResponse | ServiceError]:
        """Does what put_memory does for each."""
        return self._writer.run(lambda connection: writes.put_each(connection, requests))

    def find_memory(self, request: pb.FindMemoryRequest) -> pb.FindMemoryResponse:
        """Finds the memory that a put would write to."""
        with self._readers.borrow() as connection:
            return reads.find(connection, request)

    def get_memory(self, request: pb.GetMemoryRequest) -> pb.GetMemoryResponse:
        """Returns one memory as it is, or as it was."""
        with self._readers.borrow() as connection:
            return reads.get(connection, request)

    def batch_get_memories(self, request: pb.BatchGetMemoriesRequest) -> pb.BatchGetMemoriesResponse:
        """Returns live memories by id."""
        with self._readers.borrow() as connection:
            return reads.batch_get(connection, request)

    def list_memories(self, request: pb.ListMemoriesRequest) -> pb.ListMemoriesResponse:
        """Returns a page of memories, newest first."""
        with self._readers.borrow() as connection:
            return reads.list_page(connection, request)

    def list_memory_versions(self, request: pb.ListMemoryVersionsRequest) -> pb.ListMemoryVersionsResponse:
        """Returns a page of what a memory was."""
        with self._readers.borrow() as connection:
            return history.list_page(connection, request)

    def update_memory(self, request: pb.UpdateMemoryRequest) -> pb.UpdateMemoryResponse:
        """Changes fields of one live memory."""
        return self._change(updates.update, request)

    def delete_memory(self, request: pb.DeleteMemoryRequest) -> pb.DeleteMemoryResponse:
        """Deletes softly."""
        return self._change(writes.delete, request)

    def undelete_memory(self, request: pb.UndeleteMemoryRequest) -> pb.UndeleteMemoryResponse:
        """Brings deleted memories back."""
        return self._change(writes.undelete, request)

    def purge_memories(self, request: pb.PurgeMemoriesRequest) -> pb.PurgeMemoriesResponse:
        """Erases memories."""
        if request.dry_run:
            with self._readers.borrow() as connection:
                return purge.preview(connection, request)
        response, more = pb.PurgeMemoriesResponse(), True
        try:
            while more:
                response, more = self._writer.run(functools.partial(purge.remove, request=request, so_far=response))
        except ServiceError:
            self._eraser.resume()
            raise
        self._eraser.erase()
        return response

    def search_memories(self, request: pb.SearchMemoriesRequest) -> pb.SearchMemoriesResponse:
        """Runs the arms that are set."""
        with self._readers.borrow() as connection:
            return search.search(connection, self._index, self._terms, request)

    def compare_to_newest(self, request: pb.CompareToNewestRequest) -> pb.CompareToNewestResponse:
        """Returns cosine similarities to the newest and the nearest live memories that have a vector."""
        with self._readers.borrow() as connection:
            return comparing.compare(connection, self._index, request)

    def list_unembedded(self, request: pb.ListUnembeddedRequest) -> pb.ListUnembeddedResponse:
        """Returns live memories that lack vectors or token codes."""
        with self._readers.borrow() as connection:
            return unembedded.list_page(connection, request)

    def embed_memory(self, request: pb.EmbedMemoryRequest) -> pb.EmbedMemoryResponse:
        """Gives a live memory what it lacks."""
        return self._writer.run(lambda connection: unembedded.embed(connection, request))

    def summarize_memories(self, request: pb.SummarizeMemoriesRequest) -> pb.SummarizeMemoriesResponse:
        """Sums up what was created since a time."""
        with self._readers.borrow() as connection:
            return reads.summarize(connection, request)

    def get_stats(self, request: pb.GetStatsRequest) -> pb.GetStatsResponse:  # noqa: ARG002  # The contract has one.
        """Counts."""
        with self._readers.borrow() as connection:
            stats = reads.count(connection)
            stats.indexed_vectors = self._index.size()
            vec = query.value(connection, "SELECT vec_version()")
        stats.engine = f"SQLite {apsw.sqlite_lib_version()} / sqlite-vec {vec.removeprefix('v')}"
        stats.size_bytes = self._path.stat().st_size
        stats.schema_version = schema.SCHEMA_VERSION
        stats.dimensions = self._dimensions
        stats.encryption = self._box.vault.encryption
        return stats

    def rotate_key(self, request: maintenance_pb2.RotateKeyRequest) -> Iterator[maintenance_pb2.RotateKeyResponse]:
        """Wraps the keys of an encrypted store anew, or brings a new one in; yields how far it is."""
        return self._rotation.rotate(data_key=request.data_key)

    def reindex(self) -> Iterator[maintenance_pb2.ReindexResponse]:
        """Makes words, tags, copies of vectors and the code index anew; yields how far it is."""
        return reindexing.reindex(self._writer, self._readers, self._index)

    def verify(self) -> Iterator[maintenance_pb2.VerifyResponse]:
        """Looks the whole store over and changes nothing; yields what each check found."""
        with self._readers.apart() as connection:
            yield from verifying.answers(connection, self._path, self._index)

    def backup(self) -> Iterator[maintenance_pb2.BackupResponse]:
        """Copies the store as it is at one moment, and yields a header, the copy's bytes and a trailer."""
        with told_in_use(self._path):
            yield from backup.parts(self._path, self._readers)

    def export_memories(
        self, request: maintenance_pb2.ExportMemoriesRequest
    ) -> Iterator[maintenance_pb2.ExportMemoriesResponse]:
        """Yields every memory with all that belongs to it, as they are at one moment."""
        # On a connection of its own: a slow client must not keep the others from reading.
        with self._readers.apart() as connection:
            connection.execute("BEGIN")
            for record in transfer.export(connection, request):
                deadline.remaining()
                yield maintenance_pb2.ExportMemoriesResponse(record=record)

    def import_memories(
        self, requests: Iterable[maintenance_pb2.ImportMemoriesRequest]
    ) -> maintenance_pb2.ImportMemoriesResponse:
        """Takes exported memories in; those that are wrong are told, not raised."""
        return transfer.take_in(requests, self._writer.run, self._dimensions)

    def _change(self, change: Callable[[Connection, ChangeT], ResultT], request: ChangeT) -> ResultT:
        """Runs a change, or tells what it would do where the request asks for that."""
        if request.dry_run:
            with self._readers.borrow() as connection:
                return change(connection, request)

        def once(connection: Connection) -> ResultT:
            return requests.once(connection, request, lambda: change(connection, request))

        return self._writer.run(once)


def open_writer(path: Path, dimensions: int, box: Lockbox) -> Connection:
    """Returns a connection to the file, checked, migrated and adopted; closes it when any of that fails."""
    left_log = files.has_log(path)
    connection = connect_as_left(path, box.vault)
    try:
        if left_log:
            pairing.check(connection, path)
        schema.check(connection, path, dimensions)
        lockbox.check_label(connection, box)
        path.chmod(path.stat().st_mode & files.MODE)  # Nobody else's, and no more than it was.
        prepare_writer(connection, path)
        schema.migrate(connection, dimensions)
        schema.fit(connection, dimensions)
        models.settle(connection)
        adopted = adoption.adopt(connection)
        vectors.backfill(connection)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except BaseException:
        connection.close()
        raise
    if adopted.count:
        log.info("adopted memories that another program wrote", count=adopted.count)
    if unreadable := adopted.unreadable:
        log.warning("left rows alone that cannot be memories", count=len(unreadable), ids=unreadable[:MAX_LOGGED_IDS])
    return connection
