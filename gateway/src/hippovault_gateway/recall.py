"""Recall: what a search finds, ordered by relevance and surprise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from google.protobuf.duration_pb2 import Duration

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import embedding, fusion, ranking
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedding import EmbeddedQuery
from hippovault_gateway.fusion import Floats, Scores
from hippovault_gateway.limits import MAX_LIMIT, MAX_OVERSAMPLE_FACTOR
from hippovault_gateway.query_cache import QueryCache
from hippovault_gateway.settings import GatewaySettings

DEFAULT_LIMIT = 10
EMBEDDING_SHARE = 0.5
"""Part of the time left that the query's embedding may take where the keyword arm can answer alone."""
WHOLE_FACTOR = 4
"""Hits that come with their memory for each wanted one: tokens and surprise lift some from further below than twice as
many, and to fetch those afterwards takes as long as a hundred of them here."""
MEBIBYTE = 1024 * 1024
MAX_COMPARED = 1_000
"""Hits whose tokens storage compares at most."""
REST_SECONDS = 2.0
"""How long hybrid recalls do at most without an embedder that failed."""
REST_FACTOR = 2
"""How much longer than the try that failed: one that is down costs a second of retries, one that is asked with little
time left costs little and must not be taken from those who have more."""
MODEL_MISMATCH = "MODEL_MISMATCH"
"""Reason by which storage refuses a query's vector of another model than the store's."""


class OutdatedError(Exception):
    """Kept queries are of another model than the store's."""


