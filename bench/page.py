"""How soon the page answers as the record grows: first byte of /, /mail and /timeline with 1,000 waiting approvals.

Three desks that differ only in the length of their records (1,000, 10,000 and 100,000 lines) are asked in turns, so
that all of them meet the same moments of the machine. The ratio of the largest to the smallest counts: at most 1.3.

python3 run.py bench page [--rounds N] [--waiting N] [--json] [--beside CHECKOUT [--lines N]]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx2

from bench.page_beside import compare
from deskhand import audit, clock
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.actions import SendEmail
from deskhand.mail import mime
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.store import Transaction
from deskhand.web.site import site
from tests.web.person import served, signed_in

SIZES = (1_000, 10_000, 100_000)
BASES = {
    "/": SIZES[0],
    "/mail": SIZES[0],
    "/timeline": SIZES[0],
    # A search reads at most some thousand lines, as many as it takes to fill a page: the smallest record has fewer.
    "/timeline?actor=email_mcp&result=rejected": SIZES[1],
    "/timeline?text=nowhere": SIZES[1],
}
"""Each path, and the size that its largest is compared with."""
PATHS = tuple(BASES)
GOAL = 1.3
DAYS = 90
MAILS = 200
MAILED = datetime(2026, 11, 1, tzinfo=UTC)


async def filled(place: Path, lines: int, waiting: int) -> Desk:
    """A desk with so many waiting approvals, each asked for through the gate, and so long a record."""
    (place / "vault").mkdir(parents=True)
    home = {"DESKHAND_HOME": str(place / "home"), "VAULT_PATH": str(place / "vault")}
    desk = Desk(load(home | {"DESKHAND_ADDRESS": "me@example.com"}).settings)
    box = desk.mailbox
    assert isinstance(box, LocalMailbox)
    await box.receive([Incoming(_letter(number), seen=False) for number in range(MAILS)])
    for number in range(waiting):
        letter = SendEmail(
            to=f"p{number}@example.org",
            subject=f"Offer {number}",
            body=f"Dear {number},\n\nhello.\n",
        )
        await desk.gate.propose(letter, "email_mcp")
    there = (await desk.store.read(audit.head)).seq
    for first in range(there, lines, 1000):
        last = min(first + 1000, lines)
        await desk.store.write(
            lambda tx, first=first, last=last: _grow(desk, tx, first, last, lines)
        )
    return desk


def _letter(number: int) -> bytes:
    return mime.compose(
        sender="ann@example.org",
        to=["me@example.com"],
        subject=f"News {number}",
        body=f"Text {number}\n",
        message_id=f"<{number}@example.org>",
        date=MAILED - timedelta(minutes=number),
        action_id=None,
    )


def _grow(desk: Desk, tx: Transaction, first: int, last: int, lines: int) -> None:
    for number in range(first, last):
        entry = audit.Entry(
            timestamp=clock.iso(desk.now() - timedelta(days=DAYS * (1 - number / lines))),
            correlation_id=f"c{number}",
            actor=("email_mcp", "obsidian_mcp", "gmail_mcp")[number % 3],
            action_type=("search_email", "write_note", "list_emails")[number % 3],
            target=f"note {number}.md",
            result="rejected" if number % 10 == 0 else "success",
            duration_ms=number % 100,
            parameters={"query": f"subject:offer {number}"},
        )
        audit.append(tx, entry)


async def first_byte(http: httpx2.AsyncClient, path: str) -> float:
    """Milliseconds until the answer begins."""
    began = time.perf_counter()
    async with http.stream("GET", path) as answer:
        assert answer.status_code == 200, (path, answer.status_code)
        pieces = answer.aiter_raw()
        await anext(pieces)
        took = time.perf_counter() - began
        async for _ in pieces:
            pass  # so that the connection is kept
    return took * 1000


async def measured(rounds: int, waiting: int) -> list[dict[str, Any]]:
    times: dict[tuple[str, int], list[float]] = {
        (path, size): [] for path in PATHS for size in SIZES
    }
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        people: dict[int, httpx2.AsyncClient] = {}
        for size in SIZES:
            desk = await filled(place / str(size), size, waiting)
            stack.callback(desk.close)
            address = await stack.enter_async_context(served(site(desk)))
            people[size] = (await stack.enter_async_context(signed_in(desk, address))).http
            print(f"a desk with {size:,} lines is ready", file=sys.stderr)
        for number in range(rounds + 3):
            for path in PATHS:
                for size in SIZES if number % 2 else SIZES[::-1]:
                    took = await first_byte(people[size], path)
                    if number >= 3:  # templates, proof and caches are warm
                        times[path, size].append(took)
    return [
        compared(path, {size: statistics.median(times[path, size]) for size in SIZES})
        for path in PATHS
    ]


def compared(path: str, medians: dict[int, float]) -> dict[str, Any]:
    ratio = medians[SIZES[-1]] / medians[BASES[path]]
    return {
        "path": path,
        "p50_ms": {str(size): round(p50, 2) for size, p50 in medians.items()},
        "ratio": ratio,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="of another version"
    )
    parser.add_argument(
        "--lines", type=int, default=SIZES[1], help="of both records, beside"
    )
    options = parser.parse_args(argv)
    if options.beside:
        given = {"lines": options.lines, "waiting": options.waiting}
        return compare(options.beside, PATHS, options.rounds, given)
    rows = anyio.run(measured, options.rounds, options.waiting)
    if options.json:
        print(json.dumps(rows))
    else:
        print(
            f"first byte, p50 in ms{'':<30}"
            + "".join(f"{size:>10,}" for size in SIZES)
            + "   ratio"
        )
        for row in rows:
            figures = "".join(f"{p50:>10.1f}" for p50 in row["p50_ms"].values())
            print(f"{row['path']:<51}{figures}{row['ratio']:>8.2f}  (at most {GOAL})")
    return int(any(row["ratio"] > GOAL for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
