CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE memories (
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
CREATE VIRTUAL TABLE memory_embeddings USING vec0(
    content_embedding FLOAT[384] distance_metric=cosine, store TEXT partition key
);
CREATE INDEX idx_content_hash ON memories(content_hash);
CREATE INDEX idx_created_at ON memories(created_at);
CREATE INDEX idx_memory_type ON memories(memory_type);
CREATE INDEX idx_deleted_at ON memories(deleted_at);
ALTER TABLE memories ADD COLUMN store TEXT DEFAULT 'default';
CREATE VIRTUAL TABLE memory_content_fts USING fts5(
    content, content='memories', content_rowid='id', tokenize='trigram'
);
CREATE TRIGGER memories_fts_ai AFTER INSERT ON memories BEGIN
    INSERT INTO memory_content_fts(rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER memories_fts_au AFTER UPDATE ON memories BEGIN
    DELETE FROM memory_content_fts WHERE rowid = old.id;
    INSERT INTO memory_content_fts(rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER memories_fts_ad AFTER DELETE ON memories BEGIN
    DELETE FROM memory_content_fts WHERE rowid = old.id;
END;
CREATE TABLE migration_registry (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, filename TEXT NOT NULL, applied_at TEXT NOT NULL, checksum TEXT
);
CREATE TABLE memory_graph (
    source_hash TEXT NOT NULL, target_hash TEXT NOT NULL, similarity REAL NOT NULL, connection_types TEXT NOT NULL,
    metadata TEXT, created_at REAL NOT NULL, relationship_type TEXT DEFAULT 'related',
    PRIMARY KEY (source_hash, target_hash)
);
ALTER TABLE memories ADD COLUMN parent_id TEXT;
ALTER TABLE memories ADD COLUMN version INTEGER DEFAULT 1;
ALTER TABLE memories ADD COLUMN confidence REAL DEFAULT 1.0;
ALTER TABLE memories ADD COLUMN last_accessed INTEGER;
ALTER TABLE memories ADD COLUMN superseded_by TEXT;
CREATE TABLE beliefs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, belief_hash TEXT UNIQUE NOT NULL, content TEXT NOT NULL,
    confidence REAL NOT NULL DEFAULT 0.5, status TEXT NOT NULL DEFAULT 'candidate', created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL, derived_from TEXT NOT NULL DEFAULT '[]', contradicted_by TEXT NOT NULL DEFAULT '[]',
    metadata TEXT DEFAULT '{}'
);
ALTER TABLE memories ADD COLUMN embedding_pending INTEGER NOT NULL DEFAULT 0;
CREATE INDEX idx_memories_embedding_pending ON memories(embedding_pending);
INSERT INTO metadata VALUES ('distance_metric', 'cosine'), ('fts5_enabled', 'true'), ('schema_version', '19');
INSERT INTO memories (
    id, content_hash, content, tags, memory_type, metadata, created_at, updated_at, created_at_iso, updated_at_iso,
    deleted_at, store, confidence
) VALUES
    (1, '42eaceff6845a94b62dec776244c21d642680a4d9774a5f1be6e8a03c255b8e4', ' The Heron nests by the mill. ', 'birds,river',
     'note', '{"mood": "calm"}', 1690000000.5, 1690000000.5, '2023-07-22T04:26:40.500000Z',
     '2023-07-22T04:26:40.500000Z', NULL, 'default', 0.5),
    (2, '3058a2d0186b93f3f4668e329467e15c0490b841b2dad62f02d8dcf4e647dae3', 'The ferry was sold.', 'untagged', 'note', '{}',
     1690000001.5, 1690000001.5, '2023-07-22T04:26:41.500000Z', '2023-07-22T04:26:41.500000Z', 1690000009.5, 'default',
     1.0),
    (3, '058cb879534da5043a10e93ea406038a55e024f48e4568daf4cce4b03e661836', 'The mill is let.', 'untagged', 'note', '{}',
     1690000002.5, 1690000002.5, '2023-07-22T04:26:42.500000Z', '2023-07-22T04:26:42.500000Z', NULL, 'work', 1.0);
INSERT INTO memory_graph VALUES ('a', 'b', 0.5, '["semantic"]', NULL, 1690000003.5, 'related');
INSERT INTO memory_embeddings (rowid, content_embedding, store) VALUES (1, unit(0), 'default'), (3, unit(2), 'work');
