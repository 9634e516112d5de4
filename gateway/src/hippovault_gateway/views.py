"""Answers as JSON: one form for MCP results and `--json`."""

from __future__ import annotations

import json
from abc import abstractmethod
from datetime import UTC
from typing import Annotated, Any, Self

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import AfterValidator, Field

from hippovault.memory.v1 import memory_pb2, memory_service_pb2
from hippovault_chassis import memory_rules
from hippovault_gateway.documents import Document, mode_name

SCORE_DIGITS = 6
"""Of a score in JSON; more would tell nothing and cost agents their context."""

Score = Annotated[float, AfterValidator(lambda value: round(value, SCORE_DIGITS))]


def iso(value: Timestamp) -> str:
    """Returns ISO 8601 text in UTC, to the microsecond."""
    return value.ToDatetime(UTC).isoformat().replace("+00:00", "Z")


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
    """Returns metadata without the stored copy of the surprise, which has a member of its own.

    What another program wrote and JSON's clients cannot take is left out.
    """
    try:
        members: dict[str, Any] = json.loads(metadata) if metadata else {}
    except (ValueError, RecursionError):
        return {}
    if not memory_rules.is_plain(members):
        return {}
    reserved = members.get("_hippo")
    if isinstance(reserved, dict):
        reserved.pop("surprise", None)
        if not reserved:
            del members["_hippo"]
    return members


class MemoryView(View):
    """A stored memory. Members with a default may be left out where they have it."""

    id: int
    namespace: str
    content: str
    content_hash: str
    category: str = ""
    key: str = ""
    tags: list[str] = Field(default_factory=list)
    hints: list[str] = Field(default_factory=list)
    memory_type: str = ""
    status: str = ""
    importance: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: str
    updated_at: str
    version: int
    pending: bool = False
    surprise: SurpriseView | None = None

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
            "status": memory.status,
            "importance": memory.importance if memory.HasField("importance") else None,
            "metadata": _shown(memory.metadata),
            "created_at": iso(memory.created_at),
            "updated_at": iso(memory.updated_at),
            "version": memory.version,
            "pending": memory.pending,
            "surprise": SurpriseView.of(memory.surprise) if memory.HasField("surprise") else None,
        }

    @classmethod
    def of(cls, memory: memory_pb2.Memory, /) -> Self:
        """Returns the JSON form."""
        return cls(**cls.members(memory))


MATCHED_BY = {
    memory_pb2.MATCHED_BY_CONTENT: "content",
    memory_pb2.MATCHED_BY_HINT: "hint",
    memory_pb2.MATCHED_BY_DENSE: "dense",
}


class BriefHitView(View):
    """What an agent needs of a recalled memory; the rest costs it context."""

    id: int
    content: str
    category: str = ""
    key: str = ""
    tags: list[str] = Field(default_factory=list)
    memory_type: str = ""
    status: str = ""
    importance: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: str
    pending: bool = False
    score: Score = Field(description="Compares this answer's hits only.")
    cosine_similarity: Score | None = Field(default=None, description="Near 0: unrelated.")
    matched_by: list[str]

    @classmethod
    def of(cls, hit: memory_service_pb2.Hit, /) -> Self:
        """Returns the JSON form."""
        memory = hit.memory
        return cls(
            id=memory.id,
            content=memory.content,
            category=memory.category,
            key=memory.key,
            tags=list(memory.tags),
            memory_type=memory.memory_type,
            status=memory.status,
            importance=memory.importance if memory.HasField("importance") else None,
            metadata=_shown(memory.metadata),
            created_at=iso(memory.created_at),
            pending=memory.pending,
            score=hit.score,
            cosine_similarity=hit.cosine_similarity if hit.HasField("cosine_similarity") else None,
            matched_by=[MATCHED_BY[found] for found in hit.matched_by],
        )


class HitView(MemoryView):
    """A recalled memory with the reasons for its place."""

    score: Score = Field(description="Orders the hits of this answer; tells nothing across answers.")
    relevance: Score = Field(description="Part of score; in keyword and hybrid relative to this answer's hits.")
    similarity: Score | None = None
    cosine_similarity: Score | None = Field(default=None, description="Absolute: near 0 for an unrelated memory.")
    surprise_score: Score
    salience: Score
    decay: Score
    dense_rank: int | None = None
    keyword_rank: int | None = None
    keyword_score: Score | None = Field(default=None, description="BM25; null when no word matches.")
    late_interaction_rank: int | None = None
    late_interaction_score: Score | None = Field(default=None, description="How near its tokens come to the query's.")
    matched_by: list[str] = Field(description="content and hint by words, dense by meaning.")

    @classmethod
    def of_hit(cls, hit: memory_service_pb2.Hit) -> Self:
        """Returns the JSON form."""
        late = hit.late_interaction if hit.HasField("late_interaction") else None
        return cls(
            **cls.members(hit.memory),
            score=hit.score,
            relevance=hit.relevance,
            similarity=hit.similarity if hit.HasField("similarity") else None,
            cosine_similarity=hit.cosine_similarity if hit.HasField("cosine_similarity") else None,
            surprise_score=hit.surprise,
            salience=hit.salience,
            decay=hit.decay,
            dense_rank=hit.dense.rank or None,
            keyword_rank=hit.keyword.rank or None,
            keyword_score=hit.keyword.score if hit.HasField("keyword") else None,
            late_interaction_rank=late.rank if late else None,
            late_interaction_score=late.score if late else None,
            matched_by=[MATCHED_BY[found] for found in hit.matched_by],
        )


class BriefRecallView(View):
    """The answer of a recall, best hit first."""

    hits: list[BriefHitView]
    mode: str
    degraded: str = Field(description="Why an arm is missing, or empty.")
    omitted_hits: int

    @classmethod
    def of(cls, response: memory_service_pb2.RecallResponse, /) -> Self:
        """Returns the JSON form."""
        return cls(hits=[BriefHitView.of(hit) for hit in response.hits], **recall_members(response))


class RecallView(View):
    """The answer of a recall with its reasons, best hit first."""

    hits: list[HitView]
    mode: str
    degraded: str = Field(description="Why an arm is missing; empty when none is.")
    omitted_hits: int = Field(description="Hits left off, since the answer would be too large.")
    times_ms: dict[str, float] = Field(description="Where the time went; what ran beside something else is in both.")

    @classmethod
    def of(cls, response: memory_service_pb2.RecallResponse, /) -> Self:
        """Returns the JSON form."""
        times = {field.name: value.ToMicroseconds() / 1000 for field, value in response.times.ListFields()}
        return cls(hits=[HitView.of_hit(hit) for hit in response.hits], times_ms=times, **recall_members(response))


def recall_members(response: memory_service_pb2.RecallResponse) -> dict[str, Any]:
    """Returns the members that every form of a recall's answer has."""
    return {
        "mode": mode_name(response.mode),
        "degraded": response.degradation.reason,
        "omitted_hits": response.omitted_hits,
    }


OUTCOMES = {
    memory_pb2.WRITE_OUTCOME_CREATED: "created",
    memory_pb2.WRITE_OUTCOME_EXISTED: "existed",
    memory_pb2.WRITE_OUTCOME_UPDATED: "updated",
    memory_pb2.WRITE_OUTCOME_REVIVED: "revived",
}


class RememberView(View):
    """What became of a memory; its content is truncated where its end has no vector."""

    memory: MemoryView
    outcome: str
    duplicate: bool
    truncated: bool

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
    pending_memories: int | None
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
            pending_memories=response.pending_memories if response.HasField("pending_memories") else None,
            mcp_http_url=response.mcp_http_url,
        )
