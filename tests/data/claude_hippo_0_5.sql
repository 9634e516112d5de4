PRAGMA journal_mode = WAL;
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
CREATE VIRTUAL TABLE memory_embeddings USING vec0(content_embedding FLOAT[384] distance_metric=cosine);
INSERT INTO memories VALUES
    (1, '41eb95ffe9dbc0aeeae06a8b02a68128c963c599854b5fce86bb9c5519cd5160', 'The Heron nests by the mill.', 'birds, river',
     'Observation',
     '{"_hippo":{"surprise":{"score":0.625,"components":{"embedding_outlier":0.75,"engagement":0.5,"explicit":0.25,"prediction_loss":null},"version":1}},"mood":"calm"}',
     1690000000.5, 1690000000.5, '2023-07-22T04:26:40.500Z', '2023-07-22T04:26:40.500Z', NULL),
    (2, '70db563017baa37de3d883131654b9c5a77ba4884f7acd2f828970e7798895da', 'The ferry was sold.', '', NULL, '{}',
     1690000001.5, 1690000001.5, '2023-07-22T04:26:41.500Z', '2023-07-22T04:26:41.500Z', 1690000009.5);
INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (1, unit(0)), (2, unit(1));
