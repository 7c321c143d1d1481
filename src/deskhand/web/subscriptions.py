"""The browsers that are told by push that something waits: each with the address and keys that it gave."""

import hmac
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from deskhand import clock
from deskhand.errors import Denied
from deskhand.store import Transaction

MOST = 20
"""Browsers that are told at once: each message goes to all of them."""


@dataclass(frozen=True, slots=True)
class Subscription:
    endpoint: str
    """Where its push service takes messages for it: whoever knows this address can send some."""
    public_key: str
    secret: str
    browser: str
    """What it says of itself."""
    created: datetime

    @property
    def name(self) -> str:
        """Names it and opens nothing."""
        return sha256(self.endpoint.encode()).hexdigest()


def add(tx: Transaction, given: Subscription, session: str) -> None:
    """Tell this browser, too; one that subscribes once more takes its own place."""
    end(tx, given.name)
    if len(list_subscriptions(tx)) >= MOST:
        raise Denied(
            f"{MOST} browsers are told already",
            reason="subscriptions",
            hint="end one of them first",
        )
    tx.execute(
        "INSERT INTO push_subscriptions (name, endpoint, public_key, secret, browser, session, created)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(given.name, given.endpoint, given.public_key, given.secret, given.browser),
        *(session, clock.to_ms(given.created)),
    )


def list_subscriptions(tx: Transaction) -> list[Subscription]:
    rows = tx.all(
        "SELECT endpoint, public_key, secret, browser, created FROM push_subscriptions ORDER BY created, name"
    )
    return [
        Subscription(endpoint, public_key, secret, browser, clock.from_ms(created))
        for endpoint, public_key, secret, browser, created in rows
    ]


def is_told(tx: Transaction, given: Subscription) -> bool:
    """Whether this is one of ours, down to the secret that no page shows."""
    sql = "SELECT secret FROM push_subscriptions WHERE name = ?"
    kept = tx.one(sql, given.name)
    return kept is not None and hmac.compare_digest(kept[0].encode(), given.secret.encode())


def renew(tx: Transaction, before: Subscription, after: Subscription) -> bool:
    """Tell a browser at its new address from now on, in the place of the old one; whether it was told before."""
    if not is_told(tx, before):
        return False
    sql = "SELECT session FROM push_subscriptions WHERE name = ?"
    ((session,),) = tx.all(sql, before.name)
    end(tx, before.name)
    add(tx, after, session)
    return True


def end(tx: Transaction, name: str) -> bool:
    """Tell that browser nothing more; whether it was told before."""
    return tx.execute("DELETE FROM push_subscriptions WHERE name = ?", name) > 0


def hand_over(tx: Transaction, before: str, session: str) -> None:
    """The browser has signed in anew: what was begun in its session before belongs to this one."""
    tx.execute(
        "UPDATE push_subscriptions SET session = ? WHERE session = ?", session, before
    )


def end_with(tx: Transaction, session: str) -> None:
    """What was begun in this session ends with it."""
    tx.execute("DELETE FROM push_subscriptions WHERE session = ?", session)


def end_without(tx: Transaction, session: str) -> None:
    """End all but what was begun in this session."""
    tx.execute("DELETE FROM push_subscriptions WHERE session <> ?", session)


def end_all(tx: Transaction) -> None:
    tx.execute("DELETE FROM push_subscriptions")
