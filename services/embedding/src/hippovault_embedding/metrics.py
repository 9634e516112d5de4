"""Prometheus metrics of embedding. Labels name models, lanes and reasons, nothing that a caller sends."""

from __future__ import annotations

from functools import partial

from prometheus_client import Counter, Gauge, Histogram

from hippovault_chassis.metrics import SECONDS_BUCKETS
from hippovault_embedding.lane import Lane

MODEL = ("model",)
LANE = (*MODEL, "lane")
QUERY = "query"
DOCUMENT = "document"
TOKENS_BUCKETS = tuple(2.0**power for power in range(3, 16))

QUEUE_TEXTS = Gauge("hippovault_embedding_queue_texts", "Texts that wait; each window of a long one counts.", LANE)
QUEUE_TOKENS = Gauge("hippovault_embedding_queue_tokens", "Tokens that wait.", LANE)
QUEUE_SECONDS = Histogram(
    "hippovault_embedding_queue_seconds",
    "How long the texts of a call waited, at the longest, for their inference.",
    LANE,
    buckets=SECONDS_BUCKETS,
)
TOKENIZE_SECONDS = Histogram(
    "hippovault_embedding_tokenize_seconds", "Tokenising the texts of a call.", MODEL, buckets=SECONDS_BUCKETS
)
INFERENCE_SECONDS = Histogram(
    "hippovault_embedding_inference_seconds", "Computing a batch.", MODEL, buckets=SECONDS_BUCKETS
)
INFERENCE_FAILURES = Counter("hippovault_embedding_inference_failures", "Batches that failed.", MODEL)
BATCH_TEXTS = Histogram("hippovault_embedding_batch_texts", "Texts of a batch.", MODEL, buckets=TOKENS_BUCKETS)
BATCH_TOKENS = Histogram(
    "hippovault_embedding_batch_tokens", "Tokens of a batch, padding included.", MODEL, buckets=TOKENS_BUCKETS
)
PADDING_TOKENS = Counter("hippovault_embedding_padding_tokens", "Tokens of batches that are padding.", MODEL)
CACHE_LOOKUPS = Counter("hippovault_embedding_cache_lookups", "Texts looked up.", (*MODEL, "result"))
REFUSALS = Counter("hippovault_embedding_refusals", "Calls that the queue refused.", (*MODEL, "reason"))
LOAD_SECONDS = Histogram(
    "hippovault_embedding_load_seconds", "Bringing a model into memory.", MODEL, buckets=SECONDS_BUCKETS
)
LOAD_FAILURES = Counter("hippovault_embedding_load_failures", "Attempts to load a model that failed.", MODEL)
UNLOADS = Counter("hippovault_embedding_unloads", "Times that an idle model left memory.", MODEL)


class ModelMetrics:
    """Those of one model; whoever asks for a model's gets the same series.

    Args:
        model: Its name.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self.cache_hits, self.cache_misses = CACHE_LOOKUPS.labels(model, "hit"), CACHE_LOOKUPS.labels(model, "miss")
        self.tokenize_seconds = TOKENIZE_SECONDS.labels(model)
        self.query_queue_seconds = QUEUE_SECONDS.labels(model, QUERY)
        self.document_queue_seconds = QUEUE_SECONDS.labels(model, DOCUMENT)
        self.batch_texts, self.batch_tokens = BATCH_TEXTS.labels(model), BATCH_TOKENS.labels(model)
        self.padding_tokens = PADDING_TOKENS.labels(model)
        self.inference_seconds = INFERENCE_SECONDS.labels(model)
        self.inference_failures = INFERENCE_FAILURES.labels(model)
        self.load_seconds, self.load_failures = LOAD_SECONDS.labels(model), LOAD_FAILURES.labels(model)
        self.unloads = UNLOADS.labels(model)

    def watch(self, queries: Lane, documents: Lane) -> None:
        """Tells what waits in these lanes, whenever someone asks; counting it would cost every call."""
        for name, lane in ((QUERY, queries), (DOCUMENT, documents)):
            QUEUE_TEXTS.labels(self._model, name).set_function(lane.__len__)
            QUEUE_TOKENS.labels(self._model, name).set_function(partial(getattr, lane, "tokens"))

    def refused(self, reason: str) -> None:
        """Counts a call that was not queued."""
        REFUSALS.labels(self._model, reason).inc()
