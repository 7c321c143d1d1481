"""What other servers answered to the calls that a person approved: for whoever asked, for a day, and no more than fits.

What was too long is not cut in the middle: half an answer would be another one.
"""

from datetime import datetime, timedelta

from deskhand import clock
from deskhand.store import Transaction

KEPT = timedelta(days=1)


def keep(tx: Transaction, request_id: str, result: str, now: datetime) -> None:
    moment = clock.to_ms(now)
    tx.execute(
        "DELETE FROM results WHERE expires <= ? OR request_id = ?", moment, request_id
    )
    sql = "INSERT INTO results (request_id, result, expires) VALUES (?, ?, ?)"
    tx.execute(sql, request_id, result, clock.to_ms(now + KEPT))


def find(tx: Transaction, request_id: str, now: datetime) -> str | None:
    row = tx.one(
        "SELECT result FROM results WHERE request_id = ? AND expires > ?",
        request_id,
        clock.to_ms(now),
    )
    return str(row[0]) if row else None
