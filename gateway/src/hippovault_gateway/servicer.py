"""MemoryService over gRPC: each method is one function of the application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis.serving import Service
from hippovault_gateway.application import Application

NAME: str = pb.DESCRIPTOR.services_by_name["MemoryService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class MemoryServicer(memory_service_pb2_grpc.MemoryServiceServicer):
    """Passes messages to the application.

    Args:
        application: What the memory can do.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def Remember(self, request: pb.RememberRequest, context: Context) -> pb.RememberResponse:
        """Stores a memory, or finds that it is stored already."""
        return await self._application.remember(request)

    async def BatchRemember(
        self,
        request: pb.BatchRememberRequest,
        context: Context,
    ) -> pb.BatchRememberResponse:
        """Stores many memories in order."""
        return await self._application.batch_remember(request)

    def StreamRemember(
        self, request_iterator: AsyncIterator[pb.StreamRememberRequest], context: Context
    ) -> AsyncIterator[pb.StreamRememberResponse]:
        """Stores many memories in order, as they come."""
        return self._application.stream_remember(request_iterator)

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        """Finds the memories that answer a query."""
        return await self._application.recall(request)

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Context) -> pb.GetMemoryResponse:
        """Returns one memory as it is, or as it was."""
        return await self._application.get_memory(request)

    async def ListMemories(
        self,
        request: pb.ListMemoriesRequest,
        context: Context,
    ) -> pb.ListMemoriesResponse:
        """Lists memories."""
        return await self._application.list_memories(request)

    async def ListMemoryVersions(
        self,
        request: pb.ListMemoryVersionsRequest,
        context: Context,
    ) -> pb.ListMemoryVersionsResponse:
        """Lists what a memory is and was."""
        return await self._application.list_memory_versions(request)

    async def UpdateMemory(self, request: pb.UpdateMemoryRequest, context: Context) -> pb.UpdateMemoryResponse:
        """Sets fields of a memory."""
        return await self._application.update_memory(request)

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:
        """Deletes softly."""
        return await self._application.forget(request)

    async def Undelete(self, request: pb.UndeleteRequest, context: Context) -> pb.UndeleteResponse:
        """Brings forgotten memories back."""
        return await self._application.undelete(request)

    async def Purge(self, request: pb.PurgeRequest, context: Context) -> pb.PurgeResponse:
        """Erases for good."""
        return await self._application.purge(request)

    async def SummarizeSession(
        self,
        request: pb.SummarizeSessionRequest,
        context: Context,
    ) -> pb.SummarizeSessionResponse:
        """Sums up the last hours."""
        return await self._application.summarize_session(request)

    async def Ping(self, request: pb.PingRequest, context: Context) -> pb.PingResponse:
        """Says how the memory is."""
        return await self._application.ping(request)


def service(application: Application) -> Service:
    """Returns what `serving.aio_server` registers."""
    return Service(NAME, MemoryServicer(application), memory_service_pb2_grpc.add_MemoryServiceServicer_to_server)
