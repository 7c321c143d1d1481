"""The local mailbox at 1,000, 10,000 and 100,000 mails: what listing and searching cost, side by side; and a search
over three accounts beside that of the slowest of them.

python3 run.py bench mail [--small] [--beside CHECKOUT]
"""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

from bench.beside import compare
from bench.vaults import WORDS, vocabulary
from deskhand.mail.local import Incoming, LocalMailbox

SIZES = (1_000, 10_000, 100_000)
RUNS = 300
ACCOUNT_RUNS = 15
WARM_UP = 20
BATCH = 1_000
NOW = datetime(2026, 2, 24, tzinfo=UTC)
# These give a full page at every size, so that only the mailbox grows; it may cost this much more, noise included.
FULL_PAGES = ("list 50", "list 50 unread", "word in most mails")
MOST_GROWTH = 5.0
MOST_TOGETHER = 4 / 3
LATENCY = 0.1
"""Seconds that Gmail takes for an answer."""


def main() -> int:
    sizes = SIZES[:2] if "--small" in sys.argv else SIZES
    if "--beside" in sys.argv:
        other = sys.argv[sys.argv.index("--beside") + 1]
        return compare(Path(other), sizes)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder) / "mail.db", sizes))
        slowest, together = asyncio.run(measure_accounts(Path(folder)))
    print(f"{'p50 / p99 ms':<34}" + "".join(f"{size:>20,}" for size in sizes))
    for name, row in figures.items():
        print(f"{name:<34}" + "".join(f"{p50:>12.2f} / {p99:5.2f}" for p50, p99 in row))
    worst = max(figures[name][-1][0] / figures[name][0][0] for name in FULL_PAGES)
    print(
        f"growth of a full page's p50, {sizes[0]:,} to {sizes[-1]:,}: {worst:.1f} times (at most {MOST_GROWTH})"
    )
    print(
        f"over three accounts {together:.0f} ms, the slowest alone {slowest:.0f} ms (at most a third more)"
    )
    return worst > MOST_GROWTH or together > slowest * MOST_TOGETHER


async def measure(
    file: Path, sizes: tuple[int, ...]
) -> dict[str, list[tuple[float, float]]]:
    mailbox = LocalMailbox(file, "me@example.com", lambda: NOW)
    chance = random.Random(1)
    words = vocabulary(chance)
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    figures: dict[str, list[tuple[float, float]]] = {}
    filled = 0
    for size in sizes:
        began = time.perf_counter()
        for start in range(filled, size, BATCH):
            await mailbox.receive(
                [
                    letter(chance, words, weights, number)
                    for number in range(start, start + BATCH)
                ]
            )
        tell(file, size, (size - filled) / (time.perf_counter() - began))
        filled = size
        for name, queries in questions(chance, words).items():
            figures.setdefault(name, []).append(await timed(mailbox, queries))
    await mailbox.close()
    return figures


async def measure_accounts(folder: Path) -> tuple[float, float]:
    """The median of a search in the slowest account alone, and over the local one and two at Gmail."""
    from deskhand.app import Desk
    from deskhand.config import load
    from deskhand.mail.mailboxes import MailView, viewing
    from tests.mail.gmail_double import GmailDouble
    from tests.mail.letters import letter as short_letter

    with GmailDouble(latency=LATENCY) as one, GmailDouble(latency=LATENCY) as two:
        accounts = []
        for name, gmail in (("one", one), ("two", two)):
            gmail.account.address = f"{name}@example.com"
            for number in range(50):
                gmail.account.deliver(
                    short_letter(
                        subject=f"Letter {number}", message_id=f"<{number}@{name}>"
                    )
                )
            signed_in = str(gmail.credentials(folder / f"{name}.json"))
            own = {"gmail_credentials": signed_in, "gmail_api_endpoint": gmail.origin}
            accounts.append({"name": name, "kind": "gmail"} | own)
        home = {"DESKHAND_HOME": str(folder), "DESKHAND_ADDRESS": "me@example.com"}
        desk = Desk(load(home | {"DESKHAND_MAIL_ACCOUNTS": json.dumps(accounts)}).settings)

        async def search(*names: str) -> float:
            with viewing(MailView(frozenset(names) or None)):
                began = time.perf_counter()
                await desk.mailbox.search("", 50)
                return (time.perf_counter() - began) * 1000

        await search()
        names = ("main", "one", "two")
        alone = [
            statistics.median([await search(name) for _ in range(ACCOUNT_RUNS)])
            for name in names
        ]
        together = statistics.median([await search() for _ in range(ACCOUNT_RUNS)])
        await desk.close_mailbox()
    return max(alone), together


def tell(file: Path, size: int, rate: float) -> None:
    each = file.stat().st_size / size
    print(
        f"filled to {size:,}: {rate:,.0f} mails a second, {each:,.0f} bytes a mail",
        flush=True,
    )


def questions(chance: random.Random, words: list[str]) -> dict[str, list[str]]:
    return {
        "list 50": [""] * RUNS,
        "list 50 unread": ["is:unread"] * RUNS,
        "word in most mails": [words[chance.randrange(20)] for _ in range(RUNS)],
        "word in some mails": [words[chance.randrange(500, 2_000)] for _ in range(RUNS)],
        "rare word": [words[chance.randrange(20_000, WORDS)] for _ in range(RUNS)],
        "two words": [
            f"{words[chance.randrange(100)]} {words[chance.randrange(100)]}"
            for _ in range(RUNS)
        ],
        "from: and a word": [
            f"from:sender{chance.randrange(50)} {words[chance.randrange(50)]}"
            for _ in range(RUNS)
        ],
    }


async def timed(mailbox: LocalMailbox, queries: list[str]) -> tuple[float, float]:
    for query in queries[:WARM_UP]:
        await mailbox.search(query, 50)
    taken = []
    for query in queries:
        began = time.perf_counter()
        await mailbox.search(query, 50)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


def letter(
    chance: random.Random, words: list[str], weights: list[float], number: int
) -> Incoming:
    """About 1 kB of words as frequent as in a language, from one of two hundred senders, over three years."""
    text = chance.choices(words, cum_weights=weights, k=chance.randrange(40, 240))
    lines = "\r\n".join(
        " ".join(text[start : start + 12]) for start in range(0, len(text), 12)
    )
    parent = (
        f"In-Reply-To: <{chance.randrange(number)}@example.org>\r\n"
        if number and chance.random() < 0.5
        else ""
    )
    raw = (
        f"From: Sender <sender{chance.randrange(200)}@example.org>\r\nTo: me@example.com\r\n"
        f"Subject: {' '.join(text[:5])}\r\nMessage-ID: <{number}@example.org>\r\n{parent}\r\n{lines}\r\n"
    )
    return Incoming(
        raw.encode(),
        seen=chance.random() < 0.8,
        dated=NOW - timedelta(minutes=chance.randrange(1_500_000)),
    )


if __name__ == "__main__":
    sys.exit(main())
