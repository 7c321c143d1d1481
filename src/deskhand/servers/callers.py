"""Who calls a server over HTTP, and what their token opens. On stdio it is the person's own program."""

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import Implementation
from pydantic import AnyHttpUrl
from starlette.datastructures import URL, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand import tokens
from deskhand.errors import OutOfScope, printable
from deskhand.servers.stdio import LASTING
from deskhand.tokens import Area, Token
from deskhand.unseen import reads_as, spell_out_name

_DESK = "desk"
"""The client id of the desk's own token, which opens everything; an assistant's has a prefix before its name."""
_TOKEN = "token:"  # noqa: S105 - a prefix
_HELD = "held"
"""The claim that has the scopes as they were given, with the mail accounts and vaults to which they are narrowed."""
OWN = "the person's own program"
"""Who asks on stdio, or with the desk's own token."""
METADATA = "/.well-known/oauth-protected-resource"
"""Before an endpoint's path: what a client must know to ask for a token."""

_PROGRAMS = {
    "claude-ai": "Claude",
    "claude-code": "Claude Code",
    "codex-mcp-client": "Codex",
    "cursor-vscode": "Cursor",
    "gemini-cli-mcp-client": "Gemini CLI",
    "openai-mcp": "ChatGPT",
}
"""What people call programs that call themselves so."""
_NAMELESS = frozenset({"", "mcp", "mcp-client", "example-client"})
"""What a library says where the program that uses it has not named itself."""

_OWN_WORDS = re.compile(
    r"[\W_]*(?:you|yours?|yourself|me|my|the|person|desk|deskhand)(?![^\W_])"
)
"""With these the desk speaks of the person and of itself; a program's name that reads so is quoted."""

Authenticate = Callable[[str, str | None], Awaitable[Token | None]]
"""Finds what is kept of a token that an assistant or a user shows at an endpoint."""


def client() -> str | None:
    """The name of the token by which the caller came in; None for the desk's own, and on stdio."""
    access = _foreign_access()
    if access is None:
        return None
    return access.client_id.removeprefix(_TOKEN)


def asker() -> str:
    """Who calls, by a name that no client can give itself where it is another one's."""
    return asker_of(client())


def asker_of(name: str | None) -> str:
    """Who asks with the token of this name, or without one."""
    if name is None:
        return OWN
    return tokens.asker_of(name)


def describe_caller(said: Implementation | None) -> str:
    """Who calls, as a person knows them: what the program calls itself, and how it came in."""
    name = "an assistant"
    if said is not None and said.name.casefold() not in _NAMELESS:
        known = _PROGRAMS.get(said.name.casefold())
        name = printable(f"{known or said.title or said.name} {said.version}", 1000)
        name = printable(spell_out_name(name), 60).strip()
    if _OWN_WORDS.match(reads_as(name)):
        name = f"a program that calls itself “{name[:50]}”"
    token = client()
    if token is None:
        return f"{name} on this machine"
    return f"{name}, with the token “{token}”"


def is_service() -> bool:
    """Whether the caller proved the desk's own token."""
    access = get_access_token()
    return access is not None and access.client_id == _DESK


def subject() -> str | None:
    """The user whose token the caller showed."""
    access = get_access_token()
    if access is None:
        return None
    return access.subject


def demand(area: Area | None, *, writes: bool, within: Iterable[str] | None) -> None:
    """Refuse a caller who has no scope for this part of the desk, or any caller where `within` has none."""
    access = _foreign_access()
    for scopes in (within, None if access is None else access.scopes):
        if scopes is not None and (
            area is None or not tokens.opens(scopes, area, writes=writes)
        ):
            needed = f"{area}:{'write' if writes else 'read'}"
            raise OutOfScope(
                f"this needs the scope {needed}, which the client was not given",
                scope=needed,
                hint=f"the person can give it: {_way_to(needed, access)}",
            )


def _way_to(scope: str, access: AccessToken | None) -> str:
    if access is not None and access.resource is not None:
        return f"connect the desk to this client once more, and allow {scope}"
    return f"deskhand token create --name NAME --scope {scope}"


def opened_names(
    area: Area, *, writes: bool, within: Iterable[str] | None
) -> frozenset[str] | None:
    """The mail accounts or the vaults that the caller may see; None where it may see all of them."""
    access = _foreign_access()
    held = None if access is None else (access.claims or {}).get(_HELD, access.scopes)
    opened: frozenset[str] | None = None
    for scopes in (within, held):
        names = None if scopes is None else tokens.opened_names(scopes, area, writes=writes)
        if names is not None:
            opened = names if opened is None else opened & names
    return opened


