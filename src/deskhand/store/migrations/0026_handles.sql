-- What was given to a client that waits by a handle; once it ended, what it says stays.
CREATE TABLE handles (
    id TEXT NOT NULL,
    asker TEXT NOT NULL,
    request_id TEXT,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    status TEXT NOT NULL,
    message TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (id, asker)
)
