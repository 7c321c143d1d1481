"""`deskhand permit`: what the person lets leave without being asked each time. One is made on the page, from a card."""

import argparse
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import at_desk, command, group, say_end, say_time, tell

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.gate.permitting import Standing


def add_to(commands: Any) -> None:
    permit = group(
        commands,
        "permit",
        "what may leave without a question; you make one on the page, from a card",
    )
    command(
        permit,
        "list",
        _list,
        "the permissions there are, and whether each counts",
        json=True,
    )
    show = command(
        permit, "show", _show, "one permission, and what left under it", json=True
    )
    revoke = command(permit, "revoke", _revoke, "end a permission", json=True)
    for each in (show, revoke):
        each.add_argument("id", help="as `deskhand permit list` names it")
    command(
        permit,
        "off",
        _turn_off,
        "none of them counts until you turn them on again",
        json=True,
    )
    command(
        permit,
        "on",
        _turn_on,
        "let them count again; it takes what an answer takes",
        json=True,
    )


def _list(options: argparse.Namespace) -> None:
    found, off = at_desk(_read)
    for each in found:
        tell(options, _fields(each), _line(each))
    if not options.json and not found:
        print("There are none: everything waits for you.")
    if not options.json and off:
        print("All of them are turned off; `deskhand permit on` lets them count again.")


async def _read(desk: "Desk") -> "tuple[list[Standing], bool]":
    return await desk.permitting.list_all(), await desk.permitting.is_off()


def _show(options: argparse.Namespace) -> None:
    found = at_desk(lambda desk: desk.permitting.find(options.id))
    uses = [f"  {say_time(at)}  {name}" for name, at in found.uses]
    tell(options, _fields(found), "\n".join([_line(found), *uses]))


def _revoke(options: argparse.Namespace) -> None:
    at_desk(lambda desk: desk.permitting.revoke(options.id, "person"))
    tell(
        options,
        {"id": options.id, "counts": False},
        f"{options.id} lets nothing through any more.",
    )


def _turn_off(options: argparse.Namespace) -> None:
    at_desk(lambda desk: desk.permitting.turn("person", on=False))
    tell(
        options,
        {"off": True},
        "No permission counts now: everything waits for you, what was resting too.",
    )


def _turn_on(options: argparse.Namespace) -> None:
    from deskhand.cli.approvals import claim

    at_desk(lambda desk: desk.answers.permit_again("person", claim(desk)))
    tell(options, {"off": False}, "Your permissions count again.")


def _line(standing: "Standing") -> str:
    from deskhand.gate.permitting import describe

    made = standing.permission
    state = "counts" if standing.counts else "does not count"
    times = "once" if len(standing.uses) == 1 else f"{len(standing.uses)} times"
    return f"{made.id}  {state}  {describe(made, say_end(made.ends))}; used {times}"


def _fields(standing: "Standing") -> dict[str, Any]:
    made = standing.permission
    return {
        "id": made.id,
        "counts": standing.counts,
        "names": made.names,
        "per_day": made.per_day,
        "made": made.made.isoformat(),
        "ends": made.ends.isoformat(),
        "proof": made.proof,
        "request": made.request_id,
        "closed": made.closed and made.closed.isoformat(),
        "closed_by": made.closed_by,
        "uses": [{"request": name, "at": at.isoformat()} for name, at in standing.uses],
    }
