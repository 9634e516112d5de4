"""What a request may be: each function checks one, and brings what it names to its stored form, in place.

All raise ServiceError INVALID_ARGUMENT naming the field, the limit and the value's size.
"""

from __future__ import annotations

import numpy as np

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError

MAX_PAGE_SIZE = 1_000
MAX_K = 10_000
MAX_NEWEST = 1_000
MAX_NEAREST = 100
MAX_SUMMARY_ITEMS = 100
MAX_VECTORS = 64
"""Of one memory's content and of its parts; those of its hints come on top."""
MAX_TOKEN_CODES_BYTES = 262_144
MAX_QUERY_TOKENS = 512
NORM_TOLERANCE = 1e-3
FLOAT32 = np.dtype("<f4")

MAX_VERSION = 2**31 - 1

UPDATABLE = (*memory_rules.FIELDS, "surprise")
"""Fields of a memory that an update may set."""

STORE_FIELDS = frozenset({"id", "content_hash", "updated_at", "deleted_at", "version", "model_revision", "pending"})
"""Fields of a memory that the store sets."""

Referring = (
    pb.GetMemoryRequest
    | pb.ListMemoryVersionsRequest
    | pb.UpdateMemoryRequest
    | pb.DeleteMemoryRequest
    | pb.UndeleteMemoryRequest
)
"""Requests about one memory."""
Embedding = pb.PutMemoryRequest | pb.UpdateMemoryRequest | pb.EmbedMemoryRequest
"""Requests that give a memory vectors and token codes."""


def put(request: pb.PutMemoryRequest, dimensions: int) -> None:
    """Checks a PutMemoryRequest."""
    for field, _ in request.memory.ListFields():
        if field.name in STORE_FIELDS:
            raise ServiceError.invalid(field.name, "is set by the store; leave it unset")
    memory_rules.normalise(request.memory)
    if request.memory.HasField("surprise"):
        _surprise(request.memory.surprise)
    memory_rules.request_id(request.request_id)
    embedding(request, dimensions)


def batch_put(request: pb.BatchPutMemoriesRequest) -> None:
    """Checks a BatchPutMemoriesRequest; each of its requests is checked by itself."""
    memory_rules.within("requests", len(request.requests), 1, MAX_PAGE_SIZE)


def find(request: pb.FindMemoryRequest) -> None:
    """Checks a FindMemoryRequest."""
    wanted = memory_pb2.Memory(
        namespace=request.namespace, content=request.content, category=request.category, key=request.key
    )
    memory_rules.normalise(wanted)
    request.namespace, request.category, request.key = wanted.namespace, wanted.category, wanted.key
    memory_rules.request_id(request.request_id)


def update(request: pb.UpdateMemoryRequest, dimensions: int) -> None:
    """Checks an UpdateMemoryRequest, and takes out of its memory what the mask does not name."""
    reference(request)
    paths = request.update_mask.paths
    memory_rules.update(request.memory, request.update_mask, UPDATABLE)
    for field, _ in request.memory.ListFields():
        if field.name not in paths:
            request.memory.ClearField(field.name)  # type: ignore[arg-type]  # It is the message's own.
    if request.memory.HasField("surprise"):
        _surprise(request.memory.surprise)
    if ("content" in paths) != (bool(request.vectors) or request.pending):
        raise ServiceError.invalid("vectors", "must be given with content, unless they are pending, and not without")
    if request.HasField("token_codes") and not request.vectors:
        raise ServiceError.invalid("token_codes", "must be given with vectors only")
    memory_rules.within("expected_version", request.expected_version, 0, MAX_VERSION)
    memory_rules.request_id(request.request_id)
    embedding(request, dimensions)


def get(request: pb.GetMemoryRequest) -> None:
    """Checks a GetMemoryRequest."""
    reference(request)
    memory_rules.timestamp("as_of", request.as_of)
    _visibility(request)


def batch_get(request: pb.BatchGetMemoriesRequest) -> None:
    """Checks a BatchGetMemoriesRequest."""
    request.namespace = memory_rules.namespace(request.namespace)
    memory_rules.within("ids", len(request.ids), 1, MAX_PAGE_SIZE)


def reference(request: Referring) -> None:
    """Checks which memory a request is about."""
    request.namespace = memory_rules.namespace(request.namespace)
    memory_rules.reference("ref", request.ref)


