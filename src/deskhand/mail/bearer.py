"""Access tokens for IMAP and SMTP servers that want them in a password's place (OAUTHBEARER, XOAUTH2).

What lasts is the refresh token, in the keyring or a file that only the person can read; access tokens are in memory.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deskhand.config import Settings
from deskhand.errors import AuthRequired, BadConfig, ProviderDown, TimedOut, printable
from deskhand.mail import credentials
from deskhand.mail.accounts import Account, Bearer
from deskhand.mail.consent import Consent

LOGIN = "deskhand mail login oauth"
EARLY = timedelta(seconds=60)
"""A token that ends so soon is renewed first."""
SHORTEST = timedelta(seconds=300)
"""How long a token is taken to live where nobody says it."""
_MICROSOFT = "https://login.microsoftonline.com/common/oauth2/v2.0"
_OUTLOOK = "https://outlook.office.com"
PRESETS: dict[str, dict[str, str]] = {
    "microsoft": {
        "oauth_auth_url": f"{_MICROSOFT}/authorize",
        "oauth_token_url": f"{_MICROSOFT}/token",
        "oauth_device_url": f"{_MICROSOFT}/devicecode",
        "oauth_scope": f"offline_access {_OUTLOOK}/IMAP.AccessAsUser.All {_OUTLOOK}/SMTP.Send",
    },
    "fastmail": {
        "oauth_auth_url": "https://api.fastmail.com/oauth/authorize",
        "oauth_token_url": "https://api.fastmail.com/oauth/refresh",
        "oauth_scope": "https://www.fastmail.com/dev/protocol-imap https://www.fastmail.com/dev/protocol-smtp",
    },
    "yahoo": {
        "oauth_auth_url": "https://api.login.yahoo.com/oauth2/request_auth",
        "oauth_token_url": "https://api.login.yahoo.com/oauth2/get_token",
        "oauth_scope": "mail-w",
    },
}
"""What each provider says of itself; what is configured counts before it."""
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_LONGEST_WAIT = 900


class BearerTokens:
    """The access token of one account; any thread may ask."""

    def __init__(
        self, settings: Settings, account: Account, now: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._name = secret_name(account)
        self._host = account.host
        self._now = now
        self._lock = threading.Lock()
        self._access: Bearer | None = None
        self._ends = now()

    def access(self) -> Bearer:
        with self._lock:
            if self._access is None or self._now() + EARLY >= self._ends:
                self._renew()
            assert self._access is not None  # noqa: S101 - see _renew
            return self._access

    def forget(self) -> None:
        """The server did not take it: it was revoked, or ended sooner than was said."""
        with self._lock:
            self._access = None

    def _renew(self) -> None:
        """In turns with other processes: a provider may end a sign-in whose refresh token
        is shown a second time."""
        with credentials.take_turns(self._settings.home, self._name):
            refresh = self._recall()
            answer = _ask(self._settings, grant_type="refresh_token", refresh_token=refresh)
            rotated = answer.get("refresh_token")
            if rotated and rotated != refresh:
                credentials.keep(self._settings.home, self._name, str(rotated))
        self._access = Bearer(answer["access_token"])
        self._ends = self._now() + _lifetime(answer)

    def _recall(self) -> str:
        found = credentials.recall(self._settings.home, self._name)
        if found is None:
            raise AuthRequired(
                f"nobody has signed in to {self._host} yet", hint=f"run `{LOGIN}`"
            )
        return found


def sign_in_by_device(
    settings: Settings,
    account: Account,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Let the person agree on any device (RFC 8628); where the token is kept."""
    device_url = _known(settings, "oauth_device_url")
    if not device_url:
        raise BadConfig(
            "no device sign-in is configured",
            hint="set oauth_device_url to the provider's address for it",
        )
    begun = _post(
        device_url, _client(settings) | {"scope": _known(settings, "oauth_scope")}
    )
    page = begun.get("verification_uri") or begun.get("verification_url")
    if "device_code" not in begun or not page:
        raise ProviderDown(f"the sign-in did not begin: {_reason(begun)}")
    say(
        f"Open {printable(page)} on any device and type {printable(begun.get('user_code'))}"
    )
    pause = float(begun.get("interval") or 5)
    waited = 0.0
    while waited <= min(float(begun.get("expires_in") or _LONGEST_WAIT), _LONGEST_WAIT):
        sleep(pause)
        waited += pause
        form = _client(settings) | {
            "grant_type": _DEVICE,
            "device_code": str(begun["device_code"]),
        }
        answer = _post(_token_url(settings), form)
        match answer.get("error"):
            case "authorization_pending":
                continue
            case "slow_down":
                pause += 5
            case None if answer.get("refresh_token"):
                return keep(settings.home, account, str(answer["refresh_token"]))
            case _:
                raise AuthRequired(
                    f"the provider said no: {_reason(answer)}", hint=f"run `{LOGIN}` again"
                )
    raise TimedOut("nobody agreed in time", hint=f"run `{LOGIN}` again")


