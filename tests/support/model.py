"""What a store must do, restated in plain Python: the rules of storage.proto over a dictionary."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from support.storage import CREATED, EXISTED, REVIVED, UPDATED, Code, Filter, Memory, Ref

DIMENSIONS = 32
COLUMNS = {"created_at": "created"}
"""What fields of a mask are called here, where they are not called the same."""
VISIBILITIES = (memory_pb2.VISIBILITY_LIVE, memory_pb2.VISIBILITY_DELETED, memory_pb2.VISIBILITY_ALL)

Outcome: TypeAlias = memory_pb2.WriteOutcome.ValueType
Embedding = pb.PutMemoryRequest | pb.UpdateMemoryRequest | pb.EmbedMemoryRequest
"""Requests that have vectors of a memory."""
Vectors = NDArray[np.float32]


class RefusedError(Exception):
    """A request that must fail, and have no effect."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True)
class Row:
    """A memory; instants in microseconds since 1970."""

    id: int
    namespace: str
    content: str
    category: str
    key: str
    tags: tuple[str, ...]
    hints: tuple[str, ...]
    memory_type: str
    status: str
    importance: float | None
    metadata: str
    """Of the caller alone, its members in order."""
    surprise: bytes
    created: int
    updated: int
    deleted: int | None
    version: int
    model_revision: str


@dataclass(frozen=True)
class Life:
    """What a memory was from `since` on, before `until`."""

    row: Row
    since: int
    until: int | None


@dataclass
class Kept:
    """A memory with what belongs to it."""

    row: Row
    since: int
    vectors: Vectors
    codes: bytes
    history: list[Life] = field(default_factory=list)
    of_hints: Vectors = field(default_factory=lambda: vectors_of(b""))
    codes_of_hints: bytes = b""

    @property
    def searched(self) -> Vectors:
        """What the dense arm looks at."""
        return np.concatenate([self.vectors, self.of_hints])

    @property
    def lives(self) -> list[Life]:
        """The newest first."""
        return [self._life(self.row.deleted), *reversed(self.history)]

    @property
    def changed(self) -> int:
        """When it was changed last."""
        return max(self.row.updated, self.row.deleted or 0, self.since)

    def record(self, *, with_vectors: bool) -> Kept:
        """What an export tells of it."""
        record = replace(self, history=[*self.history])
        if not with_vectors:
            record.row, record.vectors, record.codes = replace(self.row, model_revision=""), vectors_of(b""), b""
            record.of_hints, record.codes_of_hints = vectors_of(b""), b""
        return record

    def as_of(self, instant: int) -> Row:
        """What it was at an instant."""
        for life in self.lives:
            if life.since <= instant and (life.until is None or instant < life.until):
                return life.row
        raise RefusedError(Code.NOT_FOUND)

    def similarities(self, tokens: Vectors) -> Vectors:
        """How near the nearest of its tokens are to those of a query; empty where it has no codes."""
        own = np.frombuffer(self.codes + self.codes_of_hints, np.int8).reshape(-1, DIMENSIONS).astype(np.float32)
        if not len(own):
            return tokens[0, :0]
        unit = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1)
        best: Vectors = (unit @ tokens.T).max(axis=0)
        return best

    def lose_vectors(self) -> None:
        """Of new content they are to come."""
        self.vectors = self.of_hints = vectors_of(b"")
        self.codes = self.codes_of_hints = b""

    def lacks(self, *, with_codes: bool) -> bool:
        """Whether anything that is embedded is lacking."""
        hinted = bool(self.row.hints)
        codes = with_codes and not (self.codes and (self.codes_of_hints or not hinted))
        return not len(self.vectors) or (hinted and not len(self.of_hints)) or codes

    def takes_of_hints(self, request: Embedding, hints: tuple[str, ...]) -> bool:
        """Whether it gets the vectors of hints that a write gives, and with them its hints."""
        embedded = bool(request.vectors) or bool(len(self.vectors))
        return bool(request.hint_vectors) and embedded and (self.row.hints != hints or not len(self.of_hints))

    def take_of_hints(self, request: Embedding, before: tuple[str, ...], *, takes: bool) -> None:
        """Takes what belongs to the hints, once everything else is as it will be."""
        replaced = self.row.hints != before
        if takes or replaced:
            self.of_hints = vectors_of(request.hint_vectors if takes else b"")
        if request.hint_token_codes.codes or replaced:
            self.codes_of_hints = request.hint_token_codes.codes
        if not self.codes:
            self.codes_of_hints = b""

    def begin_life(self, now: int) -> None:
        """Moves what the memory is, or was until it was deleted, to its history."""
        begins = max(now, self.since + 1, (self.row.deleted or 0) + 1)
        self.history.append(self._life(self.row.deleted or begins))
        self.since = begins

    def touched(self, now: int) -> int:
        """When a change now happens: after the change before it, even where the clock stands or goes back."""
        return max(now, self.row.updated + 1)

    def _life(self, until: int | None) -> Life:
        return Life(replace(self.row, hints=(), deleted=None), self.since, until)


