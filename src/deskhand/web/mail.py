"""Mail: search, a message, its thread, its files, and what the person does with mails. Looking changes nothing."""

import json
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from anyio import to_thread
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import (
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    PartlyDone,
    TooLarge,
)
from deskhand.gate import lists
from deskhand.gate.outcomes import refuse_off
from deskhand.gate.webauthn import Said
from deskhand.mail import FullMessage, MailSummary, mime
from deskhand.mail.answering import find_astray
from deskhand.mail.changes import Deed, Doing, find_way_back, read_change
from deskhand.mail.mailboxes import MailView, account_of, split, viewing
from deskhand.orchestrator import deciding, elsewhere
from deskhand.web import as_sent, sessions
from deskhand.web.changed import find_change, forget_change, note_change
from deskhand.web.entry import effect, page
from deskhand.web.proving import claim_in, demand_person
from deskhand.web.render import render, render_short
from deskhand.web.request import desk_of, number_in, text_in
from deskhand.web.rows import draw_mails
from deskhand.web.times import shown_time
from deskhand.web.unavailable import or_unavailable

PAGE = 25
MOST_PAGES = 20
"""A mailbox gives its newest results only from the start: further pages cost more, so there is a last one."""
INBOX = "in:inbox"
FOLDERS = (
    ("Inbox", INBOX),
    ("Unread", "in:inbox is:unread"),
    ("Sent", "in:sent"),
    ("All mail", ""),
)
_OF_FOLDERS = frozenset(query for _, query in FOLDERS)
MOST_READ = 20
"""Mails of a thread that are shown whole."""
LATE = timedelta(minutes=10)
"""A mail that took no longer arrived when it says so."""
MANY = 50
MOST_CHANGED = 1000
UNDO = Said(word="undo a change of mails")
SAID: dict[Doing, str] = {
    "read": "marked as read",
    "unread": "marked as unread",
    "star": "starred",
    "unstar": "no longer starred",
    "archive": "archived",
    "unarchive": "back in the inbox",
    "trash": "in the trash",
    "untrash": "out of the trash",
    "label": "labelled",
    "unlabel": "without the label",
}


def routes() -> list[Route]:
    return [
        page("/mail", or_unavailable("Mail", _list)),
        effect("/mail/change", _change),
        effect("/mail/undo", _undo),
        effect("/mail/reply", _reply),
        page("/thread/{thread_id:path}", or_unavailable("Mail", _thread)),
        page("/as-sent/{message_id:path}", or_unavailable("Mail", _as_sent)),
        page("/mail-file/{message_id:path}", or_unavailable("Mail", _file)),
        page("/mail/{message_id:path}", or_unavailable("Mail", _message)),
    ]


# Looking.


async def _list(request: Request) -> Response:
    desk = desk_of(request)
    query = request.query_params.get("q", INBOX).strip()
    number = min(number_in(request, "page", digits=3) or 1, MOST_PAGES)
    problem: InvalidInput | None = None
    found: list[MailSummary] = []
    account = request.query_params.get("account", "")
    with _view_account(desk, account) as view:
        try:
            found = await desk.mailbox.search(query, number * PAGE + 1)
        except InvalidInput as failure:
            problem = failure
    shown = found[(number - 1) * PAGE : number * PAGE]
    return await render_short(
        request,
        "mail.html",
        title="Mail",
        problem=problem,
        query=query,
        in_folder=query in _OF_FOLDERS,
        mails=await draw_mails(desk, shown),
        deeds=_list_bulk(shown, query, more=len(found) > number * PAGE),
        number=number,
        more=len(found) > number * PAGE,
        is_last=number >= MOST_PAGES,
        account=account,
        address=await desk.mailbox.address() if not desk.settings.accounts else "",
        accounts=_name_several(desk),
        folders=_list_folders(account),
        silent=view.describe_silent(),
        done=_describe_done(request),
        undo_at=find_change(request, "/mail"),
    )


def _name_several(desk: Desk) -> list[str]:
    """The accounts, where there is a choice."""
    if not desk.settings.accounts:
        return []
    return [each.name for each in desk.settings.mail_accounts]


@lru_cache(maxsize=100)
def _list_folders(account: str) -> list[tuple[str, str, str]]:
    """What each folder is called, by which search it is found, and where."""
    return [
        (name, query, f"/mail?{urlencode({'q': query, 'account': account})}")
        for name, query in FOLDERS
    ]


def _view_account(desk: Desk, name: str) -> AbstractContextManager[MailView]:
    """See the account that the page was narrowed to; without a name all of them."""
    names = None
    if name:
        names = frozenset({desk.settings.find_account(name).name})
    return viewing(MailView(names))


