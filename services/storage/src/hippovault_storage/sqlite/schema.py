"""The tables, and how a file of any age becomes one of today.

`memories`, `memory_embeddings`, `memory_associations`, `memory_clusters` and `metadata` are those of claude-hippo and
of mcp-memory-service's base schema, so that an unencrypted file swaps both ways. What is ours stands beside them in
tables whose names begin with `hippo_`; columns and tables that are neither are left alone.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import apsw

from hippovault_chassis.errors import ServiceError
from hippovault_storage.sqlite import connections, faults, foreign, query
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
"""

VECTORS = """
CREATE VIRTUAL TABLE IF NOT EXISTS memory_embeddings USING vec0(
    content_embedding FLOAT[{dimensions}] distance_metric=cosine
);
"""

WORDS = f"""
CREATE VIRTUAL TABLE hippo_fts USING fts5(
    body, hints, content='', contentless_delete=1, tokenize="{TOKENIZER}"
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
{WORDS}
"""

# The history has what a memory was before its content changed, it was deleted or it came back; `since` and `until` are
# instants of this store's clock, whatever created_at says. hippo_vectors has every vector of a memory as float16: place
# 0 repeats the one that vec0 has, in a form that can be read in a tenth of the time, further places are of parts of the
# content. Its rows never change and its ids are never used again, so the largest tells what is in memory already.
ENTITIES_AND_VECTORS = """
ALTER TABLE hippo_memories ADD COLUMN status TEXT NOT NULL DEFAULT '';
ALTER TABLE hippo_memories ADD COLUMN since REAL;
UPDATE hippo_memories SET since = coalesce(updated_at, created_at);
CREATE TABLE hippo_history (
    memory_id INTEGER NOT NULL,
    since REAL NOT NULL,
    until REAL NOT NULL,
    version INTEGER NOT NULL,
    category TEXT NOT NULL,
    key TEXT NOT NULL,
    content TEXT NOT NULL,
    tags TEXT,
    memory_type TEXT NOT NULL,
    importance REAL,
    metadata TEXT,
    status TEXT NOT NULL,
    model_revision TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL
);
CREATE INDEX hippo_memories_all ON hippo_memories(namespace, created_at);
CREATE UNIQUE INDEX hippo_history_since ON hippo_history(memory_id, since);
CREATE TABLE hippo_vectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id INTEGER NOT NULL,
    place INTEGER NOT NULL,
    vector BLOB NOT NULL
);
CREATE UNIQUE INDEX hippo_vectors_memory ON hippo_vectors(memory_id, place);
CREATE TABLE hippo_token_codes (memory_id INTEGER PRIMARY KEY, encoding TEXT NOT NULL, codes BLOB NOT NULL);
CREATE TABLE hippo_state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""

# The tokens of hints are told apart from those of the content: each goes with what it is of. hippo_requests keeps for a
# day what writes with a request_id answered: nothing of a content but a digest of the request, and not even that once
# the memory is purged. Its memory_id is that of the memory that was written.
TOKENS_OF_HINTS_AND_REQUESTS = """
ALTER TABLE hippo_token_codes ADD COLUMN hint_encoding TEXT;
ALTER TABLE hippo_token_codes ADD COLUMN hint_codes BLOB;
CREATE TABLE hippo_requests (
    namespace TEXT NOT NULL,
    request_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    memory_id INTEGER,
    answer BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (namespace, request_id)
) WITHOUT ROWID;
CREATE INDEX hippo_requests_memory ON hippo_requests(memory_id);
CREATE INDEX hippo_requests_at ON hippo_requests(at);
"""

MIGRATIONS = (DROP_IN + VECTORS + OURS, ENTITIES_AND_VECTORS, TOKENS_OF_HINTS_AND_REQUESTS)
"""What turns a file of version N into one of version N + 1, at index N."""

SCHEMA_VERSION = len(MIGRATIONS)

NAMED_TABLES = (
    *("memories", "memory_embeddings", "memory_associations"),
    *(
        "hippo_memories",
        "hippo_tags",
        "hippo_fts",
        "hippo_history",
        "hippo_vectors",
        "hippo_token_codes",
        "hippo_state",
        "hippo_requests",
    ),
)
"""Tables whose columns this program's statements name."""

