-- The browsers that are told by push, each by the address that its push service gave it.
CREATE TABLE push_subscriptions (
    name TEXT PRIMARY KEY,
    endpoint TEXT NOT NULL,
    public_key TEXT NOT NULL,
    secret TEXT NOT NULL,
    browser TEXT NOT NULL,
    session TEXT NOT NULL,
    created BIGINT NOT NULL
)
