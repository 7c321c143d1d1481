"""`deskhand log`: what was done at this desk, and the proof that nothing was changed since."""

import argparse
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import command, flag, one_line, opened_desk, say_time, tell

if TYPE_CHECKING:
    from deskhand.app import Desk


def add_to(commands: Any) -> None:
    log = command(commands, "log", _log, "show what was done at this desk", json=True)
    log.add_argument(
        "--limit",
        type=int,
        default=50,
        help="at most so many entries, the newest (default 50)",
    )
    flag(
        log,
        "--verify",
        "prove the record and the answers by password or passkey whole, or name the first that is not",
    )


def _log(options: argparse.Namespace) -> int:
    from deskhand import audit
    from deskhand.askers import describe_actor
    from deskhand.gate import lists
    from deskhand.wording import name_deed, name_result, plain_error

    with opened_desk() as desk:
        if options.verify:
            return _verify(desk, options)
        lines = desk.store.write_sync(partial(audit.entries, limit=options.limit))
        named = [(entry.parameters or {}).get("action_id") for _, entry in lines]
        askers = desk.store.write_sync(lists.name_askers, named)
    for seq, entry in reversed(lines):
        when = say_time(datetime.fromisoformat(entry.timestamp))
        who = describe_actor(entry.actor, entry.parameters or {}, askers)
        words = [
            f"{when:<18}",
            who,
            name_deed(entry.action_type, entry.parameters or {}),
            entry.target,
        ]
        words.append(name_result(entry.result))
        if entry.error:
            words.append(plain_error(entry.error))
        facts = {"seq": seq, "who": who} | entry.model_dump(exclude_none=True)
        tell(options, facts, one_line(f"{seq:>6}  {'  '.join(words)}"))
    return 0


def _verify(desk: "Desk", options: argparse.Namespace) -> int:
    import anyio

    from deskhand import audit
    from deskhand.audit import witness
    from deskhand.gate.forgery import Forged, check_answers

    async def verify() -> audit.Verified | audit.Broken:
        # Of one state: lines that others append between the last page and the head would look like missing ones.
        found = await desk.store.read(audit.verify)
        return await witness.find_lost_end(desk.store, desk.settings.own_place) or found

    answers = desk.store.write_sync(check_answers, desk.policy)
    if isinstance(answers, Forged):
        facts: dict[str, Any] = {
            "whole": False,
            "forged_answer": answers.name,
            "why": answers.why,
        }
        tell(options, facts, f"Record NOT intact: {answers.why}.")
        return 1

    match anyio.run(verify):
        case audit.Verified(entries):
            facts = {"whole": True, "entries": entries, "signatures": answers.signatures}
            many = "1 entry" if entries == 1 else f"{entries:,} entries"
            signed = f" and {answers.signatures} signatures" if answers.signatures else ""
            said = f"Record intact: {many}{signed} verified."
            if answers.unchecked:
                facts["unchecked_answers"] = answers.unchecked
                said += f" {answers.unchecked} answers are older than this desk's key and were not checked."
            tell(options, facts, said)
            return 0
        case audit.Broken(seq, why):
            facts = {"whole": False, "first_bad_line": seq, "why": why}
            tell(options, facts, f"Record NOT intact: line {seq}: {why}.")
            return 1