ADDED = {"deleted_at"}
"""What a migration adds to `memories` where it is missing."""


DECLARED = re.compile(r"content_embedding\s+float\s*\[\s*(\d+)\s*\]", re.IGNORECASE)
"""How a table of vectors says how long they are."""


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
        raise ServiceError.refused("NOT_A_DATABASE", f"{path} is not a SQLite database, or it is encrypted")
    _check_version(path, int.from_bytes(header[USER_VERSION_AT : USER_VERSION_AT + USER_VERSION_BYTES], "big"))


def check(connection: apsw.Connection, path: Path, dimensions: int) -> None:
    """Looks at an open file, before anything is written to it.

    Raises:
        ServiceError: It is of a newer schema version or damaged, something in it has a name that this program needs, a
            table or a column is missing, or it has vectors of other dimensions or another distance.
    """
    file_version = version(connection)
    _check_version(path, file_version)  # Once more: the header's last change may still be in the log.
    with contextlib.closing(connections.connect(Path(":memory:"))) as example:
        migrate(example, dimensions, file_version)
        made, columns = _objects(example), {table: _columns(example, table) for table in NAMED_TABLES}
        migrate(example, dimensions)
        _check_names(path, _objects(connection), made, _objects(example), file_version)
        for table in NAMED_TABLES:
            needed = columns[table] or _columns(example, table)
            _check_columns(path, table, _columns(connection, table), needed - ADDED)
    if not file_version:  # Once in a file's life: it reads the whole file.
        check_pages(connection, path)
    made_by = _made_by(connection)
    if made_by:
        if not (file_version and _has_no_vectors(connection)):  # Then they may get another length, see `fit`.
            _check_vectors(path, made_by, dimensions)
        further = {name.lower() for name in foreign.vector_columns(connection)}
        _check_columns(path, "memories", _columns(connection, "memories"), further)


def check_pages(connection: apsw.Connection, path: Path) -> None:
    """Looks at every page of an open file.

    Raises:
        ServiceError: DATA_LOSS when they do not make a database.
    """
    problems = query.column(connection, "PRAGMA quick_check")
    # Whether another program's word index agrees with its text is no concern of ours.
    problem = next((text for text in problems if text != "ok" and "inverted index" not in text), None)
    if problem:
        raise faults.damaged(path, f"SQLite: {' '.join(problem.split())}")


def migrate(connection: apsw.Connection, dimensions: int, target: int = SCHEMA_VERSION) -> None:
    """Brings the file to a schema version, each step in a transaction of its own."""
    for number in range(version(connection), target):
        with connection:
            if "deleted_at" not in (_columns(connection, "memories") or ADDED):
                connection.execute("ALTER TABLE memories ADD COLUMN deleted_at REAL DEFAULT NULL")
            query.rows(connection, MIGRATIONS[number].format(dimensions=dimensions))
            connection.execute(f"PRAGMA user_version = {number + 1}")


def fit(connection: apsw.Connection, length: int) -> None:
    """Makes the table of vectors anew where it is empty and of another length: with the first one that is fixed."""
    if dimensions(connection) != length and _has_no_vectors(connection):
        with connection:
            connection.execute("DROP TABLE memory_embeddings")
            connection.execute(VECTORS.format(dimensions=length))


def version(connection: apsw.Connection) -> int:
    """Returns the file's schema version; 0 when this program has never opened it."""
    return int(connection.pragma("user_version"))


def dimensions(connection: apsw.Connection) -> int:
    """Returns the length of a file's vectors; 0 where it has no table of them."""
    found = DECLARED.search(_made_by(connection))
    return int(found[1]) if found else 0


def tables(connection: apsw.Connection) -> list[str]:
    """Returns the names of all tables that have rows of their own."""
    return query.column(connection, "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")


