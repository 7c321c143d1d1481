"""By which name the world knows a task: its own UID, or the one under which it was imported."""

import uuid

from deskhand.store import Transaction

_UIDS = """
    CREATE TABLE task_uid (
        user_id TEXT NOT NULL,
        uid TEXT NOT NULL,
        task_id BIGINT UNIQUE,
        PRIMARY KEY (user_id, uid)
    )
"""


def upgrade(tx: Transaction) -> None:
    tx.execute(_UIDS)
    # The ids of two desks are the same numbers; with the desk's own name they differ.
    tx.execute("CREATE TABLE task_origin (name TEXT NOT NULL)")
    tx.execute("INSERT INTO task_origin (name) VALUES (?)", f"{uuid.uuid4().hex}.deskhand")
