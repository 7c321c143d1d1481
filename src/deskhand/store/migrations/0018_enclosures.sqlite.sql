-- The bytes of attachments that wait to be sent.
CREATE TABLE enclosures (
    sha256 TEXT PRIMARY KEY,
    content BLOB NOT NULL,
    kept BIGINT NOT NULL
)
