"""Signing in to Google: the authorized-user JSON, its renewal, and the first consent in a browser."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from deskhand.config import Settings
from deskhand.errors import AuthRequired, BadConfig, ProviderDown, printable
from deskhand.mail import credentials
from deskhand.mail.consent import Consent

SCOPE = "https://www.googleapis.com/auth/gmail.modify"
LOGIN = "deskhand mail login gmail"
SEVEN_DAYS = (
    "If this comes back every seven days, your project at Google is still in testing, where a sign-in lasts no longer:"
    " publish it in Google's console (Audience, Publish app; nobody has to verify it for your own use), then sign in"
)
_NAME = "gmail"


class AuthorizedUser(BaseModel):
    """Google's authorized-user JSON; what we do not know in it is kept."""

    model_config = ConfigDict(extra="allow")

    client_id: str
    client_secret: str = ""
    refresh_token: str | None = None
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address, not a secret
    token: str | None = None
    expiry: datetime | None = None

    def fresh(self, now: datetime) -> str | None:
        """The token, while it has not expired."""
        if self.expiry is None:
            return self.token
        expiry = self.expiry if self.expiry.tzinfo else self.expiry.replace(tzinfo=UTC)
        return self.token if expiry > now else None


class InstalledClient(BaseModel):
    """The desktop application's identity, as Google's console hands it out."""

    client_id: str
    client_secret: str = ""
    auth_uri: str = "https://accounts.google.com/o/oauth2/v2/auth"
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address, not a secret


