"""Answers of the commands over single memories and their past, as JSON."""

from __future__ import annotations

from typing import Any, Self

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.views import MemoryView, View, iso


class KeptView(MemoryView):
    """A stored memory that may be deleted."""

    deleted_at: str | None = None

    @staticmethod
    def members(memory: memory_pb2.Memory) -> dict[str, Any]:
        """Returns the members of the JSON form."""
        deleted_at = iso(memory.deleted_at) if memory.HasField("deleted_at") else None
        return {**MemoryView.members(memory), "deleted_at": deleted_at}


class GetView(View):
    """One memory."""

    memory: KeptView

    @classmethod
    def of(cls, response: pb.GetMemoryResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(memory=KeptView.of(response.memory))


class ScanView(View):
    """A page of memories, live or deleted, newest first."""

    memories: list[KeptView]
    next_page_token: str
    total: int

    @classmethod
    def of(cls, response: pb.ListMemoriesResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            memories=[KeptView.of(memory) for memory in response.memories],
            next_page_token=response.next_page_token,
            total=response.total_size,
        )


class VersionView(View):
    """What a memory was from one time to another."""

    memory: KeptView
    since: str
    until: str | None = None

    @classmethod
    def of(cls, version: memory_pb2.MemoryVersion, /) -> Self:
        """Returns the JSON form."""
        return cls(
            memory=KeptView.of(version.memory),
            since=iso(version.since),
            until=iso(version.until) if version.HasField("until") else None,
        )


class HistoryView(View):
    """What a memory is and was, newest first."""

    versions: list[VersionView]
    next_page_token: str

    @classmethod
    def of(cls, response: pb.ListMemoryVersionsResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            versions=[VersionView.of(version) for version in response.versions],
            next_page_token=response.next_page_token,
        )


class UpdateView(View):
    """What a memory is after an update, or would be."""

    memory: MemoryView
    changed: bool
    truncated: bool
    windows: int

    @classmethod
    def of(cls, response: pb.UpdateMemoryResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            memory=MemoryView.of(response.memory),
            changed=response.changed,
            truncated=response.truncated,
            windows=response.windows,
        )


class UndeleteView(View):
    """What came back, or would."""

    ids: list[int]
    undeleted: int
    dry_run: bool

    @classmethod
    def of(cls, response: pb.UndeleteResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(ids=list(response.ids), undeleted=len(response.ids), dry_run=response.dry_run)


class PurgeView(View):
    """What was erased, or would be."""

    ids: list[int]
    purged: int
    dry_run: bool

    @classmethod
    def of(cls, response: pb.PurgeResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(ids=list(response.ids), purged=response.total, dry_run=response.dry_run)
