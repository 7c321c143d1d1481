"""Checks of the desk's parts: vault, database, mailbox, tasks, agents, model, clients."""

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deskhand import audit, environment, place, tokens
from deskhand.app import Desk
from deskhand.audit import witness
from deskhand.clock import length
from deskhand.config import MailAccount, NoteVault
from deskhand.errors import AuthRequired, BadConfig, DeskError, VaultClosed
from deskhand.gate import keys as seals
from deskhand.gate import lists as requests
from deskhand.gate import passkeys, passwords
from deskhand.listen import why_taken
from deskhand.mail import documents
from deskhand.notes.folders import FOLDERS
from deskhand.notes.paths import resembled
from deskhand.orchestrator.rules import load_rules
from deskhand.running import find
from deskhand.setup.checks.findings import Finding, bad, good, warning
from deskhand.setup.clients import CLIENTS, file_of, started_by
from deskhand.setup.connect import entry_name, find_entry
from deskhand.setup.init import make_folders
from deskhand.setup.messenger import messenger
from deskhand.store import revision, schema
from deskhand.wording import LOCAL

_SECONDS = 15
"""How long a mailbox or a backend may take to answer."""
RESTORE = "bring a backup back: `deskhand restore FILE`"


def vault(desk: Desk, vault: NoteVault | None = None) -> Finding:
    try:
        folder = vault.demand() if vault else desk.settings.vault
    except BadConfig as error:
        return bad(error.message, error.hint)
    if folder.resolve() == desk.settings.home.resolve():
        hint = "set VAULT_PATH or DESKHAND_HOME to another folder"
        return bad(f"{folder} is the desk's home too, which no tool enters", hint)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return bad(f"{folder} cannot be read and written", f"chmod u+rwx {folder}")
    return good(str(folder))


def folders(desk: Desk) -> Finding:
    vault = desk.settings.vault_path
    root = desk.settings.own_place
    if vault is None or root is None or not vault.is_dir():
        return warning(
            "there is no vault to look into", "`deskhand init`, or set VAULT_PATH"
        )
    if _is_no_folder(root):
        return bad(
            f"{root.name} is no ordinary folder",
            "replace it by a folder: links are not followed",
        )
    if not root.is_dir():
        return warning(
            f"{root.name} will be made when needed", "`deskhand doctor --fix` makes it now"
        )
    return _look_into(root)


def _look_into(root: Path) -> Finding:
    if _is_shut(root):
        raise VaultClosed(root)
    others = {path.name for path in root.iterdir()} - set(FOLDERS)
    twins = [name for name in others if resembled(name)]
    if twins:
        return bad(
            f"{', '.join(sorted(twins))} may be taken for a folder of the desk",
            f"rename it; the desk's own are spelt {', '.join(FOLDERS)}",
        )
    odd = [name for name in FOLDERS if _is_no_folder(root / name)]
    if odd:
        says = f"{', '.join(odd)} is no ordinary folder"
        return bad(says, "replace it by a folder: links are not followed")
    shut = [name for name in FOLDERS if _is_shut(root / name)]
    if shut:
        raise VaultClosed(root / shut[0])
    missing = [name for name in FOLDERS if not (root / name).is_dir()]
    if len(missing) == len(FOLDERS):
        says = f"{', '.join(missing)} will be made when needed"
        return warning(says, "`deskhand doctor --fix` makes them now")
    if _is_open(root) and (
        open_to_others := [
            name for name in FOLDERS if name not in missing and _is_open(root / name)
        ]
    ):
        says = f"others on this machine may read {', '.join(open_to_others)}: your mail and what waits"
        places = [root / name for name in open_to_others]
        whose = "o" if _read_by_others(root) == stat.S_IROTH else "go"
        return warning(says, f"chmod -R {whose}-rwx {' '.join(map(str, places))}")
    if missing:
        return good(f"in the vault; {', '.join(missing)} will be made when needed")
    return good("all folders of the desk are in the vault")


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & _read_by_others(folder))


def _read_by_others(folder: Path) -> int:
    """Where there are access-control entries the group's bits are what these may at most:
    a guarded desk has one."""
    if sys.platform == "linux" and "system.posix_acl_access" in os.listxattr(folder):
        return stat.S_IROTH
    return stat.S_IRGRP | stat.S_IROTH


def _is_shut(folder: Path) -> bool:
    return folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _is_no_folder(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_dir())


def add_folders(desk: Desk) -> list[str]:
    root = desk.settings.vault_path
    if root is None or not root.is_dir() or folders(desk).state == "bad":
        return []
    return [f"made {folder}" for folder in make_folders(root, desk.settings.inside)]


