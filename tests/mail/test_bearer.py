"""An IMAP account that takes no password: a real Dovecot asks a token endpoint on loopback whether a token counts."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope

from deskhand.clock import utc_now
from deskhand.config import Settings, load
from deskhand.errors import AuthRequired, BadConfig, ProviderDown, TimedOut
from deskhand.mail.accounts import imap_account
from deskhand.mail.bearer import (
    PRESETS,
    BearerTokens,
    keep,
    sign_in_by_browser,
    sign_in_by_device,
    takes_token,
)
from deskhand.mail.imap import ImapMailbox
from tests.mail.dovecot import TODAY, Dovecot, Process, free_port
from tests.mail.letters import letter, outgoing
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

OAUTH = """
auth_mechanisms = plain MECHANISM
auth_failure_delay = 0
service anvil {
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
passdb {
  driver = oauth2
  mechanisms = xoauth2 oauthbearer
  args = FOLDER/oauth2.conf
}
"""


@dataclass
class Provider:
    """Gives access tokens for a refresh token, and tells Dovecot which of them count."""

    user: str = ""
    refresh: str = "refresh-1"
    rotates: bool = False
    lifetime: int = 3600
    status: int = 200
    pending: int = 0
    """How often the person has not agreed yet."""
    second: threading.Event | None = None
    """Set by a second renewal that comes while the first waits for its answer."""
    reused: int = 0
    """How often a refresh token was shown that another one had replaced."""
    valid: set[str] = field(default_factory=set)
    given: int = 0
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        self.asked.append(form)
        match path:
            case "/introspect":
                return 200, {
                    "active": form.get("token") in self.valid,
                    "username": self.user,
                }
            case "/device":
                page = {"user_code": "ABCD", "verification_uri": "http://x/go"}
                return 200, {"device_code": "d", "interval": 1, "expires_in": 3} | page
        if self.status != 200:
            return self.status, {}
        if "refresh_token" in form and self.second is not None:
            self._keep_waiting(self.second)
        if "device_code" in form and self.pending:
            self.pending -= 1
            return 400, {"error": "authorization_pending"}
        if "code" in form:
            challenge = (
                base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest())
                .rstrip(b"=")
                .decode()
            )
            known = form["code"] == f"for {challenge}" and form["redirect_uri"].startswith(
                "http://localhost:"
            )
        else:
            known = "device_code" in form or form.get("refresh_token") == self.refresh
        if not known:
            self.reused += 1
            return 400, {"error": "invalid_grant"}
        return 200, self._give()

    def _keep_waiting(self, second: threading.Event) -> None:
        if len([form for form in self.asked if "refresh_token" in form]) > 1:
            second.set()
        second.wait(0.3)

    def _give(self) -> dict[str, object]:
        self.given += 1
        token = f"access-{self.given}"
        self.valid.add(token)
        if self.rotates:
            self.refresh = f"refresh-{self.given + 1}"
        return {
            "access_token": token,
            "expires_in": self.lifetime,
            "refresh_token": self.refresh,
        }


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self._answer(dict(parse_qsl(body)))

    def do_GET(self) -> None:
        self._answer(dict(parse_qsl(urlsplit(self.path).query)))

    def _answer(self, form: dict[str, str]) -> None:
        status, said = self.server.provider.answer(urlsplit(self.path).path, form)  # type: ignore[attr-defined]
        data = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class _Taking:
    """Takes mail from whoever shows a token that counts."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.taken: list[bytes] = []

    async def auth_XOAUTH2(self, server: SMTP, args: list[str]) -> AuthResult:  # noqa: N802 - aiosmtpd's name
        words = base64.b64decode(args[1]).decode()
        token = words.partition("auth=Bearer ")[2].rstrip("\x01")
        return AuthResult(success=token in self.provider.valid, handled=False)

    async def auth_OAUTHBEARER(self, server: SMTP, args: list[str]) -> AuthResult:  # noqa: N802 - likewise
        user, _, _ = base64.b64decode(args[1]).decode().partition("\x01")
        assert user == f"n,a={self.provider.user},"
        return await self.auth_XOAUTH2(server, args)

    async def handle_DATA(self, server: SMTP, session: object, envelope: Envelope) -> str:  # noqa: N802 - likewise
        assert isinstance(envelope.content, bytes)
        self.taken.append(envelope.content)
        return "250 taken"


@dataclass
class Place:
    provider: Provider
    settings: Settings
    server: Dovecot
    smtp: _Taking
    now: datetime

    def mailbox(self) -> ImapMailbox:
        return ImapMailbox(self.settings, now=lambda: self.now)


@pytest.fixture(scope="module")
def provider() -> Iterator[tuple[Provider, str]]:
    made = Provider()
    web = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    web.provider = made  # type: ignore[attr-defined]
    thread = threading.Thread(target=web.serve_forever, args=[0.02], daemon=True)
    thread.start()
    yield made, f"http://127.0.0.1:{web.server_port}"
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture(scope="module", params=["xoauth2", "oauthbearer"])
def dovecot(
    request: pytest.FixtureRequest, provider: tuple[Provider, str]
) -> Iterator[Process]:
    lines = ["introspection_mode = post", f"introspection_url = {provider[1]}/introspect"]
    lines += [
        "username_attribute = username",
        "active_attribute = active",
        "active_value = true",
    ]
    kind = TODAY + OAUTH.replace("MECHANISM", request.param)
    with Process(kind, {"oauth2.conf": "\n".join(lines).encode() + b"\n"}) as process:
        yield process


@pytest.fixture
async def place(
    request: pytest.FixtureRequest,
    dovecot: Process,
    provider: tuple[Provider, str],
    tmp_path: Path,
) -> AsyncIterator[Place]:
    made, origin = provider
    server = Dovecot(dovecot)
    made.__init__(user=server.user)  # type: ignore[misc]
    smtp = _Taking(made)
    port = free_port()
    other = {"XOAUTH2", "OAUTHBEARER"} - {request.node.callspec.params["dovecot"].upper()}
    relay = Controller(
        smtp,
        hostname="127.0.0.1",
        port=port,
        auth_require_tls=False,
        auth_exclude_mechanism=["LOGIN", *other],
    )
    relay.start()
    account = {
        "name": "work",
        "kind": "imap",
        "address": "me@example.com",
        "imap_url": f"imap://{server.user}@127.0.0.1:{server.port}",
        "smtp_url": f"smtp://{server.user}@127.0.0.1:{port}",
        "oauth_token_url": f"{origin}/token",
        "oauth_device_url": f"{origin}/device",
        "oauth_client_id": "desk",
        "oauth_scope": "mail offline",
    }
    variables = {
        "DESKHAND_HOME": str(tmp_path),
        "DESKHAND_MAIL_ACCOUNTS": json.dumps([account]),
    }
    whole = load(variables).settings
    settings = whole.of_account(whole.accounts[0])
    keep(tmp_path, imap_account(settings), "refresh-1")
    server.deliver(letter(subject="Hello"))
    yield Place(made, settings, server, smtp, utc_now())
    relay.stop()


async def unkept(token: str) -> None:
    pass


@requirement("accounts:oauth")
async def test_mail_is_read_and_sent_with_a_token_that_is_renewed(place: Place) -> None:
    place.provider.rotates = True
    mailbox = place.mailbox()
    (mail,) = await mailbox.search("", 5)
    outgo = outgoing()
    sent = await mailbox.send(await mailbox.prepare(outgo), outgo, unkept)
    once = place.provider.given
    place.now += timedelta(hours=2)
    place.server.disconnect_everyone()
    again = await mailbox.search("in:inbox", 5)
    other = place.mailbox()
    place.now += timedelta(hours=2)
    await other.search("", 5)
    await mailbox.try_relay()
    await mailbox.close()
    await other.close()
    files = list(place.settings.home.glob("oauth-*.secret"))

    assert (mail.subject, [each.subject for each in again]) == ("Hello", ["Hello"])
    assert (sent.message_id != "", len(place.smtp.taken)) == (True, 1)
    assert once == 1
    assert place.provider.given == 4
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600]
    assert files[0].read_text() == place.provider.refresh


