"""Desk: opens every part once, when it is first needed, and wires them."""

import asyncio
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from deskhand import clock, place, running
from deskhand.errors import BadConfig, DeskError, NoIdentity, printable
from deskhand.files import create_once, write_atomically
from deskhand.parts import Parts

if TYPE_CHECKING:
    from deskhand.agents.mail import Mailroom
    from deskhand.agents.post import Post
    from deskhand.agents.roster import Onlooker
    from deskhand.audit import Entry, RecordLine, Result
    from deskhand.audit.behind import Begun, Behind
    from deskhand.audit.journal import Journal
    from deskhand.config import MailAccount, NoteVault, Settings
    from deskhand.foreign.servers import Foreign
    from deskhand.gate import Gate
    from deskhand.gate.answers import Answers
    from deskhand.gate.door import Door
    from deskhand.gate.permitting import Permitting
    from deskhand.gate.proofs import Policy
    from deskhand.gate.waiting import Waiting
    from deskhand.mail import Mailbox, WatchedMailbox
    from deskhand.notes.meaning import Meaning
    from deskhand.notes.paths import Inside
    from deskhand.notes.vault import Vault
    from deskhand.notes.vaults import Vaults
    from deskhand.store import Store
    from deskhand.tasks.client import TasksClient
    from deskhand.tokens import Token


log = logging.getLogger("deskhand.desk")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a caller sits among the agents: its folder, and its own name or tmux pane."""

    folder: str
    agent: str | None
    tmux: str | None
    tmux_pane: str | None
    room: str | None = None
    """Which mailboxes in the database it shares, where the desk cannot go into its folder."""
    session: str | None = None
    """Which conversation of Claude Code's it is, where that asks."""


_SHARED = (
    "store",
    "journal",
    "behind",
    "door",
    "foreign",
    "gate",
    "waiting",
    "answers",
    "mailbox",
    "tasks",
    "vaults",
)


