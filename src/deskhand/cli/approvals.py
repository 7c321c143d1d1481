"""`deskhand approvals`, `show`, `approve`, `reject`: what waits for the person, and the person's answer."""

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

from deskhand.cli.parts import command, opened_desk

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.gate.approvals import Found
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
        rows, waiting = asyncio.run(desk.gate.open()), asyncio.run(desk.drafts.waiting())
    for row in rows:
        _print(row, options)
    for draft in waiting:
        _print_draft(draft, options)
    if not rows and not waiting and not options.json:
        print("nothing waits")


def _show(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        if _names_draft(options):
            text = asyncio.run(_shown(desk, options.id))
            print(json.dumps({"id": options.id, "text": text}) if options.json else text)
            return
        row = asyncio.run(desk.gate.find(options.id))
        print(json.dumps(_fields(row) | {"text": desk.gate.shown(row)}) if options.json else desk.gate.shown(row))


def _approve(options: argparse.Namespace) -> None:
    _decide(options, "approved", None)


def _reject(options: argparse.Namespace) -> None:
    _decide(options, "rejected", options.reason)


def _decide(options: argparse.Namespace, answer: Literal["approved", "rejected"], note: str | None) -> None:
    with opened_desk() as desk:
        if _names_draft(options):
            _print_draft(asyncio.run(_decided(desk, options.id, answer, note)), options)
        else:
            _print(asyncio.run(desk.gate.decide(options.id, answer, "person", note)), options)


async def _decided(desk: "Desk", draft_id: str, answer: Literal["approved", "rejected"], note: str | None) -> "Found":
    return await desk.drafts.decide(draft_id, answer, "person", note)


async def _shown(desk: "Desk", draft_id: str) -> str:
    return await desk.drafts.shown(await desk.drafts.find(draft_id))


def _names_draft(options: argparse.Namespace) -> bool:
    from deskhand.gate.drafts import PREFIX

    return bool(options.id.startswith(PREFIX))


def _print_draft(draft: "Found", options: argparse.Namespace) -> None:
    fields = {"id": draft.properties.get("draft_id"), "state": draft.folder, "file": draft.path}
    fields |= {key: draft.properties.get(key) for key in ("to", "subject", "priority", "drafted_at")}
    line = f"{fields['id']}  {draft.folder:<8}  draft  {fields['to']}  {fields['subject']}"
    print(json.dumps(fields) if options.json else line)


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
