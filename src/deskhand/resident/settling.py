"""What a home forgets that was the person's account's before: a program there may have known or made it."""

from deskhand import environment
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate import ledger, passkeys, passwords
from deskhand.store import Transaction
from deskhand.web import sessions

_NOTE = "It was answered before this desk was guarded; answer it again."


def forget_all() -> None:
    desk = Desk(load({"DESKHAND_HOME": environment.GUARDED_HOME}).settings)
    try:
        desk.store.write_sync(_forget)
        desk.begin_new_key()
    finally:
        desk.close()


def _forget(tx: Transaction) -> None:
    sessions.end_all(tx)
    passwords.remove(tx)
    passkeys.forget_all(tx)
    ledger.take_back_all(tx, _NOTE)
