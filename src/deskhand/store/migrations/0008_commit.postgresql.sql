-- What everybody waits for is locked while the server commits, never while a client thinks: an entry of the record
-- waits in `audit_queue` and is chained by its transaction's commit, and the users' totals are brought up to date
-- there too. SQLite has one writer, and nobody waits for its locks.
-- No row of this table outlives its transaction, so none needs a log.
CREATE UNLOGGED TABLE audit_queue (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry TEXT NOT NULL,
    day TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    result TEXT NOT NULL
);

CREATE FUNCTION audit_link() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    head audit_head;
BEGIN
    UPDATE audit_head
    SET seq = seq + 1,
        hash = encode(sha256(convert_to(hash || E'\n' || (seq + 1) || E'\n' || NEW.entry, 'UTF8')), 'hex')
    WHERE id = 1 RETURNING * INTO STRICT head;
    INSERT INTO audit (seq, entry, hash) VALUES (head.seq, NEW.entry, head.hash);
    INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq)
    VALUES (NEW.day, NEW.actor, NEW.action, NEW.result, 1, head.seq, head.seq)
    ON CONFLICT (day, actor, action, result)
    DO UPDATE SET entries = audit_days.entries + 1, last_seq = excluded.last_seq;
    DELETE FROM audit_queue WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER audit_append AFTER INSERT ON audit_queue DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION audit_link();

DROP TRIGGER task_added ON task;

DROP TRIGGER task_changed ON task;

CREATE CONSTRAINT TRIGGER task_added AFTER INSERT ON task DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION task_count();

CREATE CONSTRAINT TRIGGER task_changed AFTER UPDATE OF completed, deleted_at ON task DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (OLD.completed <> NEW.completed OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL))
EXECUTE FUNCTION task_count();
