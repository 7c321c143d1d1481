"""`deskhand approvals`, `show`, `approve`, `reject`: what waits for the person, and the person's answer."""

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from deskhand.cli.parts import command, opened_desk

if TYPE_CHECKING:
    from deskhand.gate.ledger import Row


def add_to(commands: Any) -> None:
    command(commands, "approvals", _list, "list what waits for your answer", json=True)
    show = command(commands, "show", _show, "show one request, exactly as it would be sent", json=True)
    approve = command(commands, "approve", _approve, "say yes to exactly what `show` prints", json=True)
    reject = command(commands, "reject", _reject, "say no", json=True)
    reject.add_argument("--reason", help="what the assistant is told")
    for each in (show, approve, reject):
        each.add_argument("id", help="the request's id, as `deskhand approvals` lists it")


def _list(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        rows = asyncio.run(desk.gate.open())
    for row in rows:
        _print(row, options)
    if not rows and not options.json:
        print("nothing waits")


def _show(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        row = asyncio.run(desk.gate.find(options.id))
        print(json.dumps(_fields(row) | {"text": desk.gate.shown(row)}) if options.json else desk.gate.shown(row))


def _approve(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        _print(asyncio.run(desk.gate.decide(options.id, "approved", "person", None)), options)


def _reject(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        _print(asyncio.run(desk.gate.decide(options.id, "rejected", "person", options.reason)), options)


def _print(row: "Row", options: argparse.Namespace) -> None:
    action = row.action
    line = f"{row.id}  {row.state:<8}  {action.kind}  {action.to}  {action.subject}"
    print(json.dumps(_fields(row)) if options.json else line)


def _fields(row: "Row") -> dict[str, Any]:
    return {
        "id": row.id,
        "state": row.state,
        "revision": row.revision,
        "file": row.file,
        "created": row.created.isoformat(),
        "expires": row.expires.isoformat(),
        "action": row.action.model_dump(),
    }
