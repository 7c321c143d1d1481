"""Search of 50 mails over Gmail's API with 50 ms of latency, against one get at a time.

Both in one run, in turns, over real HTTP against the test suite's Gmail double. Fails where the search takes more than
three round trips or is not ten times faster.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from deskhand.config import load
from deskhand.mail.gmail import GmailMailbox
from deskhand.mail.google_http import GoogleRequest
from tests.mail.gmail_double import GmailDouble
from tests.mail.letters import letter

LATENCY = 0.05
MAILS = 50
TURNS = 7


async def one_at_a_time(mailbox: GmailMailbox) -> int:
    """What a plain client does: list, then get after get, on a kept connection."""
    api = mailbox._api  # noqa: SLF001 - the same client, so that only the way of asking differs
    listed = await api.read(GoogleRequest("messages", {"maxResults": str(MAILS)}))
    for each in listed["messages"]:
        await api.read(GoogleRequest(f"messages/{each['id']}", {"format": "metadata"}))
    return len(listed["messages"])


async def measure(gmail: GmailDouble, folder: Path) -> bool:
    settings = load({"DESKHAND_HOME": str(folder)} | gmail.environment(folder)).settings
    times: dict[str, list[float]] = {
        "search, with sign-in": [],
        "search": [],
        "search again": [],
        "one at a time": [],
    }
    trips: dict[str, int] = {}
    for _ in range(TURNS):
        fresh, mailbox = GmailMailbox(settings), GmailMailbox(settings)
        await mailbox.address()
        for name, ask in (
            ("search, with sign-in", fresh.search("", MAILS)),
            ("search", mailbox.search("", MAILS)),
            (
                "search again",
                mailbox.search("", MAILS),
            ),  # knows the mails and asks only for their labels
            ("one at a time", one_at_a_time(mailbox)),
        ):
            before, started = gmail.round_trips, time.perf_counter()
            found = await ask
            times[name].append(time.perf_counter() - started)
            trips[name] = gmail.round_trips - before
            assert found == MAILS or len(found) == MAILS
        await fresh.close()
        await mailbox.close()
    slow = statistics.median(times["one at a time"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(
            f"{name:<20} {median * 1000:7.0f} ms  {trips[name]:3} round trips  {slow / median:5.1f} times as fast"
        )
    return (
        trips["search, with sign-in"] <= 3
        and slow / statistics.median(times["search"]) >= 10
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, GmailDouble(latency=LATENCY) as gmail:
        for number in range(MAILS):
            gmail.account.deliver(letter(subject=f"Mail {number}"))
        return 0 if anyio.run(measure, gmail, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
