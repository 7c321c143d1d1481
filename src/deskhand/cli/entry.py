"""`deskhand link`, `deskhand pair` and `deskhand password`: how the person gets to the page."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import ask_secret, command, flag, group, opened_desk, tell
from deskhand.errors import InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.running import RunningDesk


def add_to(commands: Any) -> None:
    link = command(
        commands,
        "link",
        _link,
        "a fresh link that signs one browser in to the running desk",
        json=True,
    )
    flag(link, "--end-all", "end every session and open link instead")
    command(
        commands,
        "pair",
        _pair,
        "a code that signs a phone's browser in, once, within 5 minutes",
        json=True,
    )
    password = group(commands, "password", "a password for the page, beside the links")
    command(
        password,
        "set",
        _set,
        "ask for a password of at least 10 characters, or read it from stdin",
    )
    command(password, "remove", _remove, "let links alone open the page")


def _link(options: argparse.Namespace) -> None:
    from deskhand.web import sessions

    with opened_desk() as desk:
        if options.end_all:
            ended = desk.store.write_sync(sessions.end_all)
            _record(desk, "sign_out", {"sessions": ended})
            tell(options, {"ended": ended}, f"{_count(ended)} ended, and every open link.")
            return
        found = _demand_running(desk)
        link = asyncio.run(sessions.link(desk, found.address))
    told = {"link": link, "address": found.address}
    if desk.settings.inbox_origin:
        told["elsewhere"] = link.replace(found.address, desk.settings.inbox_origin)
    tell(options, told, "\n".join(filter(None, [link, told.get("elsewhere")])))


def _demand_running(desk: "Desk") -> "RunningDesk":
    from deskhand import running

    found = running.find(desk.settings.home)
    if found is None:
        raise Unavailable(
            f"no desk runs in {desk.settings.home}", hint="start it with `deskhand up`"
        )
    return found


def _pair(options: argparse.Namespace) -> None:
    from deskhand.web.pairing import pair

    with opened_desk() as desk:
        _demand_running(desk)
        pairing = asyncio.run(pair(desk, "terminal"))
    drawn = pairing.draw_blocks()
    # Whatever colours the terminal has, a camera needs dark on light.
    if sys.stdout.isatty():
        drawn = "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in drawn.splitlines())
    words = f"Point the phone's camera at it, within {pairing.minutes} minutes; it works once.\n{pairing.link}"
    tell(options, {"link": pairing.link, "minutes": pairing.minutes}, f"{drawn}\n{words}")


def _set(options: argparse.Namespace) -> None:
    from deskhand.gate import passwords
    from deskhand.web import sessions

    del options
    kept = passwords.hash_password(_ask_password())
    with opened_desk() as desk:
        ended = desk.store.write_sync(sessions.keep_password, desk.seal_password(kept))
        _record(desk, "set_password", {"sessions_ended": ended})
    if ended:
        print(f"The page has this password now; {_count(ended)} ended.")
    else:
        print("The page has this password now.")


def _remove(options: argparse.Namespace) -> None:
    from deskhand.gate import passwords

    del options
    with opened_desk() as desk:
        if not desk.store.write_sync(passwords.remove):
            raise NotFound(
                "the page has no password", hint="`deskhand password set` gives it one"
            )
        _record(desk, "remove_password", {})
    print("Links alone open the page now.")


def _ask_password() -> str:
    password = ask_secret("Password for the page: ")
    if sys.stdin.isatty() and ask_secret("Once more: ") != password:
        raise InvalidInput(
            "the two are not the same", hint="nothing was changed; try again"
        )
    return password


def _record(desk: "Desk", action: str, details: dict[str, Any]) -> None:
    asyncio.run(desk.record("person", action, "page", details))


def _count(sessions: int) -> str:
    return "1 session" if sessions == 1 else f"{sessions} sessions"
