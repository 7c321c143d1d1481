-- Whether the person is told so long after the mail left (1), or at a time that was named (0).
ALTER TABLE follow_ups ADD COLUMN lasting INTEGER NOT NULL DEFAULT 0
