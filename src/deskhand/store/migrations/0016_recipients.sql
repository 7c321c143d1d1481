-- Each address that a mail of this desk went to.
CREATE TABLE written_to (
    address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (address, request_id)
)

INSERT INTO written_to (address, request_id)
SELECT recipient, id FROM requests WHERE state = 'sent'

DROP INDEX requests_recipient

ALTER TABLE requests DROP COLUMN recipient

-- Everybody whom the mail names that a request answers.
ALTER TABLE requests ADD COLUMN participants TEXT NOT NULL DEFAULT '[]'
