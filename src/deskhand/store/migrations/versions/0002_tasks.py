"""Tasks, what was already created under which key, and the users' own tokens.

Each user's totals are kept by triggers: no way of writing a task can forget them, and no list has to count.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Ids are never used again: a late retry must not hit another task.
NUMBER = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}
# Times are UTC text of one width and sort by their bytes.
TIME = {"sqlite": "TEXT", "postgresql": 'TEXT COLLATE "C"'}

COUNT_SQLITE = """
    INSERT INTO task_total (user_id, unfinished, finished)
    VALUES (new.user_id, {unfinished}, {finished})
    ON CONFLICT (user_id) DO UPDATE
    SET unfinished = unfinished + excluded.unfinished, finished = finished + excluded.finished;
"""
COUNT_POSTGRESQL = """
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
    END $$
"""


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    op.execute(
        f"""
        CREATE TABLE task (
            id {NUMBER[dialect]},
            user_id TEXT NOT NULL,
            title TEXT NOT NULL,
            description TEXT,
            completed BOOLEAN NOT NULL,
            priority SMALLINT NOT NULL,
            due_date {TIME[dialect]},
            created_at {TIME[dialect]} NOT NULL,
            updated_at {TIME[dialect]} NOT NULL,
            deleted_at {TIME[dialect]},
            project TEXT,
            labels TEXT NOT NULL,
            parent_id BIGINT,
            recurrence TEXT,
            series_start {TIME[dialect]},
            next_id BIGINT,
            version BIGINT NOT NULL,
            previous TEXT,
            search TEXT NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX task_page ON task (user_id, created_at DESC, id DESC) WHERE deleted_at IS NULL")
    op.execute("CREATE INDEX task_changes ON task (user_id, updated_at)")
    op.execute("CREATE INDEX task_parts ON task (parent_id) WHERE parent_id IS NOT NULL")
    op.execute(
        """
        CREATE TABLE task_total (
            user_id TEXT PRIMARY KEY,
            unfinished BIGINT NOT NULL,
            finished BIGINT NOT NULL
        )
        """
    )
    op.execute(
        f"""
        CREATE TABLE task_key (
            user_id TEXT NOT NULL,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            answer TEXT NOT NULL,
            created_at {TIME[dialect]} NOT NULL,
            PRIMARY KEY (user_id, name)
        )
        """
    )
    op.execute("CREATE INDEX task_key_age ON task_key (created_at)")
    op.execute(
        f"""
        CREATE TABLE user_token (
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            user_id TEXT NOT NULL,
            created_at {TIME[dialect]} NOT NULL
        )
        """
    )
    match dialect:
        case "sqlite":
            _count_sqlite()
        case "postgresql":
            _count_postgresql()


def _count_sqlite() -> None:
    unfinished, finished = (
        "(new.deleted_at IS NULL AND NOT new.completed)",
        "(new.deleted_at IS NULL AND new.completed)",
    )
    added = COUNT_SQLITE.format(unfinished=unfinished, finished=finished)
    changed = COUNT_SQLITE.format(
        unfinished=f"{unfinished} - {unfinished.replace('new.', 'old.')}",
        finished=f"{finished} - {finished.replace('new.', 'old.')}",
    )
    op.execute(f"CREATE TRIGGER task_added AFTER INSERT ON task BEGIN {added} END")
    op.execute(f"CREATE TRIGGER task_changed AFTER UPDATE OF completed, deleted_at ON task BEGIN {changed} END")


def _count_postgresql() -> None:
    op.execute(COUNT_POSTGRESQL)
    op.execute("CREATE TRIGGER task_added AFTER INSERT ON task FOR EACH ROW EXECUTE FUNCTION task_count()")
    op.execute(
        """
        CREATE TRIGGER task_changed AFTER UPDATE OF completed, deleted_at ON task FOR EACH ROW
        WHEN (OLD.completed <> NEW.completed OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL))
        EXECUTE FUNCTION task_count()
        """
    )
