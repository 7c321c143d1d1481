"""The mailboxes in the desk's database, so that agents on many machines share them."""

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from hashlib import sha256
from typing import Any

from deskhand.agents.mail import NEVER, AgentMessage, AgentState, StateSetters, instant
from deskhand.errors import Unavailable
from deskhand.store import Bell, Row, Store, Transaction

CHANNEL = "agent_mail"
_COLUMNS = "id, sender, box, text, created_at, is_read"


class SqlRoom(StateSetters):
    beyond_tmux = True

    def __init__(self, store: Store, room: str) -> None:
        self._store = store
        self._room = room

    def append(self, message: AgentMessage) -> None:
        if not self.merge(message.to, [message]):
            raise Unavailable(f"the message id {message.id} is taken", hint="send it again")

    def merge(self, name: str, messages: list[AgentMessage]) -> int:
        def insert(tx: Transaction) -> int:
            return sum(self._insert(tx, replace(message, to=name)) for message in messages)

        return self._store.write_sync(insert)

    def take(self, name: str) -> AgentMessage | None:
        def oldest(tx: Transaction) -> AgentMessage | None:
            # Two receivers must not wait for each other, nor get the same message.
            skip = {"postgresql": "FOR UPDATE SKIP LOCKED", "sqlite": ""}[tx.dialect]
            sql = (
                "UPDATE agent_message SET is_read = 1 WHERE seq = (SELECT seq FROM agent_message"
                f" WHERE room = ? AND box = ? AND is_read = 0 ORDER BY seq LIMIT 1 {skip}) RETURNING {_COLUMNS}"
            )
            for row in tx.all(sql, self._room, name):
                return _message(row)
            return None

        return self._store.write_sync(oldest)

    def give_back(self, message: AgentMessage) -> None:
        sql = "UPDATE agent_message SET is_read = 0 WHERE room = ? AND box = ? AND id = ?"
        self._execute(sql, self._room, message.to, message.id)

    def has_unread(self, name: str) -> bool:
        sql = (
            "SELECT 1 FROM agent_message WHERE room = ? AND box = ? AND is_read = 0 LIMIT 1"
        )
        return bool(self._rows(sql, self._room, name))

    async def count_unread(self, name: str) -> int:
        sql = (
            "SELECT count(*) FROM agent_message WHERE room = ? AND box = ? AND is_read = 0"
        )
        ((many,),) = await self._store.glance(lambda tx: tx.all(sql, self._room, name))
        return int(many)

    def messages(self, name: str) -> list[AgentMessage]:
        sql = (
            f"SELECT {_COLUMNS} FROM agent_message WHERE room = ? AND box = ? ORDER BY seq"
        )
        return [_message(row) for row in self._rows(sql, self._room, name)]

    def mailboxes(self) -> list[str]:
        rows = self._rows(
            "SELECT DISTINCT box FROM agent_message WHERE room = ? ORDER BY box", self._room
        )
        return [row[0] for row in rows]

    def bell(self, name: str | None) -> AbstractContextManager[Bell]:
        payload = None
        if name is not None:
            payload = self._payload(name)
        return self._store.bell(CHANNEL, payload)

    def register(self, name: str, now: str) -> None:
        sql = (
            "INSERT INTO agent_seat (room, name, seen_ns) VALUES (?, ?, ?)"
            " ON CONFLICT (room, name) DO UPDATE SET seen_ns = excluded.seen_ns"
        )
        self._execute(sql, self._room, name, instant(now) or 0)

    def registrations(self) -> dict[str, int]:
        return dict(
            self._rows(
                "SELECT name, seen_ns FROM agent_seat WHERE room = ? ORDER BY name",
                self._room,
            )
        )

    def states(self) -> list[AgentState]:
        columns = "name, status, updated_at, notified_at, last_read_at"
        rows = self._rows(
            f"SELECT {columns} FROM agent_state WHERE room = ? ORDER BY name", self._room
        )
        return [AgentState(*row) for row in rows]

    def remove_states(self, names: list[str]) -> None:
        def remove(tx: Transaction) -> None:
            for table in ("agent_state", "agent_seat"):
                tx.many(
                    f"DELETE FROM {table} WHERE room = ? AND name = ?",
                    [(self._room, name) for name in names],
                )

        self._store.write_sync(remove)

    def remove_read(self, name: str, before: str, *, dry_run: bool) -> int:
        old = "FROM agent_message WHERE room = ? AND box = ? AND is_read = 1 AND created_ns < ?"
        values = (self._room, name, instant(before) or 0)
        if dry_run:
            return int(self._rows(f"SELECT count(*) {old}", *values)[0][0])
        return self._execute(f"DELETE {old}", *values)

    def remove_if_empty(self, name: str, *, dry_run: bool) -> bool:
        del dry_run  # a mailbox without messages is nothing that could be removed
        return name not in self.mailboxes()

    def close(self) -> None:
        """The database belongs to the desk."""

    def _insert(self, tx: Transaction, message: AgentMessage) -> int:
        # As JSON, because PostgreSQL's texts cannot hold the character NUL.
        values = (
            self._room,
            message.to,
            message.id,
            message.sender,
            json.dumps(message.text),
            message.created_at,
        )
        added = tx.execute(
            "INSERT INTO agent_message (room, box, id, sender, text, created_at, created_ns, is_read)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (room, box, id) DO NOTHING",
            *(*values, instant(message.created_at), int(message.read)),
        )
        if tx.dialect == "postgresql":
            tx.one("SELECT pg_notify(?, ?)", CHANNEL, self._payload(message.to))
        return added

    def _change(self, name: str, now: str, **changes: Any) -> None:
        new = {
            "status": "ready",
            "updated_at": now,
            "notified_at": NEVER,
            "last_read_at": 0,
        } | changes
        sql = (
            "INSERT INTO agent_state (room, name, status, updated_at, notified_at, last_read_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (room, name) DO UPDATE SET "
            + ", ".join(f"{column} = excluded.{column}" for column in changes)
        )
        self._execute(sql, self._room, name, *new.values())

    def _execute(self, sql: str, *values: Any) -> int:
        return self._store.write_sync(lambda tx: tx.execute(sql, *values))

    def _rows(self, sql: str, *values: Any) -> list[Row]:
        return self._store.write_sync(lambda tx: tx.all(sql, *values))

    def _payload(self, name: str) -> str:
        return sha256(f"{self._room}\n{name}".encode()).hexdigest()[:32]


def _message(row: Row) -> AgentMessage:
    identifier, sender, to, text, created_at, is_read = row
    return AgentMessage(identifier, sender, to, json.loads(text), created_at, bool(is_read))
