"""What proves that the person answers: a signature or the password for this one answer, else the session."""

import json
from hashlib import sha256

from starlette.datastructures import FormData
from starlette.requests import Request

from deskhand.errors import Denied
from deskhand.gate.claims import Claim, Signed, Typed
from deskhand.gate.webauthn import Said
from deskhand.web import sessions
from deskhand.web.request import desk_of, text_in
from deskhand.web.sessions import Session
from deskhand.web.signing import demand_assertion, signing_origin

_UNSAID = ("form_token", "for", "password", "assertion")


async def demand_person(request: Request, form: FormData) -> None:
    """Refuse who proves too little for what this form says."""
    await desk_of(request).answers.demand_person(
        "person", claim_in(request, form), say_form(request.url.path, form)
    )


def say_form(address: str, form: FormData) -> Said:
    """What a passkey signs for a form without a word of its own: where it goes, and all that it says."""
    given = [
        (name, value)
        for name, value in form.multi_items()
        if isinstance(value, str) and name not in _UNSAID
    ]
    fields = sorted((name, value.replace("\r\n", "\n")) for name, value in given)
    written = json.dumps([address, fields])
    return Said(word="send a form", about=(("form", sha256(written.encode()).hexdigest()),))


def claim_in(request: Request, form: FormData) -> Claim:
    session = request.state.session
    if password := text_in(form, "password"):
        return Typed(password, _source(session))
    if given := text_in(form, "assertion"):
        return Signed(
            demand_assertion(given), signing_origin(request), sessions.name_of(session)
        )
    if session.way == "pairing" and desk_of(request).settings.is_guarded:
        hint = "sign in there with a passkey or the password"
        raise Denied(
            "a device that was paired may look, and not answer", reason="proof", hint=hint
        )
    return "page"


def _source(session: Session) -> str:
    """Who guesses together. A program on the account could ask for links: a new one brings no new guesses."""
    if session.way in ("link", "pairing"):
        return "sessions that began by a link"
    return sessions.name_of(session)
