-- Messages between agents, for those that share a database instead of a folder.
CREATE TABLE agent_message (
    seq BIGSERIAL PRIMARY KEY,
    room TEXT NOT NULL,
    box TEXT NOT NULL,
    id TEXT NOT NULL,
    sender TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at TEXT NOT NULL,
    created_ns BIGINT,
    is_read INTEGER NOT NULL,
    UNIQUE (room, box, id)
);
