CREATE TABLE tool_notes (mark TEXT PRIMARY KEY);

CREATE TABLE used_files (
    content TEXT NOT NULL,
    action_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (content, action_id)
);

INSERT INTO used_files (content, action_id, at) SELECT content, action_id, at FROM used_approvals;

DROP TABLE used_approvals;

CREATE INDEX requests_sent ON requests (digest) WHERE state = 'sent';