def change(request: pb.DeleteMemoryRequest | pb.UndeleteMemoryRequest) -> None:
    """Checks a DeleteMemoryRequest or an UndeleteMemoryRequest."""
    reference(request)
    memory_rules.request_id(request.request_id)


def purge(request: pb.PurgeMemoriesRequest) -> None:
    """Checks a PurgeMemoriesRequest."""
    request.namespace = memory_rules.namespace(request.namespace)
    memory_rules.request_id(request.request_id)
    if request.HasField("deleted_before"):
        memory_rules.timestamp("deleted_before", request.deleted_before)
    else:
        memory_rules.reference("ref", request.ref)


def list_(request: pb.ListMemoriesRequest) -> None:
    """Checks a ListMemoriesRequest; its page token is the engine's to check."""
    request.namespace = memory_rules.namespace(request.namespace)
    memory_rules.within("page_size", request.page_size, 1, MAX_PAGE_SIZE)
    if request.skip < 0:
        raise ServiceError.invalid("skip", f"must be 0 or more, is {request.skip}")
    memory_rules.search_filter(request.filter)
    _visibility(request)


def list_versions(request: pb.ListMemoryVersionsRequest) -> None:
    """Checks a ListMemoryVersionsRequest; its page token is the engine's to check."""
    reference(request)
    memory_rules.within("page_size", request.page_size, 1, MAX_PAGE_SIZE)


def search(request: pb.SearchMemoriesRequest, dimensions: int) -> None:
    """Checks a SearchMemoriesRequest."""
    request.namespace = memory_rules.namespace(request.namespace)
    if not (request.HasField("dense") or request.HasField("keyword")):
        raise ServiceError.invalid("dense", "must be set, or keyword; a search needs at least one arm")
    if request.HasField("dense"):
        vectors("dense.vector", request.dense.vector, dimensions)
        memory_rules.within("dense.k", request.dense.k, 1, MAX_K)
        revision("dense.model_revision", request.dense.model_revision)
    if request.HasField("keyword"):
        memory_rules.query("keyword.query", request.keyword.query)
        memory_rules.within("keyword.k", request.keyword.k, 1, MAX_K)
    if request.HasField("whole"):
        memory_rules.within("whole", request.whole, 0, MAX_PAGE_SIZE)
    if request.HasField("late_interaction"):
        _late_interaction(request.late_interaction, dimensions)
    memory_rules.search_filter(request.filter)


def compare(request: pb.CompareToNewestRequest, dimensions: int) -> None:
    """Checks a CompareToNewestRequest."""
    request.namespace = memory_rules.namespace(request.namespace)
    vectors("vector", request.vector, dimensions)
    memory_rules.within("newest", request.newest, 0, MAX_NEWEST)
    memory_rules.within("nearest", request.nearest, 0, MAX_NEAREST)
    if not (request.newest or request.nearest):
        raise ServiceError.invalid("newest", "must be above 0, or nearest")
    revision("model_revision", request.model_revision)


def list_unembedded(request: pb.ListUnembeddedRequest) -> None:
    """Checks a ListUnembeddedRequest."""
    memory_rules.within("page_size", request.page_size, 1, MAX_PAGE_SIZE)
    if request.token_encoding:
        memory_rules.text("token_encoding", request.token_encoding, memory_rules.MAX_NAME_BYTES)


def embed(request: pb.EmbedMemoryRequest, dimensions: int) -> None:
    """Checks an EmbedMemoryRequest."""
    request.memory.namespace = memory_rules.namespace(request.memory.namespace)
    if request.memory.HasField("surprise"):
        _surprise(request.memory.surprise)
    embedding(request, dimensions)


def summarize(request: pb.SummarizeMemoriesRequest) -> None:
    """Checks a SummarizeMemoriesRequest."""
    request.namespace = memory_rules.namespace(request.namespace)
    memory_rules.within("top_tags", request.top_tags, 1, MAX_SUMMARY_ITEMS)
    memory_rules.within("highlights", request.highlights, 1, MAX_SUMMARY_ITEMS)
    memory_rules.timestamp("since", request.since)


def embedding(request: Embedding, dimensions: int) -> None:
    """Checks what a write says of embeddings: vectors, token codes and the model that made them."""
    if request.vectors:
        vectors("vectors", request.vectors, dimensions, MAX_VECTORS)
    revision("model_revision", request.model_revision)
    if request.HasField("token_codes"):
        token_codes("token_codes", request.token_codes)
    of_hints(request, dimensions)


