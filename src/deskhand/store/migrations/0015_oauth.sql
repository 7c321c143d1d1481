-- A token that a client got by OAuth is one of a family, is for one MCP endpoint, and ends.
ALTER TABLE tokens ADD COLUMN family TEXT;

ALTER TABLE tokens ADD COLUMN client_id TEXT;

ALTER TABLE tokens ADD COLUMN resource TEXT;

-- When its text is worth nothing any more, and when it can no longer be renewed.
ALTER TABLE tokens ADD COLUMN expires BIGINT;

ALTER TABLE tokens ADD COLUMN ends BIGINT;

CREATE UNIQUE INDEX tokens_family ON tokens (family);

CREATE TABLE oauth_clients (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    redirects TEXT NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT
);

CREATE TABLE oauth_codes (
    digest TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    client_id TEXT NOT NULL,
    name TEXT NOT NULL,
    redirect TEXT NOT NULL,
    challenge TEXT NOT NULL,
    scopes TEXT NOT NULL,
    resource TEXT NOT NULL,
    expires BIGINT NOT NULL,
    spent INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE oauth_refresh_tokens (
    digest TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    scopes TEXT NOT NULL,
    expires BIGINT NOT NULL,
    spent INTEGER NOT NULL DEFAULT 0
);