def _foreign_access() -> AccessToken | None:
    """The access of somebody who is not the desk itself."""
    access = get_access_token()
    if access is None or access.client_id == _DESK:
        return None
    return access


def auth_settings(area: Area | None) -> AuthSettings:
    """What the SDK must know to ask for tokens; a server of one part of the desk wants at
    least its reading scope."""
    # The token is compared here and was made here, so there is no issuer to ask and no audience to check.
    return AuthSettings(
        issuer_url=AnyHttpUrl("http://127.0.0.1"),
        resource_server_url=None,
        required_scopes=[f"{area}:read"] if area else None,
    )


def own_names(origin: str) -> TransportSecuritySettings:
    """Under which names a server answers that also has one of its own."""
    here = ["127.0.0.1:*", "localhost:*", "[::1]:*"]
    return TransportSecuritySettings(
        allowed_hosts=[*here, urlsplit(origin).netloc],
        allowed_origins=[*(f"http://{name}" for name in here), origin],
    )


class RecordClosed:
    """Around a server's application: whom the SDK turned away because their token lacks the scope is recorded."""

    def __init__(
        self,
        app: ASGIApp,
        needed: str | None,
        record: Callable[[str, OutOfScope], Awaitable[None]],
    ) -> None:
        self._app = app
        self._needed = needed
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_recorded(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and message["status"] == HTTPStatus.FORBIDDEN
            ):
                await self._record_if_closed(scope)
            await send(message)

        await self._app(scope, receive, send_recorded)

    async def _record_if_closed(self, scope: Scope) -> None:
        user = scope.get("user")
        if (
            isinstance(user, AuthenticatedUser)
            and self._needed
            and self._needed not in user.scopes
        ):
            error = OutOfScope(f"the token has no scope {self._needed}", scope=self._needed)
            await self._record(user.access_token.client_id.removeprefix(_TOKEN), error)


class EndWithToken:
    """Around a server's application: whoever listens is told no more when their token counts no more.

    The answer to a call is theirs whatever became of the token meanwhile.
    """

    def __init__(self, app: ASGIApp, tokens_here: "DeskTokens") -> None:
        self._app = app
        self._tokens = tokens_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_ended = False

        async def send_while_counted(message: Message) -> None:
            nonlocal has_ended
            if has_ended:
                return
            if message.get("more_body") and not await self._counts(scope):
                has_ended = True
                message = {"type": message["type"], "body": b"", "more_body": False}
            await send(message)

        listens = scope["type"] == "http" and _is_listening(scope)
        await self._app(scope, receive, send_while_counted if listens else send)

    async def _counts(self, scope: Scope) -> bool:
        user = scope.get("user")
        return (
            isinstance(user, AuthenticatedUser)
            and await self._tokens.verify_token(user.access_token.token) is not None
        )


def _is_listening(scope: Scope) -> bool:
    """Whether somebody waits for what the server says by itself: by GET, or as the second era does it."""
    return scope["method"] == "GET" or (b"mcp-method", LASTING.encode()) in scope["headers"]


class PointToMetadata:
    """Around a server beside the page: whoever is turned away is told where a client gets
    a token, and for what."""

    def __init__(self, app: ASGIApp, endpoint: str, scopes: Iterable[str]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._scopes = " ".join(scopes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pointed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if challenge := headers.get("www-authenticate"):
                    headers["www-authenticate"] = f"{challenge}, {self._where(scope)}"
            await send(message)

        await self._app(scope, receive, send_pointed)

    def _where(self, scope: Scope) -> str:
        address = URL(scope=scope).replace(path=f"{METADATA}{self._endpoint}", query="")
        return f'resource_metadata="{address}", scope="{self._scopes}"'


class DeskTokens:
    """Accepts the desk's own token, and those of assistants and users."""

    def __init__(self, token: str, authenticate: Authenticate | None) -> None:
        self._token = token.encode()
        self._authenticate = authenticate
        self.endpoint: str | None = None
        """Where the server answers beside the page; elsewhere no token that came by OAuth counts."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return AccessToken(token=token, client_id=_DESK, scopes=list(tokens.SCOPES))
        kept = (
            await self._authenticate(token, self.endpoint) if self._authenticate else None
        )
        if kept is None:
            return None
        scopes = list(map(tokens.right_of, tokens.with_reading(kept.scopes)))
        claims = {_HELD: kept.scopes}
        return AccessToken(
            token=token,
            client_id=f"{_TOKEN}{kept.asker}",
            scopes=scopes,
            subject=kept.user_id,
            claims=claims,
            resource=kept.resource,
        )
