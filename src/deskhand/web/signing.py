"""What the page asks a passkey to sign, and what it takes as a signature."""

from collections.abc import Collection, Iterable
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request

from deskhand.errors import Denied
from deskhand.gate import passkeys
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


def describe_signing(
    request: Request, keys: Iterable[Passkey], *, has_password: bool, asks: bool
) -> dict[str, Any]:
    """What every page may say of passkeys; `asks`: whether an answer needs one here, or the password."""
    names = {key.host for key in keys}
    signs = request.url.hostname in names
    return {
        "signs": asks and signs,
        # Nobody can prove to be the person under this name.
        "unproven": asks and not (signs or has_password),
        # A browser shows a passkey to its own name alone.
        "elsewhere": sorted(names - {request.url.hostname}),
        "at_localhost": _find_localhost(request, names),
        "has_name": _has_name(request),
    }


def _has_name(request: Request) -> bool:
    """Whether the page was opened by a name: browsers make passkeys for no number."""
    return request.url.hostname not in ("127.0.0.1", "::1")


def _find_localhost(request: Request, names: Collection[str]) -> str | None:
    """Where this machine's passkeys sign, for somebody who came by its number: browsers
    have them for names alone."""
    if request.url.hostname != "127.0.0.1" or "localhost" not in names:
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
