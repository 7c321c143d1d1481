-- What the card said when the person answered it: the risk and the recipients, as JSON.
ALTER TABLE requests ADD COLUMN assessed TEXT

-- The person's last answers, for as long as they can be taken back.
CREATE INDEX answers_at ON answers (at)

-- Whom the person has written to and heard from, as the mailbox has it.
CREATE TABLE met (
    address TEXT PRIMARY KEY,
    sent INTEGER NOT NULL,
    last_sent BIGINT,
    last_heard BIGINT
)
