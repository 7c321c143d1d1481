"""A real account of this machine with a desk that is guarded, and what a person and a program on it can do."""

import fcntl
import json
import os
import pwd
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from deskhand import guard

PASSWORD = "correct horse battery staple"
COMMAND = str(guard.PROGRAM / "bin" / "deskhand")
LETTER = {"to": "bob@example.org", "subject": "Hello", "body": "See you at ten.\n"}
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
_DIGEST = re.compile(r'name="digest" value="([0-9a-f]{64})"')
_CARD = re.compile(r'data-id="(\w+)"')
_ACCOUNTS = """
[mail]
kind = "local"
address = "me@example.com"

[[mail.accounts]]
name = "work"  # its server is not there, and its own authority lies outside the desk's home
kind = "imap"
address = "me@work.example.com"
imap_url = "imap://me@127.0.0.1:1"
ca = '{folder}/work-ca.pem'

[[notes.vaults]]
name = "second"
path = '{folder}/second vault'

[[notes.vaults]]
name = "away"
path = '{folder}/not there'
"""
Done = subprocess.CompletedProcess[str]


def why_not() -> str | None:
    """Why no guarded desk can be tried here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root can make users"
    if not Path("/home").is_dir():
        return "there is no folder for the homes of users"
    missing = [
        tool
        for tool in ("setfacl", "setpriv", "useradd", "tar")
        if shutil.which(tool) is None
    ]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if guard.find() is not None:
        return "a guarded desk is installed on this machine"
    with tempfile.TemporaryDirectory(dir="/home") as probe:
        if subprocess.run(
            ["setfacl", "-m", "u:0:x", probe], capture_output=True, check=False
        ).returncode:
            return "the file system has no access-control entries"
    return None


@dataclass
class Account:
    """A person with a vault and a desk of their own; `run` is any program on the account."""

    name: str
    port: int
    command: str = COMMAND

    @property
    def folder(self) -> Path:
        return Path(pwd.getpwnam(self.name).pw_dir)

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    @property
    def second_vault(self) -> Path:
        return self.folder / "second vault"

    @property
    def home(self) -> Path:
        return self.folder / ".local" / "share" / "deskhand"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "USER": self.name,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }

    def run(self, *command: str, given: str = "", **variables: str) -> Done:
        return subprocess.run(
            guard.as_user(self.name, *command),
            env=self.environment | variables,
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )

    def deskhand(self, *arguments: str, given: str = "", **variables: str) -> Done:
        """`deskhand ARGUMENTS` as a program of the account runs it."""
        return self.run(self.command, *arguments, given=given, **variables)

    def root(self, *arguments: str, given: str = "") -> Done:
        """`sudo deskhand ARGUMENTS`, from where the desk was installed from."""
        plain = {"PATH": os.environ["PATH"], "HOME": "/root"}
        command = [sys.executable, "-m", "deskhand", *arguments]
        return subprocess.run(
            command,
            env=plain,
            cwd="/root",  # where nobody else may go
            input=given,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def write_config(self) -> None:
        """The desk as it was before it was guarded: on the account itself."""
        options = f'vault_path = "{self.vault}"\nmax_sends = 1000\n[inbox]\nport = {self.port}\nhold_seconds = 0\n'
        text = options + _ACCOUNTS.format(folder=self.folder)
        self.run(
            "mkdir", "-p", str(self.vault / "Notes"), str(self.second_vault), str(self.home)
        )
        self.run("tee", str(self.home / "config.toml"), given=text)
        self.run("tee", str(self.vault / "Notes" / "note.md"), given="# A note\n")
        self.run(
            "tee", str(self.folder / "work-ca.pem"), given="-----BEGIN CERTIFICATE-----\n"
        )
        self.run("chmod", "700", str(self.folder))

    def ask(self, name: str = "email", **letter: str) -> str:
        """Have an assistant of the account ask for a mail; what it is told."""
        tool = {"name": "send_email", "arguments": LETTER | letter}
        return self.call(name, "tools/call", tool)[1]

    def call(
        self, server: str, method: str, parameters: dict[str, Any], *flags: str
    ) -> tuple[Any, str]:
        """One call over stdio, as a program on the account makes it: the result, and its text."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "shell", "version": "1"},
        }
        lines = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": method, "params": parameters},
        ]
        started = subprocess.Popen(
            guard.as_user(self.name, self.command, "mcp", server, *flags),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with started as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines))
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if answer.get("id") == 2:
                    process.stdin.close()
                    return answer, json.dumps(answer)
            assert process.stderr is not None
            return None, process.stderr.read()

    # The person, at the page.

    @contextmanager
    def signed_in(self) -> Iterator[httpx2.Client]:
        link = json.loads(self.root("link", "--json").stdout)["link"]
        with httpx2.Client(base_url=self.address, timeout=60) as http:
            assert http.get(link).status_code == 303
            yield http

    def card(self, http: httpx2.Client) -> tuple[str, dict[str, str]]:
        """The oldest card: its id, and the fields that its forms carry."""
        page = http.get("/").text
        card, token, digest = _CARD.search(page), _TOKEN.search(page), _DIGEST.search(page)
        if card is None or token is None or digest is None:
            raise AssertionError(page)
        return card[1], {"form_token": token[1], "digest": digest[1]}

    def approve(self, http: httpx2.Client) -> httpx2.Response:
        card, fields = self.card(http)
        return http.post(f"/approvals/{card}/approve", data=fields | {"password": PASSWORD})

    # What root sees.

    def sent(self) -> int:
        """How many mails have left."""
        return self._count(
            guard.HOME / "mail.db", "SELECT COUNT(*) FROM sending WHERE mail IS NOT NULL"
        )

    def answers(self) -> int:
        return self._count(guard.HOME / "desk.db", "SELECT COUNT(*) FROM answers")

    def wait_for_sent(self, number: int) -> int:
        end = time.monotonic() + 60
        while self.sent() < number and time.monotonic() < end:
            time.sleep(0.1)
        return self.sent()

    def _count(self, file: Path, sql: str) -> int:
        if not file.exists():
            return 0
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            return int(database.execute(sql).fetchone()[0])


@contextmanager
def made_account(name: str) -> Iterator[Account]:
    """A real user of this machine, for as long as the block lasts; of several who want one, one after the other."""
    with Path("/tmp/deskhand-guarded.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        before = set(Path("/var/backups").glob("deskhand-*"))
        subprocess.run(
            ["useradd", "--create-home", "--shell", "/bin/bash", name], check=True
        )
        account = Account(name, port)
        try:
            account.write_config()
            yield account
        finally:
            if guard.find() is not None:
                account.root("service", "uninstall", "--yes")
            subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)
            for backup in set(Path("/var/backups").glob("deskhand-*")) - before:
                backup.unlink()
