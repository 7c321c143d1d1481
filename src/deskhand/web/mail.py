"""Mail: search, one message as plain text, its thread. Looking has no effect on the mail."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deskhand.errors import InvalidInput
from deskhand.gate import ledger
from deskhand.mail import MailSummary
from deskhand.mail.mailboxes import MailView, viewing
from deskhand.web.entry import page
from deskhand.web.render import render
from deskhand.web.request import desk_of, number_in
from deskhand.web.times import local_time
from deskhand.web.unavailable import or_unavailable

PAGE = 25
MOST_PAGES = 20
"""A mailbox gives its newest results only from the start: further pages cost more, so there is a last one."""


def routes() -> list[Route]:
    return [
        page("/mail", or_unavailable("Mail", _list)),
        page("/mail/{message_id:path}", or_unavailable("Mail", _message)),
    ]


async def _list(request: Request) -> Response:
    desk = desk_of(request)
    query = request.query_params.get("q", "").strip()
    number = min(number_in(request, "page", digits=3) or 1, MOST_PAGES)
    problem: InvalidInput | None = None
    found: list[MailSummary] = []
    account = request.query_params.get("account") or None
    names = account and frozenset({desk.settings.find_account(account).name})
    with viewing(MailView(names or None)) as view:
        try:
            found = await desk.mailbox.search(query, number * PAGE + 1)
        except InvalidInput as failure:
            problem = failure
    shown = found[(number - 1) * PAGE : number * PAGE]
    return await render(
        request,
        "mail.html",
        title="Mail",
        problem=problem,
        query=query,
        mails=[(mail, local_time(desk, mail.date)) for mail in shown],
        number=number,
        more=len(found) > number * PAGE,
        last=number >= MOST_PAGES,
        account=account or "",
        address=await desk.mailbox.address() if not desk.settings.accounts else "",
        accounts=[each.name for each in desk.settings.mail_accounts],
        silent=view.describe_silent(),
    )


async def _message(request: Request) -> Response:
    desk = desk_of(request)
    message_id = request.path_params["message_id"]
    mail = await desk.mailbox.get(message_id)
    thread = await desk.mailbox.thread(mail.summary.thread_id)
    return await render(
        request,
        "message.html",
        title=mail.summary.subject or "(no subject)",
        mail=mail,
        arrived=local_time(desk, mail.summary.date),
        thread=[(each, local_time(desk, each.date)) for each in thread],
        answers=await desk.store.read(partial(ledger.answering, message_id=message_id)),
    )