def foreign_names(connection: apsw.Connection, dimensions: int) -> list[str]:
    """Returns the tables, and the columns of `memories` with values, that are no part of this program's schema."""
    with contextlib.closing(connections.connect(Path(":memory:"))) as example:
        migrate(example, dimensions)
        known, columns = {*tables(example)}, _columns(example, "memories")
    ours = ("sqlite_", "memory_embeddings_")
    others = [name for name in tables(connection) if name not in known and not name.startswith(ours)]
    used = 'SELECT EXISTS(SELECT 1 FROM memories WHERE "{}" IS NOT NULL)'
    further = sorted(_columns(connection, "memories") - columns)
    return others + [f"memories.{name}" for name in further if query.value(connection, used.format(name))]


def _has_no_vectors(connection: apsw.Connection) -> bool:
    return not query.value(connection, "SELECT EXISTS (SELECT 1 FROM memory_embeddings_rowids)")


def _made_by(connection: apsw.Connection) -> str:
    return str(query.value(connection, "SELECT sql FROM sqlite_schema WHERE name = 'memory_embeddings'") or "")


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    return set(query.column(connection, "SELECT lower(name) FROM pragma_table_info(?)", (table,)))


def _objects(connection: apsw.Connection) -> dict[str, str]:
    """Returns the kind of every table, view and index by its name."""
    return dict(query.rows(connection, "SELECT lower(name), type FROM sqlite_schema WHERE type <> 'trigger'"))


def _check_names(
    path: Path, found: dict[str, str], made: dict[str, str], needed: dict[str, str], file_version: int
) -> None:
    """Looks whether what is there is of the kind needed, and nothing is in the way or missing.

    Args:
        path: The file.
        found: The kind of what is in it, by name.
        made: What a file of its version has.
        needed: What a file of SCHEMA_VERSION has.
        file_version: Its version.
    """
    for name, kind in needed.items():
        there = found.get(name, kind)
        if there != kind:
            raise ServiceError.refused(
                "NAME_TAKEN", f"{path}: {name} is {_article(there)}, this program needs it for {_article(kind)}"
            )
        to_be_made = name not in made and (
            name.startswith("hippo_") or (name.startswith("memory_embeddings_") and "memory_embeddings" not in found)
        )
        if to_be_made and name in found:
            raise ServiceError.refused(
                "NAME_TAKEN", f"{path}: the {kind} {name} is another program's, this program needs its name"
            )
    missing = [name for name in NAMED_TABLES if name in made and name != "memory_associations" and name not in found]
    if missing:
        raise ServiceError.refused(
            "UNKNOWN_SCHEMA",
            f"{path} has schema version {file_version} but no table {', '.join(missing)}; "
            "another program may have set its user_version",
        )


def _article(kind: str) -> str:
    return f"{'an' if kind == 'index' else 'a'} {kind}"


def _check_columns(path: Path, table: str, found: set[str], needed: set[str]) -> None:
    if found and not found >= needed:
        raise ServiceError.refused(
            "UNKNOWN_SCHEMA", f"{path}: the table {table} lacks {', '.join(sorted(needed - found))}"
        )


def _check_version(path: Path, found: int) -> None:
    if found > SCHEMA_VERSION:
        raise ServiceError.refused(
            "NEWER_SCHEMA",
            f"{path} has schema version {found}, this program knows up to {SCHEMA_VERSION}; use a newer program",
        )


def _check_vectors(path: Path, made_by: str, dimensions: int) -> None:
    declared = DECLARED.search(made_by)
    if declared is None or int(declared[1]) != dimensions:
        found = declared[1] if declared else "unknown"
        raise ServiceError.refused(
            "OTHER_DIMENSIONS",
            f"{path} holds vectors of {found} dimensions, this program is set to {dimensions}; "
            "use the model that the file was made with, or begin a store in a new home",
        )
    if not re.search(r"distance_metric\s*=\s*cosine", made_by, re.IGNORECASE):
        raise ServiceError.refused(
            "OTHER_DISTANCE", f"{path}: the table memory_embeddings measures another distance than cosine"
        )
