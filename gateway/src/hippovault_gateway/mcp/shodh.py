"""The SHODH names: the same requests, from arguments that also go by the names of mcp-memory-service.

`n_results`, `page`, `page_size`, `tag`, `client_hostname` and tags and type inside `metadata` are its names.
"""

from __future__ import annotations

from pydantic import Field

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_gateway.arguments import ListArguments, RecallArguments, RememberArguments, one_of, within
from hippovault_gateway.documents import Document, Tags, parse
from hippovault_gateway.limits import MAX_LIMIT, MAX_PAGE_SIZE, MAX_SKIP

DEFAULT_PAGE_SIZE = 10
MAX_PAGE = MAX_SKIP // MAX_PAGE_SIZE


class _Labels(Document):
    tags: Tags = Field(default_factory=list)
    type: str | None = None


class _Labelled(Document):
    metadata: _Labels


class StoreMemoryArguments(RememberArguments):
    """A memory whose metadata may hold its tags and its type."""

    client_hostname: str = ""
    """Host it comes from; kept as metadata.hostname."""

    def request(self) -> pb.RememberRequest:
        """Returns the request."""
        metadata = dict(self.metadata)
        moved = ["tags"] if self.memory_type else ["tags", "type"]
        labels = {name: metadata.pop(name) for name in moved if name in metadata}
        given = parse(_Labelled, {"metadata": labels}).metadata
        if self.client_hostname:
            metadata["hostname"] = self.client_hostname
        merged = {
            "tags": [*self.tags, *given.tags],
            "memory_type": self.memory_type or given.type or "",
            "metadata": metadata,
        }
        return super(StoreMemoryArguments, self.model_copy(update=merged)).request()


class RetrieveMemoryArguments(RecallArguments):
    """A question; n_results is another name for limit."""

    n_results: int | None = None
    """Same as limit."""

    def wanted(self) -> int | None:
        """Returns how many hits are wanted; None when the caller leaves it open."""
        return one_of(MAX_LIMIT, limit=self.limit, n_results=self.n_results)


class ListMemoriesArguments(ListArguments):
    """Which page, by its number."""

    page: int | None = None
    """Page number; default 1."""
    page_size: int | None = None
    """Memories a page, 1 to 100; default 10."""
    tag: str = ""
    """Only memories with this tag."""

    def request(self) -> pb.ListMemoriesRequest:
        """Returns the request."""
        page = within("page", self.page, MAX_PAGE) or 1
        size = one_of(MAX_PAGE_SIZE, page_size=self.page_size, n=self.n, limit=self.limit) or DEFAULT_PAGE_SIZE
        tagged = self.model_copy(update={"tags": [*self.tags, self.tag] if self.tag else self.tags})
        return pb.ListMemoriesRequest(
            namespace=self.namespace,
            page_size=size,
            page_token=self.page_token,
            skip=(page - 1) * size,
            filter=tagged.filter(),
        )
