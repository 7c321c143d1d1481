"""`deskhand doctor`: what is in order at this desk, what is not, and what to do."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deskhand import environment, guard
from deskhand.cli.command import command, flag, one_line, opened_desk, run, tell
from deskhand.errors import BadConfig, describe

if TYPE_CHECKING:
    from deskhand.guard import Guard
    from deskhand.setup.checks.findings import Finding

_MARKS = {"good": "ok  ", "warning": "warn", "bad": "BAD "}


def add_to(commands: Any) -> None:
    made = command(
        commands,
        "doctor",
        _doctor,
        "check the desk; each finding says what to do",
        json=True,
    )
    flag(
        made,
        "--deep",
        "also try on this desk what strangers tried elsewhere: doors, files, hostile mails",
    )
    flag(made, "--fix", "repair what is safe: permissions, schema, folders, index")


def _doctor(options: argparse.Namespace) -> int:
    from deskhand.config import load
    from deskhand.setup import doctor
    from deskhand.setup.checks.findings import bad

    guarded = guard.find()
    own = guard.is_own_home(environment.variables().get("DESKHAND_HOME"))
    if guarded and own and os.geteuid() in (0, guarded.uid):
        return _show_guarded(guarded, options)

    try:
        settings = load().settings
    except BadConfig as error:
        # Nothing else can be checked without it.
        hint, error.hint = error.hint, None
        lines = describe(error).removeprefix("error: ").splitlines()
        finding = bad("; ".join(map(str.strip, lines)), hint)
        return _show([replace(finding, name="configuration")], [], options)
    done = []
    with opened_desk(settings) as desk:
        if options.fix:
            done = doctor.repair(desk)
        found = run(desk, partial(doctor.checkup, deeply=options.deep))
    return _show(found, done, options)


def _show_guarded(guarded: "Guard", options: argparse.Namespace) -> int:
    """What of the guard can be seen from here; root also hears what the desk's own user finds."""
    from deskhand.setup import holes
    from deskhand.setup.checks.findings import Finding

    found = [
        holes.describe(guarded),
        *(replace(each, name="guard") for each in holes.find(guarded)),
    ]
    done: list[str] = []
    if os.geteuid() == 0:
        flags = [f"--{name}" for name in ("deep", "fix") if getattr(options, name)]
        command = guard.desk_command("doctor", "--json", *flags)
        told = subprocess.run(
            command,
            env=guard.desk_environment(),
            cwd=guard.HOME,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        facts = json.loads(told.stdout)
        done = facts["repaired"]
        found += [Finding(**each) for each in facts["findings"] if each["name"] != "mode"]
    return _show(found, done, options)


def _show(found: "list[Finding]", done: list[str], options: argparse.Namespace) -> int:
    broken = any(finding.state == "bad" for finding in found)
    facts = {
        "good": not broken,
        "repaired": done,
        "findings": [asdict(finding) for finding in found],
    }
    if not options.json:
        for line in done:
            print(f"fixed: {line}", file=sys.stderr)
    tell(options, facts, "\n".join(map(_lines, found)))
    return int(broken)


def _lines(finding: "Finding") -> str:
    text = one_line(f"{_MARKS[finding.state]}  {finding.name:<14} {finding.says}")
    if finding.fix:
        text += f"\n{'':<21}-> {one_line(finding.fix)}"
    return text
