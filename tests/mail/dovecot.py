"""A Dovecot of the test's own, as whatever user runs it, and a relay that takes mail by SMTP.

with Dovecot() as server, Relay(server) as relay:
    server.deliver(raw)
    ImapMailbox(load(server.environment(relay) | …).settings)
"""

import asyncio
import atexit
import grp
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope
from imapclient import IMAPClient

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = "me@example.com"
PASSWORD = "app-password"

CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
default_internal_user = {user}
default_login_user = {user}
default_internal_group = {group}
first_valid_uid = 0
last_valid_uid = 0
mail_home = {folder}/home/%u
mail_max_userip_connections = 200
mail_uid = {uid}
mail_gid = {gid}
auth_mechanisms = plain login
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/home/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""
TODAY = """
mail_location = maildir:~/Maildir:LAYOUT=fs
namespace inbox {
  inbox = yes
  separator = /
  mailbox Drafts {
    special_use = \\Drafts
    auto = subscribe
  }
  mailbox "Sent Items" {
    special_use = \\Sent
    auto = subscribe
  }
  mailbox Spam {
    special_use = \\Junk
    auto = subscribe
  }
  mailbox Bin {
    special_use = \\Trash
    auto = subscribe
  }
}
"""
"""Special use by declaration, folders with slashes, every extension that Dovecot has."""

LONG_AGO = """
mail_location = maildir:~/Maildir
imap_capability = IMAP4rev1 NAMESPACE UIDPLUS
namespace inbox {
  inbox = yes
  prefix = INBOX.
  separator = .
}
"""
"""Folders below INBOX with dots, no special use, no MOVE, SORT, PREVIEW, WITHIN or LITERAL+."""


def program() -> str:
    found = shutil.which("dovecot") or shutil.which(
        "dovecot", path="/usr/sbin:/usr/local/sbin"
    )
    if found is None:
        pytest.skip("dovecot is not installed (Debian: dovecot-imapd)")
    return found


class Process:
    """A running Dovecot; whoever signs in with the password has a mailbox of their own."""

    def __init__(self, kind: str = TODAY, files: dict[str, bytes] | None = None) -> None:
        """`kind` is the rest of its configuration; FOLDER in it is where `files` lie."""
        self._kind = kind
        self._files = files or {}
        self._program = program()
        self.port = free_port()
        # Dovecot touches no mail as root; its own user does, wherever the package made one.
        self._user = (
            pwd.getpwnam("dovecot") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        )

    def __enter__(self) -> Self:
        # Not in pytest's folder: another user cannot enter that, and a socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="dovecot-"))
        user, identity = (
            self._user.pw_name,
            {"user": self._user.pw_uid, "group": self._user.pw_gid},
        )
        facts = {
            "uid": self._user.pw_uid,
            "gid": self._user.pw_gid,
            "group": grp.getgrgid(self._user.pw_gid).gr_name,
        }
        self.config = self.folder / "dovecot.conf"
        facts |= {
            "folder": self.folder,
            "port": self.port,
            "password": PASSWORD,
            "user": user,
        }
        self.config.write_text(
            CONFIG.format(**facts) + self._kind.replace("FOLDER", str(self.folder))
        )
        for name, content in self._files.items():
            (self.folder / name).write_bytes(content)
        for folder in (
            self.folder,
            *(self.folder / name for name in ("run", "state", "home")),
        ):
            folder.mkdir(exist_ok=True)
            os.chown(folder, *identity.values())
        command = [self._program, "-F", "-c", str(self.config)]
        if os.getuid() != 0:
            identity = {}
        self._process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            user=identity.get("user"),
            group=identity.get("group"),
        )
        self._await_greeting()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=20)
        self._process.stderr.close()
        shutil.rmtree(self.folder)

    def _await_greeting(self) -> None:
        while self._process.poll() is None:
            try:
                with socket.create_connection(
                    ("127.0.0.1", self.port), timeout=20
                ) as connection:
                    if connection.recv(4) == b"* OK":
                        return
            except ConnectionError:
                threading.Event().wait(0.01)
        log = self.folder / "log"
        raise AssertionError(
            f"{self._process.stderr.read()} {log.read_text() if log.exists() else ''}"
        )


