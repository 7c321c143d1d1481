-- The ledger of what would leave the desk.
CREATE TABLE actions (
    id TEXT PRIMARY KEY,
    asked TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL,
    revision INTEGER NOT NULL,
    file TEXT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    difference TEXT,
    decided_by TEXT,
    note TEXT,
    frozen BIGINT,
    lease BIGINT,
    token TEXT,
    message_id TEXT,
    thread_id TEXT
);

-- One open request for one proposal, whoever asks, however often.
CREATE UNIQUE INDEX actions_open ON actions (asked)
WHERE state IN ('waiting', 'approved', 'sending', 'unknown');

CREATE INDEX actions_asked ON actions (asked, created);

CREATE TABLE sends (action_id TEXT NOT NULL, at BIGINT NOT NULL);

CREATE INDEX sends_at ON sends (at);

CREATE TABLE used_approvals (content TEXT PRIMARY KEY, action_id TEXT NOT NULL, at BIGINT NOT NULL);
