"""Every name under which a token has ever asked: no other token gets it, nor what was permitted to that one."""

import json

from deskhand.store import Transaction

_CLIENT = "client "


def upgrade(tx: Transaction) -> None:
    tx.execute("ALTER TABLE tokens ADD COLUMN asker TEXT")
    tx.execute("CREATE TABLE askers (name TEXT PRIMARY KEY)")
    names = {name for (name,) in tx.all("SELECT name FROM tokens")}
    asked = [
        json.loads(text)
        for (text,) in tx.all(
            "SELECT action FROM requests UNION SELECT names FROM permissions"
        )
    ]
    askers = [str(each.get("asker")) for each in asked]
    askers += [asker for (asker,) in tx.all("SELECT asker FROM handles")]
    names |= {asker.removeprefix(_CLIENT) for asker in askers if asker.startswith(_CLIENT)}
    for name in sorted(names):
        tx.execute("INSERT INTO askers (name) VALUES (?)", name)
