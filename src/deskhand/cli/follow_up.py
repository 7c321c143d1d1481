"""`deskhand follow-up`: answers that the person waits for."""

import argparse
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import at_desk, command, group, one_line, say_time, tell

if TYPE_CHECKING:
    from datetime import datetime

    from deskhand.app import Desk
    from deskhand.gate.follow_ups import AwaitedAnswer


def add_to(commands: Any) -> None:
    follow_up = group(commands, "follow-up", "be told if nobody answers a mail")
    command(follow_up, "list", _list, "the answers that you wait for", json=True)
    setting = command(
        follow_up, "set", _set, "be told of a mail that waits or has left", json=True
    )
    cancelling = command(follow_up, "cancel", _cancel, "do not be told of it", json=True)
    for each in (setting, cancelling):
        each.add_argument(
            "id",
            help="the request's id, as `deskhand approvals` lists it, or its beginning",
        )
    setting.add_argument("when", help="fri, 3d, 30 Nov, an ISO time")


def _list(options: argparse.Namespace) -> None:
    async def read(desk: "Desk") -> "list[AwaitedAnswer]":
        from deskhand.gate import follow_ups

        return await desk.store.read(follow_ups.list_awaited)

    found = at_desk(read)
    for each in found:
        to = ", ".join(each.request.action.everybody)
        facts = {
            "id": each.request.id,
            "due": each.due.isoformat(),
            "to": to,
            "state": each.request.state,
        }
        line = (
            f"{each.request.id}  {say_time(each.due)}  {to}  {each.request.action.subject}"
        )
        tell(options, facts | {"subject": each.request.action.subject}, one_line(line))
    if not found and not options.json:
        print("You wait for no answer.")


def _set(options: argparse.Namespace) -> None:
    async def work(desk: "Desk") -> "datetime":
        from deskhand.gate import follow_ups
        from deskhand.tasks.due import read_wait

        wanted = read_wait(options.when, desk.now(), desk.settings.timezone, "when")
        options.id = await desk.waiting.complete_id(options.id)
        request = await desk.waiting.find(options.id)
        due = await desk.store.write(follow_ups.await_answer, request, wanted, desk.now())
        await desk.record("person", "follow_up", options.id, {"due": due})
        return due

    due = at_desk(work)
    facts = {"id": options.id, "due": due.isoformat()}
    tell(
        options,
        facts,
        f"You are told {say_time(due)} if nobody has answered {options.id}.",
    )


def _cancel(options: argparse.Namespace) -> None:
    async def work(desk: "Desk") -> None:
        from deskhand.gate import follow_ups

        options.id = await desk.waiting.complete_id(options.id)
        await desk.store.write(follow_ups.cancel, options.id)
        await desk.record("person", "cancel_follow_up", options.id, {})

    at_desk(work)
    tell(options, {"id": options.id}, f"You are not told of {options.id}.")
