"""A program with a shell on the person's account against the desk: which ways lead around the gate?

python3 run.py torture shell [--only EXPRESSION] [--mode guarded|ordinary|both] [--table FILE]
                              [--transcript FILE]

As root: a real user alex with a desk, a request that waits, and each way of torture/shell_ways.py run as alex. Root
looks what came of it: mails that left, answers that counted, secrets that were read, whether the desk still serves.
Guarded, nothing of that may happen, and then the person approves: one mail leaves. The same against the ordinary desk
is a table.
"""

import argparse
import json
import pwd
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2

from deskhand import guard, pipe, running
from deskhand.setup.program import copy_program
from tests.setup.guarded_account import (
    COMMAND,
    LETTER,
    PASSWORD,
    Account,
    made_account,
    why_not,
)
from torture import shell_ways

PERSON = "alex"
ORDINARY = Path("/opt/deskhand-ordinary")
CANARY = f"canary-of-the-credentials-{uuid.uuid4().hex}"
"""Of this run alone: what an earlier one left somewhere on the disk is no secret of this desk."""
SECRETS = ("token", "seal.key", "proof.key", "credentials.json")
_WAIT = re.compile(r"wait ([0-9]{1,3}) seconds", re.IGNORECASE)
_FORM = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@dataclass(frozen=True)
class Seen:
    """What there is to see at a desk."""

    sent: int
    answers: int

    @property
    def is_nothing(self) -> bool:
        return self == Seen(0, 0)

    def since(self, before: "Seen") -> "Seen":
        return Seen(self.sent - before.sent, self.answers - before.answers)


@dataclass(frozen=True)
class Verdict:
    way: str
    seen: Seen
    secrets: int
    serves: bool

    @property
    def gets_through(self) -> bool:
        return not self.seen.is_nothing or self.secrets > 0 or not self.serves

    @property
    def words(self) -> str:
        found = []
        if self.seen.sent:
            found.append("a mail leaves")
        elif self.seen.answers:
            found.append("an answer counts")
        if self.secrets:
            found.append("secrets are read")
        if not self.serves:
            found.append("the desk ends")
        return ", ".join(found) or "nothing"


