-- When a task was completed. The last change of one that is completed already is the latest it can have been.
ALTER TABLE task ADD COLUMN completed_at TEXT;

UPDATE task SET completed_at = updated_at WHERE completed;
