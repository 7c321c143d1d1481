"""What a claim touches beside its request: the window of sends, and the approvals that a person wrote by hand."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime

from deskhand import clock
from deskhand.errors import Changed
from deskhand.gate import ledger
from deskhand.gate.actions import Action, read_action
from deskhand.gate.folders import RequestFile
from deskhand.gate.rate import Allow, Limits, Wait, find_turn, judge
from deskhand.gate.requests import Request
from deskhand.store import Transaction, marks


def allow(
    tx: Transaction, action: Action, *, now: datetime, limits: Limits
) -> Allow | Wait:
    """Whether the rate lets one more mail leave now. Holds until the transaction ends: see `take_turns`."""
    if not action.counted:
        return Allow()
    sent = sent_since(tx, now - limits.window, limits.sharing(action.account))
    return judge(sent=sent, now=now, limits=limits)


def wake_limited(tx: Transaction, now: datetime, limits: Limits) -> None:
    """What waits for the limit has its turn in the order of the answers; whose turn it is is tried now.

    The limit may have been raised since, and what stood before it may be gone."""
    ahead: Counter[frozenset[str]] = Counter()
    sent: dict[frozenset[str], list[datetime]] = {}
    rows = tx.all(
        "SELECT id, action, due FROM requests WHERE resting = 'rate' AND state = 'approved'"
        " ORDER BY decided, created, id"
    )
    for name, text, due in rows:
        account = limits.sharing(read_action(text).account)
        if account not in sent:
            sent[account] = sent_since(tx, now - limits.window, account)
        turn = find_turn(sent=sent[account], ahead=ahead[account], now=now, limits=limits)
        ahead[account] += 1
        if turn <= now:
            sql = "UPDATE requests SET due = ?, resting = NULL, note = NULL WHERE id = ?"
            tx.execute(sql, clock.to_ms(now), name)
        elif clock.to_ms(turn) != due:
            tx.execute("UPDATE requests SET due = ? WHERE id = ?", clock.to_ms(turn), name)


def sent_since(
    tx: Transaction, since: datetime, account: Collection[str]
) -> list[datetime]:
    """When mails left the addresses of an account that still count in its rate window, oldest first; of the oldest
    rows nobody knows the account, and they count in each."""
    own = f"account IS NULL OR account IN ({marks(account)})"
    sql = f"SELECT at FROM sends WHERE at > ? AND ({own}) ORDER BY at"
    rows = tx.all(sql, clock.to_ms(since), *account)
    return [clock.from_ms(at) for (at,) in rows]


def count_since(tx: Transaction, since: datetime) -> int:
    """How many mails left, whichever the account."""
    return len(tx.all("SELECT at FROM sends WHERE at > ?", clock.to_ms(since)))


def count(tx: Transaction, request: Request, now: datetime) -> None:
    """Count a claimed mail in the window of its account."""
    if request.action.counted:
        values = (request.id, clock.to_ms(now), request.action.account.casefold())
        tx.execute("INSERT INTO sends (action_id, at, account) VALUES (?, ?, ?)", *values)


def give_back(tx: Transaction, request: Request) -> None:
    """It certainly did not leave: neither the rate nor an approval by hand is spent."""
    tx.execute("DELETE FROM used_files WHERE action_id = ?", request.id)
    tx.execute(
        "DELETE FROM sends WHERE action_id = ? AND at = (SELECT MAX(at) FROM sends WHERE action_id = ?)",
        *(request.id, request.id),
    )


def use_approval(
    tx: Transaction, request: Request, found: RequestFile, now: datetime
) -> bool:
    """Write down that a hand-written approval is used. False where the same mail has used it. See `take_turns`."""
    if was_used(tx, found):
        _demand_same_mail(tx, request, found)
        return False
    # A clock that was ahead must not make it newer than its own use.
    at = max(clock.to_ms(now), found.written)
    values = (found.content, request.id, at)
    tx.execute("INSERT INTO used_files (content, action_id, at) VALUES (?, ?, ?)", *values)
    return True


def was_used(tx: Transaction, found: RequestFile) -> bool:
    """Whether an approval with this content was used since this one was written: a copy
    that came back is no yes."""
    row = tx.one("SELECT MAX(at) FROM used_files WHERE content = ?", found.content)
    return row is not None and row[0] is not None and row[0] >= found.written


def _demand_same_mail(tx: Transaction, request: Request, found: RequestFile) -> None:
    last = "SELECT action_id FROM used_files WHERE content = ? ORDER BY at DESC LIMIT 1"
    ((used_by,),) = tx.all(last, found.content)
    theirs = ledger.find(tx, used_by)
    if theirs is None or theirs.asked != request.asked:
        raise Changed(f"{found.path} was used for another mail in this moment")


def take_turns(tx: Transaction) -> None:
    """Claims follow each other, on PostgreSQL too; SQLite has one writer anyway."""
    if tx.dialect == "postgresql":
        tx.execute("LOCK TABLE sends IN SHARE ROW EXCLUSIVE MODE")
