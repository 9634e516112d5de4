"""What tools and commands take, the requests that it makes, and its names in errors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any

from google.protobuf.message import Message
from pydantic import Field, model_validator

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.documents import MODES, Input, MemoryInput, Tags, mode_value
from hippovault_gateway.limits import MAX_LIMIT, MAX_OVERSAMPLE_FACTOR, MAX_PAGE_SIZE

MAX_ID = 2**63 - 1
REQUEST_FIELDS = {
    "filter.tags_any": "tags",
    "filter.tags_all": "tags_all",
    "filter.memory_types[0]": "memory_type",
    "filter.memory_types": "memory_type",
    "filter.categories": "category",
    "filter.statuses": "status",
    "filter.created_since": "since",
    "filter.created_before": "before",
    "ref.entity.": "",
    "ref.entity": "key",
    "ref.": "",
}
"""Beginnings of the names of request fields, and what the arguments are called that they come from."""

Mode = Annotated[str, Field(json_schema_extra={"enum": list(MODES)})]


class Arguments(Input):
    """The arguments of a tool; null stands for an argument that is not given."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: given for name, given in value.items() if given is not None or name not in cls.model_fields}

    @abstractmethod
    def request(self) -> Message:
        """Returns the application's request.

        Raises:
            ServiceError: INVALID_ARGUMENT for what the request cannot carry; the rest is the application's to check.
        """


class NamespaceArguments(Arguments):
    """What every tool but ping takes."""

    namespace: str = ""
    """Scope; default "default"."""


class FilterArguments(NamespaceArguments):
    """What narrows a search or a list."""

    tags: Tags = Field(default_factory=list)
    """Only memories with any of these tags."""
    memory_type: str = ""
    """Only memories of this type."""

    def filter(self) -> memory_pb2.Filter:
        """Returns the conditions."""
        return memory_pb2.Filter(tags_any=self.tags, memory_types=[self.memory_type] if self.memory_type else [])


class RememberArguments(MemoryInput, Arguments):
    """A memory."""


class RecallArguments(FilterArguments):
    """A question and how to answer it."""

    query: str
    """What to look for, in natural language."""
    limit: int | None = None
    """Hits wanted, 1 to 100; default 10."""
    mode: Mode = "hybrid"
    """By meaning (dense, semantic), by words (keyword) or both; default hybrid."""
    no_surprise_boost: bool = False
    """Rank by relevance alone."""
    oversample_factor: int | None = None
    """Candidates a hit, 1 to 100."""

    def request(self) -> pb.RecallRequest:
        """Returns the request."""
        return pb.RecallRequest(
            namespace=self.namespace,
            query=self.query,
            limit=self.wanted(),
            mode=mode_value(self.mode),
            no_surprise_boost=self.no_surprise_boost,
            oversample_factor=within("oversample_factor", self.oversample_factor, MAX_OVERSAMPLE_FACTOR),
            filter=self.filter(),
        )

    def wanted(self) -> int | None:
        """Returns how many hits are wanted; None when the caller leaves it open."""
        return within("limit", self.limit, MAX_LIMIT)


class ListArguments(FilterArguments):
    """Which page of the newest memories."""

    n: int | None = None
    """Memories wanted, 1 to 100; default 20."""
    limit: int | None = None
    """Same as n."""
    page_token: str = ""
    """next_page_token of the page before."""

    def request(self) -> pb.ListMemoriesRequest:
        """Returns the request."""
        return pb.ListMemoriesRequest(
            namespace=self.namespace,
            page_size=one_of(MAX_PAGE_SIZE, n=self.n, limit=self.limit),
            page_token=self.page_token,
            filter=self.filter(),
        )


class RefArguments(NamespaceArguments):
    """Which memory, named in exactly one way."""

    id: int | None = None
    """The memory's id."""
    content_hash: str = ""
    """Or its content_hash."""
    category: str = ""
    """Or its category, with key."""
    key: str = ""
    """The key in that category."""

    def names_one(self) -> bool:
        """Tells whether a memory is named, in whatever way."""
        return self.id is not None or bool(self.content_hash or self.category or self.key)

    def ref(self) -> memory_pb2.MemoryRef:
        """Returns the reference.

        Raises:
            ServiceError: INVALID_ARGUMENT; the memory is named in no way, or in several.
        """
        named = [self.id is not None, bool(self.content_hash), bool(self.category or self.key)]
        if sum(named) != 1:
            raise ServiceError.invalid("id", "exactly one of id, content_hash, or category with key names the memory")
        if self.id is not None:
            return memory_pb2.MemoryRef(id=memory_rules.within("id", self.id, 1, MAX_ID))
        if self.content_hash:
            return memory_pb2.MemoryRef(content_hash=self.content_hash)
        return memory_pb2.MemoryRef(entity=memory_pb2.EntityKey(category=self.category, key=self.key))


class ForgetArguments(RefArguments):
    """Which memory to forget."""

    dry_run: bool = False
    """Only tell what would be forgotten."""

    def request(self) -> pb.ForgetRequest:
        """Returns the request."""
        return pb.ForgetRequest(namespace=self.namespace, ref=self.ref(), dry_run=self.dry_run)


class SummaryArguments(NamespaceArguments):
    """How far back to look."""

    hours: float | None = None
    """Hours to look back; default 24."""

    def request(self) -> pb.SummarizeSessionRequest:
        """Returns the request."""
        return pb.SummarizeSessionRequest(namespace=self.namespace, hours=self.hours)


class PingArguments(Arguments):
    """Nothing."""

    def request(self) -> pb.PingRequest:
        """Returns the request."""
        return pb.PingRequest()


def within(name: str, value: int | None, high: int) -> int | None:
    """Returns the number, 1 to `high`, under the name that the caller knows it by; None when it is not given."""
    return None if value is None else memory_rules.within(name, value, 1, high)


def one_of(high: int, **synonyms: int | None) -> int | None:
    """Returns the number that was given under one of several names, 1 to `high`; None when it is not given."""
    given = {name: value for name, value in synonyms.items() if value is not None}
    if len(given) > 1:
        name, other = list(given)[:2]
        raise ServiceError.invalid(other, f"means the same as {name}; give one of them")
    for name, value in given.items():
        return within(name, value, high)
    return None


def named_as_given(error: ServiceError) -> ServiceError:
    """Returns the error with the name that the caller knows the field by."""
    for beginning, name in REQUEST_FIELDS.items():
        if error.field.startswith(beginning):
            field = name + error.field.removeprefix(beginning)
            problem = error.message.removeprefix(f"{error.field}: ")
            return ServiceError(error.code, error.reason, f"{field}: {problem}", field=field)
    return error
