"""When each session changed mails or tasks last, by which the key `u` takes back what was done last."""

from typing import Literal

from starlette.requests import Request

from deskhand import clock
from deskhand.web import sessions
from deskhand.web.request import desk_of

Place = Literal["/mail", "/tasks"]
"""The page on which the change can be taken back."""


def note_change(request: Request, place: Place) -> None:
    _of_session(request)[place] = clock.to_ms(desk_of(request).now())


def forget_change(request: Request, place: Place) -> None:
    """What was taken back is not taken back once more."""
    _of_session(request).pop(place, None)


def find_change(request: Request, place: Place) -> int | None:
    """When this session changed something there that can be taken back."""
    return _of_session(request).get(place)


def find_newest(request: Request) -> tuple[int, Place] | None:
    found = [(at, place) for place, at in _of_session(request).items()]
    return max(found, default=None)


def _of_session(request: Request) -> dict[Place, int]:
    session = sessions.name_of(request.state.session)
    kept: dict[str, dict[Place, int]] = request.app.state.changed
    return kept.setdefault(session, {})
