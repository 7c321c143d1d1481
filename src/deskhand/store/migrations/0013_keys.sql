CREATE TABLE keys (
    name TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL
)
