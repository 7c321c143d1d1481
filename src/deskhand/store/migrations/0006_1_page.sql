-- The page: who may enter, what waits how, the tokens of assistants, and the record by day.
-- An assistant's token may stand for a user of the tasks backend; its scopes say what it opens.
CREATE TABLE tokens (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    user_id TEXT,
    scopes TEXT NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT
);

-- A decision of the page rests here until its hold ends; until then it can be undone without a trace outside.
CREATE TABLE holds (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    until BIGINT NOT NULL,
    taken BIGINT,
    note TEXT
);

CREATE INDEX holds_until ON holds (until);

CREATE TABLE snoozes (id TEXT PRIMARY KEY, until BIGINT NOT NULL);

ALTER TABLE actions ADD COLUMN asked_by TEXT;

ALTER TABLE actions ADD COLUMN decided BIGINT;

-- The desk sent it itself; whoever proposed it is told so at the next same call, once.
ALTER TABLE actions ADD COLUMN untold INTEGER NOT NULL DEFAULT 0;

-- Whose mail it answers, and what was odd about that mail, as the desk itself read it.
ALTER TABLE actions ADD COLUMN sender TEXT;

ALTER TABLE actions ADD COLUMN warnings TEXT;

CREATE INDEX actions_state ON actions (state, created, id);

CREATE INDEX actions_decided ON actions (decided) WHERE decided IS NOT NULL;

CREATE INDEX drafts_mail ON drafts (mail);

-- The address in a column of its own: whom the desk knows is asked for every card.
ALTER TABLE actions ADD COLUMN recipient TEXT;

CREATE INDEX actions_recipient ON actions (recipient) WHERE state = 'sent';

ALTER TABLE drafts ADD COLUMN drafted_by TEXT;

ALTER TABLE drafts ADD COLUMN reason TEXT;

ALTER TABLE drafts ADD COLUMN account TEXT;

ALTER TABLE drafts ADD COLUMN warnings TEXT;

ALTER TABLE drafts ADD COLUMN words TEXT;

ALTER TABLE drafts ADD COLUMN decided BIGINT;

CREATE INDEX drafts_decided ON drafts (decided) WHERE decided IS NOT NULL;

CREATE TABLE entry_links (digest TEXT PRIMARY KEY, expires BIGINT NOT NULL);

CREATE TABLE sessions (
    digest TEXT PRIMARY KEY,
    created BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    browser TEXT NOT NULL
);

CREATE TABLE page_password (id INTEGER PRIMARY KEY CHECK (id = 1), hash TEXT NOT NULL);

CREATE TABLE entry_failures (way TEXT NOT NULL, at BIGINT NOT NULL);

CREATE TABLE audit_days (
    day TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    result TEXT NOT NULL,
    entries BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    PRIMARY KEY (day, actor, action, result)
);
