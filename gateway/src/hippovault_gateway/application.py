"""What the memory can do, free of transport: every door calls these functions and no other."""

from __future__ import annotations

import asyncio
import math
import time
from importlib.metadata import version

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.embedding.v1 import embedding_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.backfill import Backfill
from hippovault_gateway.clients import EMBEDDING, STORAGE, RequestT, ResponseT, Services, call
from hippovault_gateway.embedder import Embedder
from hippovault_gateway.entities import Entities
from hippovault_gateway.recall import Recaller
from hippovault_gateway.remember import Rememberer
from hippovault_gateway.remember_stream import Streams
from hippovault_gateway.scoring import Scorer
from hippovault_gateway.settings import GatewaySettings
from hippovault_gateway.update import Updater

MAX_HOURS = 87_600.0
DEFAULT_HOURS = 24.0
TOP_TAGS = 10
ALL_TAGS = 100
"""As many as storage counts."""
FIRST_INSTANT = Timestamp(seconds=-62_135_596_800)
"""The year 1."""
HIGHLIGHTS = 5
VERSION = version("hippovault-gateway")
PING_SECONDS = 2.0
"""What each service gets to say how it is."""


class Application:
    """The functions of MemoryService, message in and message out.

    Every function raises ServiceError and nothing else that a caller should see.

    Args:
        services: The services behind the gateway.
        settings: What the gateway was told.
    """

    def __init__(self, services: Services, settings: GatewaySettings) -> None:
        self._services = services
        self._started = time.monotonic()
        self.mcp_http_url = ""
        """Where MCP over HTTP is served, for `ping`; the gateway sets it once it listens."""
        self.mcp_answer_bytes = settings.mcp_answer_bytes
        """What an answer over MCP may have, unless the call says otherwise."""
        scorer, entities = Scorer(services, settings.surprise_weights(), settings.surprise_version), Entities(services)
        embedder = Embedder(services, settings.token_encoding)
        self.backfill = Backfill(services, embedder, scorer)
        """Has to run beside; see there."""
        rememberer = Rememberer(services, embedder, scorer, self.backfill.wake)
        self.remember = rememberer.remember
        self.batch_remember = rememberer.batch_remember
        self.stream_remember = Streams(rememberer).remember
        self.recall = Recaller(services, settings).recall
        self.get_memory = entities.get_memory
        self.list_memories = entities.list_memories
        self.list_memory_versions = entities.list_memory_versions
        self.update_memory = Updater(services, embedder, scorer, self.backfill.wake).update_memory
        self.forget = entities.forget
        self.undelete = entities.undelete
        self.purge = entities.purge
        self.serving = services.serving

    async def summarize_session(self, request: pb.SummarizeSessionRequest) -> pb.SummarizeSessionResponse:
        """Sums up what was remembered in the last hours."""
        hours = request.hours if request.HasField("hours") else DEFAULT_HOURS
        if not (math.isfinite(hours) and 0 < hours <= MAX_HOURS):
            raise ServiceError.invalid("hours", f"must be more than 0 and at most {MAX_HOURS:g}, is {hours:g}")
        since = Timestamp()
        since.FromNanoseconds(time.time_ns() - int(hours * 3600 * 1e9))
        return await self._summarize(request.namespace, since, TOP_TAGS)

    async def summarize_all(self, namespace: str) -> pb.SummarizeSessionResponse:
        """Sums up all memories of a namespace."""
        return await self._summarize(namespace, FIRST_INSTANT, ALL_TAGS)

    async def _summarize(self, namespace: str, since: Timestamp, tags: int) -> pb.SummarizeSessionResponse:
        summarize = storage_pb2.SummarizeMemoriesRequest(
            namespace=memory_rules.namespace(namespace), since=since, top_tags=tags, highlights=HIGHLIGHTS
        )
        response = await call(self._services.storage.SummarizeMemories, summarize, STORAGE)
        return pb.SummarizeSessionResponse(summary=response.summary)

    async def ping(self, _request: pb.PingRequest) -> pb.PingResponse:
        """Says how the gateway and the services behind it are, whether or not they answer."""
        model, stats = await asyncio.gather(
            _answer(self._services.embedding.GetModel, embedding_pb2.GetModelRequest(), EMBEDDING),
            _answer(self._services.storage.GetStats, storage_pb2.GetStatsRequest(), STORAGE),
        )
        response = pb.PingResponse(
            version=VERSION,
            uptime_seconds=time.monotonic() - self._started,
            mcp_http_url=self.mcp_http_url,
            services=[_status(EMBEDDING, model), _status(STORAGE, _fitting(stats, model))],
        )
        if isinstance(stats, storage_pb2.GetStatsResponse):
            response.live_memories = stats.live_memories
            response.deleted_memories = stats.deleted_memories
            response.pending_memories = stats.pending_memories
            if stats.pending_memories:
                self.backfill.wake()
        return response


async def _answer(
    method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT], request: RequestT, service: str
) -> ResponseT | ServiceError:
    try:
        return await call(method, request, service, at_most=PING_SECONDS)
    except ServiceError as error:
        return error


def _fitting(
    stats: storage_pb2.GetStatsResponse | ServiceError, model: embedding_pb2.GetModelResponse | ServiceError
) -> storage_pb2.GetStatsResponse | ServiceError:
    """Returns the storage service's answer; an error where the model's vectors do not fit its store."""
    if isinstance(stats, ServiceError) or isinstance(model, ServiceError):
        return stats
    if model.dimensions not in {0, stats.dimensions}:
        held, made = f"of {stats.dimensions} dimensions", f"{model.dimensions}"
    elif "" not in {stats.model_revision, model.model_revision} and stats.model_revision != model.model_revision:
        held, made = f"of the model {stats.model_revision}", f"those of {model.model_revision}"
    else:
        return stats
    return ServiceError.model_mismatch(f"the store holds vectors {held}, {model.name} makes {made}")


def _status(
    name: str, answer: embedding_pb2.GetModelResponse | storage_pb2.GetStatsResponse | ServiceError
) -> pb.ServiceStatus:
    if isinstance(answer, ServiceError):
        return pb.ServiceStatus(name=name, reason=answer.message)
    if isinstance(answer, embedding_pb2.GetModelResponse) and answer.load_error:
        return pb.ServiceStatus(name=name, reason=answer.load_error, detail=answer.name)
    detail = answer.engine if isinstance(answer, storage_pb2.GetStatsResponse) else answer.name
    return pb.ServiceStatus(name=name, serving=True, detail=detail)
