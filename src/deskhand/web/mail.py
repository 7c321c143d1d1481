"""Mail: search, one message as plain text, its thread. Looking has no effect on the mail."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import InvalidInput
from deskhand.gate import ledger
from deskhand.mail import MailSummary
from deskhand.web.entry import page
from deskhand.web.presence import moment, present
from deskhand.web.render import render

PAGE = 25
MOST_PAGES = 20
"""A mailbox gives its newest results only from the start: further pages cost more, so there is a last one."""


def routes() -> list[Route]:
    return [page("/mail", present("Mail", _list)), page("/mail/{message_id:path}", present("Mail", _message))]


async def _list(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    query, number = request.query_params.get("q", "").strip(), _page_number(request)
    problem: InvalidInput | None = None
    found: list[MailSummary] = []
    try:
        found = await desk.mailbox.search(query, number * PAGE + 1)
    except InvalidInput as failure:
        problem = failure
    mails = [(mail, moment(desk, mail.date)) for mail in found[(number - 1) * PAGE : number * PAGE]]
    return render(
        request,
        "mail.html",
        title="Mail",
        status=422 if problem else 200,
        query=query,
        mails=mails,
        number=number,
        more=len(found) > number * PAGE,
        last=number >= MOST_PAGES,
        problem=problem,
        account=await desk.mailbox.address(),
    )


async def _message(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    message_id = request.path_params["message_id"]
    mail = await desk.mailbox.get(message_id)
    thread = await desk.mailbox.thread(mail.summary.thread_id)
    answers = await desk.store.read(lambda tx: ledger.answers_to(tx, message_id))
    return render(
        request,
        "message.html",
        title=mail.summary.subject or "(no subject)",
        mail=mail,
        arrived=moment(desk, mail.summary.date),
        thread=[(each, moment(desk, each.date)) for each in thread],
        answers=answers,
    )


def _page_number(request: Request) -> int:
    given = request.query_params.get("page", "1")
    return min(max(int(given), 1), MOST_PAGES) if given.isascii() and given.isdigit() and len(given) < 4 else 1
