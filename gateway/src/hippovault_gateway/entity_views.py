"""Answers of the commands over single memories and their past, as JSON."""

from __future__ import annotations

from typing import Self

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.views import KeptView, MemoryView, View, iso


class GetView(View):
    """One memory."""

    memory: KeptView

    @classmethod
    def of(cls, response: pb.GetMemoryResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(memory=KeptView.of(response.memory))


class VersionView(View):
    """What a memory was from one time to another."""

    memory: KeptView
    since: str
    until: str | None

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

    @classmethod
    def of(cls, response: pb.UpdateMemoryResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(memory=MemoryView.of(response.memory), changed=response.changed, truncated=response.truncated)


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