def _has_codes(request: Embedding) -> bool:
    return bool(request.token_codes.codes or request.hint_token_codes.codes)


def row_of(memory: Memory) -> Row:
    """Returns the row of a memory that the store told; its hash and its mirrored surprise must be right."""
    assert memory.content_hash == hash_of(memory.content)
    surprise = memory.surprise.SerializeToString(deterministic=True) if memory.HasField("surprise") else b""
    members = json.loads(memory.metadata or "{}")
    mirrored = members.get("_hippo", {}).pop("surprise", None)
    assert (mirrored and mirrored["score"]) == (memory.surprise.score if surprise else None)
    if not members.get("_hippo", True):
        del members["_hippo"]
    return Row(
        id=memory.id,
        namespace=memory.namespace,
        content=memory.content,
        category=memory.category,
        key=memory.key,
        tags=tuple(memory.tags),
        hints=tuple(memory.hints),
        memory_type=memory.memory_type,
        status=memory.status,
        importance=memory.importance if memory.HasField("importance") else None,
        metadata=json.dumps(members, sort_keys=True),
        surprise=surprise,
        created=memory.created_at.ToMicroseconds(),
        updated=memory.updated_at.ToMicroseconds(),
        deleted=memory.deleted_at.ToMicroseconds() if memory.HasField("deleted_at") else None,
        version=memory.version,
        model_revision=memory.model_revision,
    )


def hash_of(content: str) -> str:
    """Returns the hash that the API tells."""
    return hashlib.sha256(content.encode()).hexdigest()


def vectors_of(encoded: bytes) -> Vectors:
    """Returns the rows of a request's vectors."""
    return np.frombuffer(encoded, np.float32).reshape(-1, DIMENSIONS)


