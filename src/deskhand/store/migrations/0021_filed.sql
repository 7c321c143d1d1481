-- Mails that tools changed without the person's yes: when last, and when one of them took the mark "unread" off.
CREATE TABLE filed (
    mail TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    read_at BIGINT
)
