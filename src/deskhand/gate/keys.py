"""The key by which this desk seals requests. Machines that share a database must share it: what one has sealed the
other would take for edited, and ask for again."""

import hmac

from deskhand.errors import BadConfig
from deskhand.store import Transaction

_SEAL = "seal"


def demand_same(tx: Transaction, key: bytes) -> None:
    """Refuse a key that is not the desk's; the first one that comes is."""
    sql = "INSERT INTO keys (name, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING"
    tx.execute(sql, _SEAL, _fingerprint(key))
    if not is_same(tx, key):
        raise BadConfig(
            "seal.key in this home is not the key of this desk's database",
            hint="copy seal.key from the machine that has the right one; where it is lost everywhere, remove it here"
            " and run `deskhand doctor --fix`",
        )


def is_same(tx: Transaction, key: bytes) -> bool:
    """Whether the key is the desk's, as far as that is known."""
    row = tx.one("SELECT fingerprint FROM keys WHERE name = ?", _SEAL)
    return row is None or hmac.compare_digest(str(row[0]), _fingerprint(key))


def is_known(tx: Transaction) -> bool:
    """Whether the database knows a key."""
    return tx.one("SELECT 1 FROM keys WHERE name = ?", _SEAL) is not None


def forget(tx: Transaction) -> bool:
    """Let the next key be the desk's; whether there was one."""
    return tx.execute("DELETE FROM keys WHERE name = ?", _SEAL) == 1


def _fingerprint(key: bytes) -> str:
    return hmac.digest(key, b"the key of this desk", "sha256").hex()
