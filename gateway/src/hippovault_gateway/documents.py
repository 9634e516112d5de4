"""Memories as JSON: one form for MCP arguments and results, `--json` and JSONL files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from hippovault.memory.v1 import memory_pb2, memory_service_pb2
from hippovault_chassis.errors import ServiceError

SCORE_DIGITS = 6
"""Of a score in JSON; more would tell nothing and cost agents their context."""
DocumentT = TypeVar("DocumentT", bound="Document")


class Document(BaseModel):
    """A JSON object that has the declared members and no other."""

    # Built when first used: a command uses few of these classes.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class Input(Document):
    """A document that somebody else wrote."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _booleans_apart(cls, value: object, info: ValidationInfo) -> object:
        # Pydantic would take true for 1 and "yes" for true. That it takes "10" for 10 is right: agents send it.
        wanted = cls.model_fields[str(info.field_name)].annotation is bool
        if isinstance(value, bool) is wanted:
            return value
        raise PydanticCustomError("boolean", "must be true or false" if wanted else "must not be a boolean")


def parse(document: type[DocumentT], value: Mapping[str, Any]) -> DocumentT:
    """Returns the checked document.

    Raises:
        ServiceError: INVALID_ARGUMENT naming the first member that is unknown, missing or of another type.
    """
    try:
        return document.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).lstrip(".")
        message = "unknown argument" if problem["type"] == "extra_forbidden" else problem["msg"]
        raise ServiceError.invalid(field or "arguments", message) from None


def _split_tags(value: object) -> object:
    """Takes `"a,b"` for `["a", "b"]`; a string must never be taken letter by letter."""
    return [tag for tag in value.split(",") if tag.strip()] if isinstance(value, str) else value


def _none_is_empty(value: object) -> object:
    return [] if value is None else value


def _text_of_time(value: object) -> object:
    """Takes seconds since 1970 as well; they become text, which `timestamp` reads."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return str(value)


Tags = Annotated[list[str], BeforeValidator(_split_tags), BeforeValidator(_none_is_empty)]
Texts = Annotated[list[str], BeforeValidator(_none_is_empty)]
Time = Annotated[str, BeforeValidator(_text_of_time)]
Score = Annotated[float, AfterValidator(lambda value: round(value, SCORE_DIGITS))]


def timestamp(field: str, value: str) -> Timestamp:
    """Returns the instant that ISO 8601 text names; without a zone it is UTC.

    Raises:
        ServiceError: INVALID_ARGUMENT when it names none.
    """
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ServiceError.invalid(field, "must be ISO 8601, such as 2026-01-31T12:00:00Z") from None
    result = Timestamp()
    try:
        result.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # Its zone moves it out.
        raise ServiceError.invalid(field, "must lie in the years 1 to 9999") from None
    return result


def iso(value: Timestamp) -> str:
    """Returns ISO 8601 text in UTC, to the microsecond."""
    return value.ToDatetime(UTC).isoformat().replace("+00:00", "Z")


class MemoryInput(Input):
    """What can be remembered: the arguments of `hippo_remember` and a line of a JSONL file."""

    content: str
    """The text to remember."""
    namespace: str = ""
    """The memory's scope; empty means "default"."""
    category: str = ""
    """A group of your choice."""
    key: str = ""
    """Your own name: remembering the same category and key again updates the memory."""
    tags: Tags = []
    """Labels to filter by."""
    hints: Texts = []
    """Up to 3 wordings of questions that this memory answers."""
    memory_type: str = ""
    """Such as decision, observation, pattern."""
    importance: float | None = None
    """0 to 1."""
    metadata: dict[str, Any] = {}
    """Any JSON object of yours."""
    created_at: Time | None = None
    """When it happened, ISO 8601; now when absent."""

    def request(self) -> memory_service_pb2.RememberRequest:
        """Returns the request that remembers it.

        Raises:
            ServiceError: INVALID_ARGUMENT for what cannot cross the wire; the rest is the application's to check.
        """
        return memory_service_pb2.RememberRequest(
            namespace=self.namespace,
            content=self.content,
            category=self.category,
            key=self.key,
            tags=self.tags,
            hints=self.hints,
            memory_type=self.memory_type,
            importance=self.importance,
            metadata=dump_metadata(self.metadata),
            created_at=None if self.created_at is None else timestamp("created_at", self.created_at),
        )


