"""Messages between agents, for those that share a database instead of a folder."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = "INTEGER PRIMARY KEY AUTOINCREMENT" if op.get_bind().dialect.name == "sqlite" else "BIGSERIAL PRIMARY KEY"
    op.execute(
        f"""
        CREATE TABLE agent_message (
            seq {number},
            room TEXT NOT NULL,
            box TEXT NOT NULL,
            id TEXT NOT NULL,
            sender TEXT NOT NULL,
            text TEXT NOT NULL,
            created_at TEXT NOT NULL,
            created_ns BIGINT,
            is_read INTEGER NOT NULL,
            UNIQUE (room, box, id)
        )
        """
    )
    op.execute("CREATE INDEX agent_message_unread ON agent_message (room, box, seq) WHERE is_read = 0")
    op.execute(
        """
        CREATE TABLE agent_state (
            room TEXT NOT NULL,
            name TEXT NOT NULL,
            status TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            notified_at TEXT NOT NULL,
            last_read_at BIGINT NOT NULL,
            PRIMARY KEY (room, name)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE agent_seat (
            room TEXT NOT NULL,
            name TEXT NOT NULL,
            seen_ns BIGINT NOT NULL,
            PRIMARY KEY (room, name)
        )
        """
    )
