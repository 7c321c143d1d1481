"""Why an answer is not taken."""

from deskhand.errors import Changed, Denied, printable
from deskhand.gate.cards import Card, kind_of
from deskhand.gate.requests import Request
from deskhand.wording import name_state


def not_what_was_seen(request: Request) -> Changed:
    return Changed(
        f"the request {request.id} is no longer what was shown; it is at revision {request.revision} now",
        hint="look at it again; nothing was decided",
    )


def decided(request: Request, more: str = "") -> Denied:
    return Denied(
        f"the request {request.id} is {_name_state(request)}; nothing is left to decide{more}",
        reason="decided",
    )


def not_together(card: Card, why: str) -> Denied:
    return Denied(
        f"{card.id} ({printable(card.subject, 60)}) is {why}; nothing was approved",
        reason="not_low_risk",
        hint="together only waiting cards of low risk are approved; answer the others one by one",
    )


def too_late(request: Request) -> Denied:
    return Denied(
        f"{request.id} can no longer be taken back: it is {_name_state(request)}",
        reason="left",
        hint="only a yes that still rests can be undone",
    )


def _name_state(request: Request) -> str:
    return name_state(request.state, kind_of(request))