class Recaller:
    """Answers recalls.

    Args:
        services: The services behind the gateway.
        settings: Oversampling, half-life and floor.
    """

    def __init__(self, services: Services, settings: GatewaySettings) -> None:
        self._services = services
        self._settings = settings
        self._fusion = settings.fusion()
        self._queries = QueryCache(settings.query_cache_mebibytes * MEBIBYTE)
        self._embedder_rests_until = 0.0
        self._degradation: pb.Degradation | None = None

    async def recall(self, request: pb.RecallRequest) -> pb.RecallResponse:
        """Returns the best hits, best first."""
        mode = request.mode or pb.RECALL_MODE_HYBRID
        limit = self._check(request, mode)
        times, watch = pb.RecallTimes(), Stopwatch()
        embedded, degradation = await self._embedded(request.query, mode)
        watch.lap(times.embed)
        search = self._request(request, mode, limit, embedded)
        try:
            found, mismatch = await self._search(
                search, is_kept=embedded is not None and embedded is self._queries.get(request.query)
            )
        except OutdatedError:
            return await self.recall(request)
        if embedded and not mismatch:
            self._queries.keep(request.query, embedded)
        watch.lap(times.search)
        times.keyword.CopyFrom(found.keyword_time)
        times.dense.CopyFrom(found.dense_time)
        times.late_interaction.CopyFrom(found.late_interaction_time)
        scores = _scores(found.hits)
        relevances, late = self._relevances(scores, mode, embedded.unknown if embedded else 0.0)
        watch.lap(times.fuse)
        saliences = self._saliences(found.hits, scores.cosine)
        best = self._ranked(found.hits, relevances, saliences, late, boost=not request.no_surprise_boost)[:limit]
        best = await self._whole(search.namespace, best)
        hits = _within_bytes([_hit(ranked) for ranked in takewhile(_has_memory, best)])
        watch.lap(times.rerank)
        return pb.RecallResponse(
            hits=hits,
            mode=mode,
            degradation=degradation or mismatch,
            omitted_hits=len(best) - len(hits),
            times=times,
        )

    def _request(
        self, request: pb.RecallRequest, mode: pb.RecallMode.ValueType, limit: int, embedded: EmbeddedQuery | None
    ) -> storage_pb2.SearchMemoriesRequest:
        depth = self._depth(request, mode, limit)
        search = storage_pb2.SearchMemoriesRequest(
            namespace=memory_rules.namespace(request.namespace), filter=request.filter, whole=limit * WHOLE_FACTOR
        )
        if embedded:
            dense = storage_pb2.DenseArm(vector=embedded.vector, k=depth, model_revision=embedded.model_revision)
            search.dense.CopyFrom(dense)
        if mode != pb.RECALL_MODE_DENSE:
            search.keyword.CopyFrom(storage_pb2.KeywordArm(query=request.query, k=depth))
        if embedded and embedded.token_vectors and mode == pb.RECALL_MODE_HYBRID:
            search.late_interaction.CopyFrom(
                storage_pb2.LateInteraction(
                    token_vectors=embedded.token_vectors,
                    model_revision=embedded.model_revision,
                    depth=min(depth, MAX_COMPARED),
                )
            )
        return search

    async def _search(
        self, search: storage_pb2.SearchMemoriesRequest, *, is_kept: bool
    ) -> tuple[storage_pb2.SearchMemoriesResponse, pb.Degradation | None]:
        """Returns what both arms find; what the keyword arm finds alone, and why, where the model is another one.

        Raises:
            OutdatedError: The model was another one when the query was kept; all that were are forgotten.
        """
        try:
            return await call(self._services.storage.SearchMemories, search, STORAGE), None
        except ServiceError as error:
            if error.reason == MODEL_MISMATCH and is_kept:
                self._queries.clear()
                raise OutdatedError from error
            if error.reason != MODEL_MISMATCH or not search.HasField("keyword"):
                raise
            search.ClearField("dense")
            search.ClearField("late_interaction")
            degradation = pb.Degradation(missing=pb.RECALL_MODE_DENSE, reason=error.message)
            return await call(self._services.storage.SearchMemories, search, STORAGE), degradation

    async def _whole(self, namespace: str, best: list[_Ranked]) -> list[_Ranked]:
        """Fetches the memories of hits that came without: they stand far higher in the answer than in their arms.

        Returns:
            The hits, less those deleted since the search. At the end some may lack their memory: the answer is full.
        """
        lacking = {ranked.found.id: ranked for ranked in best if not ranked.found.HasField("memory")}
        if not lacking:
            return best
        get = storage_pb2.BatchGetMemoriesRequest(namespace=namespace, ids=lacking)
        got = (await call(self._services.storage.BatchGetMemories, get, STORAGE)).memories
        for memory in got:
            lacking[memory.id].found.memory.CopyFrom(memory)
        asked = list(lacking)
        reached = asked[: asked.index(got[-1].id) + 1] if got else asked
        gone = set(reached) - {memory.id for memory in got}
        return [ranked for ranked in best if ranked.found.id not in gone]

    def _check(self, request: pb.RecallRequest, mode: pb.RecallMode.ValueType) -> int:
        memory_rules.query("query", request.query)
        if mode not in pb.RecallMode.values():
            raise ServiceError.invalid("mode", f"must be one of {pb.RecallMode.keys()[1:]}, is {mode}")
        if request.HasField("oversample_factor"):
            memory_rules.within("oversample_factor", request.oversample_factor, 1, MAX_OVERSAMPLE_FACTOR)
        memory_rules.search_filter(request.filter)
        return memory_rules.within("limit", request.limit if request.HasField("limit") else DEFAULT_LIMIT, 1, MAX_LIMIT)

    def _depth(self, request: pb.RecallRequest, mode: pb.RecallMode.ValueType, limit: int) -> int:
        """Returns how many hits each arm is asked for."""
        factor = request.oversample_factor or self._settings.oversample_factor
        wanted = limit if request.no_surprise_boost else limit * factor
        return max(wanted, self._fusion.pool) if mode == pb.RECALL_MODE_HYBRID else wanted

    async def _embedded(
        self, query: str, mode: pb.RecallMode.ValueType
    ) -> tuple[EmbeddedQuery | None, pb.Degradation | None]:
        """Returns the embedded query, or none and why hybrid has to do without."""
        if mode == pb.RECALL_MODE_KEYWORD:
            return None, None
        if kept := self._queries.get(query):
            return kept, None
        if mode == pb.RECALL_MODE_DENSE:
            return await embedding.query(self._services, query, share=1.0), None
        started = time.monotonic()
        if started < self._embedder_rests_until:
            return None, self._degradation
        try:
            return await embedding.query(self._services, query, share=EMBEDDING_SHARE), None
        except ServiceError as error:
            if error.code not in embedding.AWAY:
                raise
            degradation = pb.Degradation(missing=pb.RECALL_MODE_DENSE, reason=error.message)
            now = time.monotonic()
            rests_until = now + _rest_seconds(error, now - started)
            if rests_until > self._embedder_rests_until:
                self._embedder_rests_until, self._degradation = rests_until, degradation
            return None, degradation

    def _relevances(self, scores: Scores, mode: pb.RecallMode.ValueType, unknown: float) -> tuple[Floats, Floats]:
        """Returns the relevance of each hit, 0 to 1, and what late interaction says of it, NaN where nothing."""
        late = fusion.late_interaction(scores.tokens, self._fusion.contrast)
        if mode == pb.RECALL_MODE_DENSE:
            return np.array([ranking.similarity(1 - cosine) for cosine in scores.cosine.tolist()]), late
        if mode == pb.RECALL_MODE_KEYWORD:
            return fusion.keyword(scores.bm25), late
        fused = fusion.hybrid(scores, late, self._fusion, unknown)
        return ranking.on_similarity_scale(fused, scores.cosine), late

    def _ranked(
        self,
        found: Sequence[storage_pb2.SearchHit],
        relevances: Floats,
        saliences: Floats,
        late: Floats,
        *,
        boost: bool,
    ) -> list[_Ranked]:
        now = time.time()
        ranked = [
            self._scored(hit, relevance, salience, late_score, now, boost=boost)
            for hit, relevance, salience, late_score in zip(
                found, relevances.tolist(), saliences.tolist(), _placed(late), strict=True
            )
        ]
        # Ties: more relevant, then newer, then lower id.
        ranked.sort(key=lambda hit: (-hit.score, -hit.relevance, -hit.created_at, hit.found.id))
        return ranked

    def _saliences(self, found: Sequence[storage_pb2.SearchHit], cosine: Floats) -> Floats:
        """Returns the part of each hit's surprise that counts."""
        if self._settings.surprise_version == 1:
            return np.ones(len(found))
        surprise = np.array([hit.surprise if hit.HasField("surprise") else np.nan for hit in found])
        importance = np.array([hit.importance for hit in found])
        return ranking.salience(surprise, importance, cosine)

    def _scored(
        self,
        found: storage_pb2.SearchHit,
        relevance: float,
        salience: float,
        late: Placed | None,
        now: float,
        *,
        boost: bool,
    ) -> _Ranked:
        created_at = found.created_at.seconds + found.created_at.nanos / 1e9
        decayed = ranking.decay((now - created_at) / ranking.SECONDS_A_DAY, self._settings.half_life_days)
        counts = found.surprise * salience
        score = ranking.score(relevance, counts, decayed, self._settings.decay_floor) if boost else relevance
        return _Ranked(found, score, relevance, salience, decayed, created_at, late)


