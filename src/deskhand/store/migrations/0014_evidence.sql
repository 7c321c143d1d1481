-- In which order the answers to a request were given.
ALTER TABLE answers ADD COLUMN number INTEGER NOT NULL DEFAULT 0

-- An HMAC over an answer that needed a password; the key is not in the database.
ALTER TABLE answers ADD COLUMN evidence TEXT
