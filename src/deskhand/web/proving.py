"""What proves that the person answers: the session, or the password that was typed for this one answer."""

from starlette.datastructures import FormData
from starlette.requests import Request

from deskhand.gate.proofs import Claim, Typed
from deskhand.web import sessions
from deskhand.web.request import text_in


def claim_in(request: Request, form: FormData) -> Claim:
    if password := text_in(form, "password"):
        return Typed(password, sessions.name_of(request.state.session))
    return "page"
