-- What the person lets leave without being asked each time; the evidence is an HMAC over all of it but `closed`.
CREATE TABLE permissions (
    id TEXT PRIMARY KEY,
    covered TEXT NOT NULL,
    request_id TEXT NOT NULL,
    names TEXT NOT NULL,
    seen TEXT NOT NULL,
    per_day INTEGER NOT NULL,
    made BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    proof TEXT NOT NULL,
    evidence TEXT NOT NULL,
    closed BIGINT,
    closed_by TEXT
)

CREATE INDEX permissions_covered ON permissions (covered) WHERE closed IS NULL

CREATE TABLE permission_uses (
    request_id TEXT PRIMARY KEY,
    permission_id TEXT NOT NULL,
    at BIGINT NOT NULL
)

CREATE INDEX permission_uses_of ON permission_uses (permission_id, at)

-- While there is a row, none of them counts.
CREATE TABLE permissions_off (
    at BIGINT NOT NULL
)
