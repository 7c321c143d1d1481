"""Passwords and mail travel encrypted, to servers that prove who they are."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deskhand.config import load
from deskhand.errors import (
    AuthRequired,
    BadConfig,
    Denied,
    DeskError,
    OutcomeUnknown,
    SendFailed,
    Unavailable,
)
from deskhand.mail.imap import ImapMailbox
from tests.mail import dovecot
from tests.mail.dovecot import PASSWORD, TODAY, Dovecot, Process, free_port
from tests.mail.foreign import Foreign
from tests.mail.letters import letter, outgoing, unwritten
from tests.requirements import requirement

pytestmark = [
    pytest.mark.anyio,
    requirement("mail:encrypted"),
    # The relay cannot know that its whole connection is encrypted.
    pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS"),
]

ELSEWHERE = "0.0.0.0"
"""Leads to this machine, but is no loopback address: to the desk a host like any other."""


@pytest.fixture(scope="module")
def encrypting(certificate: Path) -> Iterator[tuple[Process, int]]:
    """A Dovecot that encrypts, and its port for those who do so from the start."""
    port = free_port()
    key = "ssl = yes\nssl_cert = <FOLDER/server.pem\nssl_key = <FOLDER/server.pem\n"
    listener = f"service imap-login {{\n inet_listener imaps {{\n port = {port}\n ssl = yes\n }}\n}}\n"
    with Process(
        TODAY + key + listener, {"server.pem": certificate.read_bytes()}
    ) as process:
        yield process, port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of a server that its own signature vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    hosts = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(ip_address(host)) for host in ("127.0.0.1", ELSEWHERE)),
    ]
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(
        key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


@pytest.fixture(params=["smtps", "smtp"])
def relay(request: pytest.FixtureRequest, certificate: Path) -> Iterator["Relay"]:
    with Relay(certificate, request.param) as made:
        yield made


class Relay:
    """Takes mail from those who know the password, encrypted from the start (smtps) or after STARTTLS (smtp)."""

    def __init__(self, certificate: Path, scheme: str) -> None:
        self.scheme = scheme
        self.password = PASSWORD
        self.port = free_port()
        self.delivered: list[bytes] = []
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate)

    def __enter__(self) -> Self:
        relay, starttls = self, self._context if self.scheme == "smtp" else None

        class Encrypted(Controller):
            def factory(self) -> SMTP:
                checks: dict[str, Any] = {
                    "authenticator": relay.knows,
                    "auth_required": True,
                    "auth_require_tls": bool(starttls),
                }
                return SMTP(
                    self.handler,
                    tls_context=starttls,
                    require_starttls=bool(starttls),
                    **checks,
                )

        implicit = None if starttls else self._context
        self._controller = Encrypted(
            self, hostname="127.0.0.1", port=self.port, ssl_context=implicit
        )
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    def knows(
        self, server: Any, session: Any, envelope: Any, mechanism: str, login: Any
    ) -> AuthResult:
        return AuthResult(
            success=(login.login, login.password) == (b"me", self.password.encode()),
            handled=False,
        )

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        self.delivered.append(envelope.content)
        return "250 OK"


def opened(folder: Path, imap: str, smtp: str, **variables: str) -> ImapMailbox:
    urls = {
        "DESKHAND_IMAP_URL": imap,
        "DESKHAND_SMTP_URL": smtp,
        "DESKHAND_ADDRESS": "me@example.com",
    }
    return ImapMailbox(load({"DESKHAND_HOME": str(folder)} | urls | variables).settings)


@pytest.mark.parametrize(
    ("trusted", "password", "error"),
    [(True, PASSWORD, None), (True, "wrong", AuthRequired), (False, PASSWORD, SendFailed)],
)
async def test_mail_goes_only_to_a_server_that_is_known_and_with_the_right_password(
    relay: Relay,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusted: bool,
    password: str,
    error: type[DeskError] | None,
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    smtp = f"{relay.scheme}://me:{password}@{ELSEWHERE}:{relay.port}"
    mailbox = opened(tmp_path, "imap://me:x@127.0.0.1:9", smtp)
    mail = outgoing()

    if error is None:
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
    else:
        with pytest.raises(error) as refused:
            await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
        assert not isinstance(refused.value, OutcomeUnknown)
    await mailbox.close()

    assert relay.delivered == ([mail.raw] if error is None else [])


@pytest.mark.parametrize("scheme", ["imaps", "imap"])
async def test_mail_is_read_only_from_a_server_that_is_known(
    encrypting: tuple[Process, int],
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
) -> None:
    process, port = encrypting
    server = Dovecot(process)
    server.deliver(letter())
    url = f"{scheme}://{server.user}:{PASSWORD}@{ELSEWHERE}:{port if scheme == 'imaps' else server.port}"

    stranger = opened(tmp_path, url, "smtp://127.0.0.1:9")
    with pytest.raises(Unavailable):
        await stranger.search("", 1)
    await stranger.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    known = opened(tmp_path, url, "smtp://127.0.0.1:9")
    assert len(await known.search("", 1)) == 1
    await known.close()


async def test_no_password_is_told_to_a_far_server_that_does_not_encrypt(
    tmp_path: Path,
) -> None:
    server = Dovecot()
    mailbox = opened(
        tmp_path,
        f"imap://{server.user}:{PASSWORD}@{ELSEWHERE}:{server.port}",
        "smtp://127.0.0.1:9",
    )

    with pytest.raises(Denied):
        await mailbox.search("", 1)
    await mailbox.close()

    assert server.logins() == 0


UNKNOWN = "is from a CA that is not known here"


@pytest.mark.parametrize("host", ["127.0.0.1", ELSEWHERE])
async def test_an_unknown_ca_is_called_so_and_ones_own_can_be_named(
    encrypting: tuple[Process, int],
    relay: Relay,
    certificate: Path,
    tmp_path: Path,
    host: str,
) -> None:
    process, port = encrypting
    server = Dovecot(process)
    server.deliver(letter())
    imap = f"imaps://{server.user}:{PASSWORD}@{host}:{port}"
    smtp = f"{relay.scheme}://me:{PASSWORD}@{ELSEWHERE}:{relay.port}"
    mail = outgoing()

    stranger = opened(tmp_path, imap, smtp)
    with pytest.raises(Unavailable, match=UNKNOWN) as unread:
        await stranger.search("", 1)
    with pytest.raises(SendFailed, match=UNKNOWN) as unsent:
        await stranger.send(await stranger.prepare(mail), mail, unwritten)
    await stranger.close()
    known = opened(tmp_path, imap, smtp, DESKHAND_MAIL_CA=str(certificate))
    assert len(await known.search("", 1)) == 1
    await known.send(await known.prepare(mail), mail, unwritten)
    await known.close()

    assert "DESKHAND_MAIL_CA" in (unread.value.hint or "")
    assert "DESKHAND_MAIL_CA" in (unsent.value.hint or "")
    assert relay.delivered == [mail.raw]


async def test_a_ca_that_is_none_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in ("ca.pem", "missing.pem"):
        mailbox = opened(
            tmp_path,
            "imaps://me:x@127.0.0.1",
            "smtp://x",
            DESKHAND_MAIL_CA=str(tmp_path / file),
        )
        with pytest.raises(BadConfig, match=file):
            await mailbox.search("", 1)
        await mailbox.close()


async def test_other_trouble_with_tls_is_not_called_unreachable(
    encrypting: tuple[Process, int], certificate: Path, tmp_path: Path
) -> None:
    process, port = encrypting
    for place, said in (
        (f"imaps://me:x@127.1:{port}", "does not hold: .*127.1"),
        (f"imaps://me:x@127.0.0.1:{process.port}", "does not speak TLS"),
        ("imap://me:x@127.0.0.1:9", "nobody listens at 127.0.0.1:9"),
        ("imaps://me:x@nowhere.invalid", "there is no host nowhere.invalid"),
    ):
        mailbox = opened(
            tmp_path, place, "smtp://127.0.0.1:9", DESKHAND_MAIL_CA=str(certificate)
        )
        with pytest.raises(Unavailable, match=said):
            await mailbox.search("", 1)
        await mailbox.close()


@pytest.fixture
def demanding(certificate: Path) -> Iterator[Process]:
    """A Dovecot to which nobody can sign in before STARTTLS, also from this machine."""
    key = "ssl = required\nssl_cert = <FOLDER/server.pem\nssl_key = <FOLDER/server.pem\n"
    with Process(TODAY + key, {"server.pem": certificate.read_bytes()}) as process:
        yield process


async def test_a_server_on_this_machine_that_demands_starttls_gets_it(
    demanding: Process, certificate: Path, tmp_path: Path
) -> None:
    with Relay(certificate, "smtp") as relay:
        imap = f"imap://me:{PASSWORD}@127.0.0.1:{demanding.port}"
        smtp = f"smtp://me:{PASSWORD}@127.0.0.1:{relay.port}"
        # A bridge that vouches for itself, and one whose CA is named.
        for variables in ({}, {"DESKHAND_MAIL_CA": str(certificate)}):
            mailbox = opened(tmp_path, imap, smtp, **variables)
            assert await mailbox.search("in:inbox", 1) == []
            mail = outgoing(action_id=f"act-{len(variables)}")
            await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
            await mailbox.close()
        wrong = opened(tmp_path, imap.replace(PASSWORD, "wrong"), smtp)
        with pytest.raises(AuthRequired):
            await wrong.search("", 1)
        await wrong.close()
    assert len(relay.delivered) == 2


@pytest.mark.parametrize(
    ("capabilities", "login", "error", "said"),
    [
        ("LOGINDISABLED", "OK", Denied, "takes no password on this connection"),
        (
            "",
            "NO [UNAVAILABLE] the directory is away",
            Unavailable,
            "cannot sign anybody in",
        ),
        ("", "BYE later", Unavailable, "cannot sign anybody in"),
        ("", "NO [AUTHENTICATIONFAILED] no", AuthRequired, "does not accept the password"),
    ],
)
async def test_only_a_wrong_password_is_called_one(
    tmp_path: Path, capabilities: str, login: str, error: type[DeskError], said: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"* OK [CAPABILITY IMAP4rev1 {capabilities}] here\r\n".encode())
        while line := (await reader.readline()).split():
            untagged = (
                f"* CAPABILITY IMAP4rev1 {capabilities}\r\n".encode()
                if line[1].upper() == b"CAPABILITY"
                else b""
            )
            tag = (
                "*"
                if login.startswith("BYE") and line[1].upper() == b"LOGIN"
                else line[0].decode()
            )
            done = login if line[1].upper() == b"LOGIN" else "OK done"
            writer.write(untagged + f"{tag} {done}\r\n".encode())
            if tag == "*":
                break
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        mailbox = opened(
            tmp_path, f"imap://me:{PASSWORD}@127.0.0.1:{port}", "smtp://127.0.0.1:9"
        )
        with pytest.raises(error, match=said):
            await mailbox.search("", 1)
        await mailbox.close()


async def test_a_password_beyond_ascii_opens_both_servers(
    tmp_path: Path, certificate: Path
) -> None:
    umlauts = "passdb {\n  driver = static\n  args = password=pässwörd\n}\n"
    with Process(TODAY + umlauts) as process, Relay(certificate, "smtp") as relay:
        relay.password = "pässwörd"
        imap = f"imap://me:p%C3%A4ssw%C3%B6rd@127.0.0.1:{process.port}"
        mailbox = opened(
            tmp_path, imap, f"smtp://me:p%C3%A4ssw%C3%B6rd@127.0.0.1:{relay.port}"
        )
        assert await mailbox.search("", 1) == []
        await mailbox.try_relay()
        await mailbox.close()
        wrong = opened(tmp_path, imap, f"smtp://me:p%C3%A4sswort@127.0.0.1:{relay.port}")
        with pytest.raises(AuthRequired):
            await wrong.try_relay()
        await wrong.close()


@requirement("smtp:foreign")
@pytest.mark.parametrize("name", ["postfix", "exim"])
async def test_postfix_and_exim_take_mail_by_starttls_with_a_ca_of_ones_own(
    name: str, certificate: Path, tmp_path: Path
) -> None:
    mail = outgoing(subject="Grüße", body=".\nÄrger\n")
    umlaut = outgoing(to="jürgen@example.org", action_id="act-2")
    with (
        dovecot.Relay(Dovecot()) as beyond,
        Foreign(name, RELAY=str(beyond.port), CERTIFICATE=str(certificate)) as server,
    ):
        smtp = f"smtp://user1%40test:{PASSWORD}@{ELSEWHERE}:{server.port}"
        stranger = opened(tmp_path, "imap://me:x@127.0.0.1:9", smtp)
        with pytest.raises(SendFailed, match=UNKNOWN):
            await stranger.send(await stranger.prepare(mail), mail, unwritten)
        await stranger.close()

        known = opened(
            tmp_path, "imap://me:x@127.0.0.1:9", smtp, DESKHAND_MAIL_CA=str(certificate)
        )
        await known.try_relay()
        for each in (mail, umlaut):
            await known.send(await known.prepare(each), each, unwritten)
        await known.close()
        with anyio.fail_after(30):
            while len(beyond.delivered) < 2:
                await anyio.lowlevel.checkpoint()

    arrived = dict(beyond.delivered)
    assert arrived["ann@example.org",].endswith(mail.raw)
    assert arrived["jürgen@example.org",].endswith(umlaut.raw)
