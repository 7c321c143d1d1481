"""How many entries each quarter of an hour has, of the days that the Timeline draws."""

import json
from collections import Counter
from datetime import date, timedelta

from deskhand.store import Transaction

_DRAWN = timedelta(days=35)
_PAGE = "SELECT seq, entry FROM audit WHERE seq > ? ORDER BY seq LIMIT 1000"


def upgrade(tx: Transaction) -> None:
    (newest,) = tx.one("SELECT max(day) FROM audit_days") or (None,)
    if newest is None:
        return
    since = str(date.fromisoformat(newest) - _DRAWN)
    ((first,),) = tx.all("SELECT min(first_seq) FROM audit_days WHERE day >= ?", since)
    counted: Counter[tuple[str, str]] = Counter()
    last = first - 1
    while lines := tx.all(_PAGE, last):
        for _, line in lines:
            entry = json.loads(line)
            counted[_quarter_of(entry["timestamp"]), entry["result"]] += 1
        last = lines[-1][0]
    tx.many(
        "INSERT INTO audit_quarters (quarter, result, entries) VALUES (?, ?, ?)",
        [(*names, count) for names, count in counted.items()],
    )


def _quarter_of(at: str) -> str:
    return f"{at[:14]}{int(at[14:16]) // 15 * 15:02}"
