-- To which conversation a mail belongs ('' for none), when it arrived, and whether its sender sent it to many;
-- `behind` is the newer mail of the same conversation that waits for the person in its stead.
ALTER TABLE steps ADD COLUMN thread TEXT;

ALTER TABLE steps ADD COLUMN received BIGINT;

ALTER TABLE steps ADD COLUMN bulk INTEGER;

ALTER TABLE steps ADD COLUMN behind TEXT;

CREATE INDEX steps_thread ON steps (thread) WHERE thread IS NOT NULL;

CREATE INDEX steps_behind ON steps (behind) WHERE behind IS NOT NULL
