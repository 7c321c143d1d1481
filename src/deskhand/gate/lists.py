"""Requests by the many: lists, counts and what became of the mails to somebody. Nothing here changes a row."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from deskhand import clock
from deskhand.askers import describe_asker
from deskhand.errors import FieldProblem, InvalidInput
from deskhand.gate.actions import read_action
from deskhand.gate.requests import LIFETIME, OPEN, Folder, Request, State
from deskhand.gate.rows import find_where
from deskhand.gate.toolcall import ToolCall
from deskhand.store import Transaction, marks

_RANK = "CASE WHEN state = 'approved' AND resting = 'rate' THEN 2 ELSE 1 - urgent END"
"""What `rank` gives, for a statement."""
_RANK_LETTERS = ("u", "o", "l")
"""How a cursor writes a rank."""
_TIME_DIGITS = 18
"""At most, in a cursor."""
_LATE = 100
"""How many late ones are listed at a time."""
_UNDECIDED = (
    "state IN ('held', 'unknown', 'waiting')"
    " AND (state <> 'waiting' OR COALESCE(expires, ?) > ?)"
)
"""Neither decided nor expired."""
_COUNTED = " UNION ALL ".join(
    f"SELECT '{state}', count(*), count(*) FILTER (WHERE snoozed > ?) FROM requests"
    f" WHERE state IN ('held', 'unknown', 'waiting') AND state = '{state}' AND {which}"
    for state, which in (
        ("waiting", "expires > ?"),
        ("waiting", "expires IS NULL"),
        ("unknown", "true"),
        ("held", "true"),
    )
)
"""Each is a range of the index of what is undecided: to look at row after row takes twice as long."""
Position = tuple[int, int, str]
"""Where something stands in the queue: its rank, when it was made, and its id."""


def rank(urgent: bool, waits_for_limit: bool) -> int:
    """Urgent, ordinary, or answered and waiting for the limit."""
    if waits_for_limit:
        return 2
    return int(not urgent)


def write_cursor(place: int, created: datetime, name: str) -> str:
    return f"{_RANK_LETTERS[place]}{clock.to_ms(created)}-{name}"


def read_cursor(cursor: str | None) -> Position:
    if cursor is None:
        return (0, 0, "")
    letter = cursor[:1]
    created, dash, name = cursor[1:].partition("-")
    is_time = created.isdecimal() and created.isascii() and len(created) <= _TIME_DIGITS
    if (
        letter not in _RANK_LETTERS
        or not dash
        or not is_time
        or not name.isascii()
        or not name.isprintable()
    ):
        problem = FieldProblem(
            "cursor", "is not a cursor of this list", cursor[:60], "Ask without a cursor"
        )
        raise InvalidInput("this cursor does not continue this list", fields=[problem])
    return _RANK_LETTERS.index(letter), int(created), name


def page(
    tx: Transaction,
    after: Position,
    limit: int,
    now: datetime,
    *,
    snoozed: bool | None = None,
) -> list[Request]:
    """The open requests behind a place: all, those put off, or the others.

    Urgent ones and then the oldest first; what is answered and waits for the limit comes last."""
    sleeping = {
        None: "",
        True: " AND snoozed > ?",
        False: " AND COALESCE(snoozed, 0) <= ?",
    }[snoozed]
    values = [clock.to_ms(now)] if sleeping else []
    return find_where(
        tx,
        f"state IN ({marks(OPEN)})"
        f" AND ({_RANK}, created, id) > (?, ?, ?){sleeping}"
        f" ORDER BY {_RANK}, created, id LIMIT ?",
        *(*OPEN, *after, *values, limit),
    )


def find_beginning(tx: Transaction, beginning: str, limit: int) -> list[str]:
    """The ids that begin so; of more than `limit` the newest."""
    length = len(beginning)
    rows = tx.all(
        f"SELECT id FROM requests WHERE substr(id, 1, {length}) = ?"
        " ORDER BY created DESC, id LIMIT ?",
        *(beginning, limit),
    )
    return [name for (name,) in rows]


def find_calls(tx: Transaction, server: str, now: datetime) -> list[ToolCall]:
    """The calls of another server's tools, as they were asked for, that wait, or were made and not told yet."""
    rows = tx.all(
        f"SELECT proposed FROM requests WHERE state IN ({marks(OPEN)}, 'sent') AND created > ?"
        " AND (state <> 'sent' OR untold = 1) AND proposed LIKE ?",
        *(*OPEN, clock.to_ms(now - LIFETIME), f'%"server":"{server}"%'),
    )
    found = (read_action(text) for (text,) in rows)
    return [each for each in found if isinstance(each, ToolCall) and each.server == server]


