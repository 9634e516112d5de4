"""The tables, and how a file of any age becomes one of today.

`memories`, `memory_embeddings`, `memory_associations`, `memory_clusters` and `metadata` are those of claude-hippo and
of mcp-memory-service's base schema, so that an unencrypted file swaps both ways. What is ours stands beside them in
tables whose names begin with `hippo_`; columns and tables that are neither are left alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import grpc

from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import query
from hippovault_storage.sqlite.text import TOKENIZER

MAGIC = b"SQLite format 3\0"
USER_VERSION_AT = 60
USER_VERSION_BYTES = 4
HEADER_BYTES = 100

DROP_IN = """
CREATE TABLE IF NOT EXISTS memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content_hash TEXT UNIQUE NOT NULL,
    content TEXT NOT NULL,
    tags TEXT,
    memory_type TEXT,
    metadata TEXT,
    created_at REAL,
    updated_at REAL,
    created_at_iso TEXT,
    updated_at_iso TEXT,
    deleted_at REAL DEFAULT NULL
);
CREATE INDEX IF NOT EXISTS idx_content_hash ON memories(content_hash);
CREATE INDEX IF NOT EXISTS idx_created_at ON memories(created_at);
CREATE INDEX IF NOT EXISTS idx_memory_type ON memories(memory_type);
CREATE INDEX IF NOT EXISTS idx_deleted_at ON memories(deleted_at);
CREATE TABLE IF NOT EXISTS metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS memory_associations (
    from_id INTEGER NOT NULL,
    to_id INTEGER NOT NULL,
    weight REAL NOT NULL,
    last_reinforced REAL NOT NULL,
    PRIMARY KEY (from_id, to_id)
);
CREATE INDEX IF NOT EXISTS idx_assoc_from ON memory_associations(from_id);
CREATE INDEX IF NOT EXISTS idx_assoc_to ON memory_associations(to_id);
CREATE TABLE IF NOT EXISTS memory_clusters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    centroid_blob BLOB NOT NULL,
    size INTEGER NOT NULL DEFAULT 0,
    last_recomputed REAL NOT NULL
);
CREATE VIRTUAL TABLE IF NOT EXISTS memory_embeddings USING vec0(
    content_embedding FLOAT[{dimensions}] distance_metric=cosine
);
"""

# hippo_memories repeats what a scope looks at, so that no scope reads the wide rows, and what reading would have to
# parse: the surprise, and whether the metadata is a JSON object (another program may have written anything). Its
# updated_at and deleted_at also tell, at open, which rows another program has changed. Its content index is not unique,
# since two other programs that hash differently may each have written the same content; the writer sees to it for ours.
OURS = f"""
CREATE TABLE hippo_memories (
    memory_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    category TEXT NOT NULL,
    key TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    hints TEXT NOT NULL,
    importance REAL,
    has_metadata INTEGER NOT NULL,
    surprise REAL,
    embedding_outlier REAL,
    engagement REAL,
    explicit REAL,
    prediction_loss REAL,
    scoring_version INTEGER,
    version INTEGER NOT NULL,
    model_revision TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL,
    deleted_at REAL
);
CREATE UNIQUE INDEX hippo_memories_key ON hippo_memories(namespace, category, key) WHERE key <> '';
CREATE INDEX hippo_memories_content ON hippo_memories(namespace, content_hash);
CREATE INDEX hippo_memories_newest ON hippo_memories(namespace, deleted_at, created_at);
CREATE INDEX hippo_memories_seen ON memories(id, updated_at, deleted_at);
CREATE TABLE hippo_tags (
    tag TEXT NOT NULL,
    memory_id INTEGER NOT NULL,
    PRIMARY KEY (tag, memory_id)
) WITHOUT ROWID;
CREATE INDEX hippo_tags_memory ON hippo_tags(memory_id);
CREATE VIRTUAL TABLE hippo_fts USING fts5(
    body, hints, content='', contentless_delete=1, tokenize="{TOKENIZER}"
);
"""

MIGRATIONS = (DROP_IN + OURS,)
"""What turns a file of version N into one of version N + 1, at index N."""

SCHEMA_VERSION = len(MIGRATIONS)

COLUMNS = {
    "id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at", "updated_at", "created_at_iso",
    "updated_at_iso",
}  # fmt: skip
"""What `memories` must have when another program made it; `deleted_at` is added where it is missing."""


def check_file(path: Path) -> None:
    """Looks at a file's first bytes, before SQLite may touch it.

    Raises:
        ServiceError: It is no SQLite database, or of a newer schema version.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if not header.startswith(MAGIC) or len(header) < HEADER_BYTES:
        raise _refused("NOT_A_DATABASE", f"{path} is not a SQLite database, or it is encrypted")
    _check_version(path, int.from_bytes(header[USER_VERSION_AT : USER_VERSION_AT + USER_VERSION_BYTES], "big"))


def check(connection: apsw.Connection, path: Path, dimensions: int) -> None:
    """Looks at an open file, before anything is written to it.

    Raises:
        ServiceError: It is of a newer schema version, its `memories` lacks columns, or its vectors have other
            dimensions or another distance.
    """
    _check_version(path, version(connection))  # Once more: the header's last change may still be in the log.
    columns = _columns(connection)
    if columns and not columns >= COLUMNS:
        missing = ", ".join(sorted(COLUMNS - columns))
        raise _refused("UNKNOWN_SCHEMA", f"{path}: the table memories lacks {missing}")
    made_by = query.value(connection, "SELECT sql FROM sqlite_schema WHERE name = 'memory_embeddings'")
    if made_by:
        _check_vectors(path, str(made_by), dimensions)


def migrate(connection: apsw.Connection, dimensions: int) -> None:
    """Brings the file to SCHEMA_VERSION, each step in a transaction of its own."""
    for number in range(version(connection), SCHEMA_VERSION):
        with connection:
            if "deleted_at" not in (_columns(connection) or {"deleted_at"}):
                connection.execute("ALTER TABLE memories ADD COLUMN deleted_at REAL DEFAULT NULL")
            query.rows(connection, MIGRATIONS[number].format(dimensions=dimensions))
            connection.execute(f"PRAGMA user_version = {number + 1}")


def version(connection: apsw.Connection) -> int:
    """Returns the file's schema version; 0 when this program has never opened it."""
    return int(connection.pragma("user_version"))


def _columns(connection: apsw.Connection) -> set[str]:
    return set(query.column(connection, "SELECT name FROM pragma_table_info('memories')"))


def _check_version(path: Path, found: int) -> None:
    if found > SCHEMA_VERSION:
        raise _refused(
            "NEWER_SCHEMA",
            f"{path} has schema version {found}, this program knows up to {SCHEMA_VERSION}; use a newer program",
        )


def _check_vectors(path: Path, made_by: str, dimensions: int) -> None:
    declared = re.search(r"content_embedding\s+float\s*\[\s*(\d+)\s*\]", made_by, re.IGNORECASE)
    if declared is None or int(declared[1]) != dimensions:
        found = declared[1] if declared else "unknown"
        raise _refused(
            "OTHER_DIMENSIONS",
            f"{path} holds vectors of {found} dimensions, this program is set to {dimensions}; "
            "use the model that the file was made with",
        )
    if not re.search(r"distance_metric\s*=\s*cosine", made_by, re.IGNORECASE):
        raise _refused("OTHER_DISTANCE", f"{path}: the table memory_embeddings measures another distance than cosine")


def _refused(reason: str, message: str) -> ServiceError:
    return ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)
