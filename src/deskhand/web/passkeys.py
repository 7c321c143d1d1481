"""The person's passkeys: made, listed and revoked, each time with a proof; and what an answer has to be signed with."""

from typing import Any

from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import Denied, DeskError, InvalidInput
from deskhand.gate import passkeys, passwords, webauthn
from deskhand.gate.claims import Claims
from deskhand.gate.webauthn import ENROL, NewKey, Said
from deskhand.store import Transaction
from deskhand.web import decide, mail, sessions
from deskhand.web.approvals import read_letter
from deskhand.web.entry import effect, page
from deskhand.web.oauth import say_connection
from deskhand.web.permissions import read_terms
from deskhand.web.proving import claim_in, say_form
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, text_in
from deskhand.web.signing import keys_here, offer, signing_origin
from deskhand.web.snoozing import words_in
from deskhand.web.times import shown_time

DONE = {"revoked": "The passkey is revoked. Nothing that it signs counts any more."}
_ANSWERS = {
    "approve": "approved",
    "batch": "approved",
    "edit": "approved",
    "permit": "permitted",
    "reject": "rejected",
    "respond": "responded",
    "snooze": "snoozed",
    "wake": "woken",
    "undo": "undone",
}
"""Of each form that answers, by the end of its address, what the person signs."""


def routes() -> list[Route]:
    return [
        page("/passkeys", _show),
        effect("/passkeys/challenge", _challenge),
        effect("/passkeys/new", _offer_key),
        effect("/passkeys/add", _add),
        effect("/passkeys/revoke", _revoke),
        effect("/passkeys/codes", _make_codes),
        effect("/passkeys/elsewhere", _go_to_localhost),
    ]


async def _show(request: Request) -> Response:
    return await _list(request)


_BY_LINK = (
    "`deskhand link`, in a terminal of this machine, prints an address that signs you in afresh; "
    "open it, and do this within a quarter of an hour"
)
_BY_MORE = (
    "type the password, or use a passkey that you have; a recovery code is enough as well"
)


async def _list(request: Request, *, status: int = 200, **more: Any) -> Response:
    desk = desk_of(request)
    kept = await desk.store.read(passkeys.list_keys, desk.policy.seal)
    trusted = await _is_trusted(request)
    wants_link = not trusted and not await desk.store.read(_has_password_or_key)
    known = {
        "keys": [
            (key, shown_time(desk, key.created), key.used and shown_time(desk, key.used))
            for key in kept
        ],
        "codes_left": await desk.store.read(passkeys.count_codes),
        "has_password": await desk.store.read(passwords.is_set),
        "signs": bool(await keys_here(request)),
        "trusted": trusted,
        "to_do": _BY_LINK if wants_link else None,
        "done": done_in(request, DONE),
        "codes": (),
        "failure": None,
        "link": None,
        "here": "/checkup",
    }
    return await render(
        request, "passkeys.html", title="Passkeys", status=status, **known | more
    )


# What is to be signed.


async def _challenge(request: Request, form: FormData) -> Response:
    """What the form at this address has to be signed with, for what it says."""
    match text_in(form, "for").split("/"):
        case ["", "approvals", *names, verb] if verb in _ANSWERS:
            said = await _read_answer(desk_of(request), form, verb, names)
        case ["", "undo"] if decide.find_decided(request, form):
            said = say_form("/undo", form)
        case ["", "undo"] if last := await desk_of(request).answers.last():
            said = Said(
                word="undone", about=tuple((each.id, each.digest) for each in last.requests)
            )
        case ["", "permissions", "on"]:
            said = Said(word="permit again")
        case ["", "mail", "change"]:
            said = mail.say_change(form)
        case ["", "mail", "undo"]:
            said = mail.UNDO
        case ["", "oauth", "authorize"]:
            said = await say_connection(request, form)
        case (
            ["", "agents", "send"]
            | ["", "decide", _]
            | ["", "approvals", _, "follow-up"]
            | ["", "follow-ups", "cancel"]
            | ["", "phone", _]
            | ["", "passkeys", _]
        ):
            said = say_form(text_in(form, "for"), form)
        case _:
            raise InvalidInput(
                "nothing is signed for this form", hint="reload the page and try again"
            )
    return JSONResponse(await offer(request, said, sessions.name_of(request.state.session)))


async def _read_answer(desk: Desk, form: FormData, verb: str, names: list[str]) -> Said:
    about = [(name, text_in(form, "digest")) for name in names]
    if verb == "batch":
        about = [
            (name, digest)
            for name, _, digest in (
                str(each).partition(":") for each in form.getlist("card")
            )
        ]
    if verb == "permit":
        ((name, digest),) = about
        return await desk.answers.make_said_to_permit(name, digest, read_terms(form, desk))
    letter = None
    if verb == "edit":
        letter = read_letter(form)
    return await desk.answers.make_said(_ANSWERS[verb], about, letter, _words(form, verb))


