"""OAuth 2.1: what a client must know, the page on which the person connects it, and the tokens that it then gets.

Only the person's own page says yes. A token opens MCP endpoints, never a page.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from deskhand import tokens
from deskhand.app import Desk
from deskhand.errors import BadConfig, Denied, DeskError, InvalidInput, NotFound
from deskhand.gate.webauthn import Said
from deskhand.oauth import OAuthRefusal, clients, grants
from deskhand.oauth.clients import OAuthClient
from deskhand.oauth.documents import Documents, is_document
from deskhand.oauth.grants import ACCESS_LIFE, Allowed, Ended, Issued
from deskhand.servers import SERVERS, ServerKind, guarded_kind
from deskhand.servers.callers import METADATA
from deskhand.tokens import EVERY_ENDPOINT
from deskhand.web.address import own_origin
from deskhand.web.entry import effect, page
from deskhand.web.proving import claim_in
from deskhand.web.render import POLICY, render
from deskhand.web.request import desk_of, text_in

Endpoints = Mapping[str, ServerKind]
"""Each MCP endpoint of this desk, by its path."""
BODY_BYTES = 20_000
_LOOPBACK = re.compile(r"^http://(127\.0\.0\.1|\[::1\])(?=[:/]|$)")
_LONGEST_STATE = 2000
_RETRY_AFTER = str(int(clients.UNUSED_LIFE.total_seconds()))
_PARAMETERS = (
    "response_type",
    "client_id",
    "redirect_uri",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "resource",
    "state",
)
_OFFLINE = "offline_access"
"""What some clients add to be given a refresh token; here everybody is."""
WORDS = {
    "mail:read": "read your mail",
    "mail:write": "sort your mail and write drafts; what would be sent waits for your yes",
    "notes:read": "read your notes, and with them the mail that the desk put there",
    "notes:write": "change your notes",
    "tasks:read": "read your tasks",
    "tasks:write": "change your tasks",
    "agents:read": "read the messages of your agents",
    "agents:write": "write to your agents",
    "guard:read": "see the tools of other servers behind your desk, and read what these show; it calls none of them",
    "guard:write": "call these tools; what your rules do not let pass waits for your yes",
}


def routes() -> list[Route]:
    return [
        Route("/.well-known/oauth-authorization-server", _describe_server, methods=["GET"]),
        Route(METADATA, _describe_resource, methods=["GET"]),
        Route(f"{METADATA}{{path:path}}", _describe_resource, methods=["GET"]),
        page("/oauth/authorize", _ask, linked=True),
        effect("/oauth/authorize", _answer),
        _machine("/oauth/token", _give_tokens),
        _machine("/oauth/register", _register),
        _machine("/oauth/revoke", _revoke),
    ]


def _list_endpoints(desk: Desk) -> Endpoints:
    """The desk's own, and those of the servers behind the gate, as `guard.toml` names them now."""
    kinds = [*SERVERS.values()]
    with suppress(BadConfig):  # then none of them is open
        kinds += map(guarded_kind, desk.foreign.entries)
    return {kind.path: kind for kind in kinds}


# What a client must know.


