"""The audit chain."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE audit (
            seq BIGINT PRIMARY KEY,
            entry TEXT NOT NULL,
            hash TEXT NOT NULL
        )
        """
    )
    op.execute(
        """
        CREATE TABLE audit_head (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            seq BIGINT NOT NULL,
            hash TEXT NOT NULL
        )
        """
    )
    op.execute("INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '')")
