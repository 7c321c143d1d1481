-- The open tasks of somebody who has completed thousands: found without passing all of these.
CREATE INDEX task_state ON task (user_id, completed, created_at DESC, id DESC) WHERE deleted_at IS NULL;
