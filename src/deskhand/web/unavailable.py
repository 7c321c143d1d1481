"""What a page shows while its part of the desk is not set up or does not answer."""

from starlette.requests import Request
from starlette.responses import Response

from deskhand.errors import AuthRequired, BadConfig, NoIdentity, Unavailable
from deskhand.web.entry import Page
from deskhand.web.render import render

SILENT = (Unavailable, AuthRequired, BadConfig)
"""A part of the desk is not set up, has gone or does not answer."""


def or_unavailable(title: str, handler: Page) -> Page:
    """The page, or in its place what is missing and what to do; the other pages are not affected."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (NoIdentity, *SILENT) as failure:
            return await render(
                request, "absent.html", status=503, title=title, failure=failure
            )

    return answer
