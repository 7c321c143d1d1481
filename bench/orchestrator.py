"""Triage by rules, in mails a second: from the mailbox to note, decision, draft and label.

python3 run.py bench orchestrator [--mails 300]
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from deskhand.orchestrator.loop import Orchestrator
from tests.home import Home
from tests.orchestrator.office import Office, question


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mails", type=int, default=300)
    options = parser.parse_args()
    for workers in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            vault = Path(folder) / "vault"
            vault.mkdir()
            paths = {
                "DESKHAND_HOME": f"{folder}/home",
                "VAULT_PATH": str(vault),
                "PATH": os.environ["PATH"],
            }
            more = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_FIRST_DAYS": "3650"}
            office = Office(Home(vault, paths | more))
            office.receive(*(question(number) for number in range(options.mails)))
            seconds, cpu = asyncio.run(measured(office, workers))
            drafts = len(office.files("Drafts"))
        each = 1000 * cpu / options.mails
        print(
            f"{workers} workers: {options.mails / seconds:.0f} mails a second, {each:.1f} ms of CPU each"
        )
        if drafts != options.mails:
            print(f"only {drafts} drafts", file=sys.stderr)
            return 1
    return 0


async def measured(office: Office, workers: int) -> tuple[float, float]:
    desk = office.desk()
    orchestrator = Orchestrator(desk, workers)
    started, used = time.perf_counter(), time.process_time()
    await orchestrator.once()
    took, cpu = time.perf_counter() - started, time.process_time() - used
    await orchestrator.close()
    await desk.close_mailbox()
    desk.close()
    return took, cpu


if __name__ == "__main__":
    sys.exit(main())
