"""Alembic runs this file; schema.py hands it the connection and owns the transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
