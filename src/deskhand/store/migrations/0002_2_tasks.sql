CREATE INDEX task_page ON task (user_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;

CREATE INDEX task_changes ON task (user_id, updated_at);

CREATE INDEX task_parts ON task (parent_id) WHERE parent_id IS NOT NULL;

CREATE INDEX task_key_age ON task_key (created_at);

-- Each user's totals are kept by triggers: no way of writing a task can forget them, and no list has to count.
CREATE TABLE task_total (
    user_id TEXT PRIMARY KEY,
    unfinished BIGINT NOT NULL,
    finished BIGINT NOT NULL
);
