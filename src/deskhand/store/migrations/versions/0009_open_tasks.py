"""The open tasks of somebody who has completed thousands: found without passing all of these."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE INDEX task_state ON task (user_id, completed, created_at DESC, id DESC) WHERE deleted_at IS NULL"
    )
