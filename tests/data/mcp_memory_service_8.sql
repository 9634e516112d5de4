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
    updated_at_iso TEXT
);
CREATE VIRTUAL TABLE memory_embeddings USING vec0(content_embedding FLOAT[384] distance_metric=cosine);
CREATE INDEX idx_content_hash ON memories(content_hash);
CREATE INDEX idx_created_at ON memories(created_at);
CREATE INDEX idx_memory_type ON memories(memory_type);
INSERT INTO metadata VALUES ('distance_metric', 'cosine');
INSERT INTO memories VALUES
    (1, '86134e34b48a1c763d55788b2a6a2a020e6114a1f399dd923a60588af170f2dc', 'The Heron nests by the mill.', 'birds,river', 'note',
     '{"mood": "calm"}', 1690000000.5, 1690000000.5, '2023-07-22T04:26:40.500000Z', '2023-07-22T04:26:40.500000Z');
INSERT INTO memory_embeddings (rowid, content_embedding) VALUES (1, unit(0));
