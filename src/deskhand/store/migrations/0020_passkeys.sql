-- The person's authenticators. A revoked one stays: what it signed before is still checked.
CREATE TABLE passkeys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    public_key TEXT NOT NULL,
    sign_count BIGINT NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT,
    revoked BIGINT,
    seal TEXT NOT NULL
);

-- Challenges that were signed: none counts twice.
CREATE TABLE used_nonces (nonce TEXT PRIMARY KEY, expires BIGINT NOT NULL);

CREATE TABLE recovery_codes (digest TEXT PRIMARY KEY, created BIGINT NOT NULL);

-- What an authenticator signed for this answer.
ALTER TABLE answers ADD COLUMN assertion TEXT;

-- How and from where a session began.
CREATE TABLE sign_ins (session TEXT PRIMARY KEY, way TEXT NOT NULL, place TEXT NOT NULL);

-- From where somebody signed in by more than a link: strangers elsewhere lock nobody out there.
CREATE TABLE known_places (place TEXT PRIMARY KEY, at BIGINT NOT NULL);

-- Who asked, in words that a person knows.
ALTER TABLE requests ADD COLUMN asker TEXT