@cache
def shared() -> Process:
    """One for the whole test process: it starts and ends slowly."""
    process = Process().__enter__()
    atexit.register(process.__exit__)
    return process


class ImapAccount:
    """A new mailbox on an IMAP server, whichever that is."""

    _numbers = itertools.count(1)

    def __init__(self, port: int) -> None:
        self.port = port
        self.user = f"user{next(self._numbers)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def client(self) -> IMAPClient:
        client = IMAPClient("127.0.0.1", self.port, ssl=False)
        client.login(self.user, PASSWORD)
        return client

    def deliver(
        self,
        raw: bytes,
        folder: str = "INBOX",
        flags: tuple[str, ...] = (),
        at: datetime | None = None,
    ) -> None:
        """A mail arrives, or lies there since long."""
        with self.client() as client:
            if not client.folder_exists(folder):
                client.create_folder(folder)
            client.append(folder, raw, flags, at)

    def raws(self, folder: str) -> list[bytes]:
        with self.client() as client:
            client.select_folder(folder, readonly=True)
            uids = client.search()
            return (
                [data[b"BODY[]"] for data in client.fetch(uids, ["BODY.PEEK[]"]).values()]
                if uids
                else []
            )

    def environment(self, relay: "Relay") -> dict[str, str]:
        return {
            "DESKHAND_MAIL": "imap",
            "DESKHAND_ADDRESS": ADDRESS,
            "DESKHAND_IMAP_URL": f"imap://{self.user}:{PASSWORD}@127.0.0.1:{self.port}",
            "DESKHAND_SMTP_URL": f"smtp://127.0.0.1:{relay.port}",
        }


class Dovecot(ImapAccount):
    """A new mailbox on a Dovecot."""

    def __init__(self, process: Process | None = None) -> None:
        self._process = process or shared()
        super().__init__(self._process.port)

    def disconnect_everyone(self) -> None:
        """Every connection to this mailbox ends, as after a restart; the server goes on."""
        doveadm = ["doveadm", "-c", str(self._process.config)]
        subprocess.run([*doveadm, "kick", self.user], check=True, capture_output=True)
        # The sessions end a moment later, and with them whoever would have signed in meanwhile.
        while (
            self.user
            in subprocess.run(
                [*doveadm, "who"], check=True, capture_output=True, text=True
            ).stdout
        ):
            pass

    def logins(self, *, expected: int = 0) -> int:
        """How often somebody signed in so far; Dovecot logs it in its own time, which is waited for."""
        for _ in range(300):
            count = (
                (self._process.folder / "log")
                .read_text()
                .count(f"Login: user=<{self.user}>")
            )
            if count >= expected:
                break
            threading.Event().wait(0.1)
        return count


@dataclass(frozen=True)
class Say:
    """The relay answers `reply` at that stage; after the last dot the mail has left only where `accepted` says so."""

    stage: str
    reply: str
    accepted: bool = False