def _describe_done(request: Request) -> str | None:
    done = request.query_params.get("done", "")
    what = next((words for do, words in SAID.items() if do == done), None)
    count = number_in(request, "count", digits=5)
    if what is None or count is None:
        return None
    return f"{count} mail{'' if count == 1 else 's'} {what}."


def _list_deeds(labels: Collection[str]) -> list[tuple[str, str]]:
    """What can be done with a mail as it is now."""
    deeds = [
        ("unread", "Mark as unread"),
        ("star", "Star"),
        ("trash", "Trash"),
    ]
    if "UNREAD" in labels:
        deeds[0] = ("read", "Mark as read")
    if "STARRED" in labels:
        deeds[1] = ("unstar", "Unstar")
    if "TRASH" in labels:
        deeds[2] = ("untrash", "Out of the trash")
    elif "INBOX" in labels:
        deeds.insert(0, ("archive", "Archive"))
    elif "SENT" not in labels:
        deeds.insert(0, ("unarchive", "Back to the inbox"))
    return deeds


_BULK = (
    ("archive", "Archive"),
    ("unarchive", "Back to the inbox"),
    ("read", "Mark as read"),
    ("unread", "Mark as unread"),
    ("star", "Star"),
    ("unstar", "Unstar"),
    ("trash", "Trash"),
    ("untrash", "Out of the trash"),
)
_FLAGS = frozenset({"read", "unread", "star", "unstar"})
"""These leave a mail in its list; after the others it is no longer there."""


def _list_bulk(
    mails: Sequence[MailSummary], query: str, *, more: bool
) -> list[tuple[str, str]]:
    """What can be done with mails of this list; of those that are not shown nobody knows how they are marked."""
    fitting = {do for mail in mails for do, _ in _list_deeds(mail.labels)}
    if more:
        fitting |= _FLAGS
    searched = more and query not in _OF_FOLDERS
    return [each for each in _BULK if searched or each[0] in fitting]


async def _message(request: Request) -> Response:
    return await _show_message(request, request.path_params["message_id"])


async def _show_message(
    request: Request,
    message_id: str,
    problem: DeskError | None = None,
    typed: FormData | None = None,
) -> Response:
    desk = desk_of(request)
    mail = await desk.mailbox.get(message_id)
    thread = await desk.mailbox.thread(mail.summary.thread_id)
    wanted = request.query_params.get("as") == "sent"
    sheet = await _make_sheet(desk, message_id) if wanted else None
    return await render(
        request,
        "message.html",
        deeds=_list_deeds(mail.summary.labels),
        place=_find_list(request, typed),
        done=_describe_done(request),
        undo_at=find_change(request, "/mail"),
        title=mail.summary.subject or "(no subject)",
        here="/mail",
        problem=problem,
        typed=typed or {},
        to=await deciding.find_addressees(desk, mail),
        mail=mail,
        astray=await to_thread.run_sync(find_astray, mail),
        arrived=shown_time(desk, mail.summary.date),
        claimed=_claimed_date(mail.summary),
        thread=[(each, shown_time(desk, each.date)) for each in thread],
        answers=await desk.store.read(partial(lists.find_answering, message_id=message_id)),
        waits=await _waits_for_decision(desk, message_id),
        as_sent=wanted,
        blocked=sheet and sheet.blocked,
    )


async def _waits_for_decision(desk: Desk, message_id: str) -> bool:
    try:
        await deciding.find(desk, message_id)
    except (Denied, NotFound):
        return False
    return True


def _claimed_date(summary: MailSummary) -> str:
    """What the mail says of its date, where that is another time than that of its arrival."""
    try:
        claimed = parsedate_to_datetime(summary.date_header)
        is_same = abs(claimed.astimezone(UTC) - summary.date) < LATE
    except (ValueError, OverflowError):
        return summary.date_header
    return "" if is_same else summary.date_header


async def _thread(request: Request) -> Response:
    """All mails of a thread; of a long one the last are shown whole, the others by their subject."""
    desk = desk_of(request)
    listed = await desk.mailbox.thread(request.path_params["thread_id"])
    read: list[FullMessage] = [
        await desk.mailbox.get(mail.id) for mail in listed[-MOST_READ:]
    ]
    newest = read[-1]
    return await render(
        request,
        "thread.html",
        newest=newest.summary.id,
        alarming=bool(newest.alarms),
        to=await deciding.find_addressees(desk, newest),
        waits=await _waits_for_decision(desk, newest.summary.id),
        title=listed[0].subject or "(no subject)",
        here="/mail",
        earlier=[(mail, shown_time(desk, mail.date)) for mail in listed[:-MOST_READ]],
        mails=[(mail, shown_time(desk, mail.summary.date)) for mail in read],
    )


