-- The audit chain.
CREATE TABLE audit (
    seq BIGINT PRIMARY KEY,
    entry TEXT NOT NULL,
    hash TEXT NOT NULL
);

CREATE TABLE audit_head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL
);

INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');
