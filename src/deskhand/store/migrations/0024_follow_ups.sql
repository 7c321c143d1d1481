-- Mails after which the person is told if nobody answers: until when, since when, what became of it, when its thread was
-- looked at last, and the question by which the person was told.
CREATE TABLE follow_ups (
    request_id TEXT PRIMARY KEY,
    due BIGINT NOT NULL,
    begun BIGINT NOT NULL,
    state TEXT NOT NULL,
    looked BIGINT NOT NULL,
    question TEXT
)