class GoogleAuth:
    """Hands out a bearer token and renews it, once however many callers found it stale."""

    def __init__(
        self, settings: Settings, http: httpx2.AsyncClient, now: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._http = http
        self._now = now
        self._bearer: str | None = None
        self._sign_in: str | None = None
        self._lock = anyio.Lock()

    @property
    def sign_in(self) -> str | None:
        """Another one after a new sign-in, which may be somebody else's."""
        return self._sign_in

    async def bearer(self, refused: str | None = None) -> str:
        """A bearer token, and a new one where the last was refused."""
        async with self._lock:
            if self._bearer == refused:
                # Another process of this desk, or a new sign-in, may have replaced it meanwhile.
                user = load_user(self._settings)
                fresh = user.fresh(self._now()) if refused is None else None
                self._bearer = fresh or await self._ask_for_bearer(user)
                self._sign_in = user.refresh_token
            assert self._bearer is not None  # noqa: S101 - nobody refuses what was never given out
            return self._bearer

    async def _ask_for_bearer(self, user: AuthorizedUser) -> str:
        if not user.refresh_token:
            raise _sign_in_again("Gmail's token has expired and cannot be renewed")
        proof = {
            "client_id": user.client_id,
            "client_secret": user.client_secret,
            "refresh_token": user.refresh_token,
        }
        answer = await _token_request(
            self._http, user.token_uri, grant_type="refresh_token", **proof
        )
        rotated = answer.get("refresh_token")
        if rotated and rotated != user.refresh_token:
            _save(
                self._settings,
                user.model_copy(
                    update={"refresh_token": rotated, "token": None, "expiry": None}
                ),
            )
        return str(answer["access_token"])


def load_user(settings: Settings) -> AuthorizedUser:
    """What a sign-in left, or the file that DESKHAND_GMAIL_CREDENTIALS names."""
    file = settings.gmail_credentials
    try:
        text = (
            file.read_text(encoding="utf-8")
            if file
            else credentials.recall(settings.home, _NAME)
        )
    except (OSError, UnicodeError) as error:
        raise _sign_in_again(f"Gmail's credentials cannot be read: {file}") from error
    if text is None:
        raise _sign_in_again("nobody has signed in to Gmail at this desk")
    try:
        return AuthorizedUser.model_validate_json(text)
    except ValidationError as error:
        # Not chained: the error would carry the secrets into the log.
        missing = ", ".join(
            sorted({str(item["loc"][0]) for item in error.errors() if item["loc"]})
        )
        raise AuthRequired(
            f"Gmail's credentials are not an authorized-user JSON: {missing}".rstrip(": "),
            hint=f"run `{LOGIN}`, or correct DESKHAND_GMAIL_CREDENTIALS",
        ) from None


def _save(settings: Settings, user: AuthorizedUser) -> str:
    text = user.model_dump_json(exclude_none=True)
    if settings.gmail_credentials is None:
        return credentials.keep(settings.home, _NAME, text)
    credentials.write_private(settings.gmail_credentials, text)
    return str(settings.gmail_credentials)


async def _token_request(http: httpx2.AsyncClient, uri: str, **form: str) -> dict[str, Any]:
    try:
        answer = await http.post(uri, data=form)
    except httpx2.TimeoutException as error:
        raise ProviderDown("Google's sign-in does not answer in time") from error
    except httpx2.TransportError as error:
        raise ProviderDown("Google's sign-in cannot be reached") from error
    if answer.status_code >= 500 or answer.status_code == 429:
        raise ProviderDown(
            f"Google's sign-in answers {answer.status_code}", status=answer.status_code
        )
    body: dict[str, Any] = {}
    with suppress(ValueError):
        body = answer.json()
    if answer.status_code != 200 or "access_token" not in body:
        reason = printable(body.get("error", str(answer.status_code)), 100)
        raise _sign_in_again(
            f"Google no longer accepts this sign-in ({reason})", reason=reason
        )
    return body


def _sign_in_again(message: str, **details: Any) -> AuthRequired:
    return AuthRequired(message, hint=f"run `{LOGIN}`", **details)


def installed_client(file: Path) -> InstalledClient:
    try:
        return InstalledClient.model_validate(
            json.loads(file.read_text(encoding="utf-8"))["installed"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise BadConfig(
            f"{file} is not the JSON of a desktop OAuth client",
            hint="in Google's console make an OAuth client of type Desktop app and download its JSON",
        ) from None


def known_client(settings: Settings) -> InstalledClient:
    """The client of the sign-in before, so that a revoked one is renewed by the same short command."""
    try:
        return InstalledClient.model_validate(load_user(settings).model_dump())
    except AuthRequired:
        raise BadConfig(
            "the first sign-in needs your OAuth client at Google",
            hint=f"make one of type Desktop app in Google's console, then `{LOGIN} --client FILE.json`",
        ) from None


def sign_in(
    settings: Settings,
    client: InstalledClient,
    visit: Callable[[str], None],
    paste: Callable[[], str] | None = None,
) -> str:
    """Let the person consent in a browser; where the token is kept."""
    # Without "consent" a second sign-in brings no refresh token.
    query = {
        "client_id": client.client_id,
        "scope": SCOPE,
        "access_type": "offline",
        "prompt": "consent",
    }
    agreed = Consent(client.auth_uri, query, LOGIN).ask(visit, paste)
    proof = {
        "client_id": client.client_id,
        "client_secret": client.client_secret,
        **agreed.form,
    }

    async def exchange() -> dict[str, Any]:
        async with httpx2.AsyncClient(timeout=30) as http:
            return await _token_request(
                http, client.token_uri, grant_type="authorization_code", **proof
            )

    answer = anyio.run(exchange)
    if SCOPE not in str(answer.get("scope", SCOPE)).split():
        raise AuthRequired(
            "the consent does not cover mail",
            hint=f"run `{LOGIN}` again and tick every box",
        )
    if not answer.get("refresh_token"):
        raise AuthRequired(
            "Google gave no lasting token",
            hint=f"remove the desk's access there, then `{LOGIN}`",
        )
    user = AuthorizedUser.model_validate(
        client.model_dump() | {"refresh_token": answer["refresh_token"]}
    )
    return _save(settings, user)
