"""What the gate makes of an account: its signature, and its own window of sends."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import sends
from deskhand.gate.actions import Mail
from deskhand.gate.completing import add_signature
from deskhand.gate.mailchange import ListedMail, MailChange
from deskhand.store import Transaction
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 16, tzinfo=UTC)
ACCOUNTS = [
    {
        "name": "a",
        "kind": "local",
        "address": "a@x.de",
        "aliases": ["b@x.de"],
        "signature": "Ada\n",
    },
    {"name": "c", "kind": "local", "address": "c@x.de"},
]


def letter(account: str, body: str, *, as_text: bool = False) -> Mail:
    return Mail(
        kind="send_email",
        account=account,
        to="d@x.de",
        subject="S",
        body=body,
        as_text=as_text,
    )


@requirement("accounts:signature")
@pytest.mark.parametrize(
    ("mail", "body"),
    [
        (letter("a@x.de", "Hello\n"), "Hello\n\n-- \nAda\n"),
        (letter("B@x.de", "Hello\n\n\n"), "Hello\n\n-- \nAda\n"),
        (letter("a@x.de", "Hello\n\n-- \nAda\n"), "Hello\n\n-- \nAda\n"),
        (letter("a@x.de", ""), ""),
        (letter("c@x.de", "Hello\n"), "Hello\n"),
        (letter("gone@x.de", "Hello\n"), "Hello\n"),
        (letter("a@x.de", "<html><p>Hi</p></html>"), "<html><p>Hi</p></html>"),
        (
            letter("a@x.de", "<html><p>Hi</p></html>", as_text=True),
            "<html><p>Hi</p></html>\n\n-- \nAda\n",
        ),
    ],
)
def test_a_text_is_signed_once_by_the_account_it_leaves_from(
    mail: Mail, body: str, home: Home
) -> None:
    settings = load(
        home.environment | {"DESKHAND_MAIL_ACCOUNTS": json.dumps(ACCOUNTS)}
    ).settings
    signed = add_signature(mail, settings)
    listed = ListedMail(id="1", sender="x", subject="y", unread=True)
    change = MailChange(account="a@x.de", do="trash", mails=(listed,))

    assert signed.body == body
    assert (signed.digest == mail.digest) == (body == mail.body)
    assert add_signature(signed, settings) == signed
    assert add_signature(change, settings) is change


@requirement("accounts:sender")
async def test_the_window_of_an_account_counts_its_own_mails_and_those_of_nobody(
    home: Home,
) -> None:
    desk = Desk(load(home.environment).settings)
    rows = [("1", "a@x.de"), ("2", "a@x.de"), ("3", "c@x.de"), ("4", None)]
    sql = "INSERT INTO sends (action_id, at, account) VALUES (?, ?, ?)"
    at = round(NOW.timestamp() * 1000)

    def insert(tx: Transaction, name: str, account: str | None) -> None:
        tx.execute(sql, name, at, account)

    for name, account in rows:
        await desk.store.write(partial(insert, name=name, account=account))
    since = NOW - timedelta(hours=1)
    counted = {
        account: len(await desk.store.read(sends.sent_since, since, {account}))
        for account in ("a@x.de", "c@x.de", "e")
    }
    everything = await desk.store.read(sends.count_since, since)
    desk.close()

    assert counted == {"a@x.de": 3, "c@x.de": 2, "e": 1}
    assert everything == 4
