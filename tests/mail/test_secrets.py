"""Where the person's passwords and tokens are kept."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

from tests.home import Home
from tests.mail.dovecot import ADDRESS, PASSWORD, Dovecot, Relay, free_port
from tests.mail.gmail_double import GmailDouble
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.warm import warm_python


@pytest.fixture
def server() -> Iterator[Dovecot]:
    with Dovecot() as dovecot:
        dovecot.deliver(letter(subject="Only for the owner"))
        yield dovecot


class Person:
    """Somebody at a terminal whose computer has that keyring."""

    def __init__(self, home: Home, server: Dovecot, folder: Path, keyring: str) -> None:
        self.keyring = folder / "keyring.json"
        self.environment = home.environment | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHON_KEYRING_BACKEND": keyring,
            "FILE_KEYRING": str(self.keyring),
            "DESKHAND_MAIL": "imap",
            "DESKHAND_ADDRESS": ADDRESS,
            "DESKHAND_IMAP_URL": f"imap://{server.user}@127.0.0.1:{server.port}",
        }

    def runs(self, *arguments: str, types: str = "") -> subprocess.CompletedProcess[str]:
        return self._run("mail", *arguments, types=types)

    def finds(self) -> dict[str, Any]:
        """What the doctor says of the mailbox."""
        found = json.loads(self._run("doctor", "--json").stdout)
        return next(each for each in found["findings"] if each["name"] == "mailbox")

    def _run(self, *arguments: str, types: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [warm_python(), "-m", "deskhand", *arguments],
            env=self.environment,
            input=types,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@requirement("mail:secrets")
def test_a_password_goes_into_the_keyring_and_nowhere_else(
    home: Home, server: Dovecot, tmp_path: Path
) -> None:
    person = Person(home, server, tmp_path, "tests.mail.file_keyring.FileKeyring")
    assert person.runs("search").returncode == 6

    login = person.runs("login", "imap", types=f"{PASSWORD}\n")
    found = person.runs("search")

    assert login.returncode == 0, login.stderr
    assert "the tests' keyring" in login.stdout
    assert list(json.loads(person.keyring.read_text()).values()) == [PASSWORD]
    assert "Only for the owner" in found.stdout
    assert PASSWORD not in login.stdout + login.stderr + found.stdout + found.stderr
    kept = (
        [file for file in home.path.rglob("*") if file.is_file()]
        if home.path.exists()
        else []
    )
    assert not [file for file in kept if PASSWORD.encode() in file.read_bytes()]


@requirement("mail:secrets")
@pytest.mark.parametrize(
    "keyring", ["keyring.backends.fail.Keyring", "tests.mail.file_keyring.LockedKeyring"]
)
def test_without_a_keyring_it_goes_into_an_announced_file_of_the_persons_own(
    home: Home, server: Dovecot, tmp_path: Path, keyring: str
) -> None:
    person = Person(home, server, tmp_path, keyring)

    login = person.runs("login", "imap", types=f"{PASSWORD}\n")
    found = person.runs("search")

    (file,) = home.path.glob("*.secret")
    assert str(file) in login.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    assert home.path.stat().st_mode & 0o077 == 0
    assert "Only for the owner" in found.stdout


@requirement("mail:secrets")
def test_a_password_that_does_not_work_is_not_kept(
    home: Home, server: Dovecot, tmp_path: Path
) -> None:
    person = Person(home, server, tmp_path, "tests.mail.file_keyring.FileKeyring")

    login = person.runs("login", "imap", types="wrong\n")

    assert login.returncode == 6
    assert "does not accept the password" in login.stderr
    assert not person.keyring.exists()


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@requirement("mail:both-servers")
def test_signing_in_tries_the_server_that_sends_too(
    home: Home, server: Dovecot, tmp_path: Path
) -> None:
    person = Person(home, server, tmp_path, "tests.mail.file_keyring.FileKeyring")
    with TakingPasswords() as relay:
        person.environment["DESKHAND_SMTP_URL"] = f"smtp://me@127.0.0.1:{relay.port}"
        login = person.runs("login", "imap", types=f"{PASSWORD}\n")
        doctor = person.finds()
        person.environment["DESKHAND_SMTP_URL"] = f"smtp://me:old@127.0.0.1:{relay.port}"
        refused = person.runs("login", "imap", types=f"{PASSWORD}\n")
        ill = person.finds()
    person.environment["DESKHAND_SMTP_URL"] = f"smtp://me@127.0.0.1:{relay.port}"
    unheard = person.runs("login", "imap", types=f"{PASSWORD}\n")
    deaf = person.finds()
    del person.environment["DESKHAND_SMTP_URL"]
    unset = person.finds()

    assert login.returncode == 0, login.stderr
    assert "Signed in to 127.0.0.1, which sends it." in login.stdout
    assert (doctor["state"], ill["state"], deaf["state"], unset["state"]) == (
        "good",
        "bad",
        "bad",
        "warning",
    )
    assert refused.returncode == 6
    assert "does not accept the password for sending" in refused.stderr + ill["says"]
    assert "does not accept the password for sending" in ill["says"]
    assert unheard.returncode == 7
    assert "Nobody listens at" in unheard.stderr
    assert "nobody listens at" in deaf["says"]
    assert "DESKHAND_SMTP_URL" in unset["fix"]


class TakingPasswords:
    """A server on this machine that sends for those who know the password."""

    def __enter__(self) -> Self:
        self.port = free_port()
        taker = self

        class Asking(Controller):
            def factory(self) -> SMTP:
                return SMTP(
                    self.handler,
                    authenticator=taker.knows,
                    auth_required=True,
                    auth_require_tls=False,
                )

        self._controller = Asking(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    def knows(
        self, server: Any, session: Any, envelope: Any, mechanism: str, login: Any
    ) -> AuthResult:
        return AuthResult(success=login.password == PASSWORD.encode(), handled=False)


SEARCHES = """
import anyio
from deskhand import log
from deskhand.app import Desk
from deskhand.config import load

async def search():
    desk = Desk(load().settings)
    (mail,) = await desk.mailbox.search("", 1)
    print((await desk.mailbox.get(mail.id)).body)
    await desk.close_mailbox()

log.configure("DEBUG")
anyio.run(search)
"""


@requirement("mail:secrets")
@pytest.mark.parametrize("kind", ["imap", "gmail"])
def test_the_most_talkative_log_holds_neither_secrets_nor_mail(
    home: Home, tmp_path: Path, kind: str
) -> None:
    raw = letter(subject="Only for the owner", body="My diary")
    with GmailDouble() as gmail, Dovecot() as server, Relay(server) as relay:
        gmail.account.deliver(raw)
        server.deliver(raw)
        account = (
            server.environment(relay) if kind == "imap" else gmail.environment(tmp_path)
        )
        command = [sys.executable, "-c", SEARCHES]
        done = subprocess.run(
            command,
            env=home.environment | account,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.stdout.strip() == "My diary", done.stderr
    for secret in (
        PASSWORD,
        "bearer-",
        "refresh-1",
        "Only for the owner",
        "diary",
        "ann@example.org",
    ):
        assert secret not in done.stderr
