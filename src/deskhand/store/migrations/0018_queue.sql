-- What the card said when the person answered it: the risk and the recipients, as JSON.
ALTER TABLE requests ADD COLUMN assessed TEXT

-- The person's last answers, for as long as they can be taken back.
CREATE INDEX answers_at ON answers (at)
