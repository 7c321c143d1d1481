"""What the page asks a passkey to sign, and what it takes as a signature."""

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request

from deskhand.errors import Denied
from deskhand.gate import passkeys, passwords
from deskhand.gate.webauthn import Assertion, Passkey, Said
from deskhand.web.address import own_origin
from deskhand.web.request import desk_of

_MILLISECONDS = round(passkeys.NONCE_LIFE.total_seconds() * 1000)


def signing_origin(request: Request) -> str:
    """The origin at which passkeys sign for this desk.

    On this machine it is told by the port that we listen at, not by the Host header: to an authenticator all ports of
    localhost are one site, and another program's page must not sign for us.
    """
    if request.url.scheme == "https":
        return own_origin(request)
    return f"http://{request.url.hostname}:{request.scope['server'][1]}"


async def keys_here(request: Request) -> list[Passkey]:
    """The passkeys that can sign under the name by which the page was opened."""
    desk = desk_of(request)
    keys = await desk.store.read(passkeys.list_keys, desk.policy.seal)
    return [key for key in keys if key.host == request.url.hostname]


async def names_elsewhere(request: Request) -> list[str]:
    """The other names of this desk for which there are passkeys; a browser shows each to its own name alone."""
    desk = desk_of(request)
    keys = await desk.store.read(passkeys.list_keys, desk.policy.seal)
    return sorted({key.host for key in keys} - {request.url.hostname})


async def is_unproven(request: Request) -> bool:
    """Whether nobody can prove to be the person under this name: no passkey signs for it, and there is no password."""
    has_password = await desk_of(request).store.read(passwords.is_set)
    return not has_password and not await keys_here(request)


def has_name(request: Request) -> bool:
    """Whether the page was opened by a name: browsers make passkeys for no number."""
    return request.url.hostname not in ("127.0.0.1", "::1")


async def find_localhost(request: Request) -> str | None:
    """Where this machine's passkeys sign, for somebody who came by its number: browsers have them for names alone."""
    if request.url.hostname != "127.0.0.1" or "localhost" not in await names_elsewhere(
        request
    ):
        return None
    return f"http://localhost:{request.scope['server'][1]}"


async def offer(
    request: Request, said: Said, place: str, *, named: bool = True
) -> dict[str, Any]:
    """What a browser needs to have this signed; `named` tells it by which keys."""
    desk = desk_of(request)
    nonce = passkeys.make_nonce(desk.policy.seal, place, desk.now())
    keys = await keys_here(request) if named else []
    options = {
        "challenge": said.challenge(nonce),
        "rpId": request.url.hostname,
        "allowCredentials": [{"type": "public-key", "id": key.id} for key in keys],
        "userVerification": "required",
        "timeout": _MILLISECONDS,
    }
    return {"nonce": nonce, "options": options}


def demand_assertion(text: str) -> Assertion:
    try:
        return Assertion.model_validate_json(text)
    except ValidationError:
        raise Denied(
            "the passkey's answer cannot be read", reason="proof", hint="nothing was done"
        ) from None
