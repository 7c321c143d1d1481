"""Under which address somebody asks: a name of this machine in plain HTTP, or the desk's own name behind TLS."""

import re
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HSTS = "max-age=31536000"
"""For a year a browser comes to this name by TLS alone. Names below it may be somebody else's."""
_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?")


class OwnAddress:
    """Refuses requests under another address: a stranger's page may point its name at this machine.

    The scheme is https only where a trusted proxy says so. Without it the desk's own name is refused as well, and so
    is a proxy that hides under which name it was asked.
    """

    def __init__(self, app: ASGIApp, origin: str | None) -> None:
        self._app = app
        self._name = origin and urlsplit(origin).netloc

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not self._is_own(scope):
            names = " and ".join(filter(None, ["127.0.0.1", self._name]))
            app = PlainTextResponse(f"This desk answers to {names} only.\n", 421)
        await app(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        """Whether there is one Host header and it names this machine, or behind TLS the desk."""
        others = [header for header in scope["headers"] if header[0] != b"host"]
        host = (
            b" ".join(value for name, value in scope["headers"] if name == b"host")
            .decode("latin-1")
            .lower()
        )
        if scope["scheme"] == "https":
            # Proxies write it with or without the port that browsers leave away; from here on it is one name.
            scope["headers"] = [(b"host", (self._name or "").encode()), *others]
            return self._name is not None and host.removesuffix(":443") == self._name
        found = _THIS_MACHINE.fullmatch(host)
        return found is not None and int(found[1] or 80) <= 65535


def own_origin(request: Request) -> str:
    """The origin of the desk's pages as the browser of this request knows it."""
    return f"{request.url.scheme}://{request.url.netloc}"
