"""Handing a mail to an SMTP server, knowing at every moment whether it may have left.

Until the last dot is written the server cannot have taken the mail; once it is written only the server's answer tells.
"""

import base64
import contextlib
import re
import smtplib
import socket
from collections.abc import Iterator

from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    OutcomeUnknown,
    ProviderDown,
    SendFailed,
)
from deskhand.mail import Outgoing
from deskhand.mail.accounts import LOGIN, Account, Bearer

TIMEOUT = 30
_EOL = re.compile(rb"\r\n|\r|\n")


def offer(
    account: Account, password: str | None, sender: str, mail: Outgoing
) -> smtplib.SMTP:
    """Hand over everything but the last dot, for all recipients or none. Whatever breaks
    here, nothing was sent."""
    try:
        server = _sign_in(account, password)
    except ProviderDown as error:
        raise SendFailed(f"{error.message}; nothing was sent", hint=error.hint) from error
    try:
        with _certainly_not_sent(account):
            _announce(server, sender, mail)
            # Everything but the end: what breaks here leaves half a mail, which no server delivers.
            server.send(_escape_dots(mail.raw))
    except DeskError:
        server.close()
        raise
    return server


def try_sign_in(account: Account, password: str | None) -> None:
    _sign_in(account, password).close()


def _sign_in(account: Account, password: str | None) -> smtplib.SMTP:
    server: smtplib.SMTP | None = None
    try:
        server = _connect(account)
        _hurry(server)
        if not account.tls:
            _encrypt(server, account)
        if account.user is not None:
            _tell_password(server, account.user, password or "")
    except (
        OSError,
        smtplib.SMTPException,
    ) as error:  # smtplib's errors are OSErrors as well
        if server is not None:
            server.close()
        raise _explain(error, account) from error
    return server


def _connect(account: Account) -> smtplib.SMTP:
    if account.tls:
        return smtplib.SMTP_SSL(
            account.host, account.port, timeout=TIMEOUT, context=account.context()
        )
    return smtplib.SMTP(account.host, account.port, timeout=TIMEOUT)


def _hurry(server: smtplib.SMTP) -> None:
    """The last dot leaves at once: else the system keeps it until the text was
    acknowledged, and nobody knows more."""
    if server.sock is not None:
        server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _encrypt(server: smtplib.SMTP, account: Account) -> None:
    server.ehlo_or_helo_if_needed()
    if server.has_extn("starttls") or not account.is_local:
        server.starttls(context=account.context())


def _tell_password(server: smtplib.SMTP, user: str, password: str) -> None:
    if isinstance(password, Bearer):
        _show_token(server, user, password)
        return
    if f"{user}{password}".isascii():
        server.login(user, password)
        return
    # The library writes ASCII only.
    server.ehlo_or_helo_if_needed()
    code, text = server.docmd(
        "AUTH PLAIN", base64.b64encode(f"\0{user}\0{password}".encode()).decode()
    )
    if code != 235:
        raise smtplib.SMTPAuthenticationError(code, text)


def _show_token(server: smtplib.SMTP, user: str, token: Bearer) -> None:
    """By XOAUTH2, which most servers know, else by OAUTHBEARER."""
    server.ehlo_or_helo_if_needed()
    offered = server.esmtp_features.get("auth", "").upper().split()
    mechanism = "XOAUTH2"
    words = token.greet(user)
    end = ""
    if "OAUTHBEARER" in offered and "XOAUTH2" not in offered:
        mechanism = "OAUTHBEARER"
        words = token.greet_by_standard(user)
        end = "\x01"

    def answer(challenge: bytes | None = None) -> str:
        return end if challenge else words  # a challenge says why the token is refused

    server.auth(mechanism, answer)


def _explain(error: OSError, account: Account) -> DeskError:
    match error:
        case smtplib.SMTPAuthenticationError(smtp_code=code) if code < 500:
            return ProviderDown(
                f"{account.host} cannot sign anybody in right now", hint="try again"
            )
        case smtplib.SMTPAuthenticationError():
            return AuthRequired(
                f"{account.host} does not accept the password for sending",
                hint=f"run `{LOGIN}`",
            )
        case smtplib.SMTPNotSupportedError():
            hint = "smtps:// is TLS from the first byte; look at the port"
            return Denied(
                f"{account.host} offers no safe way to sign in",
                reason="no_encryption",
                hint=hint,
            )
        case smtplib.SMTPException():
            return ProviderDown(
                f"{account.host} broke off before anybody was signed in", hint="try again"
            )
        case _:
            return account.explain(error)


def _announce(server: smtplib.SMTP, sender: str, mail: Outgoing) -> None:
    server.ehlo_or_helo_if_needed()
    options: list[str] = []
    if server.has_extn("size"):
        options.append(f"SIZE={len(mail.raw)}")
    if not mail.raw.isascii():
        if not server.has_extn("8bitmime"):
            raise SendFailed("the server takes no 8-bit text")
        options.append("BODY=8BITMIME")
    if not f"{sender}{''.join(mail.recipients)}".isascii():
        if not server.has_extn("smtputf8"):
            raise SendFailed("the server takes no addresses beyond ASCII")
        options.append("SMTPUTF8")
        server.command_encoding = "utf-8"
    _expect(server.mail(sender, options), 250)
    for recipient in mail.recipients:
        _expect(server.rcpt(recipient), 250, 251)
    _expect(server.docmd("DATA"), 354)


def finish(server: smtplib.SMTP, account: Account) -> None:
    """The last dot: the mail leaves. SendFailed is certainly not sent, OutcomeUnknown nobody knows."""
    with _certainly_not_sent(account):
        server.send(b".\r\n")
    try:
        code, text = server.getreply()
    except (OSError, smtplib.SMTPException) as error:
        raise OutcomeUnknown("the server's answer to the whole mail was lost") from error
    if 200 <= code < 300:  # whatever else it says with it, the server has the mail
        return
    if code == 421 or not 400 <= code < 600:
        # That it closes the connection, or half an answer: not what it did with the mail.
        raise OutcomeUnknown(
            f"the server did not say what it did with the whole mail: {_readable(text)}"
        )
    raise _refusal(code, text)


def _expect(reply: tuple[int, bytes], *wanted: int) -> None:
    code, text = reply
    if code not in wanted:
        raise _refusal(code, text)


def _refusal(code: int, text: bytes) -> SendFailed:
    return SendFailed(
        f"the server refuses the mail: {code} {_readable(text)}",
        status=code,
        temporary=code < 500,
    )


@contextlib.contextmanager
def _certainly_not_sent(account: Account) -> Iterator[None]:
    try:
        yield
    except (OSError, smtplib.SMTPException) as error:
        raise SendFailed(
            f"{account.host} broke off before it had the mail; nothing was sent"
        ) from error


def _escape_dots(raw: bytes) -> bytes:
    """RFC 5321's transparency: CRLF line ends, and a line that begins with a dot gets another."""
    text = _EOL.sub(b"\r\n", raw).removesuffix(b"\r\n")
    return re.sub(rb"(?m)^\.", b"..", text) + b"\r\n"


def _readable(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split())[:200]
