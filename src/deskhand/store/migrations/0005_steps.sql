-- What the orchestrator does, step by step, and the drafts that wait for the person.
CREATE TABLE cursors (mailbox TEXT PRIMARY KEY, cursor TEXT NOT NULL);

-- A step without `due` rests: it waits for a person or is finished, and costs nothing.
CREATE TABLE steps (
    key TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    data TEXT NOT NULL,
    due BIGINT,
    lease BIGINT NOT NULL,
    tried BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    created BIGINT NOT NULL
);

CREATE INDEX steps_due ON steps (due) WHERE due IS NOT NULL;

CREATE INDEX steps_state ON steps (kind, state);

CREATE TABLE drafts (
    id TEXT PRIMARY KEY,
    mail TEXT NOT NULL,
    sender TEXT NOT NULL,
    proposed TEXT NOT NULL,
    approved TEXT,
    created BIGINT NOT NULL
);

CREATE TABLE corrections (
    draft_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    sender TEXT NOT NULL,
    text TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (draft_id, kind)
);

CREATE INDEX corrections_sender ON corrections (sender, at);
