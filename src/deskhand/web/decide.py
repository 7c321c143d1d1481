"""To decide: the mails that triage left to the person, each whole beside the list, and rules that are made from one.

Whatever is decided wants the same proof as every change of mails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand import clock
from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import (
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
)
from deskhand.mail import FullMessage
from deskhand.mail.answering import find_astray
from deskhand.orchestrator import (
    conversations,
    deciding,
    first_look,
    listing,
    pending,
    rules,
    steps,
    triage,
    undeciding,
)
from deskhand.orchestrator.listing import Listing
from deskhand.orchestrator.rules import Rule
from deskhand.orchestrator.steps import Step
from deskhand.orchestrator.undeciding import Before, Decided, Word
from deskhand.orchestrator.watcher import find_account, find_id, key_of
from deskhand.web import snoozing, times
from deskhand.web.entry import effect, page
from deskhand.web.proving import demand_person
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, number_in, text_in
from deskhand.web.unavailable import SILENT, or_unavailable

PAGE = 25
_RULE_FIELDS = ("sender", "domain", "list_id", "subject")
_SHOWN = 25
_NAMED = 5
"""Senders of a conversation whom a row names."""
_DONE = {
    "archived": "Archived.",
    "later": "Put off. It comes back by itself.",
    "back": "It waits for your decision again.",
    "handed": "Left to an assistant, with your words.",
    "first": "Your answer counts from now on.",
    "rule": "The rule counts from the next mail on.",
}


def routes() -> list[Route]:
    return [
        page("/decide", or_unavailable("To decide", _show), linked=True),
        page("/decide/rule", or_unavailable("To decide", _try_rule)),
        effect("/decide/rule", _make_rule),
        effect("/decide/first", _answer_first),
        effect("/decide/reply", _act("replied", _reply)),
        effect("/decide/archive", _act("archived", _archive)),
        effect("/decide/later", _act("later", _put_off)),
        effect("/decide/hand", _act("handed", _hand_over)),
        effect("/decide/back", _bring_back),
    ]


# Showing.


async def _show(
    request: Request, problem: DeskError | None = None, typed: FormData | None = None
) -> Response:
    desk = desk_of(request)
    now = desk.now()
    count = max(number_in(request, "count", digits=4) or 0, PAGE)
    left = await desk.store.read(steps.list_left, now, min(count, steps.MOST_LEFT) + 1)
    later = await desk.store.read(steps.list_put_off, now, steps.MOST_LEFT)
    handed = await desk.store.read(steps.list_handed, steps.MOST_LEFT)
    named = text_in(typed, "mail") if typed else request.query_params.get("mail", "")
    listed = await listing.list_mails(desk, left[:count])
    put_off = await listing.list_mails(desk, [step for step, _ in later[:PAGE]])
    given = await listing.list_mails(desk, handed[:PAGE])
    chosen = None
    try:
        chosen = await _choose(desk, named, listed)
    except SILENT as failure:
        problem = problem or failure
    opened = await _open(desk, chosen) if chosen else {"mail": None}
    moment = partial(times.moment, now=now, zone=desk.settings.timezone)
    until = {step.key: at for step, at in later}
    known = {
        "problem": problem,
        "rows": listed.mails,
        "more": len(left) > count and count + PAGE,
        "later": put_off.mails,
        "until": until,
        "earlier": await desk.store.read(
            steps.group_behind, _list_keys(chosen, listed, put_off, given)
        ),
        "senders_of": _list_senders,
        "digest": conversations.digest,
        "handed": given.mails,
        "silent": Listing(
            [], listed.silent | put_off.silent | given.silent
        ).describe_silent(),
        "looks": await desk.store.read(first_look.list_open),
        "declined": await desk.store.read(first_look.list_declined),
        "step": chosen,
        "alone": bool(named),
        "done": _say_done(request, _name_times(put_off, until, moment)),
        "told_below": request.query_params.get("done") in ("archived", "later", "handed"),
        "archived": _archived(request),
        "typed": typed or _find_typed(request, chosen),
        "moment": moment,
    }
    return await render(request, "decide.html", title="To decide", **known | opened)


def _name_times(
    put_off: Listing,
    until: Mapping[str, datetime],
    moment: Callable[[datetime], times.Moment],
) -> dict[str, str]:
    """When each mail that was put off comes back, by its id."""
    return {
        each.step.data.message_id: moment(until[each.step.key]).natural
        for each in put_off.mails
    }


def _list_keys(chosen: Step | None, *listings: Listing) -> set[str]:
    """Of all mails that the page names."""
    keys = {each.step.key for listed in listings for each in listed.mails}
    if chosen is not None:
        keys.add(chosen.key)
    return keys


def _list_senders(mails: Sequence[Step]) -> str:
    """From whom these are, each named once."""
    senders = list(dict.fromkeys(each.data.sender for each in mails if each.data.sender))
    if len(senders) > _NAMED:
        return f"{', '.join(senders[:_NAMED])} and {len(senders) - _NAMED} more"
    return ", ".join(senders)


def _archived(request: Request) -> str | None:
    """The mail that was archived before this page was shown."""
    if request.query_params.get("done") != "archived":
        return None
    return request.query_params.get("of")


def _say_done(request: Request, put_off: Mapping[str, str]) -> str | None:
    """What was done before this page was shown, with how many or until when."""
    said = done_in(request, _DONE)
    many = number_in(request, "many", digits=6) or 0
    mails, are = ("mail", "is") if many == 1 else ("mails", "are")
    until = put_off.get(request.query_params.get("of", ""))
    match request.query_params.get("done"):
        case "later" if until:
            return f"Put off until {until}. It comes back by itself."
        case "first" if many:
            return f"{many} {mails} {are} being brought in."
        case "rule" if many:
            return f"The rule counts from now on, and {many} {mails} that waited {are} being archived."
    return said


async def _choose(desk: Desk, named: str, listed: Listing) -> Step | None:
    """The mail that was asked for, else the first one that can be read."""
    if named:
        try:
            step = await deciding.find_open(desk, named)
        except (Denied, NotFound):
            return None
        return listing.place(step, await find_account(desk, step))
    steps_in_order = [each.step for each in listed.mails if each.summary]
    steps_in_order += [each.step for each in listed.mails]
    return next(iter(steps_in_order), None)


async def _open(desk: Desk, step: Step) -> dict[str, Any]:
    """The mail beside the list, and what can be done with it."""
    zone = desk.settings.timezone
    mail = None
    absent = ""
    try:
        mail = await pending.fetch(desk, step)
    except NotFound:
        absent = "The mailbox does not have this mail any more."
    except DeskError as failure:
        absent = f"The mail cannot be read now: {failure.message}."
    decision = step.data.decision
    return {
        "mail": mail,
        "astray": await asyncio.to_thread(find_astray, mail) if mail else "",
        "absent": absent,
        "why": decision and (decision.info_needed or decision.reasoning),
        "target": decision and decision.delegation_target,
        "choices": [
            (value, *each) for value, each in snoozing.offered(desk.now(), zone).items()
        ],
        "suits": _suits(mail) if mail else {},
        "to": await deciding.find_addressees(desk, mail) if mail else None,
    }


def _suits(mail: FullMessage) -> dict[str, str]:
    """What a rule about mails like this one could ask for."""
    address = triage.sender(mail)
    domain = address.rpartition("@")[2]
    offered = {
        "sender": address,
        "domain": domain,
        "list_id": mail.list_id,
        "subject": mail.summary.subject,
    }
    return {name: value for name, value in offered.items() if value.strip()}


# Deciding.

_Doing = Callable[[Desk, str, FormData], Awaitable[str | None]]
"""Does it, for a mail by its id; returns where to go, if not to the next mail."""


def _act(done: Word, act: _Doing) -> Callable[[Request, FormData], Awaitable[Response]]:
    """An effect that decides one mail and opens the next; what was refused is shown with what was typed."""

    async def answer(request: Request, form: FormData) -> Response:
        desk = desk_of(request)
        message_id = text_in(form, "mail")
        following = await _find_next(desk, message_id)
        before = None
        try:
            await demand_person(request, form)
            await deciding.demand_shown(desk, message_id, text_in(form, "seen"))
            before = await undeciding.look_before(desk, message_id)
            place = await act(desk, message_id, form)
        except (Denied, InvalidInput, NotFound, *SILENT) as failure:
            return await _show(request, failure, form)
        if before is not None:
            typed = {name: text_in(form, name) for name in ("text", "to")}
            request.app.state.last_decision = await undeciding.remember(
                desk, done, before, typed
            )
        facts = {"done": done} | _name_others(before, message_id)
        await desk.record(PERSON, "decide_mail", message_id, facts)
        return RedirectResponse(place or _address(done, of=message_id, **following), 303)

    return answer


def _name_others(before: Before | None, message_id: str) -> dict[str, str]:
    """For the record, the earlier mails of the conversation about which was decided as well."""
    others = [mail.id for mail in before.mails if mail.id != message_id] if before else []
    return {"earlier": ", ".join(others)} if others else {}


async def undo(request: Request, form: FormData, decided: Decided) -> Response:
    """Take the last decision back; its mail is open again, with a reply as it was typed."""
    await demand_person(request, form)
    desk = desk_of(request)
    await undeciding.take_back(desk, decided)
    request.app.state.last_decision = None
    request.app.state.taken_back = decided
    facts = {"done": "undone"}
    await desk.record(PERSON, "decide_mail", decided.message_id, facts)
    return RedirectResponse(_address("back", mail=decided.message_id), 303)


def find_decided(request: Request, form: FormData) -> Decided | None:
    """The decision that the form names by its moment, where it is the last one and can still be taken back."""
    decided: Decided | None = request.app.state.last_decision
    if decided is None or text_in(form, "at") != str(clock.to_ms(decided.at)):
        return None
    hold = timedelta(seconds=desk_of(request).settings.hold_seconds)
    if decided.at + hold <= desk_of(request).now():
        return None
    return decided


def _find_typed(request: Request, chosen: Step | None) -> dict[str, str]:
    """The reply to this mail that was taken back just now, as it was typed."""
    undone: Decided | None = request.app.state.taken_back
    if undone is None or chosen is None or undone.after.key != chosen.key:
        return {}
    if undone.word != "replied" or request.query_params.get("done") != "back":
        return {}
    return undone.typed


def _address(done: str, **more: object) -> str:
    return f"/decide?{urlencode({'done': done, **more})}"


async def _find_next(desk: Desk, message_id: str) -> dict[str, str]:
    """The mail that follows this one in the list, as the address names it."""
    left = await desk.store.read(steps.list_left, desk.now(), steps.MOST_LEFT)
    keys = [step.key for step in left]
    with suppress(*SILENT):
        key = await key_of(desk, message_id)
        if key in keys[:-1]:
            return {"mail": await find_id(desk, left[keys.index(key) + 1])}
    return {}


async def _reply(desk: Desk, message_id: str, form: FormData) -> str:
    text = text_in(form, "text").replace("\r\n", "\n")
    to_all = text_in(form, "to") == "all"
    draft = await deciding.reply(desk, message_id, text, to_all=to_all)
    return f"/approvals/{draft}"


async def _archive(desk: Desk, message_id: str, form: FormData) -> None:
    await deciding.archive(desk, message_id, text_in(form, "seen"))


async def _put_off(desk: Desk, message_id: str, form: FormData) -> None:
    until = snoozing.read_until(form, desk.now(), desk.settings.timezone)
    await deciding.put_off(desk, message_id, until)


async def _hand_over(desk: Desk, message_id: str, form: FormData) -> None:
    await deciding.hand_over(desk, message_id, text_in(form, "words").replace("\r\n", "\n"))


async def _bring_back(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    message_id = text_in(form, "mail")
    try:
        await demand_person(request, form)
        step = await deciding.find(desk, message_id)
        if step.state == "handed":
            await deciding.take_back(desk, message_id)
        else:
            await deciding.put_off(desk, message_id, None)
    except (Denied, InvalidInput, NotFound) as failure:
        return await _show(request, failure, form)
    request.app.state.last_decision = None
    await desk.record(PERSON, "decide_mail", message_id, {"done": "back"})
    return RedirectResponse(_address("back", mail=message_id), 303)


# The first look into a mailbox.


async def _answer_first(request: Request, form: FormData) -> Response:
    await demand_person(request, form)
    look = await first_look.answer(
        desk_of(request), text_in(form, "mailbox"), text_in(form, "answer")
    )
    return RedirectResponse(
        _address("first", many=look.found if look.answer == "all" else 0), 303
    )


# Rules.


async def _try_rule(request: Request) -> Response:
    """What a rule would have done with the last mails, before it counts."""
    given = request.query_params
    return await _show_rule(
        request, {name: given.get(name, "") for name in ("by", *_RULE_FIELDS, "mail")}
    )


async def _show_rule(
    request: Request, given: dict[str, str], problem: DeskError | None = None
) -> Response:
    desk = desk_of(request)
    rule = _read_rule(given)
    touched, looked_at = await rules.find_touched(desk, rule)
    return await render(
        request,
        "rule.html",
        title="Always archive these",
        here="/decide",
        problem=problem,
        rule=rule,
        given=given,
        count=len(touched),
        looked_at=looked_at,
        touched=touched[:_SHOWN],
        earlier=await _find_behind(desk, given["mail"]),
        senders_of=_list_senders,
        moment=partial(times.moment, now=desk.now(), zone=desk.settings.timezone),
    )


async def _find_behind(desk: Desk, message_id: str) -> list[Step]:
    """The mails that wait behind the one from which a rule is made."""
    with suppress(NotFound, *SILENT):
        key = await key_of(desk, message_id)
        return await desk.store.read(steps.list_behind, key)
    return []


def _read_rule(given: dict[str, str]) -> Rule:
    by = given["by"]
    value = given.get(by, "").strip() if by in _RULE_FIELDS else ""
    if not value:
        raise InvalidInput(
            "Say which mails the rule is for.", hint="go back and choose one of the four"
        )
    words = {
        "sender": "from",
        "domain": "from everybody at",
        "list_id": "of the list",
        "subject": "with the subject",
    }
    name = f"always archive mail {words[by]} {value}"[:200]
    try:
        asks = {"name": name, by: value, "decision": "archive", "leave_inbox": True}
        return Rule.model_validate(asks)
    except ValidationError as error:
        raise InvalidInput(
            "that is no rule", hint="; ".join(each["msg"] for each in error.errors())
        ) from error


async def _make_rule(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    given = {name: text_in(form, name) for name in ("by", *_RULE_FIELDS, "mail")}
    rule = _read_rule(given)
    try:
        await demand_person(request, form)
        await asyncio.to_thread(rules.add_rule, desk.settings.home, rule)
    except Denied as failure:
        return await _show_rule(request, given, failure)
    await desk.record(PERSON, "make_rule", rule.name, rule.model_dump(exclude_none=True))
    woken = 0
    if text_in(form, "now"):
        woken = await deciding.apply_rules(desk, rule)
    return RedirectResponse(_address("rule", many=woken), 303)
