-- Who made a task and who changed it last, as the record names them. Of earlier tasks the record alone knows it.
ALTER TABLE task ADD COLUMN created_by TEXT;

ALTER TABLE task ADD COLUMN changed_by TEXT;
