-- Until when the person has put off a mail that waits for their decision.
ALTER TABLE steps ADD COLUMN later BIGINT;

-- What the person said to the unread mail that was found in a mailbox at the desk's first look.
CREATE TABLE first_looks (
    mailbox TEXT PRIMARY KEY,
    found INTEGER NOT NULL,
    days INTEGER NOT NULL,
    cursor TEXT NOT NULL,
    answer TEXT
)
