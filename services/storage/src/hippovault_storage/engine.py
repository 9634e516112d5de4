"""What a storage engine must do, in terms of the contract alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError


class Engine(Protocol):
    """Keeps memories and finds them. Requests come checked and normalised, see `checks`.

    Every method may be called from any thread, and raises ServiceError: NOT_FOUND, FAILED_PRECONDITION, ABORTED and
    ALREADY_EXISTS as storage.proto says, RESOURCE_EXHAUSTED, UNAVAILABLE or DATA_LOSS when the store itself fails. A
    method that returned has made its effect durable; one that raised has had none.
    """

    @property
    def dimensions(self) -> int:
        """Length of the vectors."""

    def put_memory(self, request: pb.PutMemoryRequest) -> pb.PutMemoryResponse:
        """Stores, merges, updates or revives a memory, see `merging`."""

    def put_memories(self, requests: Sequence[pb.PutMemoryRequest]) -> list[pb.PutMemoryResponse | ServiceError]:
        """Does what put_memory does for each, in order and in one transaction; one that is refused has no effect."""

    def find_memory(self, request: pb.FindMemoryRequest) -> pb.FindMemoryResponse:
        """Finds the memory that a put would write to."""

    def get_memory(self, request: pb.GetMemoryRequest) -> pb.GetMemoryResponse:
        """Returns one memory as it is, or as it was."""

    def batch_get_memories(self, request: pb.BatchGetMemoriesRequest) -> pb.BatchGetMemoriesResponse:
        """Returns live memories by id, as many as fit into an answer."""

    def list_memories(self, request: pb.ListMemoriesRequest) -> pb.ListMemoriesResponse:
        """Returns a page of memories, newest first."""

    def list_memory_versions(self, request: pb.ListMemoryVersionsRequest) -> pb.ListMemoryVersionsResponse:
        """Returns a page of what a memory was, the newest first."""

    def update_memory(self, request: pb.UpdateMemoryRequest) -> pb.UpdateMemoryResponse:
        """Changes the fields that the mask names, see `merging`."""

    def delete_memory(self, request: pb.DeleteMemoryRequest) -> pb.DeleteMemoryResponse:
        """Deletes softly."""

    def undelete_memory(self, request: pb.UndeleteMemoryRequest) -> pb.UndeleteMemoryResponse:
        """Brings deleted memories back as they were."""

    def purge_memories(self, request: pb.PurgeMemoriesRequest) -> pb.PurgeMemoriesResponse:
        """Erases memories. One that raised may have removed some, and what it removed goes on being erased."""

    def search_memories(self, request: pb.SearchMemoriesRequest) -> pb.SearchMemoriesResponse:
        """Runs the arms that are set."""

    def compare_to_newest(self, request: pb.CompareToNewestRequest) -> pb.CompareToNewestResponse:
        """Returns cosine similarities to the newest live memories that have a vector."""

    def list_unembedded(self, request: pb.ListUnembeddedRequest) -> pb.ListUnembeddedResponse:
        """Returns live memories that lack vectors or token codes."""

    def embed_memory(self, request: pb.EmbedMemoryRequest) -> pb.EmbedMemoryResponse:
        """Gives a live memory what it lacks."""

    def summarize_memories(self, request: pb.SummarizeMemoriesRequest) -> pb.SummarizeMemoriesResponse:
        """Sums up what was created since a time."""

    def get_stats(self, request: pb.GetStatsRequest) -> pb.GetStatsResponse:
        """Counts."""

    def rotate_key(self, request: maintenance_pb2.RotateKeyRequest) -> Iterator[maintenance_pb2.RotateKeyResponse]:
        """Wraps the keys of an encrypted store anew, or brings a new one in; yields how far it is."""

    def reindex(self) -> Iterator[maintenance_pb2.ReindexResponse]:
        """Makes anew all that is derived from the memories; yields how far it is. May be repeated."""

    def verify(self) -> Iterator[maintenance_pb2.VerifyResponse]:
        """Looks the whole store over and changes nothing; yields what each check found."""

    def backup(self) -> Iterator[maintenance_pb2.BackupResponse]:
        """Copies the store as it is at one moment, and yields a header, the copy's bytes and a trailer."""

    def export_memories(
        self, request: maintenance_pb2.ExportMemoriesRequest
    ) -> Iterator[maintenance_pb2.ExportMemoriesResponse]:
        """Yields every memory with all that belongs to it, as they are at one moment."""

    def import_memories(
        self, requests: Iterable[maintenance_pb2.ImportMemoriesRequest]
    ) -> maintenance_pb2.ImportMemoriesResponse:
        """Takes exported memories in; those that are wrong are told, not raised."""