def index(desk: Desk, vault: NoteVault | None = None) -> Finding:
    """The search index; it is a cache, so a damaged one only costs time."""
    place = vault.path if vault else desk.settings.vault_path
    if place is None or not place.is_dir():
        return good("without a vault there is none")
    file = desk.index_file(place)
    if not file.exists():
        return good("is made at the first search")
    if damage := find_damage(file):
        return warning(
            f"the search index is damaged: {damage}",
            "`deskhand doctor --fix` builds it anew",
        )
    kilobytes = max(1, round(file.stat().st_size / 1000))
    size = f"{kilobytes / 1000:.1f} MB" if kilobytes >= 1000 else f"{kilobytes} kB"
    return good(f"in order, {size}")


def find_damage(file: Path, how: str = "quick_check(1)") -> str | None:
    """What SQLite finds wrong with a database, in one line."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as db:
            (answer,) = db.execute(f"PRAGMA {how}").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return None if answer == "ok" else " ".join(str(answer).split())


def rebuild_index(desk: Desk) -> list[str]:
    damaged = [
        vault for vault in desk.settings.note_vaults if index(desk, vault).state != "good"
    ]
    for vault in damaged:
        for end in ("", "-wal", "-shm"):
            Path(f"{desk.index_file(vault.path)}{end}").unlink(missing_ok=True)
        desk.open_vault(vault.name).index.build()
    return ["built the search index anew"] * bool(damaged)


def database(desk: Desk) -> Finding:
    url = desk.settings.database
    kind, _, place = url.partition("://")
    if kind == "sqlite" and (damage := _find_loss(Path(place.removeprefix("/")))):
        return bad(damage, RESTORE)
    found = revision(url)
    if found is None:
        return good(f"{kind}; it is made at the first use")
    if found > schema.HEAD:
        return bad("a newer deskhand made it than this one", "upgrade deskhand")
    if found < schema.HEAD:
        says = "an older deskhand made it"
        return warning(
            says, "the next start brings it up to date, or `deskhand doctor --fix`"
        )
    return good(f"{kind}, in order and up to date")


def _find_loss(file: Path) -> str | None:
    """What is wrong with the desk's own database file; that there was one, the note beside it tells."""
    is_there = file.exists() and file.stat().st_size > 0
    if not is_there and Path(f"{file}.{witness.BESIDE}").exists():
        return f"{file} is gone or empty, but it had a record"
    if not is_there:
        return None
    if damage := find_damage(file):
        return f"{file} is damaged: {damage}"
    if revision(f"sqlite:///{file}") is None:
        return f"{file} does not say of which version it is"
    return None


def keys(desk: Desk) -> Finding:
    """Whether the desk's secrets keep anybody out, and whether it seals with the key that its database knows."""
    for name in ("seal.key", "token"):
        if (desk.settings.home / name).exists():
            desk.secret(name)
    is_known = revision(desk.settings.database) == schema.HEAD and desk.store.write_sync(
        seals.is_known
    )
    if not (desk.settings.home / "seal.key").exists():
        if is_known:
            return bad(
                "seal.key is lost",
                "copy it from a backup or another machine, else `deskhand doctor --fix`",
            )
        return good("are made at the first use")
    if revision(desk.settings.database) == schema.HEAD:
        desk.store.write_sync(seals.demand_same, desk.secret("seal.key").encode())
    return good("whole, and those of this desk")


def renew_seal(desk: Desk) -> list[str]:
    """Where the key is lost, the next one that is made is the desk's."""
    if (desk.settings.home / "seal.key").exists() or revision(
        desk.settings.database
    ) != schema.HEAD:
        return []
    if not desk.store.write_sync(seals.forget):
        return []
    return ["the next seal.key that is made here is the desk's"]


def upgrade_database(desk: Desk) -> list[str]:
    found = revision(desk.settings.database)
    if found is None or found >= schema.HEAD:
        return []
    desk.store.write_sync(audit.head)  # the first work brings the schema up to date
    return [f"brought the database from schema {found} to {schema.HEAD}"]


async def record(desk: Desk) -> Finding:
    if await asyncio.to_thread(revision, desk.settings.database) != schema.HEAD:
        return good("has no line yet")
    found = await desk.store.read(audit.verify)
    match await witness.find_lost_end(desk.store, desk.settings.own_place) or found:
        case audit.Verified(entries):
            return good(f"intact: {entries:,} {'entry' if entries == 1 else 'entries'}")
        case audit.Broken(seq, why):
            fix = "compare with a backup: `deskhand restore FILE --to DIR`"
            return bad(f"NOT intact: line {seq}: {why}", fix)