async def _describe_server(request: Request) -> Response:
    origin = own_origin(request)
    return JSONResponse(
        {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/oauth/authorize",
            "token_endpoint": f"{origin}/oauth/token",
            "registration_endpoint": f"{origin}/oauth/register",
            "revocation_endpoint": f"{origin}/oauth/revoke",
            "scopes_supported": tokens.SCOPES,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
    )


async def _describe_resource(request: Request) -> Response:
    path = request.path_params.get("path", "")
    kind = _list_endpoints(desk_of(request)).get(path)
    if path and kind is None:
        raise NotFound("there is no MCP endpoint at this address")
    origin = own_origin(request)
    return JSONResponse(
        {
            "resource": f"{origin}{path}",
            "resource_name": f"Deskhand: {_title(kind)}",
            "authorization_servers": [origin],
            "scopes_supported": _scopes_of(kind),
            "bearer_methods_supported": ["header"],
        }
    )


def _title(kind: ServerKind | None) -> str:
    if kind is None:
        return "every endpoint"
    return kind.title


def _scopes_of(kind: ServerKind | None) -> Sequence[str]:
    if kind is None:
        return tokens.SCOPES
    return kind.scopes


# What the person is asked.


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for; it may be sent back with an answer."""

    client: OAuthClient
    redirect: str
    given: Mapping[str, str]
    issuer: str
    endpoints: Endpoints

    def send_back(self, **answer: str) -> Response:
        """The browser goes back to the client, which hears who answered (RFC 9207)."""
        if "state" in self.given:
            answer["state"] = self.given["state"]
        query = urlencode(answer | {"iss": self.issuer})
        joint = "&" if urlsplit(self.redirect).query else "?"
        return RedirectResponse(f"{self.redirect.removesuffix('?')}{joint}{query}", 303)

    def refuse(self, refusal: OAuthRefusal) -> Response:
        return self.send_back(error=refusal.error, error_description=refusal.message)

    def read(self) -> Allowed:
        """All that it asks for, as it would be allowed; refuses what is no request of OAuth 2.1."""
        given = self.given
        if given.get("response_type") != "code":
            raise OAuthRefusal("unsupported_response_type", "response_type is code")
        challenge = given.get("code_challenge", "")
        if given.get("code_challenge_method") != "S256" or not grants.CHALLENGE.fullmatch(
            challenge
        ):
            raise OAuthRefusal(
                "invalid_request",
                "PKCE is needed: code_challenge, and code_challenge_method S256",
            )
        if len(given.get("state", "")) > _LONGEST_STATE:
            raise OAuthRefusal("invalid_request", "the state is too long")
        resource = EVERY_ENDPOINT
        if "resource" in given:
            resource = _read_resource(given["resource"], self.issuer, self.endpoints)
        scopes = _read_scopes(given.get("scope")) or _scopes_of(
            self.endpoints.get(resource)
        )
        return Allowed(
            self.client.id,
            self.client.name,
            self.redirect,
            challenge,
            tuple(scopes),
            resource,
        )


async def _ask(request: Request) -> Response:
    asked = await _read_asked(request, request.query_params.multi_items())
    try:
        return await _show(request, asked, asked.read())
    except OAuthRefusal as refusal:
        return asked.refuse(refusal)


async def _answer(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    fields = [
        (name, str(value)) for name, value in form.multi_items() if name in _PARAMETERS
    ]
    asked = await _read_asked(request, fields)
    try:
        allowed = asked.read()
    except OAuthRefusal as refusal:
        return asked.refuse(refusal)
    about = {
        "client_id": asked.client.id,
        "redirect": asked.redirect,
        "resource": allowed.resource,
    }
    if text_in(form, "answer") != "allow":
        no = OAuthRefusal("access_denied", "the person said no")
        await desk.record(
            "person", "connect_client", allowed.name, about, no, result="rejected"
        )
        return asked.refuse(no)
    chosen = _choose(allowed, form)
    if not chosen:
        problem = InvalidInput("Choose at least one thing that it may do, or say no.")
        return await _show(request, asked, allowed, problem=problem)
    try:
        await desk.answers.demand_person(
            "person", claim_in(request, form), _say(allowed._replace(scopes=chosen))
        )
    except Denied as refused:
        return await _show(request, asked, allowed, problem=refused)
    code = await desk.store.write(grants.allow, allowed._replace(scopes=chosen), desk.now())
    await desk.record(
        "person",
        "connect_client",
        allowed.name,
        about | {"scopes": " ".join(chosen)},
    )
    return asked.send_back(code=code)


def _choose(allowed: Allowed, form: FormData) -> tuple[str, ...]:
    return tuple(
        each
        for each in tokens.with_reading(allowed.scopes)
        if each in form.getlist("allow")
    )


def _say(allowed: Allowed) -> Said:
    """What a passkey signs for a client: who it is, where it is sent back to, and all that it may."""
    return Said(
        word="connect a client",
        about=(("client", sha256(json.dumps(allowed).encode()).hexdigest()),),
    )


async def say_connection(request: Request, form: FormData) -> Said:
    """What the form of the page has to be signed with."""
    fields = [
        (name, str(value)) for name, value in form.multi_items() if name in _PARAMETERS
    ]
    allowed = (await _read_asked(request, fields)).read()
    return _say(allowed._replace(scopes=_choose(allowed, form)))


async def _read_asked(request: Request, fields: Sequence[tuple[str, str]]) -> Asked:
    """Who asks, and where the answer goes. As long as that is not sure, the browser is sent nowhere."""
    given = _read_once(fields)
    client = await _find_client(request, given.get("client_id", ""))
    if client is None:
        hint = "add the desk to the client once more: it then registers anew"
        raise OAuthRefusal(
            "invalid_client", "this desk does not know the client", hint=hint
        )
    return Asked(
        client,
        client.demand_redirect(given.get("redirect_uri")),
        given,
        own_origin(request),
        _list_endpoints(desk_of(request)),
    )


async def _find_client(request: Request, client_id: str) -> OAuthClient | None:
    """The client that registered, or that the document at the address says."""
    if is_document(client_id):
        reader: Documents = request.app.state.documents
        return await reader.find(client_id)
    return await desk_of(request).store.read_one(clients.find, client_id)


async def _show(
    request: Request, asked: Asked, allowed: Allowed, problem: DeskError | None = None
) -> Response:
    goes_to = urlsplit(asked.redirect)
    scopes = tokens.with_reading(allowed.scopes)
    answer = await render(
        request,
        "connect.html",
        title="Connect a client",
        client=asked.client,
        redirect=asked.redirect,
        host=goes_to.hostname or goes_to.scheme,
        endpoint=_title(asked.endpoints.get(allowed.resource)),
        scopes=[(each, _describe(each)) for each in scopes],
        # With the address that is shown: a client's document may name another one by the time of the answer.
        fields={name: asked.given[name] for name in _PARAMETERS if name in asked.given}
        | {"redirect_uri": asked.redirect},
        problem=problem,
    )
    # A browser holds the redirect after a form to the policy of the page that the form is on.
    source = f"{goes_to.scheme}:"
    if goes_to.scheme in ("http", "https"):
        source = f"{goes_to.scheme}://{goes_to.netloc}"
    answer.headers["Content-Security-Policy"] = POLICY.replace(
        "form-action 'self'", f"form-action 'self' {source}"
    )
    return answer


def _read_resource(given: str, origin: str, endpoints: Endpoints) -> str:
    """The endpoint that a resource indicator (RFC 8707) names, as its path."""
    named, own = (_LOOPBACK.sub("http://localhost", each) for each in (given, origin))
    if not named.startswith(own):
        raise OAuthRefusal("invalid_target", "this resource is not of this desk")
    path = named.removeprefix(own).removesuffix("/") or EVERY_ENDPOINT
    if path != EVERY_ENDPOINT and path not in endpoints:
        raise OAuthRefusal("invalid_target", "there is no such endpoint at this desk")
    return path


def _describe(scope: str) -> str:
    """What a scope opens; of mail perhaps one account alone, of notes one vault."""
    opened = WORDS[tokens.right_of(scope)]
    name = scope.removeprefix(tokens.right_of(scope)).removeprefix(":")
    if not name:
        return opened
    kind = "vault" if scope.startswith("notes:") else "account"
    return f"{opened}, in the {kind} {name} alone"


def _read_scopes(given: str | None) -> tuple[str, ...]:
    asked = [each for each in (given or "").split() if each != _OFFLINE]
    try:
        return tokens.check_scopes(asked)
    except InvalidInput as error:
        raise OAuthRefusal(
            "invalid_scope", f"the scopes are {' '.join(tokens.SCOPES)}"
        ) from error


def _read_once(fields: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The fields that say something; none may be there twice (RFC 6749, 3.1)."""
    names = [name for name, _ in fields]
    if len(set(names)) < len(names):
        raise OAuthRefusal("invalid_request", "a parameter is there twice")
    return {name: value for name, value in fields if value}


# What a client asks for itself.


def _machine(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """A POST of a program: what is refused is told in OAuth's own form."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except OAuthRefusal as refusal:
            return _refuse(refusal)

    return Route(path, answer, methods=["POST"])


def _refuse(refusal: OAuthRefusal) -> Response:
    headers = (
        {"Retry-After": _RETRY_AFTER}
        if refusal.error == "temporarily_unavailable"
        else None
    )
    body = {"error": refusal.error, "error_description": refusal.message}
    return JSONResponse(body, refusal.status, headers=headers)


async def _register(request: Request) -> Response:
    """RFC 7591. What the desk does not do is answered with what it does."""
    desk = desk_of(request)
    # Any page on the web could send the others.
    if _content_type(request) != "application/json":
        raise OAuthRefusal("invalid_client_metadata", "the body is application/json")
    try:
        asked = json.loads(await _read_body(request))
    except (ValueError, RecursionError) as error:
        raise OAuthRefusal("invalid_client_metadata", "the body is not JSON") from error
    if not isinstance(asked, dict):
        raise OAuthRefusal("invalid_client_metadata", "the body is not an object")
    _demand_one_of(asked, "grant_types", "authorization_code")
    _demand_one_of(asked, "response_types", "code")
    now = desk.now()
    host = request.client.host if request.client else ""
    made = await desk.store.write(
        clients.register, asked.get("client_name"), asked.get("redirect_uris"), host, now
    )
    answer = {
        "client_id": made.id,
        "client_id_issued_at": int(now.timestamp()),
        "client_name": made.name,
        "redirect_uris": made.redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    return JSONResponse(answer, 201)


def _demand_one_of(asked: Mapping[str, Any], name: str, needed: str) -> None:
    given = asked.get(name, [needed])
    if not isinstance(given, list) or needed not in given:
        raise OAuthRefusal("invalid_client_metadata", f"{name} must have {needed} in it")


async def _give_tokens(request: Request) -> Response:
    desk = desk_of(request)
    given = await _read_form(request)
    client_id = await _demand_client(request, given)
    resource = None
    if "resource" in given:
        resource = _read_resource(
            given["resource"], own_origin(request), _list_endpoints(desk)
        )
    match given.get("grant_type"):
        case "authorization_code":
            code, verifier = _demand(given, "code"), _demand(given, "code_verifier")
            redirect = given.get("redirect_uri")
            work = partial(grants.redeem, code=code, redirect=redirect, verifier=verifier)
        case "refresh_token":
            scopes = _read_scopes(given.get("scope"))
            work = partial(
                grants.renew, refresh=_demand(given, "refresh_token"), scopes=scopes
            )
        case _:
            raise OAuthRefusal(
                "unsupported_grant_type",
                "grant_type is authorization_code or refresh_token",
            )
    issued: Issued | Ended = await desk.store.write(
        work, client_id=client_id, resource=resource, now=desk.now()
    )
    if isinstance(issued, Ended):
        if issued.name is not None:
            about = {"client_id": client_id, "reason": "a secret of it was shown twice"}
            await desk.record("desk", "revoke_token", issued.name, about)
        raise issued.refusal
    return JSONResponse(
        {
            "access_token": issued.access,
            "token_type": "Bearer",
            "expires_in": int(ACCESS_LIFE.total_seconds()),
            "refresh_token": issued.refresh,
            "scope": " ".join(issued.scopes),
        }
    )


async def _revoke(request: Request) -> Response:
    """RFC 7009: what is not there is revoked already."""
    desk = desk_of(request)
    given = await _read_form(request)
    client_id = await _demand_client(request, given)
    ended = await desk.store.write(grants.revoke, client_id, _demand(given, "token"))
    if ended is not None:
        about = {"client_id": client_id, "reason": "the client gave it back"}
        await desk.record("desk", "revoke_token", ended.name, about)
    return Response(status_code=200)


async def _demand_client(request: Request, given: Mapping[str, str]) -> str:
    """The client that asks; one that was dropped shall register anew. A document was read
    when the person was asked."""
    client_id = given.get("client_id", "")
    if not is_document(client_id) and await _find_client(request, client_id) is None:
        raise OAuthRefusal("invalid_client", "this desk does not know the client")
    return client_id


def _demand(given: Mapping[str, str], name: str) -> str:
    if name not in given:
        raise OAuthRefusal("invalid_request", f"{name} is missing")
    return given[name]


async def _read_form(request: Request) -> dict[str, str]:
    if _content_type(request) != "application/x-www-form-urlencoded":
        raise OAuthRefusal(
            "invalid_request", "the body is application/x-www-form-urlencoded"
        )
    try:
        text = (await _read_body(request)).decode()
        return _read_once(parse_qsl(text, strict_parsing=True, max_num_fields=20))
    except ValueError as error:
        raise OAuthRefusal("invalid_request", "the body is no form") from error


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise OAuthRefusal(
                "invalid_request", f"the body is larger than {BODY_BYTES:,} bytes"
            )
    return body