def dump_metadata(value: dict[str, Any]) -> str:
    """Returns metadata as JSON text; "" for none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) if value else ""
        text.encode()
    except (ValueError, RecursionError):
        raise ServiceError.invalid("metadata", "must be JSON: finite numbers, valid Unicode") from None
    return text


class View(Document):
    """The JSON form of a message."""

    @classmethod
    @abstractmethod
    def of(cls, message: Any, /) -> Self:
        """Returns the JSON form."""


class SurpriseView(View):
    """How unexpected a memory was when it was written."""

    score: Score
    embedding_outlier: Score
    engagement: Score
    explicit: Score
    prediction_loss: Score | None = None
    version: int

    @classmethod
    def of(cls, surprise: memory_pb2.Surprise, /) -> Self:
        """Returns the JSON form."""
        parts = surprise.components
        return cls(
            score=surprise.score,
            embedding_outlier=parts.embedding_outlier,
            engagement=parts.engagement,
            explicit=parts.explicit,
            prediction_loss=parts.prediction_loss if parts.HasField("prediction_loss") else None,
            version=surprise.version,
        )


def _shown(metadata: str) -> dict[str, Any]:
    """Returns metadata without the stored copy of the surprise, which has a member of its own."""
    members: dict[str, Any] = json.loads(metadata) if metadata else {}
    reserved = members.get("_hippo")
    if isinstance(reserved, dict):
        reserved.pop("surprise", None)
        if not reserved:
            del members["_hippo"]
    return members


class MemoryView(View):
    """A stored memory."""

    id: int
    namespace: str
    content: str
    content_hash: str
    category: str
    key: str
    tags: list[str]
    hints: list[str]
    memory_type: str
    importance: float | None
    metadata: dict[str, Any]
    created_at: str
    updated_at: str
    version: int
    surprise: SurpriseView | None

    @staticmethod
    def members(memory: memory_pb2.Memory) -> dict[str, Any]:
        """Returns the members of the JSON form."""
        return {
            "id": memory.id,
            "namespace": memory.namespace,
            "content": memory.content,
            "content_hash": memory.content_hash,
            "category": memory.category,
            "key": memory.key,
            "tags": list(memory.tags),
            "hints": list(memory.hints),
            "memory_type": memory.memory_type,
            "importance": memory.importance if memory.HasField("importance") else None,
            "metadata": _shown(memory.metadata),
            "created_at": iso(memory.created_at),
            "updated_at": iso(memory.updated_at),
            "version": memory.version,
            "surprise": SurpriseView.of(memory.surprise) if memory.HasField("surprise") else None,
        }

    @classmethod
    def of(cls, memory: memory_pb2.Memory, /) -> Self:
        """Returns the JSON form."""
        return cls(**cls.members(memory))


class HitView(MemoryView):
    """A recalled memory with the reasons for its place."""

    score: Score = Field(description="Orders the hits of this answer; tells nothing across answers.")
    relevance: Score = Field(description="Part of score; in keyword and hybrid relative to this answer's best hit.")
    similarity: Score | None
    cosine_similarity: Score | None = Field(description="Absolute: near 0 for an unrelated memory.")
    surprise_score: Score
    decay: Score
    dense_rank: int | None
    keyword_rank: int | None
    keyword_score: Score | None = Field(description="BM25; null when no word matches.")

    @classmethod
    def of_hit(cls, hit: memory_service_pb2.Hit) -> Self:
        """Returns the JSON form."""
        return cls(
            **cls.members(hit.memory),
            score=hit.score,
            relevance=hit.relevance,
            similarity=hit.similarity if hit.HasField("similarity") else None,
            cosine_similarity=hit.cosine_similarity if hit.HasField("cosine_similarity") else None,
            surprise_score=hit.surprise,
            decay=hit.decay,
            dense_rank=hit.dense.rank or None,
            keyword_rank=hit.keyword.rank or None,
            keyword_score=hit.keyword.score if hit.HasField("keyword") else None,
        )


MODES: dict[str, memory_service_pb2.RecallMode.ValueType] = {
    "dense": memory_service_pb2.RECALL_MODE_DENSE,
    "semantic": memory_service_pb2.RECALL_MODE_DENSE,
    "keyword": memory_service_pb2.RECALL_MODE_KEYWORD,
    "hybrid": memory_service_pb2.RECALL_MODE_HYBRID,
}
"""Names of the recall modes; `semantic` is an alias."""


def mode_value(name: str) -> memory_service_pb2.RecallMode.ValueType:
    """Returns the mode of that name.

    Raises:
        ServiceError: INVALID_ARGUMENT when there is none.
    """
    try:
        return MODES[name]
    except KeyError:
        raise ServiceError.invalid("mode", f"must be one of {', '.join(MODES)}") from None


def mode_name(value: memory_service_pb2.RecallMode.ValueType) -> str:
    """Returns the name of a mode that was used."""
    return next(name for name, mode in MODES.items() if mode == value)


class RecallView(View):
    """The answer of a recall, best hit first."""

    hits: list[HitView]
    mode: str
    degraded: str = Field(description="Why an arm is missing; empty when none is.")
    omitted_hits: int = Field(description="Hits left off, since the answer would be too large.")

    @classmethod
    def of(cls, response: memory_service_pb2.RecallResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            hits=[HitView.of_hit(hit) for hit in response.hits],
            mode=mode_name(response.mode),
            degraded=response.degradation.reason,
            omitted_hits=response.omitted_hits,
        )


OUTCOMES = {
    memory_pb2.WRITE_OUTCOME_CREATED: "created",
    memory_pb2.WRITE_OUTCOME_EXISTED: "existed",
    memory_pb2.WRITE_OUTCOME_UPDATED: "updated",
    memory_pb2.WRITE_OUTCOME_REVIVED: "revived",
}


class RememberView(View):
    """What became of a memory."""

    memory: MemoryView
    outcome: str = Field(description="created, existed, updated or revived.")
    duplicate: bool = Field(description="Whether the same content was there already.")
    truncated: bool = Field(description="Whether the vector covers the head of the content only.")

    @classmethod
    def of(cls, response: memory_service_pb2.RememberResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            memory=MemoryView.of(response.memory),
            outcome=OUTCOMES[response.outcome],
            duplicate=response.outcome == memory_pb2.WRITE_OUTCOME_EXISTED,
            truncated=response.truncated,
        )


class ListView(View):
    """A page of memories, newest first."""

    memories: list[MemoryView]
    next_page_token: str
    total: int

    @classmethod
    def of(cls, response: memory_service_pb2.ListMemoriesResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            memories=[MemoryView.of(memory) for memory in response.memories],
            next_page_token=response.next_page_token,
            total=response.total_size,
        )


class ForgetView(View):
    """What was forgotten, or would be."""

    ids: list[int]
    deleted: int
    dry_run: bool

    @classmethod
    def of(cls, response: memory_service_pb2.ForgetResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(ids=list(response.ids), deleted=len(response.ids), dry_run=response.dry_run)


class SummaryView(View):
    """What was remembered since a time."""

    total_memories: int
    by_type: dict[str, int]
    top_tags: dict[str, int]
    highlights: list[MemoryView]
    mean_surprise: Score
    since: str

    @classmethod
    def of(cls, response: memory_service_pb2.SummarizeSessionResponse, /) -> Self:
        """Returns the JSON form."""
        summary = response.summary
        return cls(
            total_memories=summary.total_memories,
            by_type=dict(summary.by_type),
            top_tags={entry.tag: entry.count for entry in summary.top_tags},
            highlights=[MemoryView.of(memory) for memory in summary.highlights],
            mean_surprise=summary.mean_surprise,
            since=iso(summary.since),
        )


class ServiceView(Document):
    """How a service behind the gateway is."""

    name: str
    serving: bool
    reason: str
    detail: str


class PingView(View):
    """How the memory is."""

    version: str
    uptime_seconds: float
    services: list[ServiceView]
    live_memories: int | None
    deleted_memories: int | None
    mcp_http_url: str

    @classmethod
    def of(cls, response: memory_service_pb2.PingResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(
            version=response.version,
            uptime_seconds=response.uptime_seconds,
            services=[
                ServiceView(name=s.name, serving=s.serving, reason=s.reason, detail=s.detail) for s in response.services
            ],
            live_memories=response.live_memories if response.HasField("live_memories") else None,
            deleted_memories=response.deleted_memories if response.HasField("deleted_memories") else None,
            mcp_http_url=response.mcp_http_url,
        )