async def _as_sent(request: Request) -> Response:
    """The frame's own document."""
    sheet = await _make_sheet(desk_of(request), request.path_params["message_id"])
    if sheet is None:
        raise NotFound("this mail has no HTML")
    return HTMLResponse(sheet.document, headers=as_sent.HEADERS)


async def _make_sheet(desk: Desk, message_id: str) -> as_sent.Sheet | None:
    raw = await desk.mailbox.read_raw(message_id)

    def work() -> as_sent.Sheet | None:
        found = mime.find_page(raw)
        return found and as_sent.make_sheet(*found)

    return await to_thread.run_sync(work)


async def _file(request: Request) -> Response:
    """An attachment to keep: a browser opens none of them by itself."""
    raw = await desk_of(request).mailbox.read_raw(request.path_params["message_id"])
    name = request.query_params.get("name", "")
    found = await to_thread.run_sync(mime.find_attachment, raw, name)
    if found is None:
        raise NotFound(f"this mail has no attachment {name[:100]}")
    kept = f"attachment; filename*=UTF-8''{quote(found[0].name, safe='')}"
    return Response(
        found[1],
        media_type="application/octet-stream",
        headers={"Content-Disposition": kept},
    )


# Replying.


async def _reply(request: Request, form: FormData) -> Response:
    """A draft of the person's own words, which opens and waits for their yes like any other."""
    desk = desk_of(request)
    message_id = text_in(form, "mail")
    text = text_in(form, "text").replace("\r\n", "\n")
    to_all = text_in(form, "to") == "all"
    try:
        await demand_person(request, form)
        draft = await deciding.reply_to_any(desk, message_id, text, to_all=to_all)
    except (Denied, InvalidInput) as failure:
        return await _show_message(request, message_id, failure, form)
    await desk.record(PERSON, "reply_to_mail", message_id, {"draft": draft})
    return RedirectResponse(f"/approvals/{draft}", 303)


# Changing.


async def _change(request: Request, form: FormData) -> Response:
    """Do something with the chosen mails, or with all that were found; many, or unread
    ones to the trash, ask first."""
    desk = desk_of(request)
    change = _read_deed(form)
    with _view_account(desk, text_in(form, "account")) as view:
        mails = await _find(desk, form, text_in(form, "q"))
    if not mails:
        return RedirectResponse(f"/mail?{urlencode(_place(form))}", 303)
    problem = _find_others(form, mails)
    if problem is None and (text_in(form, "sure") or not _asks_first(form, change, mails)):
        try:
            await desk.answers.demand_person(
                PERSON, claim_in(request, form), say_change(form)
            )
        except Denied as failure:
            problem = failure
        else:
            return await _carry_out(request, change, mails, form)
    return await render(
        request,
        "change.html",
        title="Change mails",
        problem=problem,
        mails=mails,
        shown=[(mail, shown_time(desk, mail.date)) for mail in mails[:PAGE]],
        unread=sum("UNREAD" in mail.labels for mail in mails),
        change=change,
        says=SAID[change.do],
        query=text_in(form, "q"),
        account=text_in(form, "account"),
        silent=view.describe_silent(),
        seen=digest_list(mails),
        every=bool(text_in(form, "all")),
    )


def _read_deed(form: FormData) -> Deed:
    do = next((each for each in SAID if each == text_in(form, "do")), None)
    if do is None:
        raise InvalidInput(
            "that is nothing to do with mails", hint="go back and choose one of the buttons"
        )
    takes_label = do in ("label", "unlabel")
    return read_change(do, text_in(form, "label") if takes_label else None)


def _find_others(form: FormData, mails: Sequence[MailSummary]) -> Denied | None:
    """What is wrong with a yes to all that match, where these are no longer the mails that were shown."""
    if not (text_in(form, "sure") and text_in(form, "all")):
        return None
    if text_in(form, "seen") == digest_list(mails):
        return None
    return Denied(
        "Other mails match by now than you were shown",
        reason="changed",
        hint="look at them",
    )


def _asks_first(form: FormData, change: Deed, mails: Sequence[MailSummary]) -> bool:
    """Whether the person has to see the mails once more before anything is done with them."""
    if text_in(form, "all") or len(mails) > MANY:
        return True
    return change.do == "trash" and any("UNREAD" in mail.labels for mail in mails)


def digest_list(mails: Sequence[MailSummary]) -> str:
    """By which a list of mails is known to be the one that the person was shown."""
    return sha256(json.dumps(sorted(mail.id for mail in mails)).encode()).hexdigest()


