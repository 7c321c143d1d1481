"""Where an IMAP or SMTP account lies and who signs in there."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deskhand.config import Settings
from deskhand.errors import AuthRequired, BadConfig
from deskhand.mail import credentials

LOGIN = "deskhand mail login imap"
_PORTS = {"imap": 143, "imaps": 993, "smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class Account:
    host: str
    port: int
    tls: bool
    """Encrypted from the first byte; otherwise by STARTTLS, except on this very machine."""
    user: str | None
    password: str | None

    @property
    def is_local(self) -> bool:
        """On this very machine, where nobody listens on the way."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def secret_name(self) -> str:
        return f"imap-{self.user}@{self.host}".replace("/", "_")


def imap_account(settings: Settings) -> Account:
    hint = "set DESKHAND_IMAP_URL to imaps://USER@HOST"
    if settings.imap_url is None:
        raise BadConfig("no IMAP account is configured", hint=hint)
    account = _account(settings.imap_url.get_secret_value(), "imap")
    if account.user is None:
        raise BadConfig("the IMAP account has no user", hint=hint)
    return account


def smtp_account(settings: Settings) -> Account:
    if settings.smtp_url is None:
        raise BadConfig("no SMTP account is configured", hint="set DESKHAND_SMTP_URL to smtps://USER@HOST")
    return _account(settings.smtp_url.get_secret_value(), "smtp")


def password(home: Path, account: Account) -> str:
    """The URL's password, else what `deskhand mail login imap` left."""
    secret = account.password or credentials.recall(home, account.secret_name)
    if secret is None:
        raise AuthRequired(f"there is no password for {account.user} at {account.host}", hint=f"run `{LOGIN}`")
    return secret


def own_address(settings: Settings) -> str:
    user = imap_account(settings).user or ""
    if settings.address is not None:
        return settings.address
    if "@" not in user:
        raise BadConfig("the mailbox does not tell its own address", hint="set DESKHAND_ADDRESS")
    return user


def _account(url: str, kind: str) -> Account:
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        port = 0
    if not port or not parts.scheme.startswith(kind) or not parts.hostname:
        variable = f"DESKHAND_{kind.upper()}_URL"
        raise BadConfig(f"{variable} is not an account", hint=f"write {kind}s://USER@HOST or {kind}://USER@HOST")
    user = unquote(parts.username or "") or None
    secret = unquote(parts.password or "") or None
    return Account(parts.hostname, port, parts.scheme.endswith("s"), user, secret)
