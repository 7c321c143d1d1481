"""The ledger of what would leave the desk."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE actions (
            id TEXT PRIMARY KEY,
            asked TEXT NOT NULL,
            action TEXT NOT NULL,
            state TEXT NOT NULL,
            revision INTEGER NOT NULL,
            file TEXT NOT NULL,
            created BIGINT NOT NULL,
            expires BIGINT NOT NULL,
            difference TEXT,
            decided_by TEXT,
            note TEXT,
            frozen BIGINT,
            lease BIGINT,
            token TEXT,
            message_id TEXT,
            thread_id TEXT
        )
        """
    )
    # One open request for one proposal, whoever asks, however often.
    op.execute(
        """
        CREATE UNIQUE INDEX actions_open ON actions (asked)
        WHERE state IN ('waiting', 'approved', 'sending', 'unknown')
        """
    )
    op.execute("CREATE INDEX actions_asked ON actions (asked, created)")
    op.execute("CREATE TABLE sends (action_id TEXT NOT NULL, at BIGINT NOT NULL)")
    op.execute("CREATE INDEX sends_at ON sends (at)")
    op.execute("CREATE TABLE used_approvals (content TEXT PRIMARY KEY, action_id TEXT NOT NULL, at BIGINT NOT NULL)")
