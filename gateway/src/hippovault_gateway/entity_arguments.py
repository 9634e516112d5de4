"""What the commands over single memories and their past take, and the requests that it makes."""

from __future__ import annotations

from typing import Annotated

from google.protobuf.field_mask_pb2 import FieldMask
from pydantic import Field

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.arguments import (
    AnswerArguments,
    FilterArguments,
    MemoriesArguments,
    PageArguments,
    RecallArguments,
    RefArguments,
    WriteArguments,
    within,
)
from hippovault_gateway.documents import Details, Names, Tags, Time, timestamp
from hippovault_gateway.limits import MAX_SKIP, MAX_VERSION

VISIBILITIES = {
    "live": memory_pb2.VISIBILITY_LIVE,
    "deleted": memory_pb2.VISIBILITY_DELETED,
    "all": memory_pb2.VISIBILITY_ALL,
}
VisibilityName = Annotated[str, Field(json_schema_extra={"enum": list(VISIBILITIES)})]
CLEARABLE = ("category", "key", "tags", "hints", "memory_type", "importance", "metadata", "status")
"""Fields of a memory that may be empty."""
RENAMED = {"category": "new_category", "key": "new_key"}
"""Fields of a memory, and the arguments of an update that set them: under their own names they name the memory."""


def visibility(name: str) -> memory_pb2.Visibility.ValueType:
    """Returns which memories are seen.

    Raises:
        ServiceError: INVALID_ARGUMENT when the name means nothing.
    """
    return VISIBILITIES[memory_rules.choice("visibility", name, VISIBILITIES)]


class GetArguments(RefArguments, AnswerArguments):
    """Which memory, and as of when."""

    as_of: Time | None = None
    """As it was then, ISO 8601."""
    visibility: VisibilityName = "live"

    def request(self) -> pb.GetMemoryRequest:
        """Returns the request."""
        if self.as_of is None:
            return pb.GetMemoryRequest(namespace=self.namespace, ref=self.ref(), visibility=visibility(self.visibility))
        if self.visibility != "live":
            raise ServiceError.invalid("as_of", "sees deleted memories too; give it without their visibility")
        return pb.GetMemoryRequest(namespace=self.namespace, ref=self.ref(), as_of=timestamp("as_of", self.as_of))


class AllFilterArguments(FilterArguments):
    """Everything that narrows a search or a list."""

    tags_all: Tags = Field(default_factory=list)
    memory_types: Names = Field(default_factory=list)
    category: Names = Field(default_factory=list)
    status: Names = Field(default_factory=list)
    since: Time | None = None
    before: Time | None = None

    def filter(self) -> memory_pb2.Filter:
        """Returns the conditions."""
        conditions = super().filter()
        conditions.tags_all.extend(self.tags_all)
        conditions.memory_types.extend(self.memory_types)
        conditions.categories.extend(self.category)
        conditions.statuses.extend(self.status)
        if self.since is not None:
            conditions.created_since.CopyFrom(timestamp("since", self.since))
        if self.before is not None:
            conditions.created_before.CopyFrom(timestamp("before", self.before))
        return conditions


class SearchArguments(AllFilterArguments, RecallArguments):
    """A question, how to answer it, and what among."""

    explain: bool = False
    """Add ranks, scores, surprise and times."""


class ScanArguments(AllFilterArguments, MemoriesArguments):
    """Which page of which memories."""

    skip: int | None = None
    """Memories to pass over first."""
    visibility: VisibilityName = "live"

    def request(self) -> pb.ListMemoriesRequest:
        """Returns the request."""
        request = super().request()
        request.skip = memory_rules.within("skip", self.skip or 0, 0, MAX_SKIP)
        request.visibility = visibility(self.visibility)
        return request


class HistoryArguments(RefArguments, PageArguments):
    """Which memory's past, and which page of it."""

    def request(self) -> pb.ListMemoryVersionsRequest:
        """Returns the request."""
        return pb.ListMemoryVersionsRequest(
            namespace=self.namespace, ref=self.ref(), page_size=self.size(), page_token=self.page_token
        )


class UpdateArguments(Details, RefArguments, WriteArguments):
    """Which memory, and what it is to be; what is not given stays."""

    content: str = ""
    """Makes a new version."""
    new_category: str = ""
    new_key: str = ""
    clear: Names = Field(default_factory=list)
    """Names of fields to empty."""
    expected_version: int | None = None
    """Else refused."""
    dry_run: bool = False
    """Change nothing."""

    def request(self) -> pb.UpdateMemoryRequest:
        """Returns the request."""
        memory = memory_pb2.Memory(content=self.content, category=self.new_category, key=self.new_key, **self.details())
        return pb.UpdateMemoryRequest(
            namespace=self.namespace,
            ref=self.ref(),
            memory=memory,
            update_mask=FieldMask(paths=self._paths()),
            expected_version=within("expected_version", self.expected_version, MAX_VERSION) or 0,
            dry_run=self.dry_run,
            request_id=self.request_id,
        )

    def _paths(self) -> list[str]:
        """Returns the fields that are set or cleared: which arguments were given tells it, not their values."""
        given = [field for field in memory_rules.FIELDS if RENAMED.get(field, field) in self.model_fields_set]
        for index, field in enumerate(self.clear):
            memory_rules.choice(f"clear[{index}]", field, CLEARABLE)
            if field in given:
                raise ServiceError.invalid(f"clear[{index}]", f"{field} is given a value; do one of both")
        if not given and not self.clear:
            raise ServiceError.invalid("clear", "give at least one field a value, or clear one")
        return [*given, *self.clear]


class UndeleteArguments(RefArguments, WriteArguments):
    """Which memory to bring back."""

    dry_run: bool = False
    """Change nothing."""

    def request(self) -> pb.UndeleteRequest:
        """Returns the request."""
        return pb.UndeleteRequest(
            namespace=self.namespace, ref=self.ref(), dry_run=self.dry_run, request_id=self.request_id
        )


class PurgeArguments(RefArguments):
    """What to erase: one memory, or all that were deleted before a time."""

    deleted_before: Time | None = None
    """All memories deleted before this time, ISO 8601."""
    dry_run: bool = False
    """Only tell what would be erased."""

    def request(self) -> pb.PurgeRequest:
        """Returns the request."""
        if self.deleted_before is None:
            return pb.PurgeRequest(namespace=self.namespace, ref=self.ref(), dry_run=self.dry_run)
        if self.names_one():
            raise ServiceError.invalid("deleted_before", "names memories of its own; give it or one memory, not both")
        before = timestamp("deleted_before", self.deleted_before)
        return pb.PurgeRequest(namespace=self.namespace, deleted_before=before, dry_run=self.dry_run)
