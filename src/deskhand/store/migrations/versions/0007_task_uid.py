"""By which name the world knows a task: its own UID, or the one under which it was imported."""

import uuid

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE task_uid (
            user_id TEXT NOT NULL,
            uid TEXT NOT NULL,
            task_id BIGINT UNIQUE,
            PRIMARY KEY (user_id, uid)
        )
        """
    )
    # The ids of two desks are the same numbers; with the desk's own name they differ.
    op.execute("CREATE TABLE task_origin (name TEXT NOT NULL)")
    op.execute(f"INSERT INTO task_origin (name) VALUES ('{uuid.uuid4().hex}.deskhand')")