@dataclass
class Model:
    """All memories of a store by id."""

    kept: dict[int, Kept] = field(default_factory=dict)
    largest_id: int = 0
    revision: str = ""
    """Of the model of the vectors, while there are any."""

    def in_scope(
        self, namespace: str, conditions: Filter, visibility: memory_pb2.Visibility.ValueType = VISIBILITIES[0]
    ) -> list[Kept]:
        """The newest first."""
        rows = [kept for kept in self.kept.values() if kept.row.namespace == namespace]
        found = [kept for kept in rows if _visible(kept.row, visibility) and _matches(kept.row, conditions)]
        return sorted(found, key=lambda kept: (-kept.row.created, -kept.row.id))

    def find(self, namespace: str, content: str, category: str, key: str) -> Kept | None:
        """What a put of this would write to."""
        there = [kept for kept in self.kept.values() if kept.row.namespace == namespace]
        keyed = [kept for kept in there if key and (kept.row.category, kept.row.key) == (category, key)]
        same = [kept for kept in there if kept.row.content == content and not (key and kept.row.key)]
        same.sort(key=lambda kept: (kept.row.deleted is not None, bool(kept.row.key), kept.row.id))
        return next(iter([*keyed, *same]), None)

    def named(self, namespace: str, ref: Ref, visibility: memory_pb2.Visibility.ValueType) -> list[Kept]:
        """What a reference names; the first is the one that a get returns."""
        rows = [kept for kept in self.kept.values() if kept.row.namespace == namespace and _names(ref, kept.row)]
        found = [kept for kept in rows if _visible(kept.row, visibility)]
        if not found:
            raise RefusedError(Code.NOT_FOUND)
        return sorted(found, key=lambda kept: (kept.row.deleted is not None, bool(kept.row.key), kept.row.id))

    def put(self, request: pb.PutMemoryRequest, now: int) -> tuple[Row, Outcome]:
        """Returns what the memory is afterwards, and the outcome."""
        given = request.memory
        kept = self.find(given.namespace, given.content, given.category, given.key)
        before: tuple[str, ...]
        outcome: Outcome
        if kept and kept.row.deleted is None and kept.row.content == given.content:
            before = kept.row.hints
            hints = tuple(given.hints) if given.key or given.hints else before
            takes = kept.takes_of_hints(request, hints)
            if takes or _has_codes(request) or (request.vectors and not len(kept.vectors)):
                self._take_model(request.model_revision)
            self._merge(kept, request, now)
            kept.take_of_hints(request, before, takes=takes)
            return kept.row, EXISTED
        keeps = bool(kept and len(kept.vectors) and kept.row.content == given.content and not request.vectors)
        if not (request.vectors or request.pending):
            raise RefusedError(Code.FAILED_PRECONDITION)
        takes = bool(request.hint_vectors and (keeps or request.vectors)) and not (
            kept and kept.row.hints == tuple(given.hints) and len(kept.of_hints)
        )
        if request.vectors or takes or _has_codes(request):
            self._take_model(request.model_revision)
        if kept is None:
            kept = Kept(self._given(self._next_id(), request, "{}", now, now, 1), now, vectors_of(b""), b"")
            self.kept[kept.row.id] = kept
            before, outcome = (), CREATED
        else:
            before, outcome = kept.row.hints, self._replace(kept, request, now)
        if request.vectors:
            kept.vectors = vectors_of(request.vectors)
        elif not keeps:
            kept.lose_vectors()
        kept.codes = request.token_codes.codes or kept.codes
        kept.take_of_hints(request, before, takes=takes)
        return kept.row, outcome

    def _replace(self, kept: Kept, request: pb.PutMemoryRequest, now: int) -> Outcome:
        before, updated = kept.row, kept.touched(now)
        kept.begin_life(now)
        changed = before.content != request.memory.content
        created = now if before.deleted else before.created
        kept.row = self._given(before.id, request, before.metadata, updated, created, before.version + changed)
        if before.key:
            kept.row = replace(kept.row, category=before.category, key=before.key)
        if not (changed or request.vectors) and len(kept.vectors):
            surprise = kept.row.surprise or before.surprise
            kept.row = replace(kept.row, model_revision=before.model_revision, surprise=surprise)
        kept.codes = b"" if changed else kept.codes
        return REVIVED if before.deleted else UPDATED

    def _given(
        self, memory_id: int, request: pb.PutMemoryRequest, metadata: str, now: int, created: int, version: int
    ) -> Row:
        memory = Memory()
        memory.CopyFrom(request.memory)
        memory.id, memory.version = memory_id, version
        memory.model_revision = request.model_revision if request.vectors else ""
        memory.content_hash = hash_of(memory.content)
        memory.updated_at.FromMicroseconds(now)
        if not memory.HasField("created_at"):
            memory.created_at.FromMicroseconds(created)
        row = row_of_given(memory)
        return replace(row, metadata=_with_others(metadata, row.metadata))

    def _merge(self, kept: Kept, request: pb.PutMemoryRequest, now: int) -> None:
        before, given, revision = kept.row, row_of_given(request.memory), kept.row.model_revision
        row = replace(
            before,
            category=given.category if given.key or not before.key else before.category,
            key=given.key or before.key,
            tags=tuple(dict.fromkeys([*before.tags, *given.tags])),
            memory_type=given.memory_type or before.memory_type,
            status=given.status or before.status,
            importance=before.importance if given.importance is None else given.importance,
            metadata=_with_others(before.metadata, given.metadata) if request.memory.metadata else before.metadata,
        )
        if not given.key and not given.category:
            row = replace(row, category=before.category)
        if request.vectors and not len(kept.vectors):
            row = replace(row, surprise=before.surprise or given.surprise)
            kept.vectors, revision = vectors_of(request.vectors), request.model_revision
        if row != before:
            row = replace(row, updated=kept.touched(now))
        row = replace(row, model_revision=revision)
        kept.row = replace(row, hints=given.hints if given.key or given.hints else before.hints)
        kept.codes = request.token_codes.codes or kept.codes

    def update(self, request: pb.UpdateMemoryRequest, now: int) -> tuple[Row, bool]:
        """Returns what the memory is afterwards, or would be, and whether that differs."""
        kept = self.named(request.namespace, request.ref, memory_pb2.VISIBILITY_LIVE)[0]
        before, given = kept.row, row_of_given(request.memory)
        if request.expected_version not in {0, before.version}:
            raise RefusedError(Code.ABORTED)
        row = _masked(before, given, request)
        changed = row.content != before.content
        embeds = bool(request.vectors) and (changed or not len(kept.vectors))
        pends = changed and not request.vectors
        row = replace(row, version=before.version + changed)
        if embeds:
            row = replace(row, model_revision=request.model_revision)
        elif pends:
            scored = "surprise" in request.update_mask.paths
            row = replace(row, model_revision="", surprise=row.surprise if scored else b"")
        if replace(row, hints=()) != replace(before, hints=()):
            row = replace(row, updated=kept.touched(now))
        self._check_free(row)
        takes = kept.takes_of_hints(request, row.hints) and not pends
        if embeds or takes or _has_codes(request):
            self._take_model(request.model_revision, dry_run=request.dry_run)
        codes = request.token_codes.codes if embeds else kept.codes
        of_hints = request.hint_token_codes.codes or (kept.codes_of_hints if row.hints == before.hints else b"")
        different = codes != kept.codes or (bool(kept.codes) and of_hints != kept.codes_of_hints)
        if not request.dry_run:
            if changed:
                kept.begin_life(now)
            kept.row, kept.codes = row, codes
            if embeds:
                kept.vectors = vectors_of(request.vectors)
            elif pends:
                kept.lose_vectors()
            kept.take_of_hints(request, before.hints, takes=takes)
        return row, embeds or takes or different or row != before

    def embed(self, request: pb.EmbedMemoryRequest) -> bool:
        """Returns whether the memory lacked anything of that, and still is what the request says."""
        kept, read = self.kept.get(request.memory.id), request.memory
        if kept is None or (kept.row.namespace, kept.row.version) != (read.namespace, read.version):
            return False
        if kept.row.deleted is not None or kept.row.hints != tuple(read.hints):
            return False
        embeds = bool(request.vectors) and not len(kept.vectors)
        takes = kept.takes_of_hints(request, kept.row.hints) and (embeds or len(kept.vectors) > 0)
        codes = request.token_codes.codes or kept.codes
        of_hints = request.hint_token_codes.codes if codes else b""
        different = codes != kept.codes or of_hints not in {b"", kept.codes_of_hints}
        if not (embeds or takes or different):
            return False
        self._take_model(request.model_revision)
        if embeds:
            surprise = kept.row.surprise or row_of_given(read).surprise
            kept.row = replace(kept.row, surprise=surprise, model_revision=request.model_revision)
            kept.vectors = vectors_of(request.vectors)
        kept.codes = codes
        kept.take_of_hints(request, kept.row.hints, takes=takes)
        return True

    def unembedded(self, *, with_codes: bool) -> list[int]:
        """The ids of live memories that lack vectors, or where asked for int8 codes."""
        live = [kept for kept in self.kept.values() if kept.row.deleted is None]
        return sorted(kept.row.id for kept in live if kept.lacks(with_codes=with_codes))

    def _take_model(self, revision: str, *, dry_run: bool = False) -> None:
        if any(len(kept.vectors) for kept in self.kept.values()) and self.revision not in {"", revision}:
            raise RefusedError(Code.FAILED_PRECONDITION)
        if not dry_run:
            self.revision = revision

    def _check_free(self, row: Row) -> None:
        others = [kept.row for kept in self.kept.values() if kept.row.id != row.id]
        if identity(row) != identity(self.kept[row.id].row) and identity(row) in map(identity, others):
            raise RefusedError(Code.ALREADY_EXISTS)

    def delete(self, namespace: str, ref: Ref, now: int, *, dry_run: bool) -> list[int]:
        """Returns the ids of what was deleted, or would be."""
        named = self.named(namespace, ref, memory_pb2.VISIBILITY_LIVE)
        for kept in named if not dry_run else ():
            kept.row = replace(kept.row, deleted=max(now, kept.since + 1))
        return [kept.row.id for kept in named]

    def undelete(self, namespace: str, ref: Ref, now: int, *, dry_run: bool) -> list[int]:
        """Returns the ids of what came back, or would."""
        named = self.named(namespace, ref, memory_pb2.VISIBILITY_DELETED)
        for kept in named if not dry_run else ():
            kept.begin_life(now)
            kept.row = replace(kept.row, deleted=None)
        return [kept.row.id for kept in named]

    def purge(self, request: pb.PurgeMemoriesRequest) -> list[int]:
        """Returns the ids of what was erased, or would be."""
        if request.HasField("ref"):
            named = self.named(request.namespace, request.ref, memory_pb2.VISIBILITY_ALL)
        else:
            deleted = self.in_scope(request.namespace, Filter(), memory_pb2.VISIBILITY_DELETED)
            before = request.deleted_before.ToMicroseconds()
            named = [kept for kept in deleted if (kept.row.deleted or 0) < before]
        ids = sorted(kept.row.id for kept in named)
        for memory_id in ids if not request.dry_run else ():
            del self.kept[memory_id]
        return ids

    def take_in(self, records: Iterable[Kept]) -> tuple[int, int, int]:
        """Returns how many memories of another store were taken in, were there already, and are of another model."""
        taken = kept = refused = 0
        for record in records:
            there = next((old for old in self.kept.values() if identity(old.row) == identity(record.row)), None)
            if there and there.changed >= record.changed:
                kept += 1
                continue
            try:
                if len(record.vectors):
                    self._take_model(record.row.model_revision)
            except RefusedError:
                refused += 1
                continue
            taken += 1
            self._take(record, there.row.id if there else self._next_id())
        return taken, kept, refused

    def _take(self, record: Kept, memory_id: int) -> None:
        history = [replace(life, row=replace(life.row, id=memory_id)) for life in record.history]
        self.kept[memory_id] = replace(record, row=replace(record.row, id=memory_id), history=history)

    def _next_id(self) -> int:
        self.largest_id += 1
        return self.largest_id

    def nearest(self, scope: Iterable[Kept], query: Vectors) -> list[tuple[int, float]]:
        """Ids with the cosine of the nearest vector of each, best first."""
        found = [(kept, float((kept.searched @ query).max())) for kept in scope if len(kept.searched)]
        found.sort(key=lambda pair: (-pair[1], -pair[0].row.created, pair[0].row.id))
        return [(kept.row.id, cosine) for kept, cosine in found]

    def summary(self, namespace: str, since: int) -> memory_pb2.Summary:
        """Over the live memories created since then, with all of their types, tags and scores."""
        rows = [kept.row for kept in self.in_scope(namespace, Filter()) if kept.row.created >= since]
        scored = [(memory_pb2.Surprise.FromString(row.surprise).score, row) for row in rows if row.surprise]
        scored.sort(key=lambda pair: (-pair[0], -pair[1].created, pair[1].id))
        tags = Counter(tag for row in rows for tag in row.tags)
        return memory_pb2.Summary(
            total_memories=len(rows),
            by_type=Counter(row.memory_type for row in rows),
            top_tags=[
                memory_pb2.TagCount(tag=tag, count=count)
                for tag, count in sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
            ],
            highlights=[Memory(id=row.id) for _, row in scored],
            mean_surprise=sum(score for score, _ in scored) / len(scored) if scored else 0,
        )


