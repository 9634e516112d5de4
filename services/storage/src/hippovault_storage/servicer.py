"""StorageService: checks a request and hands it to the engine. Free of transport, so it can be called in process."""

from __future__ import annotations

from collections.abc import Iterator

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceServicer
from hippovault_storage import checks, many
from hippovault_storage.engine import Engine

NAME = pb.DESCRIPTOR.services_by_name["StorageService"].full_name


class StorageServicer(StorageServiceServicer):
    """Serves one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams = many.Streams(engine)

    def PutMemory(self, request: pb.PutMemoryRequest, context: object) -> pb.PutMemoryResponse:
        """See storage.proto."""
        checks.put(request, self._engine.dimensions)
        return self._engine.put_memory(request)

    def BatchPutMemories(self, request: pb.BatchPutMemoriesRequest, context: object) -> pb.BatchPutMemoriesResponse:
        """See storage.proto."""
        checks.batch_put(request)
        return pb.BatchPutMemoriesResponse(results=many.put_each(self._engine, request.requests))

    def StreamPutMemories(
        self, request_iterator: Iterator[pb.StreamPutMemoriesRequest], context: object
    ) -> Iterator[pb.StreamPutMemoriesResponse]:
        """See storage.proto."""
        return self._streams.put(request_iterator)

    def FindMemory(self, request: pb.FindMemoryRequest, context: object) -> pb.FindMemoryResponse:
        """See storage.proto."""
        checks.find(request)
        return self._engine.find_memory(request)

    def GetMemory(self, request: pb.GetMemoryRequest, context: object) -> pb.GetMemoryResponse:
        """See storage.proto."""
        checks.get(request)
        return self._engine.get_memory(request)

    def BatchGetMemories(self, request: pb.BatchGetMemoriesRequest, context: object) -> pb.BatchGetMemoriesResponse:
        """See storage.proto."""
        checks.batch_get(request)
        return self._engine.batch_get_memories(request)

    def ListMemories(self, request: pb.ListMemoriesRequest, context: object) -> pb.ListMemoriesResponse:
        """See storage.proto."""
        checks.list_(request)
        return self._engine.list_memories(request)

    def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, context: object
    ) -> pb.ListMemoryVersionsResponse:
        """See storage.proto."""
        checks.list_versions(request)
        return self._engine.list_memory_versions(request)

    def UpdateMemory(self, request: pb.UpdateMemoryRequest, context: object) -> pb.UpdateMemoryResponse:
        """See storage.proto."""
        checks.update(request, self._engine.dimensions)
        return self._engine.update_memory(request)

    def DeleteMemory(self, request: pb.DeleteMemoryRequest, context: object) -> pb.DeleteMemoryResponse:
        """See storage.proto."""
        checks.change(request)
        return self._engine.delete_memory(request)

    def UndeleteMemory(self, request: pb.UndeleteMemoryRequest, context: object) -> pb.UndeleteMemoryResponse:
        """See storage.proto."""
        checks.change(request)
        return self._engine.undelete_memory(request)

    def PurgeMemories(self, request: pb.PurgeMemoriesRequest, context: object) -> pb.PurgeMemoriesResponse:
        """See storage.proto."""
        checks.purge(request)
        return self._engine.purge_memories(request)

    def SearchMemories(self, request: pb.SearchMemoriesRequest, context: object) -> pb.SearchMemoriesResponse:
        """See storage.proto."""
        checks.search(request, self._engine.dimensions)
        return self._engine.search_memories(request)

    def CompareToNewest(self, request: pb.CompareToNewestRequest, context: object) -> pb.CompareToNewestResponse:
        """See storage.proto."""
        checks.compare(request, self._engine.dimensions)
        return self._engine.compare_to_newest(request)

    def ListUnembedded(self, request: pb.ListUnembeddedRequest, context: object) -> pb.ListUnembeddedResponse:
        """See storage.proto."""
        checks.list_unembedded(request)
        return self._engine.list_unembedded(request)

    def EmbedMemory(self, request: pb.EmbedMemoryRequest, context: object) -> pb.EmbedMemoryResponse:
        """See storage.proto."""
        checks.embed(request, self._engine.dimensions)
        return self._engine.embed_memory(request)

    def SummarizeMemories(self, request: pb.SummarizeMemoriesRequest, context: object) -> pb.SummarizeMemoriesResponse:
        """See storage.proto."""
        checks.summarize(request)
        return self._engine.summarize_memories(request)

    def GetStats(self, request: pb.GetStatsRequest, context: object) -> pb.GetStatsResponse:
        """See storage.proto."""
        return self._engine.get_stats(request)