def say_change(form: FormData) -> Said:
    """What a passkey signs for a change: what is done, with which mails or with all that a search found."""
    chosen = sorted(each for each in form.getlist("mail") if isinstance(each, str))
    what = [
        text_in(form, "do"),
        text_in(form, "label"),
        text_in(form, "all") and text_in(form, "q"),
        text_in(form, "all") and text_in(form, "account"),
        text_in(form, "all") and text_in(form, "seen"),
        *chosen,
    ]
    return Said(
        word="change mails",
        about=(("mails", sha256(json.dumps(what).encode()).hexdigest()),),
    )


async def _find(desk: Desk, form: FormData, query: str) -> list[MailSummary]:
    if not text_in(form, "all"):
        chosen = [each for each in form.getlist("mail") if isinstance(each, str)]
        return await desk.mailbox.list_mails(list(dict.fromkeys(chosen)))
    if not query.strip():
        raise InvalidInput(
            "all mails that match nothing in particular are every mail",
            hint="search for something first",
        )
    found = await desk.mailbox.search(query, MOST_CHANGED + 1)
    if len(found) > MOST_CHANGED:
        raise TooLarge(
            f"more than {MOST_CHANGED} mails match",
            hint="narrow the search, for example by a date",
        )
    return found


async def _carry_out(
    request: Request, change: Deed, mails: Sequence[MailSummary], form: FormData
) -> Response:
    session = sessions.name_of(request.state.session)
    try:
        count = await _do(desk_of(request), change, [mail.id for mail in mails])
    except PartlyDone as partly:
        done = [mail for mail in mails if account_of(mail) not in partly.failed]
        _last_changes(request)[session] = find_way_back(change, done)
        note_change(request, "/mail")
        raise
    _last_changes(request)[session] = find_way_back(change, mails)
    note_change(request, "/mail")
    return RedirectResponse(_address(form, change.do, count), 303)


def _address(form: FormData, do: Doing, count: int) -> str:
    """Where the form was: the page of one mail, or the list that it was in."""
    shown = urlencode({**_place(form), "done": do, "count": count})
    if (mail := text_in(form, "on")) and do in _FLAGS:
        return f"/mail/{quote(mail)}?{shown}"
    return f"/mail?{shown}"


def _place(form: FormData) -> dict[str, str]:
    """The search that the person came from, as the address names it."""
    place = {"q": text_in(form, "q")}
    if account := text_in(form, "account"):
        place["account"] = account
    return place


def _find_list(request: Request, typed: FormData | None) -> dict[str, str]:
    """The list from which a mail was opened, as its address or the browser says; else the Inbox."""
    if typed is not None and "q" in typed:
        return _place(typed)
    before = urlsplit(request.headers.get("referer", ""))
    given = dict(request.query_params)
    if "q" not in given and before.path == "/mail":
        given = dict(parse_qsl(before.query, keep_blank_values=True))
    place = {"q": given.get("q", INBOX)}
    if account := given.get("account"):
        place["account"] = account
    return place


async def _do(desk: Desk, change: Deed, ids: Sequence[str]) -> int:
    if off := desk.settings.sending_off:
        raise refuse_off(off, "nothing is changed")
    partly = None
    try:
        count = await desk.mailbox.change(ids, change)
    except PartlyDone as error:
        partly = error
        count = error.count
    failed = partly.failed if partly else ()
    own = desk.settings.bare_account
    done = [each for each in ids if (split(each)[0] or own) not in failed]
    await elsewhere.heed(desk, done, change)
    facts = {"do": change.do, "label": change.label, "mails": count}
    await desk.record(PERSON, "update_emails", f"{count} mails", facts, partly)
    if partly is not None:
        raise partly
    return count


async def _undo(request: Request, form: FormData) -> Response:
    """Take the last change of this session back."""
    desk = desk_of(request)
    await desk.answers.demand_person(PERSON, claim_in(request, form), UNDO)
    session = sessions.name_of(request.state.session)
    steps = _last_changes(request).get(session, [])
    counts = [await _do(desk, change, ids) for change, ids in steps]
    # Not before: what an account could not do now can be done again, and twice is as once.
    _last_changes(request).pop(session, None)
    forget_change(request, "/mail")
    if not steps:
        return RedirectResponse("/mail", 303)
    return RedirectResponse(_address(form, steps[-1][0].do, max(counts)), 303)


def _last_changes(request: Request) -> dict[str, list[tuple[Deed, list[str]]]]:
    """What takes back what each session did last; while the desk runs."""
    kept: dict[str, list[tuple[Deed, list[str]]]] = request.app.state.last_changes
    return kept