class Desk:
    """One person's desk. Nothing is opened, made or started before it is used."""

    def __init__(
        self, settings: "Settings", now: Callable[[], datetime] = clock.utc_now
    ) -> None:
        self.original = self._find_original(settings)
        """The home that this desk's own is a copy of: nothing leaves beside it."""
        if self.original is not None:
            settings = settings.of_copy()
        self.settings = settings
        self.now = now
        self.folder: str | None = None
        """Where the caller works, if not in the folder of this process."""
        self.session: str | None = None
        self.parts = Parts(now)
        self._owed: list[RecordLine] = []
        self._vaults: dict[str, tuple[NoteVault, Vault]] = {}
        self._token_posts: dict[str, Post] = {}
        self._opening = Lock()
        self._is_seated = False
        """Whether all that it has belongs to another desk, which lasts longer."""

    @staticmethod
    def _find_original(settings: "Settings") -> Path | None:
        """Where several homes share a database, all of them are the desk, but for one that
        was restored as a copy."""
        if settings.database_url is None or place.is_marked(settings.home):
            return place.find_original(settings.home)
        return None

    def seat(self, seat: Seat) -> "Desk":
        """This desk for a caller with a place of its own among the agents; everything else is shared."""
        for name in _SHARED:
            with suppress(
                DeskError
            ):  # what is not set up is not set up for the caller either
                getattr(self, name)
        seated = copy(self)
        seated._is_seated = True  # noqa: SLF001 - a copy of this very desk
        seated.__dict__.pop("post", None)
        seated.__dict__.pop("agentmail_post", None)
        seated.__dict__.pop("person_post", None)
        seated._token_posts = {}  # noqa: SLF001 - as above
        seated.folder = seat.folder
        seated.session = seat.session
        of_caller = {"agent": seat.agent, "tmux": seat.tmux, "tmux_pane": seat.tmux_pane}
        if seat.room is not None:
            of_caller |= {"agents_store": "database", "agents_room": seat.room}
        seated.settings = self.settings.model_copy(update=of_caller)
        return seated

    @cached_property
    def store(self) -> "Store":
        from deskhand.store import open_store

        self.settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = open_store(self.settings.database)
        if self.settings.database_url is None:
            place.keep(self.settings.home)
        self._take_over(store)
        return store

    def _take_over(self, store: "Store") -> None:
        from deskhand.audit import journal

        try:
            journal.take_over(store, self.settings.home)
        except (DeskError, OSError) as failure:  # what was left is left until the next time
            log.critical("not_taken_over", extra={"failure": str(failure)})

    @cached_property
    def journal(self) -> "Journal":
        """What passed and is not on the record yet."""
        from deskhand.audit.journal import Journal

        return Journal(self.settings.home)

    @cached_property
    def behind(self) -> "Behind":
        from deskhand.audit.behind import Behind

        return Behind()

    @cached_property
    def vaults(self) -> "Vaults":
        """Every vault, as one."""
        from deskhand.notes.vaults import Vaults

        _ = self.settings.vault_path or self.settings.vault  # that there is none is said
        return Vaults([each.name for each in self.settings.note_vaults], self.open_vault)

    @property
    def vault(self) -> "Vault":
        """The first vault, which has the desk's own folders."""
        _ = self.settings.vault
        return self.open_vault(self.settings.note_vaults[0].name)

    def open_vault(self, name: str) -> "Vault":
        """The vault of this name; that it is not there now is said each time."""
        with self._opening:
            if name not in self._vaults:
                self._vaults[name] = self._find_vault(name)
        found, vault = self._vaults[name]
        found.demand()
        return vault

    def _find_vault(self, name: str) -> "tuple[NoteVault, Vault]":
        from deskhand.notes.root import shut
        from deskhand.notes.vault import Vault

        found = self.settings.find_vault(name)
        root = found.demand()
        shut(root, self.settings.home)
        inside = self.settings.inside if found == self.settings.note_vaults[0] else None
        vault = Vault(
            root,
            self.index_file(root),
            self._sign_note,
            self._follow_note,
            self._local_now,
            inside=inside,
        )
        vault.meaning = self._open_meaning(root, inside)
        return found, vault

    def _open_meaning(self, root: Path, inside: "Inside") -> "Meaning | None":
        """The search of a vault by meaning, where a model for it is configured."""
        from deskhand.notes.meaning import Meaning, open_endpoint

        settings = self.settings
        if settings.embedding_url is None or settings.embedding_model is None:
            return None
        key = settings.embedding_key.get_secret_value() if settings.embedding_key else None
        embed = open_endpoint(settings.embedding_url, settings.embedding_model, key)
        file = self.index_file(root).with_suffix(".vectors.db")
        return Meaning(root, file, settings.embedding_model, embed, inside)

    @property
    def own_root(self) -> Path:
        """Where the desk's own folders lie: the vault, or one folder in it, which is made where it is missing."""
        from deskhand.notes import paths

        vault = self.settings.vault
        with paths.opened(vault, self.settings.inside, create=True) as (_, names):
            return vault.joinpath(*names)

    def _local_now(self) -> datetime:
        return self.now().astimezone(ZoneInfo(self.settings.timezone))

    def _sign_note(self, text: str) -> None:
        """Write down that a tool wrote this note, before it lies there: it can never pass
        for the person's own."""
        from deskhand.gate import authorship

        if marks := authorship.marks_of(text):
            self.store.write_sync(authorship.remember, marks)

    def _follow_note(self, before: str, after: str) -> None:
        """What a tool wrote stays a tool's when the person changes it; what the person wrote stays theirs."""
        from deskhand.gate import authorship

        if marks := authorship.marks_of(after):
            was = authorship.marks_of(before)
            self.store.write_sync(authorship.follow, was, marks)

    @cached_property
    def tasks(self) -> "TasksClient":
        """The tasks backend: the configured one, else the one in this process."""
        import httpx2

        from deskhand.tasks.client import TasksClient

        settings = self.settings
        if settings.fastapi_base_url is not None:
            http, token = (
                httpx2.AsyncClient(base_url=settings.fastapi_base_url),
                self._service_token(),
            )
        else:
            # Nobody else can reach a backend in this process, so its token is nobody else's business.
            token = secrets.token_urlsafe(32)
            transport = httpx2.ASGITransport(
                app=self.tasks_api(token), raise_app_exceptions=False
            )
            http = httpx2.AsyncClient(base_url="http://embedded", transport=transport)
        return TasksClient(
            http,
            token,
            timeout=settings.backend_timeout,
            retries=settings.backend_max_retries,
        )

    async def leave_tasks(self) -> None:
        """Let go of the backend's connections; whoever needs them again gets new ones."""
        found = self.__dict__.pop("tasks", None)
        if found is not None and not self._is_seated:
            await found.close()

    def tasks_api(self, token: str) -> "Callable[..., Awaitable[None]]":
        from deskhand.tasks.api import tasks_api

        return tasks_api(
            self.store, token, self.now, self.settings.timezone, self.settings.user
        )

    async def authenticate(self, token: str, endpoint: str | None) -> "Token | None":
        """Whose token somebody shows at an MCP endpoint, where it is one of an assistant
        or a user and counts there."""
        from deskhand import tokens

        return await tokens.authenticate(self.store, token, self.now(), endpoint)

    def _service_token(self) -> str:
        if self.settings.service_auth_token is None:
            raise BadConfig(
                "SERVICE_AUTH_TOKEN is not set",
                hint="set it to the token that the tasks backend at FASTAPI_BASE_URL expects",
            )
        return self.settings.service_auth_token.get_secret_value()

    @cached_property
    def post(self) -> "Post":
        """This agent's way to its mail."""
        return self._open_post(self.room)

    @cached_property
    def agentmail_post(self) -> "Post":
        """The same as AgentMail has it."""
        return self._open_post(self.repository_room)

    def _open_post(self, room: "Callable[[str | None], Mailroom]") -> "Post":
        from deskhand.agents.post import Post
        from deskhand.agents.roster import identify

        seat = identify(self.settings.tmux, self.settings.tmux_pane, self.settings.agent)
        if seat is None:
            raise NoIdentity(
                "not running inside a tmux session",
                hint="`deskhand connect` gives an assistant a name, and so does a token; or set DESKHAND_AGENT to one",
            )
        return Post(seat, self.folder or str(Path.cwd()), room, self._nanoseconds)

    def token_post(self, name: str) -> "Post":
        """The way of an assistant over HTTP to its mail: the name of its token is its own."""
        from deskhand.agents.post import Post
        from deskhand.agents.roster import Guest, may_be_called

        if not may_be_called(name):
            raise NoIdentity(
                f"no agent may be called {printable(name)}: the name reads as another's",
                hint="make a token of another name: deskhand token create --name NAME",
            )
        if name not in self._token_posts:
            seat = Guest(name, *self._pane)
            folder = self.folder or str(Path.cwd())
            self._token_posts[name] = Post(seat, folder, self.room, self._nanoseconds)
        return self._token_posts[name]

    @property
    def _pane(self) -> tuple[str | None, str]:
        """The tmux pane of this desk, and where its server listens."""
        from deskhand.agents.tmux import socket_of

        if not self.settings.tmux:
            return None, ""
        return self.settings.tmux_pane, socket_of(self.settings.tmux)

    @cached_property
    def person_post(self) -> "Post":
        """The person's own way to the agents' mail: under a name that is no agent's."""
        from deskhand.agents.post import Post

        folder = self.folder or str(Path.cwd())
        return Post(self.person_seat, folder, self.room, self._nanoseconds)

    @property
    def person_seat(self) -> "Onlooker":
        """Where the person sits: under a name that is no agent's, at no window."""
        from deskhand.agents.roster import Onlooker
        from deskhand.agents.tmux import PERSON

        return Onlooker(PERSON, *self._pane)

    async def count_messages(self) -> int:
        """How many messages of agents the person has not read; none where only the page of agents can say why."""
        from deskhand.agents.tmux import PERSON

        with suppress(DeskError, OSError):
            return await self._person_room.count_unread(PERSON)
        return 0

    @cached_property
    def _person_room(self) -> "Mailroom":
        """Every page looks here, and where it is does not change."""
        return self.person_post.mailroom

    def _nanoseconds(self) -> int:
        return int(self.now().timestamp() * 1_000_000) * 1000

    def room(self, root: str | None) -> "Mailroom":
        """The mailboxes of the agents that work in a repository, else those of all that work with this desk."""
        from deskhand.agents.files import open_files

        store = self.settings.agents_store
        if store == "files" or (store is None and root is not None):
            return open_files(root)
        if store is None:
            return self._sql_room(self.settings.agents_room or DESK_ROOM)
        return self.database_room(root)

    def repository_room(self, root: str | None) -> "Mailroom":
        """The mailboxes as AgentMail has them: in the repository, unless the desk is told otherwise."""
        from deskhand.agents.files import open_files

        return (
            open_files(root)
            if self.settings.agents_store in (None, "files")
            else self.database_room(root)
        )

    def database_room(self, root: str | None) -> "Mailroom":
        name = self.settings.agents_room or (Path(root).name if root else None)
        if name is None:
            raise BadConfig(
                "not in a git repository, and no room is named",
                hint="set DESKHAND_AGENTS_ROOM",
            )
        return self._sql_room(name)

    def _sql_room(self, name: str) -> "Mailroom":
        from deskhand.agents.sql import SqlRoom

        return SqlRoom(self.store, name)

    def is_own_note(self, path: str) -> bool:
        """Whether a path of the first vault is of the desk's own files."""
        from deskhand.notes.folders import is_own

        return is_own(path, self.settings.inside)

    def index_file(self, vault: Path) -> Path:
        return self.settings.home / "cache" / f"notes-{_fingerprint(vault)}.db"

    @cached_property
    def mailbox(self) -> "Mailbox":
        """The mail of all accounts. A desk that has one works on its mailbox itself."""
        accounts = self.settings.mail_accounts
        if not self.settings.accounts:
            return self._open_account(accounts[0])
        from deskhand.mail.mailboxes import Mailboxes

        return Mailboxes(
            accounts,
            self.settings.default_account,
            self._open_account,
            self._tell_of_account,
        )

    def account_mailbox(self, name: str) -> "WatchedMailbox":
        """The mailbox of one account, with its own ids."""
        from deskhand.mail.mailboxes import Mailboxes

        if isinstance(self.mailbox, Mailboxes):
            return self.mailbox.box(name)
        return cast("WatchedMailbox", self.mailbox)

    def _open_account(self, account: "MailAccount") -> "WatchedMailbox":
        settings = self.settings.of_account(account)
        match account.kind:
            case "local":
                from deskhand.mail.local import LocalMailbox

                return LocalMailbox(
                    settings.mail_file(account.name), settings.own_address, self.now
                )
            case "gmail":
                from deskhand.mail.gmail import GmailMailbox

                return GmailMailbox(settings)
            case "imap":
                from deskhand.mail.imap import ImapMailbox

                return ImapMailbox(settings, account.aliases)

    def _tell_of_account(self, name: str, error: DeskError | None) -> None:
        if error is None:
            self.parts.note_answer(f"mail {name}")
        else:
            self.parts.fail(f"mail {name}", error)

    async def close_mailbox(self) -> None:
        """In the event loop that used it, where its connections live."""
        if "mailbox" in self.__dict__:
            await self.__dict__.pop("mailbox").close()

    @cached_property
    def policy(self) -> "Policy":
        """What counts here as the person's answer."""
        from deskhand.gate.proofs import Policy

        key = partial(self.secret, "proof.key")
        return Policy(
            self.settings.proof, key, self._sealed_mark.exists, self._find_new_key()
        )

    def begin_new_key(self) -> None:
        """Note that the answers until now were written with another key."""
        write_atomically(self._new_key_mark, clock.iso(self.now()).encode(), 0o600)

    def _find_new_key(self) -> datetime:
        try:
            return datetime.fromisoformat(self._new_key_mark.read_text())
        except FileNotFoundError:
            return clock.EPOCH

    @property
    def _new_key_mark(self) -> Path:
        return self.settings.home / "proof.since"

    @property
    def _sealed_mark(self) -> Path:
        """Where it is known, outside the database, that a password needs a seal."""
        return self.settings.home / "password.sealed"

    def seal_password(self, kept: str) -> str:
        """The hash as it is kept; from now on none counts without a seal."""
        from deskhand.gate import passwords

        self.adopt_secrets()
        return passwords.seal_hash(kept, self.policy.seal)

    def adopt_secrets(self) -> None:
        """Seal, once, what an earlier version kept, or a desk with another key: the password and the passkeys."""
        from deskhand.gate import passkeys, passwords

        if self.settings.proof == "passkey" and not self._sealed_mark.exists():
            self.store.write_sync(passwords.adopt, self.policy.seal)
            self.store.write_sync(passkeys.adopt, self.policy.seal)
            create_once(self._sealed_mark, b"")

    @cached_property
    def door(self) -> "Door":
        """How the person answers in the vault; closed where this desk has none."""
        from deskhand.gate import keys
        from deskhand.gate.door import ClosedDoor
        from deskhand.gate.folders import Folders
        from deskhand.gate.vault import VaultDoor

        settings = self.settings
        if settings.vault_path is None:
            return ClosedDoor(self.policy)
        key = self.secret("seal.key").encode()
        self.store.write_sync(keys.demand_same, key)
        sealed = settings.approvals == "sealed"
        # Also while it is away: what is answered elsewhere does not wait for it.
        folders = Folders(settings.note_vaults[0].path, settings.inside)
        return VaultDoor(
            self.store,
            folders,
            key,
            lambda: self.mailbox,
            self.now,
            self.policy,
            sealed=sealed,
        )

    @cached_property
    def foreign(self) -> "Foreign":
        """The other servers behind the gate."""
        from deskhand.foreign.servers import Foreign

        return Foreign(self.settings.home, self.parts)

    async def close_foreign(self) -> None:
        """In the event loop that started them; what they did is on the record then."""
        if "foreign" in self.__dict__:
            await self.__dict__.pop("foreign").close()
        await self.behind.catch_up()

    @cached_property
    def gate(self) -> "Gate":
        from deskhand.gate import Gate

        return Gate(
            self.settings,
            self.store,
            lambda: self.mailbox,
            self.door,
            self.now,
            servers=lambda: self.foreign,
            permitting=lambda: self.permitting,
        )

    @cached_property
    def waiting(self) -> "Waiting":
        """What waits for the person."""
        from deskhand.gate.waiting import Waiting

        gate = self.gate
        return Waiting(
            self.store,
            gate.find,
            gate.refresh_all,
            self.door.notice_drafts,
            lambda: self.mailbox,
            self.now,
            self.settings.timezone,
        )

    @cached_property
    def answers(self) -> "Answers":
        """The person's answers to what waits."""
        from deskhand.gate.answers import Answers

        gate = self.gate
        return Answers(
            self.settings,
            self.store,
            self.waiting,
            self.door,
            gate.act_at_once,
            self.now,
            self.permitting,
        )

    @cached_property
    def permitting(self) -> "Permitting":
        """What the person lets through without being asked each time."""
        from deskhand.gate.permitting import Permitting

        return Permitting(self.settings, self.store, self.waiting, self.policy, self.now)

    def secret(self, name: str) -> str:
        """A random secret in the desk's home, made at the first use; of several processes one makes it."""
        file = self.settings.home / name
        self.settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists():
            create_once(file, secrets.token_urlsafe(32).encode())
        found = file.read_text(encoding="utf-8", errors="replace").strip()
        if len(found) < _SHORTEST_SECRET:
            hint = f"bring it back from a backup (`deskhand restore`), or remove {file}: then a new one is made"
            raise BadConfig(f"{file} is empty or too short to keep anybody out", hint=hint)
        return found

    def token(self) -> str:
        """What an HTTP client must show: the configured one, else one made at the first start."""
        if self.settings.service_auth_token is not None:
            return self.settings.service_auth_token.get_secret_value()
        return self._made_token

    @cached_property
    def _made_token(self) -> str:
        place = self.settings.home / "token"
        print(f"the bearer token is in {place}", file=sys.stderr, flush=True)  # noqa: T201 - the token's place, for a person
        return self.secret("token")

    async def record(
        self,
        actor: str,
        action: str,
        target: object,
        parameters: Mapping[str, Any],
        error: DeskError | None = None,
        milliseconds: int = 0,
        *,
        result: "Result | None" = None,
        in_vault: bool = False,
    ) -> None:
        """Put one finished action on the record, redacted; with `in_vault` also into the vault's own log."""
        from deskhand import audit

        entry = self._entry_of(
            actor, action, target, parameters, error, milliseconds, result
        )
        await self._append([audit.line_of(entry)])
        # A desk without a vault has no log in it; the chain has the entry.
        if in_vault and self.settings.vault_path is not None:
            from deskhand.audit import vault_log

            place = (self.settings.vault_path, self.settings.logs)
            await asyncio.to_thread(vault_log.write_entry, *place, entry)

    def _entry_of(
        self,
        actor: str,
        action: str,
        target: object,
        parameters: Mapping[str, Any],
        error: DeskError | None,
        milliseconds: int,
        result: "Result | None" = None,
    ) -> "Entry":
        from deskhand import audit

        return audit.Entry.of(
            self.now(),
            actor,
            action,
            audit.short_text(target),
            parameters={
                key: audit.parameter_of(value)
                for key, value in parameters.items()
                if key not in _CONTENT
            },
            error=error,
            result=result,
            milliseconds=milliseconds,
        )

    async def _append(self, lines: "Sequence[RecordLine]") -> None:
        from deskhand import audit

        try:
            await self.store.write(audit.append_lines, lines)
            self.journal.drop(line.name for line in lines)
        except (DeskError, OSError) as failure:
            # The effects have happened; hiding a result from the caller would not undo it. The next one has to wait
            # until these entries are written.
            for line in lines:
                entry = audit.Entry.model_validate_json(line.text)
                if entry.error is None:
                    self._owed.append(line)
                log.critical(
                    "not_on_record", extra=entry.model_dump() | {"failure": str(failure)}
                )

    def keep_begun(self, begun: "Begun") -> None:
        """What `record_behind` will put on the record, as far as it is known before it has
        ended: that it began."""
        self._keep_in_journal(begun.name, begun.write_begun())

    def record_behind(
        self, begun: "Begun", error: DeskError | None, milliseconds: int
    ) -> None:
        """Put it on the record as `record` does, while whoever asked has the answer
        already: the journal keeps it."""
        line = begun.finish(self.now(), error, milliseconds)
        self._keep_in_journal(line.name, line.text)
        self.behind.add(line, self._append)

    def _keep_in_journal(self, name: str, text: str) -> None:
        try:
            self.journal.keep(name, text)
        except OSError as failure:  # the record may have room for it
            log.critical("not_in_journal", extra={"failure": str(failure)})

    def is_record_settled(self, *, behind: int) -> bool:
        """Whether an effect may happen now, for which `settle_record` would not have to wait."""
        _ = self.store
        return not (self._owed or self.journal.is_long or self.behind.number > behind)

    async def settle_record(self, *, behind: int = 0) -> None:
        """Before an effect: open the record, and write what is owed to it. Where that fails, nothing may happen.

        So many entries may still be on their way."""
        from deskhand import audit

        _ = self.store
        await self.behind.catch_up(0 if self.journal.is_long else behind)
        while self._owed:
            await self.store.write(audit.append_lines, self._owed[:1])
            self.journal.drop([self._owed.pop(0).name])

    def card_address(self, request_id: str) -> str | None:
        """Where the person sees a request; None where no desk runs."""
        address = self.settings.inbox_origin
        if address is None:
            with suppress(DeskError):
                if found := running.find(self.settings.home):
                    address = found.address
        return address and f"{address}/requests/{request_id}"

    def close(self) -> None:
        while self._vaults:
            self._vaults.popitem()[1][1].close()
        while self._token_posts:
            self._token_posts.popitem()[1].close()
        for part in ("post", "agentmail_post", "person_post", "store", "journal"):
            if part in self.__dict__:
                self.__dict__.pop(part).close()


DESK_ROOM = "desk"
"""Which agents meet in the database where no room is named: all that work with this desk."""
_CONTENT = frozenset({"body", "frontmatter"})
_SHORTEST_SECRET = 8


def _fingerprint(root: Path) -> str:
    return sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
