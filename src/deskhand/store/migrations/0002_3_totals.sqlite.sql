CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
    INSERT INTO task_total (user_id, unfinished, finished)
    VALUES (new.user_id, (new.deleted_at IS NULL AND NOT new.completed), (new.deleted_at IS NULL AND new.completed))
    ON CONFLICT (user_id) DO UPDATE
    SET unfinished = unfinished + excluded.unfinished, finished = finished + excluded.finished;
END;

CREATE TRIGGER task_changed AFTER UPDATE OF completed, deleted_at ON task BEGIN
    INSERT INTO task_total (user_id, unfinished, finished)
    VALUES (new.user_id, (new.deleted_at IS NULL AND NOT new.completed) - (old.deleted_at IS NULL AND NOT old.completed),
        (new.deleted_at IS NULL AND new.completed) - (old.deleted_at IS NULL AND old.completed))
    ON CONFLICT (user_id) DO UPDATE
    SET unfinished = unfinished + excluded.unfinished, finished = finished + excluded.finished;
END;
