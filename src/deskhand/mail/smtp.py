"""Handing a mail to an SMTP server, knowing at every moment whether it may have left.

Until the last dot is written the server cannot have taken the mail; once it is written only the server's answer tells.
An answer is whole lines with one number, and was not there before the dot.
"""

import base64
import contextlib
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    OutcomeUnknown,
    ProviderDown,
    SendFailed,
)
from deskhand.mail import SLOW_LINE, Outgoing
from deskhand.mail.accounts import LOGIN, Account, Bearer

TIMEOUT = 30
"""Seconds for all but the mail's own way: a server that says a little now and then must not hold a thread."""
_LONGEST = 1 << 16
"""Bytes of one answer."""
_CLOSES = (220, 221, 421)
"""The server greets, or takes its leave: not what it did with a mail."""
_EOL = re.compile(rb"\r\n|\r|\n")


class Dialogue(smtplib.SMTP):
    """Reads answers itself: the library waits without end for one that comes slowly, and
    keeps whoever wants to close the connection waiting with it."""

    _heard = b""
    """What came and nobody has read."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self._until = time.monotonic() + TIMEOUT
        super().__init__(*given, **more)

    def starttls(self, *given: Any, **more: Any) -> Any:
        answer = super().starttls(*given, **more)
        self._heard = b""  # what came in the open is nobody's answer
        return answer

    def getreply(self) -> tuple[int, bytes]:
        lines = self.read_lines()
        return _number_of(lines[-1]), _text_of(lines)

    def read_lines(self) -> list[bytes]:
        """The lines of an answer, each of them whole."""
        lines = [self._read_line()]
        while lines[-1][3:4] == b"-":
            if sum(map(len, lines)) > _LONGEST:
                raise self._lose("it never ends")
            lines.append(self._read_line())
        return lines

    def demand_silence(self) -> None:
        """Refuse a server that says something before it is asked."""
        if self.sock is None:
            raise self._lose("it was closed")
        if not self._heard:
            self.sock.settimeout(0)
            try:
                self._heard = self._hear()
            except (BlockingIOError, ssl.SSLWantReadError):
                self.sock.settimeout(TIMEOUT)
                return
        raise self._lose("it answered before it had the whole mail")

    def hand_over(self, data: bytes) -> None:
        """On a slow line much of it takes its time, and so does the answer to it."""
        self._until += len(data) / SLOW_LINE
        if self.sock is not None:
            self.sock.settimeout(max(self._until - time.monotonic(), 0.001))
        self.send(data)

    def hang_up(self) -> None:
        """From another thread: whoever waits for an answer waits no more."""
        if self.sock is not None:
            with contextlib.suppress(OSError):
                # Not as TLS does it, which goes on in the open with what is still to be written.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def _read_line(self) -> bytes:
        while b"\n" not in self._heard:
            if self.sock is None or len(self._heard) > _LONGEST:
                raise self._lose("it never ends")
            left = self._until - time.monotonic()
            try:
                self.sock.settimeout(max(left, 0.001))
                self._heard += self._hear()
                self.sock.settimeout(TIMEOUT)
            except OSError as error:
                raise self._lose(str(error)) from error
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _hear(self) -> bytes:
        assert self.sock is not None  # noqa: S101 - whoever asks has looked
        part: bytes = self.sock.recv(8192)
        if not part:
            raise self._lose("it was closed")
        return part

    def _lose(self, why: str) -> smtplib.SMTPServerDisconnected:
        self.close()
        return smtplib.SMTPServerDisconnected(why)


class _PrivateDialogue(Dialogue, smtplib.SMTP_SSL):
    """From the first byte."""


def offer(account: Account, password: str | None, sender: str, mail: Outgoing) -> Dialogue:
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
            server.hand_over(_escape_dots(mail.raw))
    except DeskError:
        server.close()
        raise
    return server


def try_sign_in(account: Account, password: str | None) -> None:
    _sign_in(account, password).close()


def _sign_in(account: Account, password: str | None) -> Dialogue:
    server: Dialogue | None = None
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


def _connect(account: Account) -> Dialogue:
    if account.tls:
        return _PrivateDialogue(
            account.host, account.port, timeout=TIMEOUT, context=account.context()
        )
    return Dialogue(account.host, account.port, timeout=TIMEOUT)


def _hurry(server: Dialogue) -> None:
    """The last dot leaves at once: else the system keeps it until the text was
    acknowledged, and nobody knows more."""
    if server.sock is not None:
        server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _encrypt(server: Dialogue, account: Account) -> None:
    server.ehlo_or_helo_if_needed()
    if server.has_extn("starttls") or not account.is_local:
        server.starttls(context=account.context())


def _tell_password(server: Dialogue, user: str, password: str) -> None:
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


def _show_token(server: Dialogue, user: str, token: Bearer) -> None:
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


def _announce(server: Dialogue, sender: str, mail: Outgoing) -> None:
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


def finish(server: Dialogue, account: Account) -> None:
    """The last dot: the mail leaves. SendFailed is certainly not sent, OutcomeUnknown nobody knows."""
    with _certainly_not_sent(account):
        server.demand_silence()
        server.send(b".\r\n")
    try:
        lines = server.read_lines()
    except (OSError, smtplib.SMTPException) as error:
        raise OutcomeUnknown("the server's answer to the whole mail was lost") from error
    codes = set(map(_number_of, lines))
    code = codes.pop()
    if codes or code in _CLOSES or not (200 <= code < 300 or 400 <= code < 600):
        raise OutcomeUnknown(
            f"the server did not say what it did with the whole mail: {_readable(_text_of(lines))}"
        )
    if code >= 400:
        raise _refusal(code, _text_of(lines))


def _number_of(line: bytes) -> int:
    """-1 where it begins with none of three digits."""
    found = re.match(rb"[0-9]{3}(?![0-9])", line)
    if found is None:
        return -1
    return int(found[0])


def _text_of(lines: list[bytes]) -> bytes:
    return b"\n".join(line[4:].strip() for line in lines)


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
