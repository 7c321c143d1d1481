"""How many entries of which kind each day has, and between which lines: what plots and searches start from."""

import json

from deskhand.store import Transaction

_PAGE = "SELECT seq, entry FROM audit WHERE seq > ? ORDER BY seq LIMIT 1000"


def upgrade(tx: Transaction) -> None:
    days: dict[tuple[str, ...], tuple[int, int, int]] = {}
    last = 0
    while lines := tx.all(_PAGE, last):
        for seq, line in lines:
            key = _day_and_kind(json.loads(line))
            count, first, _ = days.get(key, (0, seq, seq))
            days[key] = (count + 1, first, seq)
        last = lines[-1][0]
    if days:
        tx.many(
            "INSERT INTO audit_days (day, actor, action, result, entries, first_seq, last_seq)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*key, *figures) for key, figures in days.items()],
        )


def _day_and_kind(entry: dict[str, str]) -> tuple[str, ...]:
    actor, action = (
        entry[key].replace("\0", "\ufffd")[:100] for key in ("actor", "action_type")
    )
    return entry["timestamp"][:10], actor, action, entry["result"]