def name_askers(tx: Transaction, names: Iterable[str | None]) -> dict[str, str]:
    """Who asked for each of these requests, in words; those that there are not are left out."""
    wanted = [*{name for name in names if name}]
    rows = (
        tx.all(
            f"SELECT id, asker, asked_by FROM requests WHERE id IN ({marks(wanted)})",
            *wanted,
        )
        if wanted
        else []
    )
    return {name: describe_asker(asker, door) for name, asker, door in rows}


def list_askers(tx: Transaction) -> list[str]:
    """Who asked for what is open, as the cards name them."""
    rows = tx.all(
        f"SELECT DISTINCT asker, asked_by FROM requests WHERE state IN ({marks(OPEN)})",
        *OPEN,
    )
    return sorted({describe_asker(*row) for row in rows})


def list_late(tx: Transaction, now: datetime) -> list[str]:
    """What waits for an answer although its time is over, some at a time."""
    rows = tx.all(
        "SELECT id FROM requests WHERE state IN ('held', 'unknown', 'waiting') AND state = 'waiting'"
        " AND expires <= ? ORDER BY expires LIMIT ?",
        *(clock.to_ms(now), _LATE),
    )
    return [name for (name,) in rows]


def list_awake(tx: Transaction, now: datetime) -> list[str]:
    """What is neither answered nor put off, by id."""
    moment = clock.to_ms(now)
    rows = tx.all(
        f"SELECT id FROM requests WHERE {_UNDECIDED}"
        " AND state <> 'held' AND COALESCE(snoozed, 0) <= ?",
        *(moment + 1, moment, moment),
    )
    return [name for (name,) in rows]


def count_undecided(tx: Transaction, now: datetime) -> dict[str, int]:
    """How many wait, how many are held and how many are put off."""
    moment = clock.to_ms(now)
    counts = {"waiting": 0, "held": 0, "snoozed": 0}
    for state, count, put_off in tx.all(_COUNTED, *[moment] * _COUNTED.count("?")):
        if state == "held":
            counts["held"] += count
        else:
            counts["waiting"] += count - put_off
            counts["snoozed"] += put_off
    return counts


def find_files(
    tx: Transaction, names: Sequence[str]
) -> dict[str, tuple[str, Folder, State]]:
    """Of each of these files that is a request's: its id, where the file was seen last, and its state."""
    found: dict[str, tuple[str, Folder, State]] = {}
    for start in range(0, len(names), 1000):
        some = names[start : start + 1000]
        rows = tx.all(
            f"SELECT file, id, folder, state FROM requests WHERE file IN ({marks(some)})",
            *some,
        )
        found |= {
            name: (request_id, folder, state) for name, request_id, folder, state in rows
        }
    return found


def find_misplaced(tx: Transaction, limit: int) -> list[Request]:
    """Requests whose file is not known to lie where it belongs."""
    return find_where(
        tx,
        "folder <> CASE"
        " WHEN state IN ('approved', 'sending') THEN 'Approved' WHEN state = 'rejected' THEN 'Rejected'"
        " WHEN state IN ('waiting', 'held', 'unknown', 'failed') THEN folder ELSE 'Done' END"
        " ORDER BY created LIMIT ?",
        limit,
    )


def has_approved(tx: Transaction) -> bool:
    """Whether any file was seen in Approved/ that has not left yet."""
    return (
        tx.one(
            "SELECT 1 FROM requests WHERE state = 'approved' AND folder = 'Approved' LIMIT 1"
        )
        is not None
    )


def find_unsettled(tx: Transaction, limit: int) -> list[Request]:
    """Drafts that were answered, or whose no was taken back, and the note of the mail does not say so yet."""
    return find_where(
        tx,
        "origin = 'draft' AND (settled = 0 AND state IN ('sent', 'rejected')"
        " OR settled = 1 AND state = 'waiting') ORDER BY created LIMIT ?",
        limit,
    )