def of_hints(value: Embedding | maintenance_pb2.MemoryRecord, dimensions: int) -> None:
    """Checks the vectors and token codes of hints: they are all of the memory that comes with them."""
    hints = len(value.memory.hints)
    if value.hint_vectors:
        if not hints:
            raise ServiceError.invalid("hint_vectors", "must be given with memory.hints, and not without")
        vectors("hint_vectors", value.hint_vectors, dimensions, hints)
        if (rows := len(value.hint_vectors) // (dimensions * FLOAT32.itemsize)) != hints:
            raise ServiceError.invalid("hint_vectors", f"must be one for each of {hints} hints, are {rows}")
    if value.HasField("hint_token_codes"):
        if not hints:
            raise ServiceError.invalid("hint_token_codes", "must be given with memory.hints, and not without")
        token_codes("hint_token_codes", value.hint_token_codes)


def token_codes(field: str, value: pb.TokenCodes) -> None:
    """Checks the codes of tokens, which may be of any encoding."""
    memory_rules.text(f"{field}.encoding", value.encoding, memory_rules.MAX_NAME_BYTES)
    size = len(value.codes)
    if not 1 <= size <= MAX_TOKEN_CODES_BYTES:
        raise ServiceError.invalid(f"{field}.codes", f"must have 1 to {MAX_TOKEN_CODES_BYTES} bytes, has {size}")


def revision(field: str, value: str) -> None:
    """Checks what names a model; it may be empty."""
    if value:
        memory_rules.text(field, value, memory_rules.MAX_NAME_BYTES)


def vectors(field: str, value: bytes, dimensions: int, most: int = 1) -> None:
    """Checks 1 to `most` vectors: little-endian float32, finite, each of L2 norm 1 within NORM_TOLERANCE."""
    _rows(field, value, dimensions, most)
    norms = np.linalg.norm(np.frombuffer(value, FLOAT32).reshape(-1, dimensions).astype(np.float64), axis=1)
    wrong = norms[~(np.abs(norms - 1) <= NORM_TOLERANCE)]  # Not a number included.
    if wrong.size:
        raise ServiceError.invalid(field, f"must be finite and L2-normalised, has the norm {wrong[0]:g}")


def _rows(field: str, value: bytes, dimensions: int, most: int) -> None:
    """Checks that bytes are 1 to `most` rows of the store's dimensions."""
    size = dimensions * FLOAT32.itemsize
    if len(value) % size or not size <= len(value) <= most * size:
        number = f"1 to {most} vectors" if most > 1 else "one vector"
        has = f"{len(value) // FLOAT32.itemsize} float32 ({len(value)} bytes)"
        problem = f"must be {number} of {dimensions} dimensions, as this store has them, has {has}"
        way_out = f"use a model of {dimensions} dimensions, or another home with the model's `dimensions` in [storage]"
        raise ServiceError.invalid(field, f"{problem}; {way_out}")


def _late_interaction(asked: pb.LateInteraction, dimensions: int) -> None:
    field = "late_interaction.token_vectors"
    _rows(field, asked.token_vectors, dimensions, MAX_QUERY_TOKENS)
    if not np.isfinite(np.frombuffer(asked.token_vectors, FLOAT32)).all():
        raise ServiceError.invalid(field, "must be finite")
    memory_rules.within("late_interaction.depth", asked.depth, 1, MAX_PAGE_SIZE)
    revision("late_interaction.model_revision", asked.model_revision)


def _visibility(request: pb.GetMemoryRequest | pb.ListMemoriesRequest) -> None:
    if request.visibility not in memory_pb2.Visibility.values():
        raise ServiceError.invalid("visibility", f"is none that there is: {request.visibility}")
    request.visibility = request.visibility or memory_pb2.VISIBILITY_LIVE


def _surprise(surprise: memory_pb2.Surprise) -> None:
    memory_rules.fraction("surprise.score", surprise.score)
    for field, value in surprise.components.ListFields():
        memory_rules.fraction(f"surprise.components.{field.name}", value)
    if surprise.version < 0:
        raise ServiceError.invalid("surprise.version", f"must be 0 or more, is {surprise.version}")
