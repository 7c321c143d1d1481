"""PostgreSQL: what everybody waits for is locked while the server commits, never while a client thinks.

An entry of the record waits in `audit_queue` and is chained by its transaction's commit; the users' totals are
brought up to date there too. SQLite has one writer, and nobody waits for its locks.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LINK = """
    CREATE FUNCTION audit_link() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        head audit_head;
    BEGIN
        UPDATE audit_head
        SET seq = seq + 1,
            hash = encode(sha256(convert_to(hash || E'\\n' || (seq + 1) || E'\\n' || NEW.entry, 'UTF8')), 'hex')
        WHERE id = 1 RETURNING * INTO STRICT head;
        INSERT INTO audit (seq, entry, hash) VALUES (head.seq, NEW.entry, head.hash);
        INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq)
        VALUES (NEW.day, NEW.actor, NEW.action, NEW.result, 1, head.seq, head.seq)
        ON CONFLICT (day, actor, action, result)
        DO UPDATE SET entries = audit_days.entries + 1, last_seq = excluded.last_seq;
        DELETE FROM audit_queue WHERE id = NEW.id;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    # No row of it outlives its transaction, so none needs a log.
    op.execute(
        """
        CREATE UNLOGGED TABLE audit_queue (
            id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            entry TEXT NOT NULL,
            day TEXT NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            result TEXT NOT NULL
        )
        """
    )
    op.execute(LINK)
    _at_commit("audit_append", "INSERT ON audit_queue", "audit_link")
    op.execute("DROP TRIGGER task_added ON task")
    op.execute("DROP TRIGGER task_changed ON task")
    _at_commit("task_added", "INSERT ON task", "task_count")
    changed = "OLD.completed <> NEW.completed OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)"
    _at_commit("task_changed", "UPDATE OF completed, deleted_at ON task", "task_count", f"WHEN ({changed})")


def _at_commit(name: str, event: str, function: str, condition: str = "") -> None:
    op.execute(
        f"CREATE CONSTRAINT TRIGGER {name} AFTER {event} DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW {condition} EXECUTE FUNCTION {function}()"
    )