def identity(row: Row) -> tuple[str, ...]:
    """Returns what only one memory has."""
    return (row.namespace, row.category, row.key) if row.key else (row.namespace, row.content)


def words(row: Row) -> set[str]:
    """Returns what the keyword arm finds a memory by."""
    return {word for text in (row.content, *row.hints) for word in text.split()}


def row_of_given(memory: Memory) -> Row:
    """Returns the row that a request's memory would be."""
    copied = Memory()
    copied.CopyFrom(memory)
    copied.content_hash = hash_of(memory.content)
    copied.ClearField("surprise")
    row = row_of(copied)
    scored = memory.HasField("surprise")
    return replace(row, surprise=memory.surprise.SerializeToString(deterministic=True) if scored else b"")


def _masked(before: Row, given: Row, request: pb.UpdateMemoryRequest) -> Row:
    """Returns the row with the fields that the mask names."""
    masked = {COLUMNS.get(name, name) for name in request.update_mask.paths}
    row = replace(before, **{name: getattr(given, name) for name in masked})
    return replace(row, metadata=_with_others(before.metadata, given.metadata)) if "metadata" in masked else row


def _with_others(stored: str, given: str) -> str:
    """Returns the given metadata; what others keep under `_hippo` survives it."""
    kept, members = json.loads(stored).get("_hippo", {}), json.loads(given)
    if kept:
        members["_hippo"] = {**kept, **members.get("_hippo", {})}
    return json.dumps(members, sort_keys=True)


def _visible(row: Row, visibility: memory_pb2.Visibility.ValueType) -> bool:
    if visibility == memory_pb2.VISIBILITY_ALL:
        return True
    return (row.deleted is not None) == (visibility == memory_pb2.VISIBILITY_DELETED)


def _names(ref: Ref, row: Row) -> bool:
    if ref.HasField("entity"):
        return bool(row.key) and (row.category, row.key) == (ref.entity.category, ref.entity.key)
    return row.id == ref.id if ref.HasField("id") else hash_of(row.content) == ref.content_hash


def _matches(row: Row, conditions: Filter) -> bool:
    return (
        (not conditions.tags_any or bool({*conditions.tags_any} & {*row.tags}))
        and {*conditions.tags_all} <= {*row.tags}
        and _among(row.memory_type, conditions.memory_types)
        and _among(row.category, conditions.categories)
        and _among(row.status, conditions.statuses)
        and (not conditions.HasField("created_since") or row.created >= conditions.created_since.ToMicroseconds())
        and (not conditions.HasField("created_before") or row.created < conditions.created_before.ToMicroseconds())
    )


def _among(value: str, wanted: Sequence[str]) -> bool:
    return not wanted or value in wanted
