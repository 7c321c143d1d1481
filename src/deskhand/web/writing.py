"""Write: a new mail in the person's own words. A draft opens, which waits for their yes like any other."""

import uuid

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import (
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
)
from deskhand.gate.recipients import find_written_to
from deskhand.orchestrator.drafting import draft_new
from deskhand.store import Transaction
from deskhand.web.approvals import read_letter
from deskhand.web.entry import effect, page
from deskhand.web.proving import demand_person
from deskhand.web.render import render
from deskhand.web.request import desk_of, text_in
from deskhand.web.unavailable import SILENT, or_unavailable

MOST_OFFERED = 200


def routes() -> list[Route]:
    return [
        page("/mail/write", or_unavailable("Mail", _show)),
        effect("/mail/write", _draft),
    ]


async def _show(
    request: Request, problem: DeskError | None = None, typed: FormData | None = None
) -> Response:
    desk = desk_of(request)
    _ = desk.mailbox  # a desk without mail says so before anything is written
    accounts = [(each.name, each.address) for each in desk.settings.mail_accounts]
    chosen = request.query_params.get("account", "")
    form = ""
    if typed is not None:
        chosen = text_in(typed, "account")
        form = text_in(typed, "form")
    return await render(
        request,
        "write.html",
        title="Write a mail",
        here="/mail",
        problem=problem,
        wrong=_name_wrong(problem),
        typed=typed or {},
        form=form or uuid.uuid4().hex,
        accounts=accounts if len(accounts) > 1 else [],
        chosen=chosen or desk.settings.default_account.name,
        known=await desk.store.read(_list_known),
    )


def _list_known(tx: Transaction) -> list[str]:
    """Addresses that the person has written to, offered as they type."""
    return sorted(find_written_to(tx, MOST_OFFERED))[:MOST_OFFERED]


def _name_wrong(problem: DeskError | None) -> dict[str, str]:
    """What is wrong with which field."""
    if problem is None:
        return {}
    wrong = {}
    for each in problem.details.get("fields", ()):
        said = each["message"]
        if received := each["received_value"]:
            said = f"“{received}” {said}"
        wrong[each["field"]] = said
    return wrong


async def _draft(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    try:
        await demand_person(request, form)
        draft = await _open_draft(desk, form)
    except (Denied, InvalidInput, NotFound, *SILENT) as failure:
        return await _show(request, failure, form)
    return RedirectResponse(f"/approvals/{draft}", 303)


async def _open_draft(desk: Desk, form: FormData) -> str:
    letter = read_letter(form)
    account = text_in(form, "account")
    draft = await draft_new(desk, letter, account, text_in(form, "form"))
    await desk.record(PERSON, "write_mail", letter.to, {"draft": draft})
    return draft
