"""Databases as earlier versions of the desk left them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from deskhand.store import postgresql, sqlite


@contextmanager
def database_at(url: str, revision: str) -> Iterator[Any]:
    """A connection to a new database of that revision, to fill it; what was written is committed at the end."""
    file = url.removeprefix("sqlite:///")
    if file == url:
        postgresql.migrate(url, revision)
        with psycopg.connect(url) as connection:
            yield connection
        return
    sqlite.migrate(file, revision)
    with closing(sqlite3.connect(file)) as made, made:
        yield made
