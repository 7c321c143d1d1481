"""Checks of the desk's parts: vault, database, mailbox, tasks, agents, model, clients."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from deskhand import audit
from deskhand import environment as places
from deskhand.app import Desk
from deskhand.errors import BadConfig, DeskError
from deskhand.notes.paths import skeleton
from deskhand.setup.clients import CLIENTS, file_of
from deskhand.setup.connect import entry_name, present
from deskhand.setup.findings import Finding, bad, good, warning
from deskhand.setup.init import FOLDERS, make_folders
from deskhand.setup.messenger import messenger
from deskhand.store import Transaction, revision, schema

_PATIENCE = 15


def vault(desk: Desk) -> Finding:
    try:
        folder = desk.settings.vault
    except BadConfig as error:
        return bad("vault", error.message, error.hint)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return bad("vault", f"{folder} cannot be read and written", f"chmod u+rwx {folder}")
    return good("vault", str(folder))


def folders(desk: Desk) -> Finding:
    root = desk.settings.vault_path
    if root is None or not root.is_dir():
        return warning("folders", "there is no vault to look into", "set VAULT_PATH")
    twins = [path.name for path in root.iterdir() if path.name not in FOLDERS and skeleton(path.name) in _SKELETONS]
    if twins:
        return bad(
            "folders",
            f"{', '.join(sorted(twins))} may be taken for a folder of the desk",
            f"rename it; the desk's own are spelt {', '.join(FOLDERS)}",
        )
    links = [
        name
        for name in FOLDERS
        if (root / name).is_symlink() or ((root / name).exists() and not (root / name).is_dir())
    ]
    if links:
        return bad(
            "folders", f"{', '.join(links)} is no ordinary folder", "replace it by a folder: links are not followed"
        )
    missing = [name for name in FOLDERS if not (root / name).is_dir()]
    if missing:
        return warning(
            "folders", f"{', '.join(missing)} will be made when needed", "deskhand doctor --fix makes them now"
        )
    return good("folders", "all folders of the desk are in the vault")


_SKELETONS = frozenset(map(skeleton, FOLDERS))


def add_folders(desk: Desk) -> list[str]:
    root = desk.settings.vault_path
    if root is None or not root.is_dir() or folders(desk).state == "bad":
        return []
    return [f"made {folder}" for folder in make_folders(root)]


def index(desk: Desk) -> Finding:
    """A cache: at worst it costs time."""
    if desk.settings.vault_path is None or not desk.settings.vault_path.is_dir():
        return good("index", "without a vault there is none")
    file = desk.index_file
    if not file.exists():
        return good("index", "is made at the first search")
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as db:
            (answer,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        answer = str(error)
    if answer != "ok":
        return warning("index", f"the search index is damaged: {answer}", "deskhand doctor --fix builds it anew")
    return good("index", f"{file.stat().st_size / 1e6:.1f} MB, in order")


def rebuild_index(desk: Desk) -> list[str]:
    if index(desk).state == "good":
        return []
    for end in ("", "-wal", "-shm"):
        Path(f"{desk.index_file}{end}").unlink(missing_ok=True)
    desk.vault.index.build()
    return ["built the search index anew"]


def database(desk: Desk) -> Finding:
    url = desk.settings.database
    found = revision(url)
    kind = url.partition("://")[0]
    if found is None:
        return good("database", f"{kind}; it is made at the first use")
    if found > schema.HEAD:
        return bad("database", f"its schema {found} is newer than this deskhand", "upgrade deskhand")
    if found < schema.HEAD:
        return warning(
            "database", f"schema {found}, behind {schema.HEAD}", "the next start brings it up to date, or --fix"
        )
    return good("database", f"{kind}, schema {found}")


def upgrade_database(desk: Desk) -> list[str]:
    found = revision(desk.settings.database)
    if found is None or found >= schema.HEAD:
        return []
    desk.store.write_sync(lambda tx: tx.one("SELECT 1"))
    return [f"brought the database from schema {found} to {schema.HEAD}"]


async def record(desk: Desk) -> Finding:
    if await asyncio.to_thread(revision, desk.settings.database) != schema.HEAD:
        return good("record", "has no line yet")
    match await desk.store.read(audit.verify):
        case audit.Verified(entries):
            return good("record", f"whole: {entries} lines")
        case audit.Broken(seq, why):
            return bad(
                "record", f"not whole: line {seq}: {why}", "compare with a backup: `deskhand restore FILE --to DIR`"
            )


async def ledger(desk: Desk) -> Finding:
    """Sends whose process died, and those of which nobody knows."""
    if await asyncio.to_thread(revision, desk.settings.database) != schema.HEAD:
        return good("ledger", "nothing was ever proposed")
    now = round(desk.now().timestamp() * 1000)

    def ask(tx: Transaction) -> tuple[int, int]:
        (stale,) = tx.one("SELECT count(*) FROM actions WHERE state = 'sending' AND lease < ?", now) or (0,)
        (unknown,) = tx.one("SELECT count(*) FROM actions WHERE state = 'unknown'") or (0,)
        return stale, unknown

    stale, unknown = await desk.store.read(ask)
    if unknown:
        return warning(
            "ledger", f"{unknown} mails may or may not have been sent", "`deskhand approvals`: look, then decide"
        )
    if stale:
        return warning(
            "ledger", f"{stale} sends were left by a process that died", "`deskhand orchestrate` takes them over"
        )
    return good("ledger", "no send is left half done")


async def mailbox(desk: Desk) -> Finding:
    """Whether the account answers and the desk is signed in."""
    kind = desk.settings.mail
    if kind == "local":
        if desk.settings.address is None:
            return warning("mailbox", "the local mailbox has no address", "set DESKHAND_ADDRESS, or `deskhand init`")
        if not (desk.settings.home / "mail.db").exists():
            return good("mailbox", f"local, for {audit.masked(desk.settings.address)}; no mail yet")
    async with asyncio.timeout(_PATIENCE):
        await desk.mailbox.search("", 1)
        address = await desk.mailbox.address()
    return good("mailbox", f"{kind}, signed in as {audit.masked(address)}")


def approvals(desk: Desk) -> Finding:
    settings = desk.settings
    if settings.dev_mode:
        return warning("approvals", "DEV_MODE is on: nothing is sent", "set DEV_MODE=false when you mean it")
    kinds = "sealed files only" if settings.approvals == "sealed" else "sealed and hand-written files"
    return good("approvals", f"{kinds}; at most {settings.max_sends} mails in {settings.window_seconds} s")


async def tasks(desk: Desk) -> Finding:
    if desk.settings.fastapi_base_url is None:
        if desk.settings.user is None:
            return warning(
                "tasks",
                "nobody says whose tasks these are: the page and most assistants have none",
                "deskhand init --user NAME --yes; any name will do",
            )
        return good("tasks", f"in the desk's own database, for {desk.settings.user}")
    import httpx2

    url = desk.settings.fastapi_base_url
    async with httpx2.AsyncClient(timeout=_PATIENCE) as http:
        answer = await http.get(f"{url}/health")
    if answer.status_code != 200:
        return bad("tasks", f"the backend at {url} answers {answer.status_code}", "look at the backend's own log")
    if desk.settings.service_auth_token is None:
        return bad("tasks", "SERVICE_AUTH_TOKEN is not set", "set it to the token that the backend expects")
    return good("tasks", f"the backend at {url} answers")


def agents(desk: Desk) -> Finding:
    if not shutil.which("tmux"):
        return warning("agents", "tmux is not installed: the mailman cannot tell agents of their mail", "install tmux")
    kept = "the desk's database" if desk.settings.agents_store == "database" else ".agentmail of each repository"
    return good("agents", f"messages are kept in {kept}")


def model(desk: Desk) -> Finding:
    settings = desk.settings
    if settings.model is None:
        return good("model", "none: rules or a connected assistant decide about mail")
    if settings.model_api_key is None and settings.model_base_url is None:
        return bad("model", f"{settings.model} has no key", "set DESKHAND_MODEL_API_KEY or the provider's own variable")
    return good("model", settings.model)


def clients(desk: Desk) -> Finding:
    """Which assistants know the desk, and whether they know this one."""
    known, wrong = [], []
    for client in CLIENTS.values():
        file = file_of(client, places.variables())
        try:
            found = present(client, file, entry_name("desk"))
        except DeskError as error:
            wrong.append(error.message)
            continue
        if found is None:
            continue
        command = found.get("command")
        other = (found.get("env") or {}).get("DESKHAND_HOME", str(desk.settings.home))
        if other != str(desk.settings.home):
            wrong.append(f"{client.title} is connected to the desk in {other}")
        elif command and not (Path(command).is_file() and os.access(command, os.X_OK)):
            wrong.append(f"{client.title} starts {command}, which is not there")
        else:
            known.append(client.title)
    if wrong:
        return warning("clients", "; ".join(wrong), "`deskhand connect CLIENT` writes the entry anew")
    if not known:
        return warning("clients", "no assistant is connected", "deskhand connect CLIENT")
    return good("clients", f"connected: {', '.join(known)}")


def notify(desk: Desk) -> Finding:
    if desk.settings.notify is None:
        return good("notify", "nobody is told by message; the page shows what waits")
    try:
        messenger(desk.settings.notify)
    except BadConfig as error:
        return bad("notify", error.message, error.hint)
    return good(
        "notify", f"{len(desk.settings.notify.get_secret_value().split())} addresses are told when something waits"
    )
