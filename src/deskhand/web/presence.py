"""What a page says while its part of the desk is not set up or does not answer, and how it tells time."""

from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from deskhand.app import Desk
from deskhand.errors import AuthRequired, BadConfig, NoIdentity, Unavailable
from deskhand.web.entry import Page
from deskhand.web.render import render
from deskhand.web.times import local


def present(title: str, handler: Page) -> Page:
    """The page, or in its place what is missing and what to do: one part that is absent hides no other."""

    async def shown(request: Request) -> Response:
        try:
            return await handler(request)
        except (BadConfig, AuthRequired, NoIdentity, Unavailable) as failure:
            return render(request, "absent.html", status=503, title=title, failure=failure)

    return shown


def moment(desk: Desk, at: datetime) -> str:
    """In the person's own time zone."""
    return f"{local(at, desk.settings.timezone):%Y-%m-%d %H:%M}"
