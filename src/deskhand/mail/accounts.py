"""Where an IMAP or SMTP account lies and who signs in there."""

import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deskhand.config import Settings
from deskhand.errors import AuthRequired, BadConfig, ProviderDown
from deskhand.mail import credentials

LOGIN = "deskhand mail login imap"
_UNKNOWN_CA = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate that nobody known has signed."""
_PORTS = {"imap": 143, "imaps": 993, "smtp": 587, "smtps": 465}


class Bearer(str):
    """An access token in a password's place."""

    __slots__ = ()

    def greet(self, user: str) -> str:
        """XOAUTH2's first words."""
        return f"user={user}\x01auth=Bearer {self}\x01\x01"

    def greet_by_standard(self, user: str) -> str:
        """OAUTHBEARER's first words (RFC 7628)."""
        name = user.replace("=", "=3D").replace(",", "=2C")
        return f"n,a={name},\x01auth=Bearer {self}\x01\x01"


@dataclass(frozen=True, slots=True)
class Account:
    host: str
    port: int
    tls: bool
    """Encrypted from the first byte; otherwise by STARTTLS, without which nothing is told to another machine."""
    user: str | None
    password: str | None
    ca: Path | None = None
    """Vouches for the server beside the CAs that everybody knows."""

    @property
    def is_local(self) -> bool:
        """On this very machine, where nobody listens on the way."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def context(self) -> ssl.SSLContext:
        """What the server must prove. STARTTLS on this very machine proves nothing unless a CA is named: it is better
        than the open text that would do there too, and local bridges vouch for themselves."""
        context = ssl.create_default_context()
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise BadConfig(
                    f"{self.ca} is no CA certificate", hint="correct DESKHAND_MAIL_CA"
                ) from error
        elif self.is_local and not self.tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def explain(self, error: OSError) -> ProviderDown:
        """What is wrong where no connection comes about, and what to do."""
        place = f"{self.host}:{self.port}"
        cause = type(error).__name__
        match error:
            case ssl.SSLCertVerificationError(verify_code=code) if code in _UNKNOWN_CA:
                said = f"the certificate of {place} is from a CA that is not known here ({error.verify_message})"
                hint = (
                    "if the server is yours, set DESKHAND_MAIL_CA to the PEM file of its CA"
                )
            case ssl.SSLCertVerificationError():
                said = f"the certificate of {place} does not hold: {error.verify_message}"
                hint = "use the name that is in the certificate, or have the server's owner renew it"
            case ssl.SSLError():
                said = f"{place} does not speak TLS: {error.reason or error}"
                hint = (
                    "imaps:// and smtps:// are TLS from the first byte, "
                    "imap:// and smtp:// STARTTLS; look at the port"
                )
            case socket.gaierror():
                said = f"there is no host {self.host}"
                hint = "look at its name, and at the network"
            case ConnectionRefusedError():
                said = f"nobody listens at {place}"
                hint = "look at the name and the port"
            case TimeoutError():
                said = f"{place} does not answer in time"
                hint = "look at the port (993 and 465 want imaps:// and smtps://), and at the network"
            case _:
                said = f"{place} cannot be reached"
                hint = "look at the name and port, and at the network"
        return ProviderDown(said, hint=hint, cause=cause)

    @property
    def secret_name(self) -> str:
        return f"imap-{self.user}@{self.host}".replace("/", "_")


def imap_account(settings: Settings) -> Account:
    hint = "set DESKHAND_IMAP_URL to imaps://USER@HOST"
    if settings.imap_url is None:
        raise BadConfig("no IMAP account is configured", hint=hint)
    account = _account(settings.imap_url.get_secret_value(), "imap", settings.mail_ca)
    if account.user is None:
        raise BadConfig("the IMAP account has no user", hint=hint)
    return account


def smtp_account(settings: Settings) -> Account:
    if settings.smtp_url is None:
        raise BadConfig(
            "no SMTP account is configured",
            hint="set DESKHAND_SMTP_URL to smtps://USER@HOST",
        )
    return _account(settings.smtp_url.get_secret_value(), "smtp", settings.mail_ca)


def password(home: Path, account: Account) -> str:
    """The URL's password, else what `deskhand mail login imap` left."""
    secret = account.password or credentials.recall(home, account.secret_name)
    if secret is None:
        raise AuthRequired(
            f"there is no password for {account.user} at {account.host}",
            hint=f"run `{LOGIN}`",
        )
    return secret


def own_address(settings: Settings) -> str:
    user = imap_account(settings).user or ""
    if settings.address is not None:
        return settings.address
    if "@" not in user:
        raise BadConfig(
            "the mailbox does not tell its own address", hint="set DESKHAND_ADDRESS"
        )
    return user


def _account(url: str, kind: str, ca: Path | None) -> Account:
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):
        port = 0
    if not port or not parts.scheme.startswith(kind) or not parts.hostname:
        variable = f"DESKHAND_{kind.upper()}_URL"
        raise BadConfig(
            f"{variable} is not an account",
            hint=f"write {kind}s://USER@HOST or {kind}://USER@HOST",
        )
    user = unquote(parts.username or "") or None
    secret = unquote(parts.password or "") or None
    return Account(parts.hostname, port, parts.scheme.endswith("s"), user, secret, ca)
