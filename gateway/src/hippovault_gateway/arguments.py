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
from hippovault_gateway.limits import (
    MAX_ANSWER_BYTES,
    MAX_LIMIT,
    MAX_OVERSAMPLE_FACTOR,
    MAX_PAGE_SIZE,
    MIN_ANSWER_BYTES,
)

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


class AnswerArguments(Arguments):
    """What tools take whose answers may be long."""

    max_bytes: int | None = None

    def most(self, default: int) -> int:
        """Returns how many bytes the answer may have."""
        wanted = default if self.max_bytes is None else self.max_bytes
        return memory_rules.within("max_bytes", wanted, MIN_ANSWER_BYTES, MAX_ANSWER_BYTES)


class FilterArguments(NamespaceArguments):
    """What narrows a search or a list."""

    tags: Tags = Field(default_factory=list)
    memory_type: str = ""

    def filter(self) -> memory_pb2.Filter:
        """Returns the conditions."""
        return memory_pb2.Filter(tags_any=self.tags, memory_types=[self.memory_type] if self.memory_type else [])


class WriteArguments(Arguments):
    """What tools take that change something; a repeat with the same request_id does nothing."""

    request_id: str = ""


class RememberArguments(MemoryInput, WriteArguments):
    """A memory."""

    def request(self) -> pb.RememberRequest:
        """Returns the request."""
        request = super().request()
        request.request_id = self.request_id
        return request


class RecallArguments(FilterArguments, AnswerArguments):
    """A question and how to answer it."""

    query: str
    """In natural language."""
    limit: int | None = None
    """1 to 100, default 10."""
    mode: Mode = "hybrid"
    """By meaning (dense, semantic), words (keyword), or both."""
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


class PageArguments(AnswerArguments):
    """Which page of a list."""

    limit: int | None = None
    """1 to 100, default 20."""
    page_token: str = ""
    """next_page_token of the last page."""

    def size(self) -> int | None:
        """Returns how many items are wanted; None when the caller leaves it open."""
        return within("limit", self.limit, MAX_PAGE_SIZE)


class MemoriesArguments(FilterArguments, PageArguments):
    """Which page of which memories."""

    def request(self) -> pb.ListMemoriesRequest:
        """Returns the request."""
        return pb.ListMemoriesRequest(
            namespace=self.namespace, page_size=self.size(), page_token=self.page_token, filter=self.filter()
        )


class ListArguments(MemoriesArguments):
    """Which page of the newest memories; n is another name for limit."""

    n: int | None = None
    """Same as limit."""

    def size(self) -> int | None:
        """Returns how many memories are wanted; None when the caller leaves it open."""
        return one_of(MAX_PAGE_SIZE, n=self.n, limit=self.limit)


class RefArguments(NamespaceArguments):
    """Which memory, named in exactly one way."""

    id: int | None = None
    content_hash: str = ""
    category: str = ""
    key: str = ""

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


class ForgetArguments(RefArguments, WriteArguments):
    """Which memory to forget."""

    dry_run: bool = False
    """Change nothing."""

    def request(self) -> pb.ForgetRequest:
        """Returns the request."""
        return pb.ForgetRequest(
            namespace=self.namespace, ref=self.ref(), dry_run=self.dry_run, request_id=self.request_id
        )


class SummaryArguments(NamespaceArguments):
    """How far back to look."""

    hours: float | None = None
    """To look back, default 24."""

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
