"""Brings a database's schema up to date, inside one transaction that the caller begins and commits.

A revision is every file under migrations/ whose name begins with its number; they run in the order of their names:

    0003_actions.sql                SQL for both databases; an empty line ends a statement
    0008_commit.postgresql.sql      SQL for one of them
    0007_task_uid.py                Python, where rows must be computed: `def upgrade(tx: Transaction) -> None`

A revision that was ever released is never changed: those who have it would not get the change.
"""

import re
from importlib import import_module
from pathlib import Path

from deskhand.errors import BadConfig
from deskhand.store import Transaction

_STEPS = sorted(
    path
    for path in Path(__file__).with_name("migrations").glob("[0-9]*.*")
    if path.is_file()
)
HEAD = _STEPS[-1].name[:4]
"""The newest revision."""

# The name is that of Alembic, which made the first databases: with it they go on where they are.
_VERSION = "SELECT version_num FROM alembic_version"
_VERSION_TABLE = """
    CREATE TABLE IF NOT EXISTS alembic_version (
        version_num VARCHAR(32) NOT NULL,
        CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
    )
"""
_HAS_VERSION = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'",
    "postgresql": "SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL",
}


def current(tx: Transaction) -> str | None:
    """The revision that the database has; None where there is none yet."""
    if tx.one(_HAS_VERSION[tx.dialect]) is None:
        return None
    row = tx.one(_VERSION)
    return str(row[0]) if row else None


def is_behind(revision: str | None) -> bool:
    """Whether the database needs `upgrade`; one that a newer desk has made is refused."""
    if revision is None or revision < HEAD:
        return True
    if revision > HEAD:
        raise BadConfig(
            f"a newer deskhand made this desk's database (schema {revision}; this one knows {HEAD})",
            hint="upgrade deskhand, or let DESKHAND_DATABASE_URL name another database; nothing was changed",
        )
    return False


def upgrade(tx: Transaction, target: str = HEAD) -> None:
    """Run each step that the database does not have yet, up to the target."""
    found = current(tx) or ""
    tx.execute(_VERSION_TABLE)
    for step in _STEPS:
        if found < step.name[:4] <= target:
            _run(tx, step)
    tx.execute("DELETE FROM alembic_version")
    tx.execute("INSERT INTO alembic_version (version_num) VALUES (?)", target)


def _run(tx: Transaction, step: Path) -> None:
    if step.suffix == ".py":
        import_module(f"deskhand.store.migrations.{step.stem}").upgrade(tx)
        return
    only_for = Path(step.stem).suffix.removeprefix(".")
    if only_for in ("", tx.dialect):
        for statement in re.split(r"\n\s*\n", step.read_text(encoding="utf-8").strip()):
            tx.execute(statement)
