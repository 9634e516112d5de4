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
CREATE INDEX idx_content_hash ON memories(content_hash);
CREATE INDEX idx_created_at ON memories(created_at);
CREATE INDEX idx_memory_type ON memories(memory_type);
CREATE INDEX idx_deleted_at ON memories(deleted_at);
CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE memory_associations (
    from_id INTEGER NOT NULL,
    to_id INTEGER NOT NULL,
    weight REAL NOT NULL,
    last_reinforced REAL NOT NULL,
    PRIMARY KEY (from_id, to_id)
);
CREATE INDEX idx_assoc_from ON memory_associations(from_id);
CREATE INDEX idx_assoc_to ON memory_associations(to_id);
CREATE TABLE memory_clusters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    centroid_blob BLOB NOT NULL,
    size INTEGER NOT NULL DEFAULT 0,
    last_recomputed REAL NOT NULL
);
CREATE VIRTUAL TABLE memory_embeddings USING vec0(
    content_embedding FLOAT[384] distance_metric=cosine
);
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
    deleted_at REAL,
    status TEXT NOT NULL DEFAULT '',
    since REAL
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
    body, hints, content='', contentless_delete=1, tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
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
INSERT INTO memories (
    id, content_hash, content, tags, memory_type, metadata, created_at, updated_at, created_at_iso, updated_at_iso, deleted_at
) VALUES (1, '7670199fbd2db4e1de4f6761beb4fd2622d13a3a1188c5c1d07a3bd8c14473fc', 'The zebra crossing was repainted in May.', 'roads,paint', 'Observation', '{"source":"diary","_hippo":{"surprise":{"score":0.5,"components":{"embedding_outlier":0.75,"engagement":0.5,"explicit":0.25,"prediction_loss":null},"version":1}}}', 1700000000.0, 1700000101.25, '2023-11-14T22:13:20.000000Z', '2023-11-14T22:15:01.250000Z', NULL);
INSERT INTO memories (
    id, content_hash, content, tags, memory_type, metadata, created_at, updated_at, created_at_iso, updated_at_iso, deleted_at
) VALUES (2, '256f8e4e2598f8c2d962b3a7886aa5fcede977ea51fda26a3ca32770f07162c8', 'Oat milk is out again.', NULL, NULL, NULL, 1700000001.0, 1700000103.25, '2023-11-14T22:13:21.000000Z', '2023-11-14T22:15:03.250000Z', NULL);
INSERT INTO memories (
    id, content_hash, content, tags, memory_type, metadata, created_at, updated_at, created_at_iso, updated_at_iso, deleted_at
) VALUES (3, 'f2609b19fbbfac59a4bfd6f061d17556ff02640ab2c7bf5e45c35da9f92701a7', 'The old password hint.', NULL, NULL, NULL, 1700000003.0, 1700000104.25, '2023-11-14T22:13:23.000000Z', '2023-11-14T22:15:04.250000Z', 1700000105.25);
INSERT INTO hippo_memories (
    memory_id, namespace, category, key, content_hash, memory_type, hints, importance, has_metadata, surprise, embedding_outlier, engagement, explicit, prediction_loss, scoring_version, version, model_revision, created_at, updated_at, deleted_at, status, since
) VALUES (1, 'default', '', '', '7670199fbd2db4e1de4f6761beb4fd2622d13a3a1188c5c1d07a3bd8c14473fc', 'Observation', '[]', 0.25, 1, 0.5, 0.75, 0.5, 0.25, NULL, 1, 1, 'model-1', 1700000000.0, 1700000101.25, NULL, 'open', 1700000101.25);
INSERT INTO hippo_memories (
    memory_id, namespace, category, key, content_hash, memory_type, hints, importance, has_metadata, surprise, embedding_outlier, engagement, explicit, prediction_loss, scoring_version, version, model_revision, created_at, updated_at, deleted_at, status, since
) VALUES (2, 'default', 'shopping', 'milk', '11f0ca9d67770b609faf06a0ce2c2b69a5915a1b86fe5c573e72646f9d397df7', '', '["What should I buy at the grocery?"]', NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 2, 'model-1', 1700000001.0, 1700000103.25, NULL, '', 1700000103.25);
INSERT INTO hippo_memories (
    memory_id, namespace, category, key, content_hash, memory_type, hints, importance, has_metadata, surprise, embedding_outlier, engagement, explicit, prediction_loss, scoring_version, version, model_revision, created_at, updated_at, deleted_at, status, since
) VALUES (3, 'default', '', '', 'f2609b19fbbfac59a4bfd6f061d17556ff02640ab2c7bf5e45c35da9f92701a7', '', '[]', NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 1, 'model-1', 1700000003.0, 1700000104.25, 1700000105.25, '', 1700000104.25);
INSERT INTO hippo_tags (tag, memory_id) VALUES ('paint', 1);
INSERT INTO hippo_tags (tag, memory_id) VALUES ('roads', 1);
INSERT INTO hippo_fts (rowid, body, hints) VALUES (1, 'The zebra crossing was repainted in May.', '');
INSERT INTO hippo_fts (rowid, body, hints) VALUES (2, 'Oat milk is out again.', 'What should I buy at the grocery?');
INSERT INTO hippo_history (
    memory_id, since, until, version, category, key, content, tags, memory_type, importance, metadata, status, model_revision, created_at, updated_at
) VALUES (2, 1700000102.25, 1700000103.25, 1, 'shopping', 'milk', 'Oat milk is out.', NULL, '', NULL, NULL, '', 'model-1', 1700000001.0, 1700000102.25);
INSERT INTO hippo_vectors (id, memory_id, place, vector) VALUES (1, 1, 0, half(0));
INSERT INTO hippo_vectors (id, memory_id, place, vector) VALUES (2, 1, 1, half(1));
INSERT INTO hippo_vectors (id, memory_id, place, vector) VALUES (4, 2, 0, half(4));
INSERT INTO hippo_vectors (id, memory_id, place, vector) VALUES (5, 3, 0, half(2));
INSERT INTO hippo_token_codes (memory_id, encoding, codes) VALUES (1, 'float32', unit(5));
INSERT INTO hippo_token_codes (memory_id, encoding, codes) VALUES (2, 'float32', unit(4));
INSERT INTO hippo_state (name, value) VALUES ('model_revision', 'model-1');
INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (1, unit(0));
INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (2, unit(4));
INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (3, unit(2));
PRAGMA user_version = 2;