class Site:
    """A desk of alex in one of the two modes, as root sees it."""

    patience = 1.0
    """Seconds in which something that got through shows; what comes later is counted at the end."""
    transcript: Path | None = None
    """Where everything goes that the ways print."""

    def __init__(self, account: Account, home: Path, command: str, sock: str) -> None:
        self.account = account
        self.home = home
        account.run("tee", "shell_ways.py", given=Path(shell_ways.__file__).read_text())
        secret = {"type": "authorized_user", "refresh_token": CANARY}
        account.run("tee", str(account.home / "credentials.json"), given=json.dumps(secret))
        self.command = command
        self.sock = sock

    def start(self) -> None:
        raise NotImplementedError

    def link(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        found = running.find(self.home)
        return found.pid if found else 0

    def serves(self) -> bool:
        try:
            return httpx2.get(f"{self.account.address}/health", timeout=20).status_code in (
                200,
                503,
            )
        except httpx2.HTTPError:
            return False

    def look(self) -> Seen:
        sent = self._count("mail.db", "SELECT COUNT(*) FROM sending WHERE mail IS NOT NULL")
        return Seen(sent, self._count("desk.db", "SELECT COUNT(*) FROM answers"))

    def _count(self, name: str, sql: str) -> int:
        if not (self.home / name).exists():
            return 0
        with closing(
            sqlite3.connect(f"file:{self.home / name}?mode=ro", uri=True, timeout=30)
        ) as database:
            return int(database.execute(sql).fetchone()[0])

    def secrets(self) -> list[str]:
        """What nobody on the account may read: of each secret a part that is found nowhere else."""
        texts = [
            (self.home / name).read_text().strip()
            for name in SECRETS
            if (self.home / name).exists()
        ]
        return [CANARY, *(text for text in texts if len(text) > 20)]

    @contextmanager
    def signed_in(self) -> Iterator[httpx2.Client]:
        with httpx2.Client(base_url=self.account.address, timeout=60) as http:
            assert http.get(self.link()).status_code == 303
            yield http

    def ask(self, subject: str) -> None:
        tool = {"name": "send_email", "arguments": LETTER | {"subject": subject}}
        self.account.call("email", "tools/call", tool)


class Guarded(Site):
    def __init__(self, account: Account) -> None:
        super().__init__(account, guard.HOME, COMMAND, pipe.GUARDED)
        demand(
            account.root("service", "install", "--guarded", "--for", account.name, "--yes")
        )
        demand(account.root("password", "set", given=f"{PASSWORD}\n"))

    def start(self) -> None:
        demand(self.account.root("service", "start"))

    def link(self) -> str:
        return str(json.loads(demand(self.account.root("link", "--json")).stdout)["link"])


class Ordinary(Site):
    patience = 5.0

    def __init__(self, account: Account) -> None:
        command = str(ORDINARY / "bin" / "deskhand")
        super().__init__(account, account.home, command, str(account.home / pipe.SOCKET))
        self._process: subprocess.Popen[bytes] | None = None
        copy_program(ORDINARY, ("ordinary", b""))
        account.command = command
        demand(account.deskhand("password", "set", given=f"{PASSWORD}\n"))

    def start(self) -> None:
        self._kill()
        self._process = subprocess.Popen(
            guard.as_user(self.account.name, self.command, "up", "--no-browser"),
            env=self.account.environment,
            cwd=self.account.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for(self.serves)
        wait_for(lambda: self.pid > 0)

    def link(self) -> str:
        return str(
            json.loads(demand(self.account.deskhand("link", "--json")).stdout)["link"]
        )

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        self._kill()
        shutil.rmtree(ORDINARY, ignore_errors=True)


def demand(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    if done.returncode:
        raise RuntimeError(f"{done.args}: {done.stdout} {done.stderr}")
    return done


def wait_for(is_so: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def try_way(site: Site, name: str, person: httpx2.Client, old: dict[str, str]) -> Verdict:
    """One way against one fresh request."""
    subject = f"About {name}"
    site.ask(subject)
    listed = person.get("/")
    file, fields = find_request(site, subject)
    known = {
        "SUBJECT": subject,
        "FILE": file,
        "VAULT": str(site.account.vault),
        "HOME_OF_DESK": str(site.home),
        "PORT": str(site.account.port),
        "COOKIE": "; ".join(f"{key}={value}" for key, value in person.cookies.items()),
        "FORM_TOKEN": found[1] if (found := _FORM.search(listed.text)) else "",
        "PID": str(site.pid),
        "DESKHAND": site.command,
        "SOCKET": site.sock,
        **fields,
        **old,
    }
    before = site.look()
    output = run_as_alex(site, name, known)
    if site.transcript is not None:
        with site.transcript.open("a") as opened:
            opened.write(f"==== {name}\n{output[-3000:]}\n")
    secrets = sum(output.count(secret) for secret in site.secrets())
    with suppress(httpx2.HTTPError):
        person.get("/")  # whatever lies in the vault is heard now
    wait_for(lambda: not site.look().since(before).is_nothing, site.patience)
    seen = site.look().since(before)
    serves = site.serves()
    if not serves:
        site.start()
    return Verdict(name, seen, secrets, serves)


def run_as_alex(site: Site, name: str, known: dict[str, str]) -> str:
    program = site.account.folder / "shell_ways.py"
    try:
        done = site.account.run("/usr/bin/python3", str(program), name, **known)
    except subprocess.TimeoutExpired as late:
        return str(late.stdout or b"")
    return done.stdout + done.stderr


def find_request(site: Site, subject: str) -> tuple[str, dict[str, str]]:
    """What alex reads in the vault of the request that waits."""
    for file in sorted((site.account.vault / "Pending_Approval").glob("*.md")):
        text = file.read_text()
        card = re.search(r'^action_id: "?(\w+)"?$', text, re.MULTILINE)
        digest = re.search(r'^digest: "?(\w+)"?$', text, re.MULTILINE)
        if subject in text and card and digest:
            return file.name, {"CARD": card[1], "DIGEST": digest[1]}
    raise RuntimeError(f"no request waits: {subject}")


def prepare(site: Site) -> dict[str, str]:
    """Let one mail leave by the person's own yes, whose form can be replayed; then everything waits."""
    site.start()
    with site.signed_in() as person:
        site.ask("The first one")
        _, fields = find_request(site, "The first one")
        old = {"OLD_CARD": fields["CARD"], "OLD_DIGEST": fields["DIGEST"]}
        approve(site, person, fields)
    return old


def approve(site: Site, person: httpx2.Client, fields: dict[str, str]) -> None:
    before = site.look().sent
    token = _FORM.search(person.get("/checkup").text)
    assert token is not None
    given = {"form_token": token[1], "digest": fields["DIGEST"], "password": PASSWORD}
    answer = person.post(f"/approvals/{fields['CARD']}/approve", data=given)
    if told := _WAIT.search(
        answer.text
    ):  # programs of the account have guessed; the person waits as they are told
        print(
            f"    the person is told to wait {told[1]} seconds, because others have guessed"
        )
        time.sleep(int(told[1]) + 1)
        answer = person.post(f"/approvals/{fields['CARD']}/approve", data=given)
    assert answer.status_code == 303, answer.text
    if not wait_for(lambda: site.look().sent == before + 1):
        raise RuntimeError("the person's yes did not let the mail leave")


def run_all(site: Site, names: list[str]) -> list[Verdict]:
    old = prepare(site)
    verdicts = []
    for number, name in enumerate(names, 1):
        with site.signed_in() as person:
            verdict = try_way(site, name, person, old)
        verdicts.append(verdict)
        print(
            f"{number:3} {'THROUGH' if verdict.gets_through else 'held':8} {name}: {verdict.words}",
            flush=True,
        )
    return verdicts


def take_the_port(site: Site) -> Verdict:
    """Alex listens at the page's port while the desk is stopped: that is refused and named, and passes."""
    name = "take the port before a restart"
    before = site.look()
    demand(site.account.root("service", "stop"))
    listening = "s = socket.create_server(('127.0.0.1', int(sys.argv[1])))"
    program = f"import socket, sys; {listening}; print(s, flush=True); sys.stdin.read()"
    taking = subprocess.Popen(
        guard.as_user(
            site.account.name, "/usr/bin/python3", "-c", program, str(site.account.port)
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with taking as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        refused = site.account.root("service", "start")
        status = json.loads(site.account.root("service", "status", "--json").stdout)
        assert holder.stdin is not None
        holder.stdin.close()
    named = any("is no desk" in each for each in status["holes"])
    site.start()
    serves = refused.returncode != 0 and named and site.serves()
    return Verdict(name, site.look().since(before), 0, serves)


def guarded(account: Account, names: list[str]) -> list[Verdict]:
    site = Guarded(account)
    verdicts = run_all(site, names)
    verdicts.append(take_the_port(site))
    print(
        f"    {'THROUGH' if verdicts[-1].gets_through else 'held':8} {verdicts[-1].way}",
        flush=True,
    )
    time.sleep(
        20
    )  # whatever was begun in the vault is heard by the orchestrator's own look
    late = site.look()
    assert (late.sent, late.answers) == (1, 1), late
    with site.signed_in() as person:
        site.ask("The last one")
        _, fields = find_request(site, "The last one")
        approve(site, person, fields)
    print("then the person approved: one mail left", flush=True)
    demand(account.root("service", "uninstall", "--yes"))
    return verdicts


def ordinary(account: Account, names: list[str]) -> list[Verdict]:
    site = Ordinary(account)
    try:
        return run_all(site, names)
    finally:
        site.end()


def write_table(file: Path, kept: list[Verdict], open_: list[Verdict]) -> None:
    through = {each.way: each for each in open_}
    lines = ["| way | ordinary | guarded |", "|---|---|---|"]
    for each in kept:
        other = through[each.way].words if each.way in through else "not tried"
        lines.append(f"| {each.way} | {other} | {each.words} |")
    file.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="ways whose name this expression finds")
    parser.add_argument("--mode", choices=("guarded", "ordinary", "both"), default="both")
    parser.add_argument(
        "--transcript", type=Path, help="append to this file what each way printed"
    )
    parser.add_argument(
        "--table", type=Path, help="write a table of both modes into this file"
    )
    options = parser.parse_args()
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    with suppress(KeyError):
        pwd.getpwnam(PERSON)
        print(f"skipped: there is a user {PERSON} on this machine")
        return 0
    Site.transcript = options.transcript
    if options.transcript:
        options.transcript.touch(0o600)  # it holds what the ordinary desk gave away
    names = [name for name in shell_ways.WAYS if re.search(options.only, name)]
    kept: list[Verdict] = []
    open_: list[Verdict] = []
    if options.mode != "guarded":
        with made_account(PERSON) as account:
            open_ = ordinary(account, names)
    if options.mode != "ordinary":
        with made_account(PERSON) as account:
            kept = guarded(account, names)
    if options.table:
        write_table(options.table, kept, open_)
    print(
        f"ordinary: {sum(each.gets_through for each in open_)} of {len(open_)} ways get through"
    )
    print(
        f"guarded: {sum(each.gets_through for each in kept)} of {len(kept)} ways get through"
    )
    return int(any(each.gets_through for each in kept))


if __name__ == "__main__":
    sys.exit(main())