class Stopwatch:
    """Tells how long one step after another took."""

    def __init__(self) -> None:
        self._since = time.perf_counter_ns()

    def lap(self, duration: Duration) -> None:
        """Writes what has passed since the last lap."""
        now = time.perf_counter_ns()
        duration.FromNanoseconds(now - self._since)
        self._since = now


def _rest_seconds(error: ServiceError, spent: float) -> float:
    """Returns how long other recalls do without an embedder after it failed one."""
    if error.reason == embedding.DEADLINE_TOO_SHORT:  # Theirs may be long enough.
        return 0.0
    return min(error.retry_seconds or REST_FACTOR * spent, REST_SECONDS)


class Placed(NamedTuple):
    """What an ArmScore has; only those that are answered become one."""

    rank: int
    score: float


class _Ranked(NamedTuple):
    found: storage_pb2.SearchHit
    score: float
    relevance: float
    salience: float
    decay: float
    created_at: float
    late_interaction: Placed | None


def _has_memory(ranked: _Ranked) -> bool:
    return ranked.found.HasField("memory")


def _hit(ranked: _Ranked) -> pb.Hit:
    found = ranked.found
    hit = pb.Hit(
        memory=found.memory,
        score=ranked.score,
        relevance=ranked.relevance,
        surprise=found.surprise,
        salience=ranked.salience,
        decay=ranked.decay,
        matched_by=found.matched_by,
    )
    if ranked.late_interaction:
        hit.late_interaction.rank, hit.late_interaction.score = ranked.late_interaction
    if found.HasField("dense"):
        hit.dense.CopyFrom(found.dense)
        hit.cosine_similarity = found.dense.score
        hit.similarity = ranking.similarity(1 - found.dense.score)
    if found.HasField("keyword"):
        hit.keyword.CopyFrom(found.keyword)
    return hit


def _scores(found: Sequence[storage_pb2.SearchHit]) -> Scores:
    rows = [np.frombuffer(hit.token_similarities, "<f4") for hit in found]
    tokens = np.full((len(found), max(map(len, rows), default=0)), np.nan)
    for place, row in enumerate(rows):
        if row.size:
            tokens[place] = row
    return Scores(
        cosine=np.array([hit.dense.score if hit.HasField("dense") else np.nan for hit in found]),
        bm25=np.array([hit.keyword.score for hit in found]),
        tokens=tokens,
    )


def _placed(late: Floats) -> list[Placed | None]:
    """Returns place and score of each hit, where late interaction says something of it."""
    placed: list[Placed | None] = [None] * len(late)
    order = np.argsort(-late, kind="stable")  # NaN comes last.
    for rank, place in enumerate(order[: np.count_nonzero(~np.isnan(late))].tolist(), 1):
        placed[place] = Placed(rank, float(late[place]))
    return placed


def _within_bytes(hits: list[pb.Hit]) -> list[pb.Hit]:
    """Returns the first hits that fit into an answer, at least one."""
    size = 0
    for index, hit in enumerate(hits):
        size += hit.ByteSize()
        if size > MAX_ANSWER_BYTES and index:
            return hits[:index]
    return hits
