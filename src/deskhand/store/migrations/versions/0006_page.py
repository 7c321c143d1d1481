"""The page: who may enter, what waits how, the tokens of assistants, and the record by day."""

import json

from alembic import op
from sqlalchemy import text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _tokens()
    _cards()
    _entry()
    _record()


def _tokens() -> None:
    """An assistant's token may stand for a user of the tasks backend; its scopes say what it opens."""
    op.execute(
        """
        CREATE TABLE tokens (
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            user_id TEXT,
            scopes TEXT NOT NULL,
            created BIGINT NOT NULL,
            used BIGINT
        )
        """
    )
    created = {
        "sqlite": "1000 * CAST(strftime('%s', created_at) AS INTEGER)",
        "postgresql": "CAST(1000 * EXTRACT(EPOCH FROM CAST(created_at AS TIMESTAMPTZ)) AS BIGINT)",
    }[op.get_context().dialect.name]
    op.execute(
        "INSERT INTO tokens (digest, name, user_id, scopes, created)"
        f" SELECT digest, name, user_id, 'tasks:write', {created} FROM user_token"
    )
    op.execute("DROP TABLE user_token")


def _cards() -> None:
    # A decision of the page rests here until its hold ends; until then it can be undone without a trace outside.
    op.execute(
        """
        CREATE TABLE holds (
            id TEXT PRIMARY KEY,
            digest TEXT NOT NULL,
            decided_by TEXT NOT NULL,
            until BIGINT NOT NULL,
            taken BIGINT,
            note TEXT
        )
        """
    )
    op.execute("CREATE INDEX holds_until ON holds (until)")
    op.execute("CREATE TABLE snoozes (id TEXT PRIMARY KEY, until BIGINT NOT NULL)")
    op.execute("ALTER TABLE actions ADD COLUMN asked_by TEXT")
    op.execute("ALTER TABLE actions ADD COLUMN decided BIGINT")
    # The desk sent it itself; whoever proposed it is told so at the next same call, once.
    op.execute("ALTER TABLE actions ADD COLUMN untold INTEGER NOT NULL DEFAULT 0")
    # Whose mail it answers, and what was odd about that mail, as the desk itself read it.
    op.execute("ALTER TABLE actions ADD COLUMN sender TEXT")
    op.execute("ALTER TABLE actions ADD COLUMN warnings TEXT")
    op.execute("CREATE INDEX actions_state ON actions (state, created, id)")
    op.execute("CREATE INDEX actions_decided ON actions (decided) WHERE decided IS NOT NULL")
    op.execute("CREATE INDEX drafts_mail ON drafts (mail)")
    _recipients()
    for column in ("drafted_by TEXT", "reason TEXT", "account TEXT", "warnings TEXT", "words TEXT", "decided BIGINT"):
        op.execute(f"ALTER TABLE drafts ADD COLUMN {column}")
    op.execute("CREATE INDEX drafts_decided ON drafts (decided) WHERE decided IS NOT NULL")


def _recipients() -> None:
    """The address in a column of its own: whom the desk knows is asked for every card."""
    op.execute("ALTER TABLE actions ADD COLUMN recipient TEXT")
    recipient = {"sqlite": "json_extract(action, '$.to')", "postgresql": "CAST(action AS json) ->> 'to'"}
    op.execute(f"UPDATE actions SET recipient = lower({recipient[op.get_context().dialect.name]})")
    op.execute("CREATE INDEX actions_recipient ON actions (recipient) WHERE state = 'sent'")


def _entry() -> None:
    op.execute("CREATE TABLE entry_links (digest TEXT PRIMARY KEY, expires BIGINT NOT NULL)")
    op.execute(
        """
        CREATE TABLE sessions (
            digest TEXT PRIMARY KEY,
            created BIGINT NOT NULL,
            seen BIGINT NOT NULL,
            expires BIGINT NOT NULL,
            browser TEXT NOT NULL
        )
        """
    )
    op.execute("CREATE TABLE page_password (id INTEGER PRIMARY KEY CHECK (id = 1), hash TEXT NOT NULL)")
    op.execute("CREATE TABLE entry_failures (way TEXT NOT NULL, at BIGINT NOT NULL)")


def _record() -> None:
    """How many entries of which kind each day has, and between which lines: what plots and searches start from."""
    op.execute(
        """
        CREATE TABLE audit_days (
            day TEXT NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            result TEXT NOT NULL,
            entries BIGINT NOT NULL,
            first_seq BIGINT NOT NULL,
            last_seq BIGINT NOT NULL,
            PRIMARY KEY (day, actor, action, result)
        )
        """
    )
    days: dict[tuple[str, ...], tuple[int, int, int]] = {}
    last, bind = 0, op.get_bind()
    page = text("SELECT seq, entry FROM audit WHERE seq > :last ORDER BY seq LIMIT 1000")
    while lines := bind.execute(page, {"last": last}).fetchall():
        for seq, line in lines:
            entry = json.loads(line)
            names = (entry[key].replace("\0", "\ufffd")[:100] for key in ("actor", "action_type"))
            key = (entry["timestamp"][:10], *names, entry["result"])
            count, first, _ = days.get(key, (0, seq, seq))
            days[key] = (count + 1, first, seq)
        last = lines[-1][0]
    columns = ("day", "actor", "action", "result", "entries", "first_seq", "last_seq")
    values = ", ".join(f":{column}" for column in columns)
    if days:
        rows = [dict(zip(columns, (*key, *figures), strict=True)) for key, figures in days.items()]
        bind.execute(text(f"INSERT INTO audit_days ({', '.join(columns)}) VALUES ({values})"), rows)
