-- From which account a mail left: each has a rate window of its own.
ALTER TABLE sends ADD COLUMN account TEXT