async def ledger(desk: Desk) -> Finding:
    """Whether a send was left by a process that died, or ended without anybody knowing how."""
    if await asyncio.to_thread(revision, desk.settings.database) != schema.HEAD:
        return good("nothing was ever proposed")
    now = desk.now()
    stale, unknown = await desk.store.read(requests.count_unfinished, now)
    if unknown:
        says = f"{unknown} mail{'s' * (unknown > 1)} may or may not have been sent"
        return warning(says, "`deskhand approvals`: look, then decide")
    if stale:
        says = f"{stale} sends were left by a process that died"
        return warning(says, "`deskhand orchestrate` takes them over")
    return good("no send is left half done")


def _explain_sign_in(account: MailAccount, error: AuthRequired) -> str | None:
    """What to do about a sign-in that has ended; at Google that may be the rule of its projects."""
    from deskhand.mail.google_auth import SEVEN_DAYS

    if account.kind == "gmail" and error.details.get("reason") == "invalid_grant":
        return f"{error.hint}. {SEVEN_DAYS}"
    return error.hint


_STAYS = f"what you send stays on this machine: {LOCAL.removesuffix('.')}"


async def mailbox(desk: Desk, account: MailAccount | None = None) -> Finding:
    """Whether the account answers and the desk is signed in, for reading and for sending."""
    from deskhand.mail.imap import ImapMailbox
    from deskhand.mail.mailboxes import Mailboxes

    account = account or desk.settings.default_account
    if account.kind == "local" and (found := await _check_local(desk, account)):
        return found
    mailbox = desk.account_mailbox(account.name)
    async with asyncio.timeout(_SECONDS):
        try:
            await mailbox.search("", 1)
        except AuthRequired as error:
            return bad(error.message, _explain_sign_in(account, error))
        address = await mailbox.address()
        if isinstance(mailbox, ImapMailbox) and account.smtp_url is None:
            return warning(
                "imap can be read, but no account sends for it",
                "set DESKHAND_SMTP_URL to smtps://USER@HOST",
            )
        if isinstance(mailbox, ImapMailbox):
            await mailbox.try_relay()
    if account.addresses and address.lower() not in account.addresses:
        return bad(
            f"{account.kind}, signed in as {audit.masked(address)}, which is not its address",
            "correct it",
        )
    if isinstance(desk.mailbox, Mailboxes):
        await desk.mailbox.ask_untold()
        try:
            await desk.mailbox.address_of(account.name)
        except BadConfig as error:
            return bad(error.message, error.hint)
    stays = f"; {_STAYS}" if account.kind == "local" else ""
    return good(f"{account.kind}, signed in as {audit.masked(address)}{stays}")


async def _check_local(desk: Desk, account: MailAccount) -> Finding | None:
    if account.address is None:
        return warning(
            "the local mailbox has no address", "set DESKHAND_ADDRESS, or `deskhand init`"
        )
    file = desk.settings.mail_file(account.name)
    if not file.exists():
        return good(f"local, for {audit.masked(account.address)}, no mail yet; {_STAYS}")
    if not file.stat().st_size:
        return bad("the local mailbox is empty, down to its tables", RESTORE)
    if damage := await asyncio.to_thread(find_damage, file):
        return bad(f"the local mailbox is damaged: {damage}", RESTORE)
    return None


async def approvals(desk: Desk) -> Finding:
    settings = desk.settings
    if desk.original is not None:
        return bad(
            f"this home is a copy of {desk.original}: nothing leaves it",
            f"use that one; when no other desk works with this vault and mailbox, remove {place.FILE} here",
        )
    if settings.dev_mode:
        return warning(
            "DEV_MODE is on: nothing is sent", "set DEV_MODE=false when you mean it"
        )
    files = "sealed and hand-written files"
    if settings.approvals == "sealed":
        files = "sealed files only"
    if settings.proof == "page":
        files = "answers on the page and in the terminal"
    if settings.proof == "passkey":
        ways = await _list_proofs(desk)
        if not ways:
            return warning(
                "each answer needs a passkey or a password, and there is none",
                "add a passkey on the page, or `deskhand password set`",
            )
        files = f"answers with {' or '.join(ways)}"
    return good(
        f"{files}; at most {settings.max_sends} emails in {length(settings.window_seconds)}"
    )


async def _list_proofs(desk: Desk) -> list[str]:
    """By what the person can prove an answer, in words."""
    found = []
    if await desk.store.read(passkeys.list_keys, desk.policy.seal):
        found.append("a passkey")
    if await desk.store.read(passwords.is_set):
        found.append("your password")
    return found