@requirement("accounts:oauth")
async def test_a_token_that_ends_early_is_renewed_and_a_revoked_sign_in_is_said(
    place: Place,
) -> None:
    mailbox = place.mailbox()
    await mailbox.search("", 5)
    place.provider.valid.clear()
    place.server.disconnect_everyone()
    early = await mailbox.search("", 5)
    place.provider.valid.clear()
    outgo = outgoing()
    await mailbox.send(await mailbox.prepare(outgo), outgo, unkept)
    place.provider.valid.clear()
    place.provider.refresh = "revoked"
    place.server.disconnect_everyone()
    with pytest.raises(AuthRequired) as revoked:
        await mailbox.search("", 5)
    with pytest.raises(AuthRequired):
        await mailbox.send(await mailbox.prepare(outgo), outgo, unkept)
    place.provider.status = 503
    with pytest.raises(ProviderDown):
        await mailbox.search("", 5)
    await mailbox.close()

    assert len(early) == 1
    assert len(place.smtp.taken) == 1
    assert "invalid_grant" in revoked.value.message
    assert "deskhand mail login oauth" in str(revoked.value.hint)


@requirement("accounts:oauth")
async def test_two_processes_that_renew_at_once_show_no_refresh_token_twice(
    place: Place,
) -> None:
    place.provider.rotates = True
    place.provider.second = threading.Event()
    account = imap_account(place.settings)
    desks = [BearerTokens(place.settings, account, utc_now) for _ in range(3)]
    shown = await asyncio.gather(*(asyncio.to_thread(each.access) for each in desks))

    assert place.provider.reused == 0
    assert set(shown) == place.provider.valid
    (kept,) = place.settings.home.glob("oauth-*.secret")
    assert kept.read_text() == place.provider.refresh