def find_refused(tx: Transaction, mail: str) -> list[Request]:
    """The drafts to a mail that the person said no to."""
    return find_where(tx, "mail = ? AND state = 'rejected' ORDER BY created", mail)


def find_answered(tx: Transaction, header: str) -> str | None:
    """The orchestrator's key of a mail that was answered, by its Message-ID header."""
    rows = tx.all(
        "SELECT mail, action FROM requests WHERE mail IS NOT NULL AND action LIKE ?",
        f"%<{header}>%",
    )
    return next(
        (
            str(mail)
            for mail, text in rows
            if read_action(text).in_reply_to == f"<{header}>"
        ),
        None,
    )


def find_answering(tx: Transaction, message_id: str) -> list[str]:
    """The ids of the open requests and of all drafts that answer a mail."""
    rows = tx.all(
        f"SELECT id, action FROM requests WHERE origin = 'draft' OR state IN ({marks(OPEN)}) ORDER BY created, id",
        *OPEN,
    )
    # Parsing a thousand texts for one mail would be felt; most do not even name it.
    named = [(name, read_action(text)) for name, text in rows if message_id in text]
    return [name for name, action in named if action.reply_to_message_id == message_id]


def count_unfinished(tx: Transaction, now: datetime) -> tuple[int, int]:
    """How many sends were left by a process that died, and of how many mails nobody knows whether they left."""
    rows = tx.all(
        "SELECT state, count(*) FROM requests WHERE state = 'unknown' OR (state = 'sending' AND lease < ?)"
        " GROUP BY state",
        clock.to_ms(now),
    )
    found: dict[str, int] = dict(rows)
    return found.get("sending", 0), found.get("unknown", 0)


def count_limited(tx: Transaction) -> int:
    """How many the person said yes to that wait for the rate limit."""
    sql = "SELECT count(*) FROM requests WHERE state = 'approved' AND resting = 'rate'"
    row = tx.one(sql)
    assert row is not None  # noqa: S101 - a count has a row
    return int(row[0])


def count_states(tx: Transaction) -> dict[str, int]:
    """How many requests that a person said yes to are in which state."""
    return dict(
        tx.all(
            "SELECT state, count(*) FROM requests"
            " WHERE state IN ('approved', 'sending', 'sent', 'unknown', 'failed') GROUP BY state ORDER BY state"
        )
    )


def troubles(tx: Transaction, limit: int) -> list[Request]:
    """Approved requests whose last try failed, the latest first."""
    condition = "error IS NOT NULL AND state = 'approved' ORDER BY tried DESC LIMIT ?"
    return find_where(tx, condition, limit)


def waits_of(tx: Transaction, since: datetime, limit: int) -> list[timedelta]:
    """How long the newest requests that were answered had waited for the person."""
    sql = "SELECT decided - created FROM requests WHERE decided >= ? ORDER BY decided DESC LIMIT ?"
    return [
        timedelta(milliseconds=max(0, waited))
        for (waited,) in tx.all(sql, clock.to_ms(since), limit)
    ]


def mails_sent_to(
    tx: Transaction, addresses: Sequence[str]
) -> dict[str, tuple[int, datetime]]:
    """How many mails left for each of these addresses, and when the last one did."""
    rows = tx.all(
        "SELECT address, COUNT(*), MAX(COALESCE(frozen, created)) FROM written_to JOIN requests ON id = request_id"
        f" WHERE address IN ({marks(addresses) or 'NULL'}) GROUP BY address",
        *addresses,
    )
    return {address: (count, clock.from_ms(last)) for address, count, last in rows}


def earlier_sends(
    tx: Transaction, digests: Sequence[str]
) -> dict[str, tuple[str, datetime]]:
    """The request by which each of these mails left before, and when; the last one, where
    it left more than once."""
    rows = tx.all(
        "SELECT digest, id, COALESCE(tried, frozen, created) AS at FROM requests"
        f" WHERE state = 'sent' AND digest IN ({marks(digests) or 'NULL'}) ORDER BY at",
        *digests,
    )
    return {digest: (name, clock.from_ms(at)) for digest, name, at in rows}


def addresses_written_to(tx: Transaction, limit: int) -> list[str]:
    """Addresses to which mails left from here."""
    sql = "SELECT DISTINCT address FROM written_to LIMIT ?"
    return [address for (address,) in tx.all(sql, limit)]