async def tasks(desk: Desk) -> Finding:
    settings = desk.settings
    if settings.fastapi_base_url is None and settings.user is None:
        says = "nobody says whose tasks these are: the page and most assistants have none"
        return warning(says, "deskhand init --user NAME --yes; any name will do")
    if settings.fastapi_base_url is None:
        return good(f"in the desk's own database, for {settings.user}")
    import httpx2

    url = settings.fastapi_base_url
    async with httpx2.AsyncClient(timeout=_SECONDS) as http:
        answer = await http.get(f"{url}/health")
    if answer.status_code != 200:
        return bad(
            f"the backend at {url} answers {answer.status_code}",
            "look at the backend's own log",
        )
    if settings.service_auth_token is None:
        return bad(
            "SERVICE_AUTH_TOKEN is not set", "set it to the token that the backend expects"
        )
    return good(f"the backend at {url} answers")


def agents(desk: Desk) -> Finding:
    if not shutil.which("tmux"):
        return warning(
            "tmux is not installed: the mailman cannot tell agents of their mail",
            "install tmux",
        )
    if desk.settings.agents_store == "database":
        return good("messages are kept in the desk's database")
    if desk.settings.agents_store == "files":
        return good("messages are kept in .agentmail of each repository")
    return good(
        "messages are kept in .agentmail of each repository, outside of one in the desk's database"
    )


def attachments(desk: Desk) -> Finding:
    """Whether the text of documents can be read, for a card and for an assistant."""
    del desk
    if unread := documents.unread_kinds():
        return warning(
            f"the text of {' and '.join(unread)} is not read",
            "pip install 'deskhand[documents]'",
        )
    return good("the text of PDF and Office files can be read")


def model(desk: Desk) -> Finding:
    settings = desk.settings
    if settings.model is None:
        return good("none: rules or a connected assistant decide about mail")
    if settings.model_api_key is None and settings.model_base_url is None:
        return bad(
            f"{settings.model} has no key",
            "set DESKHAND_MODEL_API_KEY or the provider's own variable",
        )
    return good(settings.model)


def rules(desk: Desk) -> Finding:
    """Whether the rules by which mail is sorted can be read."""
    count = len(load_rules(desk.settings.home).rule)
    return good(f"{count} rule{'' if count == 1 else 's'} for mail")


def clients(desk: Desk) -> Finding:
    """Which assistants know the desk, and whether they know this one."""
    known = []
    wrong = []
    for client in CLIENTS.values():
        file = file_of(client, environment.variables())
        try:
            entry = find_entry(client, file, entry_name("desk"))
        except DeskError as error:
            wrong.append(error.message)
            continue
        if entry is None:
            continue
        if problem := _problem_of(entry, str(desk.settings.home)) or _wrong_port(
            desk, entry
        ):
            wrong.append(f"{client.title} {problem}")
        else:
            known.append(client.title)
    if wrong:
        return warning("; ".join(wrong), "`deskhand connect CLIENT` writes the entry anew")
    said = [f"connected: {', '.join(known)}"] if known else []
    if used := _used_tokens(desk):
        said.append(f"used tokens: {', '.join(used)}")
    if not said:
        return warning(
            "no assistant is connected", "`deskhand connect CLIENT` connects one"
        )
    return good("; ".join(said))


def _used_tokens(desk: Desk) -> list[str]:
    """The tokens with which somebody came in: a client that no file of this machine names."""
    if revision(desk.settings.database) != schema.HEAD:
        return []
    return [each.name for each in desk.store.write_sync(tokens.list_tokens) if each.used]


def _problem_of(entry: dict[str, Any], home: str) -> str | None:
    command, variables = started_by(entry)
    other = variables.get("DESKHAND_HOME", home)
    if other != home:
        return f"is connected to the desk in {other}"
    if command and not (Path(command).is_file() and os.access(command, os.X_OK)):
        return f"starts {command}, which is not there"
    return None


def _wrong_port(desk: Desk, entry: dict[str, Any]) -> str | None:
    """Of a client that has an address: whether this desk is there, where it runs."""
    here = find(desk.settings.home)
    addresses = [
        value
        for value in entry.values()
        if isinstance(value, str) and value.startswith("http://127.0.0.1:")
    ]
    if here is None:
        taken = (value for value in addresses if why_taken(urlsplit(value).port or 80))
        found = next(taken, None)
        if found is None:
            return None
        return (
            f"is connected to {found}, where another program answers and gets its token: "
            "this desk does not run"
        )
    if all(value.startswith(f"{here.address}/") for value in addresses):
        return None
    return f"is connected to {addresses[0]}, but this desk runs on port {here.port}"


def notify(desk: Desk) -> Finding:
    if desk.settings.notify is None:
        return good("notifications are off; the page shows what waits")
    try:
        messenger(desk.settings.notify)
    except BadConfig as error:
        return bad(error.message, error.hint)
    addresses = desk.settings.notify.get_secret_value().split()
    many = "1 address is" if len(addresses) == 1 else f"{len(addresses)} addresses are"
    return good(f"{many} told when something waits")
