CREATE FUNCTION task_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    more_unfinished INTEGER := (NEW.deleted_at IS NULL AND NOT NEW.completed)::INTEGER;
    more_finished INTEGER := (NEW.deleted_at IS NULL AND NEW.completed)::INTEGER;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        more_unfinished := more_unfinished - (OLD.deleted_at IS NULL AND NOT OLD.completed)::INTEGER;
        more_finished := more_finished - (OLD.deleted_at IS NULL AND OLD.completed)::INTEGER;
    END IF;
    INSERT INTO task_total AS total (user_id, unfinished, finished)
    VALUES (NEW.user_id, more_unfinished, more_finished)
    ON CONFLICT (user_id) DO UPDATE
    SET unfinished = total.unfinished + excluded.unfinished, finished = total.finished + excluded.finished;
    RETURN NULL;
END $$;

CREATE TRIGGER task_added AFTER INSERT ON task FOR EACH ROW EXECUTE FUNCTION task_count();

CREATE TRIGGER task_changed AFTER UPDATE OF completed, deleted_at ON task FOR EACH ROW
WHEN (OLD.completed <> NEW.completed OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL))
EXECUTE FUNCTION task_count();
