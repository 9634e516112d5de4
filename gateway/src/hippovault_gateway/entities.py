"""Memories by their names: read, listed, looked back on, forgotten, brought back, erased."""

from __future__ import annotations

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.limits import MAX_PAGE_SIZE, MAX_SKIP

DEFAULT_PAGE_SIZE = 20


class Entities:
    """Passes what it has checked to storage.

    Args:
        services: The services behind the gateway.
    """

    def __init__(self, services: Services) -> None:
        self._storage = services.storage

    async def get_memory(self, request: pb.GetMemoryRequest) -> pb.GetMemoryResponse:
        """Returns one memory as it is, or as it was."""
        memory_rules.reference("ref", request.ref)
        memory_rules.timestamp("as_of", request.as_of)
        get = storage_pb2.GetMemoryRequest(
            namespace=memory_rules.namespace(request.namespace),
            ref=request.ref,
            as_of=request.as_of if request.HasField("as_of") else None,
            visibility=request.visibility,
        )
        return pb.GetMemoryResponse(memory=(await call(self._storage.GetMemory, get, STORAGE)).memory)

    async def list_memories(self, request: pb.ListMemoriesRequest) -> pb.ListMemoriesResponse:
        """Returns a page of memories, newest first."""
        memory_rules.search_filter(request.filter)
        page = storage_pb2.ListMemoriesRequest(
            namespace=memory_rules.namespace(request.namespace),
            page_size=_page_size(request),
            page_token=request.page_token,
            skip=memory_rules.within("skip", request.skip, 0, MAX_SKIP),
            filter=request.filter,
            visibility=request.visibility,
        )
        listed = await call(self._storage.ListMemories, page, STORAGE)
        return pb.ListMemoriesResponse(
            memories=listed.memories, next_page_token=listed.next_page_token, total_size=listed.total_size
        )

    async def list_memory_versions(self, request: pb.ListMemoryVersionsRequest) -> pb.ListMemoryVersionsResponse:
        """Returns a page of what a memory is and was, newest first."""
        memory_rules.reference("ref", request.ref)
        page = storage_pb2.ListMemoryVersionsRequest(
            namespace=memory_rules.namespace(request.namespace),
            ref=request.ref,
            page_size=_page_size(request),
            page_token=request.page_token,
        )
        listed = await call(self._storage.ListMemoryVersions, page, STORAGE)
        return pb.ListMemoryVersionsResponse(versions=listed.versions, next_page_token=listed.next_page_token)

    async def forget(self, request: pb.ForgetRequest) -> pb.ForgetResponse:
        """Deletes softly, or with dry_run tells what would be deleted."""
        memory_rules.reference("ref", request.ref)
        delete = storage_pb2.DeleteMemoryRequest(
            namespace=memory_rules.namespace(request.namespace),
            ref=request.ref,
            dry_run=request.dry_run,
            request_id=memory_rules.request_id(request.request_id),
        )
        deleted = await call(self._storage.DeleteMemory, delete, STORAGE)
        return pb.ForgetResponse(ids=deleted.ids, dry_run=request.dry_run)

    async def undelete(self, request: pb.UndeleteRequest) -> pb.UndeleteResponse:
        """Brings forgotten memories back, or with dry_run tells which would come."""
        memory_rules.reference("ref", request.ref)
        undelete = storage_pb2.UndeleteMemoryRequest(
            namespace=memory_rules.namespace(request.namespace),
            ref=request.ref,
            dry_run=request.dry_run,
            request_id=memory_rules.request_id(request.request_id),
        )
        undeleted = await call(self._storage.UndeleteMemory, undelete, STORAGE)
        return pb.UndeleteResponse(ids=undeleted.ids, dry_run=request.dry_run)

    async def purge(self, request: pb.PurgeRequest) -> pb.PurgeResponse:
        """Erases for good, or with dry_run tells what would be erased."""
        target = request.WhichOneof("target")
        if target is None:
            raise ServiceError.invalid("target", "must be ref or deleted_before")
        purge = storage_pb2.PurgeMemoriesRequest(
            namespace=memory_rules.namespace(request.namespace),
            dry_run=request.dry_run,
            request_id=memory_rules.request_id(request.request_id),
        )
        if target == "ref":
            memory_rules.reference("ref", request.ref)
            purge.ref.CopyFrom(request.ref)
        else:
            memory_rules.timestamp("deleted_before", request.deleted_before)
            purge.deleted_before.CopyFrom(request.deleted_before)
        purged = await call(self._storage.PurgeMemories, purge, STORAGE)
        return pb.PurgeResponse(ids=purged.ids, total=purged.total, dry_run=request.dry_run)


def _page_size(request: pb.ListMemoriesRequest | pb.ListMemoryVersionsRequest) -> int:
    size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE
    return memory_rules.within("page_size", size, 1, MAX_PAGE_SIZE)