@requirement("accounts:oauth")
async def test_the_person_signs_in_on_another_device(place: Place) -> None:
    for file in place.settings.home.glob("oauth-*.secret"):
        file.unlink()
    account = imap_account(place.settings)
    said: list[str] = []
    with pytest.raises(AuthRequired):
        await place.mailbox().search("", 1)
    place.provider.pending = 2
    kept = sign_in_by_device(place.settings, account, said.append, lambda _: None)
    mailbox = place.mailbox()
    found = await mailbox.search("", 5)
    await mailbox.close()
    place.provider.pending = 10_000
    with pytest.raises(TimedOut):
        sign_in_by_device(place.settings, account, said.append, lambda _: None)
    place.provider.status = 403
    with pytest.raises(AuthRequired, match="said no"):
        sign_in_by_device(place.settings, account, said.append, lambda _: None)
    with pytest.raises(BadConfig):
        sign_in_by_device(
            place.settings.model_copy(update={"oauth_device_url": None}),
            account,
            said.append,
        )

    assert said[0] == "Open http://x/go on any device and type ABCD"
    assert "only you can read it" in kept
    assert len(found) == 1
    assert {each.get("scope") for each in place.provider.asked if "scope" in each} == {
        "mail offline"
    }


@requirement("accounts:oauth")
async def test_the_person_signs_in_in_a_browser_here_or_elsewhere(place: Place) -> None:
    for file in place.settings.home.glob("oauth-*.secret"):
        file.unlink()
    place.provider.status, place.provider.rotates = 200, False
    account = imap_account(place.settings)
    settings = place.settings.model_copy(
        update={"oauth_auth_url": "https://provider.example/agree"}
    )
    seen: list[str] = []

    def agree(**changed: str) -> str:
        """Where the browser ends after the person agreed."""
        query = dict(parse_qsl(urlsplit(seen[-1]).query))
        answer = {
            "state": query["state"],
            "code": f"for {query['code_challenge']}",
        } | changed
        return f"{query['redirect_uri']}/?{urlencode(answer)}"

    def browse(url: str) -> None:
        seen.append(url)
        threading.Thread(
            target=httpx2.get, args=(agree().replace("localhost", "127.0.0.1"),)
        ).start()

    kept = sign_in_by_browser(settings, account, browse)
    pasted = sign_in_by_browser(settings, account, seen.append, agree)
    mailbox = place.mailbox()
    found = await mailbox.search("", 5)
    await mailbox.close()

    assert kept == pasted
    assert len(found) == 1
    assert seen[-1].startswith("https://provider.example/agree?")
    for changed, why in (
        ({"state": "x"}, "another sign-in"),
        ({"code": "y"}, "no longer accepts"),
    ):
        with pytest.raises(AuthRequired, match=why):
            sign_in_by_browser(settings, account, seen.append, partial(agree, **changed))
    with pytest.raises(AuthRequired, match="not the address"):
        sign_in_by_browser(settings, account, seen.append, lambda: "abc")
    with pytest.raises(AuthRequired, match="access_denied"):
        sign_in_by_browser(
            settings,
            account,
            seen.append,
            lambda: agree(error="access_denied").replace("code=", "x="),
        )
    with pytest.raises(BadConfig, match="browser"):
        sign_in_by_browser(place.settings, account, seen.append)


@requirement("accounts:oauth")
async def test_what_is_known_of_a_provider_needs_no_address(place: Place) -> None:
    bare = {"oauth_token_url": None, "oauth_device_url": None, "oauth_scope": None}
    seen: list[str] = []
    for name, known in PRESETS.items():
        settings = place.settings.model_copy(update=bare | {"oauth_provider": name})
        assert takes_token(settings)
        with pytest.raises(AuthRequired, match="not the address"):
            sign_in_by_browser(
                settings, imap_account(settings), seen.append, lambda: "nothing"
            )
        assert seen[-1].startswith(f"{known['oauth_auth_url']}?")
        assert urlencode({"scope": known["oauth_scope"]}) in seen[-1]
    assert not takes_token(place.settings.model_copy(update=bare))
