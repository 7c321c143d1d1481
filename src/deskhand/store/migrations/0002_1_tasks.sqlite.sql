-- Tasks, what was already created under which key, and the users' own tokens.
-- Ids are never used again: a late retry must not hit another task. Times are UTC text of one width and sort by their bytes.
CREATE TABLE task (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id TEXT NOT NULL,
    title TEXT NOT NULL,
    description TEXT,
    completed BOOLEAN NOT NULL,
    priority SMALLINT NOT NULL,
    due_date TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at TEXT,
    project TEXT,
    labels TEXT NOT NULL,
    parent_id BIGINT,
    recurrence TEXT,
    series_start TEXT,
    next_id BIGINT,
    version BIGINT NOT NULL,
    previous TEXT,
    search TEXT NOT NULL
);

CREATE TABLE task_key (
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (user_id, name)
);

CREATE TABLE user_token (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    created_at TEXT NOT NULL
);