@dataclass(frozen=True)
class Torn:
    """So much of an answer comes at that stage, and then the connection ends."""

    stage: str
    part: str
    accepted: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection ends at that stage: before `MAIL`, `RCPT` or `DATA` is answered, amid the text (`TEXT`), or after
    the last dot (`DOT`), where `accepted` says whether the mail has left."""

    stage: str
    accepted: bool = False


@dataclass(frozen=True)
class Early:
    """The relay answers `reply` before the text has come, and after the last dot that it has the mail."""

    reply: str


@dataclass(frozen=True)
class Slow:
    """After the last dot the relay says a little of an answer, and more now and then, while anybody listens."""


@dataclass(frozen=True)
class Late:
    """The relay has the mail, and says so after that many seconds."""

    seconds: float


Fault = Say | Torn | Cut | Early | Slow | Late


class Relay:
    """Takes mail by SMTP; what is for the desk's own address arrives in its inbox."""

    def __init__(self, server: ImapAccount) -> None:
        self.server = server
        self.port = free_port()
        self.delivered: list[tuple[tuple[str, ...], bytes]] = []
        self.unanswered: list[str] = []
        """To whom the mails were that the connection ended in or after, without a word."""
        self.chance: Callable[[], Fault | None] = lambda: None
        """Faults beyond the plan, one throw a session."""
        self._plan: deque[Fault] = deque()
        self.is_slow = threading.Event()
        """Somebody waits for an answer that comes slowly, or has waited for one."""
        self.is_left = threading.Event()
        """They wait no more."""

    def plan(self, *faults: Fault) -> None:
        """The next sessions go wrong in this order."""
        self._plan.extend(faults)

    def __enter__(self) -> Self:
        self._controller = _Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    def fault(self) -> Fault | None:
        return self._plan.popleft() if self._plan else self.chance()

    def accept(self, recipients: tuple[str, ...], raw: bytes) -> None:
        self.delivered.append((recipients, raw))
        if ADDRESS in recipients:
            self.server.deliver(raw)

    async def handle_EHLO(  # noqa: N802 - aiosmtpd's name
        self,
        server: Any,
        session: Any,
        envelope: Envelope,
        hostname: str,
        responses: list[str],
    ) -> list[str]:
        session.host_name = hostname
        session.fault = self.fault()
        return responses

    async def handle_MAIL(  # noqa: N802 - aiosmtpd's name
        self,
        server: Any,
        session: Any,
        envelope: Envelope,
        address: str,
        options: list[str],
    ) -> str:
        envelope.mail_from = address
        return _stage(server, session, "MAIL") or "250 OK"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self,
        server: Any,
        session: Any,
        envelope: Envelope,
        address: str,
        options: list[str],
    ) -> str:
        envelope.rcpt_tos.append(address)
        return _stage(server, session, "RCPT") or "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        accepted = getattr(session.fault, "stage", None) != "DOT" or session.fault.accepted
        if accepted:
            self.accept(tuple(envelope.rcpt_tos), envelope.content)
        if isinstance(session.fault, Cut) and session.fault.stage == "DOT":
            self.unanswered += envelope.rcpt_tos
        match session.fault:
            case Slow():
                await self._dawdle(server)
            case Late(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), seconds)
        return _stage(server, session, "DOT") or "250 OK"

    async def _dawdle(self, server: Any) -> None:
        self.is_slow.set()
        try:
            while not server.transport.is_closing():
                server.transport.write(b"2")
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.Event().wait(), 0.2)
        finally:
            self.is_left.set()


def _stage(server: Any, session: Any, stage: str) -> str | None:
    match session.fault:
        case Cut(at) if at == stage:
            server.transport.abort()
            return "421 cut"
        case Torn(at, part) if at == stage:
            server.transport.write(part.encode())
            server.transport.close()
            return "421 cut"
        case Say(at, reply) if at == stage:
            return reply
        case _:
            return None


class _Smtp(SMTP):
    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - aiosmtpd's name
        reply = _stage(self, self.session, "DATA")
        if reply:
            await self.push(reply)
            return
        if self.session.fault == Cut("TEXT"):
            self.event_handler.unanswered += self.envelope.rcpt_tos
            await self.push("354 go on")
            self.transport.abort()
            return
        await super().smtp_DATA(arg)

    async def push(self, status: Any) -> None:
        match getattr(self.session, "fault", None):
            case Early(reply) if str(status).startswith("354"):
                status = f"{status}\r\n{reply}"
        await super().push(status)


class _Controller(Controller):
    def factory(self) -> SMTP:
        return _Smtp(self.handler, enable_SMTPUTF8=True, data_size_limit=50_000_000)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
