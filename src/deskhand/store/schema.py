"""Brings a database's schema up to date; Alembic is imported only when it is behind.

Several processes may start at once: one migrates under a lock, the others wait for it and find it done.
"""

import fcntl
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from deskhand.errors import BadConfig

if TYPE_CHECKING:
    from sqlalchemy import Connection

HEAD = "0009"
"""The newest revision under migrations/versions."""

_LOCK_KEY = 0x6465736B  # "desk"
_VERSION = "SELECT version_num FROM alembic_version"


def upgrade_sqlite(file: str) -> None:
    if _sqlite_version(file) == HEAD:
        return
    with Path(f"{file}.migrating").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _sqlite_version(file) == HEAD:
            return
        from sqlalchemy import create_engine

        engine = create_engine(f"sqlite:///{file}", isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("PRAGMA synchronous=FULL")
            # The driver would commit each DDL statement by itself: a kill would leave half a schema.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            _migrate(connection)
            connection.exec_driver_sql("COMMIT")
        engine.dispose()


def upgrade_postgresql(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        _demand_utf8(connection.info.parameter_status("server_encoding"))
        found = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        row = connection.execute(_VERSION).fetchone() if found and found[0] else None
        if row and row[0] == HEAD:
            return
        from sqlalchemy import create_engine, pool

        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK_KEY,))
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=pool.NullPool)
        with engine.begin() as migrating:
            _migrate(migrating)


def sqlite_revision(file: str) -> str | None:
    """The revision of a file that may not be there; nothing is made."""
    return _sqlite_version(file) if Path(file).exists() else None


def postgresql_revision(url: str) -> str | None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        _demand_utf8(connection.info.parameter_status("server_encoding"))
        found = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
        row = connection.execute(_VERSION).fetchone() if found and found[0] else None
    return row[0] if row else None


def _demand_utf8(encoding: str | None) -> None:
    """No other encoding holds every text; SQL_ASCII, which a server without a locale takes, even answers in bytes."""
    if encoding != "UTF8":
        raise BadConfig(
            f"the desk's database has the encoding {encoding}, which cannot hold every text",
            hint="`createdb --template=template0 --encoding=UTF8 NAME` makes one for DESKHAND_DATABASE_URL",
        )


def _sqlite_version(file: str) -> str | None:
    connection = sqlite3.connect(file, timeout=30)
    try:
        row = connection.execute(_VERSION).fetchone()
    except sqlite3.OperationalError:  # a new file has no such table yet
        return None
    finally:
        connection.close()
    return row[0] if row else None


def _migrate(connection: "Connection") -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    command.upgrade(config, "head")
