CREATE TABLE results (
    request_id TEXT PRIMARY KEY,
    result TEXT NOT NULL,
    expires BIGINT NOT NULL
)