def _words(form: FormData, verb: str) -> str:
    """What the person wrote with this answer."""
    match verb:
        case "snooze":
            return words_in(form)
        case "reject":
            return text_in(form, "reason")
        case _:
            return text_in(form, "words")


# Changing what counts.


async def _is_trusted(request: Request) -> bool:
    """Whether how this session began is proof enough, for a while: by a recovery code, or by a link where there is
    nothing yet that would prove more."""
    desk = desk_of(request)
    session = request.state.session
    if session.begun is None or desk.now() - session.begun > sessions.LINK_LIFE:
        return False
    if session.way == "code":
        return True
    has_more = await desk.store.read(_has_password_or_key)
    return session.way == "link" and not has_more


def _has_password_or_key(tx: Transaction) -> bool:
    return (
        passwords.is_set(tx)
        or tx.one("SELECT 1 FROM passkeys WHERE revoked IS NULL") is not None
    )


async def _demand_right(request: Request, form: FormData) -> None:
    """A cookie alone changes nothing here: a program could read it where the browser keeps it.

    A passkey signs just this change: which key is revoked, or the very key that is added and its name.
    """
    given = claim_in(request, form)
    if given == "page":
        if await _is_trusted(request):
            return
        hint = _BY_LINK
        if await desk_of(request).store.read(_has_password_or_key):
            hint = _BY_MORE
        raise Denied("this needs more than being signed in", reason="proof", hint=hint)
    desk = desk_of(request)
    said = say_form(request.url.path, form)
    await Claims(desk.store, desk.policy, desk.now).prove("person", given, said)


async def _offer_key(request: Request, form: FormData) -> Response:
    """What a browser needs to have a new key made."""
    del form
    asked = await offer(request, ENROL, sessions.name_of(request.state.session))
    options = asked["options"]
    made = {
        "challenge": options["challenge"],
        "rp": {"id": options["rpId"], "name": "Deskhand"},
        "user": {
            "id": webauthn.encode(b"person"),
            "name": "person",
            "displayName": "You, at your desk",
        },
        "pubKeyCredParams": [
            {"type": "public-key", "alg": number} for number in webauthn.ALGORITHMS
        ],
        "authenticatorSelection": {
            "residentKey": "required",
            "userVerification": "required",
        },
        "excludeCredentials": options["allowCredentials"],
        "attestation": "none",
        "timeout": options["timeout"],
    }
    return JSONResponse({"nonce": asked["nonce"], "options": made})


async def _add(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    now = desk.now()
    place = sessions.name_of(request.state.session)
    try:
        await _demand_right(request, form)
        given = NewKey.model_validate_json(text_in(form, "key"))
        key = webauthn.read_new_key(
            given, signing_origin(request), text_in(form, "name").strip(), now
        )
        await desk.store.write(passkeys.add, desk.policy.seal, key, place, given.nonce, now)
    except ValidationError:
        return await _refuse(
            request,
            InvalidInput(
                "the browser made no passkey", hint="it needs JavaScript for that"
            ),
        )
    except DeskError as error:
        return await _refuse(request, error)
    await desk.record(
        "person", "add_passkey", key.name, {"credential": key.id, "host": key.host}
    )
    if await desk.store.read(passkeys.count_codes):
        return RedirectResponse("/passkeys", 303)
    return await _show_new_codes(request)


async def _revoke(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    try:
        await _demand_right(request, form)
        key = await desk.store.write(
            passkeys.revoke, desk.policy.seal, text_in(form, "name"), desk.now()
        )
    except DeskError as error:
        return await _refuse(request, error)
    await desk.record("person", "revoke_passkey", key.name, {"credential": key.id})
    return RedirectResponse("/passkeys?done=revoked", 303)


async def _make_codes(request: Request, form: FormData) -> Response:
    try:
        await _demand_right(request, form)
    except DeskError as error:
        return await _refuse(request, error)
    return await _show_new_codes(request)


async def _show_new_codes(request: Request) -> Response:
    desk = desk_of(request)
    codes = await desk.store.write(passkeys.replace_codes, desk.policy.seal, desk.now())
    await desk.record("person", "make_recovery_codes", "page", {"codes": len(codes)})
    return await _list(request, codes=codes)


async def _go_to_localhost(request: Request, form: FormData) -> Response:
    """A browser makes no passkey for 127.0.0.1; a link signs the person in under the other
    name of this machine."""
    try:
        await _demand_right(request, form)
    except DeskError as error:
        return await _refuse(request, error)
    address = f"http://localhost:{request.scope['server'][1]}"
    return await _list(request, link=await sessions.link(desk_of(request), address))


async def _refuse(request: Request, failure: DeskError) -> Response:
    return await _list(request, status=failure.http_status, failure=failure)