def sign_in_by_browser(
    settings: Settings,
    account: Account,
    visit: Callable[[str], None],
    paste: Callable[[], str] | None = None,
) -> str:
    """Let the person agree in a browser; where the token is kept."""
    auth_url = _known(settings, "oauth_auth_url")
    if not auth_url:
        raise BadConfig(
            "no sign-in in a browser is configured",
            hint="set oauth_auth_url, or oauth_provider",
        )
    query = {
        "client_id": _client(settings)["client_id"],
        "scope": _known(settings, "oauth_scope"),
    }
    agreed = Consent(auth_url, query | {"prompt": "consent"}, LOGIN, host="localhost").ask(
        visit, paste
    )
    answer = _ask(settings, grant_type="authorization_code", **agreed.form)
    if not answer.get("refresh_token"):
        raise AuthRequired(
            "the provider gave no lasting token",
            hint="ask for offline access in oauth_scope",
        )
    return keep(settings.home, account, str(answer["refresh_token"]))


def takes_token(settings: Settings) -> bool:
    """Whether the account is signed in by a token in a password's place."""
    return bool(_known(settings, "oauth_token_url"))


def has_browser_sign_in(settings: Settings) -> bool:
    return bool(_known(settings, "oauth_auth_url"))


def _known(settings: Settings, name: str) -> str:
    """What is configured, else what is known of the provider; empty where nobody says it."""
    preset = PRESETS.get(settings.oauth_provider or "", {})
    return getattr(settings, name) or preset.get(name, "")


def keep(home: Path, account: Account, refresh: str) -> str:
    return credentials.keep(home, secret_name(account), refresh)


def secret_name(account: Account) -> str:
    return f"oauth-{account.secret_name}"


def _lifetime(answer: dict[str, Any]) -> timedelta:
    with suppress(TypeError, ValueError):
        return timedelta(seconds=float(answer["expires_in"]))
    return SHORTEST


def _ask(settings: Settings, **form: str) -> dict[str, Any]:
    answer = _post(_token_url(settings), _client(settings) | form)
    if not isinstance(answer.get("access_token"), str):
        raise AuthRequired(
            f"the provider no longer accepts this sign-in ({_reason(answer)})",
            hint=f"run `{LOGIN}`",
        )
    return answer


def _token_url(settings: Settings) -> str:
    found = _known(settings, "oauth_token_url")
    if not found:
        hint = "set oauth_provider, or oauth_token_url, and oauth_client_id"
        raise BadConfig("no OAuth account is configured", hint=hint)
    return found


def _client(settings: Settings) -> dict[str, str]:
    if settings.oauth_client_id is None:
        raise BadConfig("the OAuth account has no client", hint="set oauth_client_id")
    secret = settings.oauth_client_secret
    proof = {"client_secret": secret.get_secret_value()} if secret else {}
    return {"client_id": settings.oauth_client_id} | proof


def _post(url: str, form: dict[str, str]) -> dict[str, Any]:
    """What the provider answers, also where it says no; ProviderDown where it does not answer."""
    import httpx2

    try:
        answer = httpx2.post(url, data=form, timeout=30, follow_redirects=False)
    except httpx2.HTTPError as error:
        raise ProviderDown(
            "the provider's sign-in cannot be reached", cause=type(error).__name__
        ) from None
    if answer.status_code >= 500 or answer.status_code == 429:
        raise ProviderDown(
            f"the provider's sign-in answers {answer.status_code}",
            status=answer.status_code,
        )
    with suppress(ValueError):
        if isinstance(said := answer.json(), dict):
            return said
    return {"error": f"status {answer.status_code}"}


def _reason(answer: dict[str, Any]) -> str:
    return printable(answer.get("error", "without a reason"), 100)
