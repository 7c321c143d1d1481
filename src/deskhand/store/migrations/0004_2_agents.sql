CREATE INDEX agent_message_unread ON agent_message (room, box, seq) WHERE is_read = 0;

CREATE TABLE agent_state (
    room TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    notified_at TEXT NOT NULL,
    last_read_at BIGINT NOT NULL,
    PRIMARY KEY (room, name)
);

CREATE TABLE agent_seat (
    room TEXT NOT NULL,
    name TEXT NOT NULL,
    seen_ns BIGINT NOT NULL,
    PRIMARY KEY (room, name)
);
