"""Every option of the desk once: where it is written, what it may be, and its sentence.

An option comes from the environment, else from `config.toml` in DESKHAND_HOME, else it is the default. An
unknown key and a bad value are errors: a misspelt `approvals` must not quietly mean the weaker choice.
"""

import ipaddress
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import time
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from deskhand import environment, unseen
from deskhand.errors import AuthRequired, BadConfig, FieldProblem, NotFound, VaultClosed


class Option(NamedTuple):
    """Where an option is written: its key in config.toml and its variable."""

    key: str
    variable: str
    form: str


def option(
    key: str, variable: str, form: str, sentence: str, default: Any = None, **limits: Any
) -> Any:
    """A field of the settings with all that is to be said of it."""
    place: dict[str, Any] = {"key": key, "variable": variable, "form": form}
    return Field(default, description=sentence, json_schema_extra=place, **limits)


def _expand(path: Path) -> Path:
    return path.expanduser().absolute()


def _web_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
    except ValueError as error:
        raise ValueError("not an http or https URL") from error
    known = parts.scheme in ("http", "https")  # as urlsplit writes them
    if not known or not parts.hostname or re.search(r"\s", url):
        raise ValueError("not an http or https URL")
    return parts.geturl().rstrip("/")


def _base_url(url: str) -> str:
    """An address behind which paths are put, and whose proof is the token."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("has a name or password, or something behind its path")
    return url


def _own_origin(url: str) -> str:
    """An address as browsers write an origin: nothing behind the host but a port that is not https' own."""
    found = re.fullmatch(r"https://([a-z0-9.-]*[a-z][a-z0-9-]*)(?::([0-9]{1,5}))?/?", url)
    if not found or not 0 < int(found[2] or 443) < 65536:
        raise ValueError("not the https origin of a named host")
    if found[1].rpartition(".")[2] == "localhost":
        raise ValueError("a name of this machine alone")
    if int(found[2] or 443) == 443:
        return f"https://{found[1]}"
    return f"https://{found[1]}:{int(found[2])}"


def _addresses(text: Any) -> Any:
    """Addresses and networks, each checked; config.toml may also have them as a list."""
    names = text if isinstance(text, list) else str(text).replace(",", " ").split()
    for name in names:
        ipaddress.ip_network(name)
    return " ".join(names)


def _hours(text: str) -> str:
    """From one time of the day to another, which may be on the next day."""
    found = re.fullmatch(r"\s*(\d{1,2}:\d\d)\s*-\s*(\d{1,2}:\d\d)\s*", text)
    if found is None:
        raise ValueError("not the hours from one time to another")
    begin, end = (time.fromisoformat(each.zfill(5)) for each in found.groups())
    if begin == end:
        raise ValueError("these hours end when they begin")
    return f"{begin:%H:%M}-{end:%H:%M}"


def _database_url(url: SecretStr) -> SecretStr:
    if not re.match(r"(sqlite:///|postgres(ql)?://)\S", url.get_secret_value()):
        raise ValueError("not a SQLite or PostgreSQL URL")
    return url


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError(f"not a time zone{_guess_zone(name)}") from None


def _guess_zone(name: str) -> str:
    """The zone of the city that somebody named alone."""
    from zoneinfo import available_timezones

    city = name.strip().replace(" ", "_").casefold()
    near = [
        zone for zone in available_timezones() if zone.split("/")[-1].casefold() == city
    ]
    return f"; did you mean {min(near)}?" if near else ""


def _agent(name: str) -> str:
    if unseen.reads_as(name) == "person":
        raise ValueError("under this name the person writes")
    if unseen.describe(name) or "\n" in name:
        raise ValueError("a name that cannot be read as it is written")
    return name


def _not_blank(text: Any) -> Any:
    if isinstance(text, str) and not text.strip():
        raise ValueError("must not be empty")
    return text


def _strip(text: Any) -> Any:
    return text.strip() if isinstance(text, str) else text


def _lower(text: Any) -> Any:
    return text.strip().lower() if isinstance(text, str) else text


def _upper(text: Any) -> Any:
    return text.upper() if isinstance(text, str) else text


def _current_word(approvals: Any) -> Any:
    """The value was called "seed" before; files that say so go on working."""
    return "any" if approvals == "seed" else approvals


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"\w(?:[\w .-]*[\w-])?", name):
        raise ValueError("not the name of a folder")
    return name


Folder = Annotated[Path, BeforeValidator(_not_blank), AfterValidator(_expand)]
Text = Annotated[str, BeforeValidator(_not_blank)]
FolderName = Annotated[str, AfterValidator(_folder_name)]
Secret = Annotated[SecretStr, BeforeValidator(_not_blank)]
Switch = Annotated[bool, BeforeValidator(_strip)]
DatabaseUrl = Annotated[Secret, AfterValidator(_database_url)]
Zone = Annotated[str, AfterValidator(_zone)]
AgentName = Annotated[Text, AfterValidator(_agent)]
ModelName = Annotated[str, Field(pattern=r"^[a-z-]+:\S+$")]
OffReason = Literal["dev_mode", "copy"]
"""Why nothing leaves a desk: the person has switched DEV_MODE on, or it is a copy of another one."""
LeastProof = Literal["vault", "page", "passkey"]
Approvals = Annotated[Literal["any", "sealed"], BeforeValidator(_current_word)]
Origin = Annotated[str, BeforeValidator(_not_blank), AfterValidator(_web_url)]
BaseUrl = Annotated[Origin, AfterValidator(_base_url)]
OwnOrigin = Annotated[str, BeforeValidator(_lower), AfterValidator(_own_origin)]
Addresses = Annotated[str, BeforeValidator(_addresses)]
Hours = Annotated[str, AfterValidator(_hours)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
MailKind = Literal["local", "gmail", "imap"]
GMAIL = "https://gmail.googleapis.com"
MAIN = "main"
"""The account of `mail.kind` and the other options of [mail]."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def _account_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a name that the ids of its mails cannot carry; use letters, digits, - and _"
        )
    if name.casefold() == MAIN:
        raise ValueError("main is the account of mail.kind; choose another name")
    return name


def _own_mail(address: str) -> str:
    if not re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", address):
        raise ValueError("not a mail address")
    return address


OwnAddress = Annotated[str, AfterValidator(_own_mail)]
_OAUTH_ADDRESSES = ("oauth_auth_url", "oauth_token_url", "oauth_device_url")
_OAUTH = (
    "oauth_provider",
    *_OAUTH_ADDRESSES,
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_scope",
)
OAuthProvider = Literal["microsoft", "fastmail", "yahoo"]
_KINDS_OPTIONS: dict[str, frozenset[str]] = {
    "local": frozenset(),
    "gmail": frozenset({"gmail_credentials", "gmail_api_endpoint"}),
    "imap": frozenset({"imap_url", "smtp_url", "ca", *_OAUTH}),
}


class MailAccount(BaseModel):
    """One of several mail accounts: a table [[mail.accounts]]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_account_name)]
    kind: MailKind
    address: OwnAddress | None = None
    aliases: tuple[OwnAddress, ...] = ()
    signature: str = ""
    default: bool = False
    gmail_credentials: Folder | None = None
    gmail_api_endpoint: Origin = GMAIL
    imap_url: Secret | None = None
    smtp_url: Secret | None = None
    ca: Folder | None = None
    oauth_provider: OAuthProvider | None = None
    oauth_auth_url: Origin | None = None
    oauth_token_url: Origin | None = None
    oauth_device_url: Origin | None = None
    oauth_client_id: Text | None = None
    oauth_client_secret: Secret | None = None
    oauth_scope: Text | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        strange = (
            self.model_fields_set
            & frozenset().union(*_KINDS_OPTIONS.values()) - _KINDS_OPTIONS[self.kind]
        )
        if strange:
            raise ValueError(
                f"{', '.join(sorted(strange))} is no option of a {self.kind} account"
            )
        if self.kind == "local" and self.address is None:
            raise ValueError("a local account needs its address")
        if (self.signature or self.aliases) and self.address is None:
            raise ValueError("an account with a signature or aliases needs its address")
        if self.kind == "imap" and self.imap_url is None:
            raise ValueError("an imap account needs imap_url, such as imaps://USER@HOST")
        has_provider = bool(self.oauth_token_url or self.oauth_provider)
        if has_provider != (self.oauth_client_id is not None):
            raise ValueError(
                "oauth_client_id goes together with oauth_token_url or oauth_provider"
            )
        return self

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    @property
    def addresses(self) -> frozenset[str]:
        """All that are known to be its own, as they are compared."""
        own = {self.address} if self.address else set()
        return frozenset(each.lower() for each in own.union(self.aliases))


def _read_tables(given: Any) -> Any:
    """In the environment they are JSON."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        raise ValueError("not JSON") from None


def _tell_apart(accounts: tuple[MailAccount, ...]) -> tuple[MailAccount, ...]:
    names = [account.name.casefold() for account in accounts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two accounts are named {', '.join(sorted(twice))}")
    if len(first := [account.name for account in accounts if account.default]) > 1:
        raise ValueError(f"only one account can be the default: {', '.join(first)}")
    own = [address for account in accounts for address in account.addresses]
    if twice := {address for address in own if own.count(address) > 1}:
        raise ValueError(f"two accounts have the address {', '.join(sorted(twice))}")
    return accounts


MailAccounts = Annotated[
    tuple[MailAccount, ...], BeforeValidator(_read_tables), AfterValidator(_tell_apart)
]


def _vault_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a name that the paths of its notes cannot carry; use letters, digits, - and _"
        )
    return name


class NoteVault(BaseModel):
    """One of several vaults: a table [[notes.vaults]]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(_vault_name)]
    path: Folder

    def __str__(self) -> str:
        return f"{self.name} ({self.path})"

    def demand(self) -> Path:
        """Its folder, which must be there: none is ever guessed or made."""
        try:
            is_there = self.path.is_dir()
        except PermissionError as error:
            raise VaultClosed(self.path) from error
        if not is_there:
            raise BadConfig(
                f"the vault {self.path} is not a folder",
                hint="correct VAULT_PATH (or vault_path or [[notes.vaults]] in config.toml), or make the folder",
            )
        return self.path


NoteVaults = Annotated[tuple[NoteVault, ...], BeforeValidator(_read_tables)]


class Settings(BaseModel):
    """The desk's options. Each has one sentence; `deskhand config show` prints them all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Folder = option(
        "home",
        "DESKHAND_HOME",
        "a folder",
        "Folder of the desk's config, database and keys.",
        ...,
    )
    vault_path: Folder | None = option(
        "vault_path", "VAULT_PATH", "a folder", "The vault: a folder of Markdown notes."
    )
    vault_folder: FolderName | None = option(
        "vault.folder",
        "DESKHAND_VAULT_FOLDER",
        "a folder's name",
        "Folder of the vault in which the desk's own folders lie; without it the vault itself.",
    )
    database_url: DatabaseUrl | None = option(
        "database_url",
        "DESKHAND_DATABASE_URL",
        "sqlite:///FILE or postgresql://…",
        "Database; without it a SQLite file in the desk's home.",
    )
    log_level: LogLevel = option(
        "log_level",
        "MCP_LOG_LEVEL",
        "DEBUG, INFO, WARNING or ERROR",
        "How much the servers write to stderr.",
        "INFO",
    )
    service_auth_token: Annotated[Secret, BeforeValidator(_strip)] | None = option(
        "service_auth_token",
        "SERVICE_AUTH_TOKEN",
        "a secret text",
        "Bearer token that the HTTP servers demand and the tasks client sends.",
    )
    socket: Folder | None = option(
        "socket",
        "DESKHAND_SOCKET",
        "a file",
        "Where the running desk lets servers on stdio join; desk.sock in its home.",
    )
    port: int = option(
        "port",
        "MCP_SERVER_PORT",
        "a port, 1 to 65535",
        "Port of an MCP server that speaks HTTP.",
        3000,
        ge=1,
        le=65535,
    )
    user: Text | None = option(
        "user",
        "DESKHAND_USER",
        "a user id",
        "Whose tasks these are where the connection does not tell.",
    )
    timezone: Zone = option(
        "timezone",
        "DESKHAND_TIMEZONE",
        "a zone such as Europe/Berlin",
        "The person's zone: what today and 17:00 mean, and when a repeated task is due again.",
        ...,
    )
    dev_mode: Switch = option(
        "dev_mode",
        "DEV_MODE",
        "true or false",
        "Log what would be sent and send nothing.",
        False,
    )
    approvals: Approvals = option(
        "approvals",
        "DESKHAND_APPROVALS",
        "any or sealed",
        "Which approval files release mail: any, also hand-written ones, or sealed ones only.",
        "any",
    )
    proof: LeastProof = option(
        "proof",
        "DESKHAND_PROOF",
        "vault, page or passkey",
        "The least that counts as your answer: a moved file, the page or terminal, a passkey or password for each one.",
        ...,
    )
    max_sends: int = option(
        "max_sends",
        "DESKHAND_MAX_SENDS",
        "a whole number from 0",
        "Mails that may leave within the window.",
        10,
        ge=0,
    )
    window_seconds: int = option(
        "window_seconds",
        "DESKHAND_WINDOW_SECONDS",
        "seconds, from 1",
        "Length of the rate window.",
        3600,
        ge=1,
    )
    mail: MailKind = option(
        "mail.kind",
        "DESKHAND_MAIL",
        "local, gmail or imap",
        "Which mailbox the desk works on.",
        "local",
    )
    address: Text | None = option(
        "mail.address",
        "DESKHAND_ADDRESS",
        "a mail address",
        "The desk's own address where the mailbox does not tell it.",
    )
    gmail_credentials: Folder | None = option(
        "mail.gmail_credentials",
        "DESKHAND_GMAIL_CREDENTIALS",
        "a file",
        "Google's authorized-user JSON.",
    )
    gmail_api_endpoint: Origin = option(
        "mail.gmail_api_endpoint",
        "DESKHAND_GMAIL_API_ENDPOINT",
        "an http or https origin",
        "Where every Gmail request goes, batch included.",
        GMAIL,
    )
    imap_url: Secret | None = option(
        "mail.imap_url", "DESKHAND_IMAP_URL", "imaps://USER@HOST", "IMAP account."
    )
    smtp_url: Secret | None = option(
        "mail.smtp_url",
        "DESKHAND_SMTP_URL",
        "smtps://USER@HOST",
        "SMTP account that sends for it.",
    )
    mail_ca: Folder | None = option(
        "mail.ca",
        "DESKHAND_MAIL_CA",
        "a PEM file",
        "CA of one's own that IMAP and SMTP servers are also known by.",
    )
    oauth_provider: OAuthProvider | None = option(
        "mail.oauth_provider",
        "DESKHAND_OAUTH_PROVIDER",
        "microsoft, fastmail or yahoo",
        "Who signs an IMAP account in that takes no password; the addresses below are known for these.",
    )
    oauth_auth_url: Origin | None = option(
        "mail.oauth_auth_url",
        "DESKHAND_OAUTH_AUTH_URL",
        "an http or https URL",
        "Where the provider asks you in a browser.",
    )
    oauth_token_url: Origin | None = option(
        "mail.oauth_token_url",
        "DESKHAND_OAUTH_TOKEN_URL",
        "an http or https URL",
        "Where an IMAP account that takes no password gets its access tokens.",
    )
    oauth_device_url: Origin | None = option(
        "mail.oauth_device_url",
        "DESKHAND_OAUTH_DEVICE_URL",
        "an http or https URL",
        "Where the provider begins a sign-in on another device.",
    )
    oauth_client_id: Text | None = option(
        "mail.oauth_client_id",
        "DESKHAND_OAUTH_CLIENT_ID",
        "a text",
        "The desk's client id at that provider.",
    )
    oauth_client_secret: Secret | None = option(
        "mail.oauth_client_secret",
        "DESKHAND_OAUTH_CLIENT_SECRET",
        "a secret text",
        "Its secret, where it has one.",
    )
    oauth_scope: Text | None = option(
        "mail.oauth_scope",
        "DESKHAND_OAUTH_SCOPE",
        "names with blanks between",
        "What the desk asks the provider for.",
    )
    accounts: MailAccounts = option(
        "mail.accounts",
        "DESKHAND_MAIL_ACCOUNTS",
        "tables [[mail.accounts]], as JSON in the environment",
        "Further mail accounts, each with name, kind, address, aliases, signature, default and its kind's own options.",
        (),
    )
    fastapi_base_url: BaseUrl | None = option(
        "tasks.base_url",
        "FASTAPI_BASE_URL",
        "an http or https URL",
        "Tasks backend; without it the embedded one.",
    )
    backend_timeout: Seconds = option(
        "tasks.timeout",
        "BACKEND_TIMEOUT",
        "seconds, more than 0",
        "Longest wait for one answer of the tasks backend.",
        30.0,
        gt=0,
    )
    backend_max_retries: int = option(
        "tasks.max_retries",
        "BACKEND_MAX_RETRIES",
        "a whole number from 0",
        "How often a safe backend call is tried again.",
        2,
        ge=0,
    )
    agent: AgentName | None = option(
        "agents.name", "DESKHAND_AGENT", "a name", "This agent's name outside tmux."
    )
    tmux: str | None = option(
        "agents.tmux", "TMUX", "set by tmux", "Says that this runs inside tmux."
    )
    tmux_pane: str | None = option(
        "agents.pane",
        "TMUX_PANE",
        "set by tmux",
        "The tmux pane this runs in; its window's name is the agent's.",
    )
    agents_store: Literal["files", "database"] | None = option(
        "agents.store",
        "DESKHAND_AGENTS_STORE",
        "files or database",
        "Where agents' messages are kept; without it in the repository's files, outside of one in the desk's database.",
    )
    agents_mailman: Switch = option(
        "agents.mailman",
        "DESKHAND_AGENTS_MAILMAN",
        "true or false",
        "Whether `deskhand up` tells agents in tmux that mail has come.",
        False,
    )
    agents_room: Text | None = option(
        "agents.room",
        "DESKHAND_AGENTS_ROOM",
        "a name",
        "Which agents share mailboxes in a database; without it the repository's folder name.",
    )
    agents_programs: Text = option(
        "agents.programs",
        "DESKHAND_AGENTS_PROGRAMS",
        "names with blanks between",
        "Programs into which the mailman may type; into any other it never does.",
        "claude codex gemini opencode aider amp goose cursor-agent copilot",
    )
    model: ModelName | None = option(
        "model.name",
        "DESKHAND_MODEL",
        "PROVIDER:MODEL",
        "Model that triages mail; without it the rules do.",
    )
    model_base_url: Origin | None = option(
        "model.base_url",
        "DESKHAND_MODEL_BASE_URL",
        "an http or https URL",
        "Any OpenAI-compatible server.",
    )
    model_api_key: Secret | None = option(
        "model.api_key",
        "DESKHAND_MODEL_API_KEY",
        "a secret text",
        "Key for the model's server.",
    )
    vaults: NoteVaults = option(
        "notes.vaults",
        "DESKHAND_VAULTS",
        "tables [[notes.vaults]], as JSON in the environment",
        "Several vaults, each with name and path; the one of vault_path, else the first, has the desk's own folders.",
        (),
    )
    embedding_url: Origin | None = option(
        "notes.embedding_url",
        "DESKHAND_EMBEDDING_URL",
        "an http or https URL",
        "OpenAI-compatible server whose vectors let notes be searched by meaning; it is sent the notes' texts.",
    )
    embedding_model: Text | None = option(
        "notes.embedding_model",
        "DESKHAND_EMBEDDING_MODEL",
        "a model's name",
        "Embedding model of that server.",
    )
    embedding_key: Secret | None = option(
        "notes.embedding_key",
        "DESKHAND_EMBEDDING_KEY",
        "a secret text",
        "Key for that server.",
    )
    first_days: int = option(
        "orchestrator.first_days",
        "DESKHAND_FIRST_DAYS",
        "days, from 0",
        "How old unread mail may be that the orchestrator takes in at its first run.",
        14,
        ge=0,
    )
    first_mail: Literal["ask", "all", "new", "none"] = option(
        "orchestrator.first_mail",
        "DESKHAND_FIRST_MAIL",
        "ask, all, new or none",
        "Whether that mail is brought in: `ask` waits for the person under `deskhand up`, and is `all` elsewhere.",
        "ask",
    )
    lease_seconds: Seconds = option(
        "orchestrator.lease_seconds",
        "DESKHAND_LEASE_SECONDS",
        "seconds, from 1",
        "After how long another worker takes over from a dead one.",
        30.0,
        ge=1,
    )
    poll_seconds: Seconds = option(
        "orchestrator.poll_seconds",
        "DESKHAND_POLL_SECONDS",
        "seconds, from 1",
        "How often a mailbox without a doorbell is asked for mail.",
        15.0,
        ge=1,
    )
    gmail_server: Text | None = option(
        "orchestrator.gmail_server",
        "DESKHAND_GMAIL_SERVER",
        "a command or an http URL",
        "Gmail server of this desk that sends; without it the orchestrator starts one.",
    )
    hold_seconds: Seconds = option(
        "inbox.hold_seconds",
        "DESKHAND_HOLD_SECONDS",
        "seconds, from 0",
        "How long a yes given on the page can be undone before it acts.",
        10.0,
        ge=0,
    )
    inbox_port: int = option(
        "inbox.port",
        "DESKHAND_PORT",
        "a port, 1 to 65535",
        "Port of the whole desk (`deskhand up`).",
        8642,
        ge=1,
        le=65535,
    )
    inbox_origin: OwnOrigin | None = option(
        "inbox.origin",
        "DESKHAND_ORIGIN",
        "https://HOST or https://HOST:PORT",
        "Name under which the page and the MCP endpoints also answer, behind a proxy that speaks TLS.",
    )
    inbox_proxies: Addresses = option(
        "inbox.proxies",
        "DESKHAND_PROXIES",
        "addresses or networks with blanks between",
        "Whose word counts for who asks and how, where inbox.origin is set: the proxy's address as the desk sees it.",
        "127.0.0.1",
    )
    notify: Secret | None = option(
        "inbox.notify",
        "DESKHAND_NOTIFY",
        "Apprise URLs with blanks between",
        "Whom to tell that something waits; a message links to the page and never decides.",
    )

    quiet: Hours | None = option(
        "inbox.quiet",
        "DESKHAND_QUIET",
        "hours such as 22:00-07:00",
        "When nobody is told of anything, in the person's zone; what came meanwhile is told afterwards, at once.",
    )
    push_networks: Addresses = option(
        "inbox.push_networks",
        "DESKHAND_PUSH_NETWORKS",
        "addresses or networks with blanks between",
        "Where a push service of your own may be; without it only at public addresses.",
        "",
    )

    _is_copy: bool = PrivateAttr(default=False)

    def of_copy(self) -> "Settings":
        """The settings of a desk whose home is a copy of another one."""
        copied = self.model_copy()
        copied._is_copy = True  # noqa: SLF001 - a copy of these very settings
        return copied

    @property
    def sending_off(self) -> OffReason | None:
        """Why nothing leaves this desk; None where it may."""
        if self._is_copy:
            return "copy"
        if self.dev_mode:
            return "dev_mode"
        return None

    @property
    def is_guarded(self) -> bool:
        """Whether the desk runs as a user of its own, out of reach of the person's account."""
        return str(self.home) == environment.GUARDED_HOME

    @property
    def trusted_proxies(self) -> list[str]:
        """Whose forwarded headers count: nobody's, where the desk has no name of its own."""
        if self.inbox_origin is None:
            return []
        return self.inbox_proxies.split()

    @property
    def database(self) -> str:
        if self.database_url is None:
            return f"sqlite:///{self.home / 'desk.db'}"
        return self.database_url.get_secret_value()

    @property
    def mail_accounts(self) -> tuple[MailAccount, ...]:
        """Every mail account of the desk: `main`, where [mail] says anything of it, and the others."""
        unused = self.mail == "local" and self.address is None
        if self.accounts and (unused or not self.model_fields_set & _OF_MAIN):
            return self.accounts
        main = MailAccount.model_construct(
            name=MAIN,
            kind=self.mail,
            address=self.address,
            gmail_credentials=self.gmail_credentials,
            gmail_api_endpoint=self.gmail_api_endpoint,
            imap_url=self.imap_url,
            smtp_url=self.smtp_url,
            ca=self.mail_ca,
            **{name: getattr(self, name) for name in _OAUTH},
        )
        return (main, *self.accounts)

    @property
    def default_account(self) -> MailAccount:
        """From which a mail leaves that answers none and names no account."""
        return next(
            (each for each in self.mail_accounts if each.default), self.mail_accounts[0]
        )

    @property
    def bare_account(self) -> str:
        """Whose mails have ids that carry no account: main, or where there is none the default one."""
        if any(each.name == MAIN for each in self.mail_accounts):
            return MAIN
        return self.default_account.name

    def find_account(self, name: str | None) -> MailAccount:
        """The account of that name; without a name the default one."""
        if name is None:
            return self.default_account
        for account in self.mail_accounts:
            if account.name == name:
                return account
        known = ", ".join(account.name for account in self.mail_accounts)
        raise NotFound(
            f"this desk has no mail account {name}", hint=f"its accounts are {known}"
        )

    @property
    def own_addresses(self) -> frozenset[str]:
        """All addresses that are known to be the person's own."""
        return frozenset().union(*(account.addresses for account in self.mail_accounts))

    def signature_of(self, address: str) -> str:
        """The signature of the account that has the address; empty where there is none."""
        wanted = address.lower()
        return next(
            (each.signature for each in self.accounts if wanted in each.addresses), ""
        )

    @property
    def reaches_nobody(self) -> bool:
        """Whether every mail of the desk stays on this machine."""
        return all(each.kind == "local" for each in self.mail_accounts)

    def mail_file(self, account: str) -> Path:
        """Where the local mailbox of an account lies."""
        if account == MAIN:
            return self.home / "mail.db"
        return self.home / f"mail-{account}.db"

    def of_account(self, account: MailAccount) -> "Settings":
        """The settings as if this were the desk's one account."""
        if account.name == MAIN:
            return self
        signed_in = account.gmail_credentials or self.home / f"gmail-{account.name}.json"
        own = {
            "mail": account.kind,
            "address": account.address,
            "gmail_credentials": signed_in,
            "gmail_api_endpoint": account.gmail_api_endpoint,
            "imap_url": account.imap_url,
            "smtp_url": account.smtp_url,
            "mail_ca": account.ca,
            "accounts": (),
        }
        own |= {name: getattr(account, name) for name in _OAUTH}
        return self.model_copy(update=own)

    @property
    def own_address(self) -> str:
        """The desk's own address, which must be set: nobody is guessed."""
        if self.address is None:
            raise AuthRequired(
                "no mail account is set up at this desk",
                hint="`deskhand init --mail gmail` or `--mail imap`, then `deskhand mail login`; to try it with a local"
                " mailbox, whose mail reaches nobody, set DESKHAND_ADDRESS",
            )
        return self.address

    @property
    def note_vaults(self) -> tuple[NoteVault, ...]:
        """Every vault of the desk. The first one has its own folders: it is that of `vault_path`."""
        if self.vault_path is None:
            return ()
        place = os.path.realpath(self.vault_path)
        named = [each for each in self.vaults if os.path.realpath(each.path) == place]
        first = (
            named[0]
            if named
            else NoteVault.model_construct(name=MAIN, path=self.vault_path)
        )
        return (first, *(each for each in self.vaults if each is not first))

    def locate(self, path: str) -> tuple[NoteVault, str]:
        """The vault that a path carries before a colon, else the first one, and the path in it."""
        name, sign, own = path.partition(":")
        first, *others = self.note_vaults
        for each in (first, *others):
            if sign and others and each.name == name:
                return each, own
        return first, path

    def find_vault(self, name: str) -> NoteVault:
        for each in self.note_vaults:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.note_vaults)
        raise NotFound(f"this desk has no vault {name}", hint=f"its vaults are {known}")

    @property
    def vault(self) -> Path:
        """The first vault, which must be set and be there."""
        if self.vault_path is None:
            raise BadConfig(
                "no vault is configured",
                hint="`deskhand init` asks for the folder of your notes; or set VAULT_PATH (vault_path in config.toml)",
            )
        return self.note_vaults[0].demand()

    @property
    def inside(self) -> tuple[str, ...]:
        """The folder of the vault in which the desk's own folders lie, if they lie in one."""
        return (self.vault_folder,) if self.vault_folder else ()

    def own_path(self, *names: str) -> str:
        """The vault-relative path of what lies in the desk's own folders."""
        return "/".join((*self.inside, *names))

    @property
    def logs(self) -> tuple[str, ...]:
        """The folders of the vault that lead to the desk's logs."""
        return (*self.inside, "Logs")

    @property
    def own_place(self) -> Path | None:
        """Where the desk's own folders lie; None without a vault."""
        return self.vault_path and self.vault_path.joinpath(*self.inside)


_OF_MAIN = frozenset({"mail", "address", "imap_url", "smtp_url", "gmail_credentials"})
"""Any of these makes the account `main`; without them it is there only where there is no other."""
OPTIONS: dict[str, Option] = {
    name: Option(**dict(field.json_schema_extra or {}))  # type: ignore[arg-type]
    for name, field in Settings.model_fields.items()
}


_ALSO = {"approvals.proof": "proof", "approvals.files": "approvals"}
"""The same options as a table, in which the short `approvals` cannot stand."""
_OWN_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


class Shown(NamedTuple):
    """An option as a person may see it: secrets are masked."""

    key: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    sources: Mapping[str, str]
    """Where each field's value came from: `environment`, `.env`, `config.toml` or `default`."""

    def rows(self) -> Iterator[Shown]:
        for name, option in OPTIONS.items():
            yield Shown(
                option.key, display(getattr(self.settings, name)), self.sources[name]
            )


def sentence(name: str) -> str:
    return Settings.model_fields[name].description or ""


def load(
    variables: Mapping[str, str] | None = None, env_file: Path | None = None
) -> Loaded:
    """The settings of this process. `env_file` may set the options of the tasks contract and no other one."""
    variables = environment.variables() if variables is None else dict(variables)
    file = environment.config_file(variables)
    home = environment.home(variables)
    given: dict[str, Any] = {
        "home": home,
        "timezone": environment.timezone(variables),
        "proof": _least_proof(home),
    }
    sources = dict.fromkeys(OPTIONS, "default")
    problems = list(_unknown_variables(variables))

    def give(name: str, value: object, source: str) -> None:
        given[name] = value
        sources[name] = source

    fields = {option.key: name for name, option in OPTIONS.items() if name != "home"}
    fields |= _ALSO
    for key, value in _read_file(file).items():
        if key in fields:
            give(fields[key], value, "config.toml")
        else:
            problems.append(_unknown(key, fields, "config.toml"))
    beside = _read_env(env_file)
    around = _in_any_case(variables, _CONTRACT_VARIABLES) | dict(variables)
    for name, option in OPTIONS.items():
        if option.variable in beside:
            give(name, beside[option.variable], ".env")
        if option.variable in around:
            give(name, around[option.variable], "environment")
    problems += _tokens_sent_elsewhere(given, sources)
    # A provider's own key goes to that provider, never to another server that happens to speak its language.
    own_key = _OWN_KEYS.get(str(given.get("model", "")).partition(":")[0], "")
    if own_key in variables and not {"model_api_key", "model_base_url"} & given.keys():
        give("model_api_key", variables[own_key], "environment")
    settings, wrong = _build(given, sources)
    problems += wrong
    if settings is None or problems:
        raise BadConfig(
            "the configuration has errors",
            hint=f"`deskhand config options` lists every option; the file is {file}",
            fields=problems,
        )
    return Loaded(settings, sources)


def _build(
    given: Mapping[str, Any], sources: Mapping[str, str]
) -> tuple[Settings | None, list[FieldProblem]]:
    try:
        settings = Settings(**given)
    except ValidationError as error:
        return None, [
            _problem(given, sources, details) for details in error.errors(include_url=False)
        ]
    if settings.vault_path is None and settings.vaults:
        settings = settings.model_copy(update={"vault_path": settings.vaults[0].path})
    return settings, [*_address_of_two(settings), *_vaults_in_one(settings)]


def _vaults_in_one(settings: Settings) -> Iterator[FieldProblem]:
    """Vaults that nobody could tell apart. In one that holds another, tools could write
    where only the person may."""
    for one, other in combinations(settings.note_vaults, 2):
        if one.name.casefold() == other.name.casefold():
            yield FieldProblem(
                "notes.vaults",
                "two vaults have this name (that of vault_path is main)",
                other.name,
            )
        if _lies_in(one.path, other.path) or _lies_in(other.path, one.path):
            yield FieldProblem(
                "notes.vaults", f"is, holds or lies in the vault {one.name}", other.name
            )


def _lies_in(inner: Path, outer: Path) -> bool:
    place = Path(os.path.realpath(inner))
    if place.is_relative_to(os.path.realpath(outer)):
        return True
    # The same folder may have several names: another case, or mounted twice.
    with suppress(OSError):
        return any(
            os.path.samestat(outer.stat(), each.stat()) for each in (place, *place.parents)
        )
    return False


def _address_of_two(settings: Settings) -> Iterator[FieldProblem]:
    """The address of [mail] that is another account's too: nobody could tell from which of them a mail leaves."""
    others = frozenset[str]().union(*(account.addresses for account in settings.accounts))
    if settings.address is not None and settings.address.lower() in others:
        yield FieldProblem(
            "mail.address", "is the address of another account too", settings.address
        )


def _least_proof(home: str) -> LeastProof:
    """Where the desk is guarded, nothing counts that a program of the person's account could do."""
    if home == environment.GUARDED_HOME:
        return "passkey"
    return "vault"


def copy_environment() -> dict[str, str]:
    """The whole environment, for a server of this desk that runs in a process of its own."""
    return dict(environment.variables())


_TASKS_VARIABLES = frozenset(
    {
        "SERVICE_AUTH_TOKEN",
        "FASTAPI_BASE_URL",
        "MCP_LOG_LEVEL",
        "MCP_SERVER_PORT",
        "BACKEND_TIMEOUT",
        "BACKEND_MAX_RETRIES",
    }
)


_CONTRACT_VARIABLES = _TASKS_VARIABLES | {"VAULT_PATH", "DEV_MODE"}


def _in_any_case(variables: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """Those variables that have one of these names, however they are written."""
    return {
        name.upper(): value for name, value in variables.items() if name.upper() in names
    }


_ENV_LINE = re.compile(
    r"""
    ^[^\S\n]* (?:export[^\S\n]+)? '?(\w+)'? [^\S\n]*=
    (?:
        [^\S\n]*(['"]) ((?:\\[\s\S]|(?!\2)[^\\])*) \2 [^\S\n]*(?:\#.*)?$  # in quotes it may have several lines
        | (.*)
    )
    """,
    re.MULTILINE | re.VERBOSE,
)


def _read_env(file: Path | None) -> dict[str, str]:
    """The NAME=VALUE lines that set an option of the tasks contract; others belong to other programs.

    `${NAME}` stands for itself: whoever wrote the file would otherwise read this desk's environment.
    """
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadConfig(
            f"cannot read {file}: {error}", hint="correct the file or move it away"
        ) from error
    given = {line[1]: _env_value(line) for line in _ENV_LINE.finditer(text)}
    return _in_any_case(given, _TASKS_VARIABLES)


def _env_value(line: re.Match[str]) -> str:
    """The value without its quotes, and without a comment behind it."""
    if line[2]:
        return re.sub(r"""\\(["'\\])""", r"\1", line[3])
    return re.sub(r"\s#.*", "", line[4]).strip()


_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def _host_of(url: str) -> str | None:
    """Whom the address leads to, whatever stands before it."""
    with suppress(ValueError):
        return urlsplit(url).hostname
    return None


def _tokens_sent_elsewhere(
    given: Mapping[str, Any], sources: Mapping[str, str]
) -> Iterator[FieldProblem]:
    """A folder's `.env` may name a backend, but not have this desk's own token sent to it over the network."""
    theirs = sources["fastapi_base_url"] == ".env" and sources[
        "service_auth_token"
    ] not in (".env", "default")
    if theirs and _host_of(str(given["fastapi_base_url"])) not in _THIS_MACHINE:
        yield FieldProblem(
            "FASTAPI_BASE_URL",
            "the .env names a backend elsewhere, but SERVICE_AUTH_TOKEN is the desk's own",
            given["fastapi_base_url"],
            "set both in one place",
        )


def _read_file(file: str) -> dict[str, object]:
    try:
        return environment.read_config(file)
    except ValueError as error:
        raise BadConfig(str(error), hint="correct the file or move it away") from error


def _unknown_variables(variables: Mapping[str, str]) -> Iterator[FieldProblem]:
    known = {option.variable for option in OPTIONS.values()}
    for variable in variables:
        if variable.startswith("DESKHAND_") and variable not in known:
            yield _unknown(variable, known, "environment")


def _unknown(key: str, known: Any, where: str) -> FieldProblem:
    near = [f"did you mean {name}?" for name in get_close_matches(key, known, n=1)]
    return FieldProblem(key, f"unknown option in the {where}", None, *near)


def _problem(
    given: Mapping[str, Any], sources: Mapping[str, str], details: Any
) -> FieldProblem:
    name = str(details["loc"][0])
    option = OPTIONS[name]
    where = (
        option.variable
        if sources[name] in ("environment", ".env") or name == "home"
        else option.key
    )
    received = "********" if is_secret(name) else str(given[name])
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "literal_error":
        message = f"is none of {details['ctx']['expected']}"
    if name in _GUIDES:
        return _table_problem(where, message, details)
    return FieldProblem(where, message, received, f"allowed: {option.form}")


def _table_problem(where: str, message: str, details: Any) -> FieldProblem:
    """Which table it is, by its number, and which of its options; nothing that may hold a password is shown."""
    _, *inside = details["loc"]
    if inside and isinstance(inside[0], int):
        inside[0] = f"{inside[0] + 1}"
    place = ".".join([where, *map(str, inside)])
    received = None
    if isinstance(details["input"], str) and inside[-1:] in (
        ["name"],
        ["kind"],
        ["address"],
        ["default"],
        ["path"],
    ):
        received = details["input"]
    guide = _GUIDES[str(details["loc"][0])]
    return FieldProblem(
        place, message, received, f"see `deskhand config options` and docs/how-to/{guide}"
    )


_GUIDES = {"accounts": "accounts.md", "vaults": "notes.md"}
"""Which page of the documents tells of the tables of an option."""


def is_secret(name: str) -> bool:
    return name == "accounts" or "SecretStr" in str(Settings.model_fields[name].annotation)


def display(value: Any) -> str | None:
    """A value as a person may see it; None where there is none."""
    match value:
        case None:
            return None
        case SecretStr():
            return _mask(value.get_secret_value())
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(map(str, value)) or None
        case _:
            return str(value)


def _mask(secret: str) -> str:
    """Of URLs all but the passwords may be seen; of any other secret nothing."""
    if not re.fullmatch(r"\w+://.*", secret):
        return "********"
    return re.sub(r"(\w+://[^:@/]*):[^@]*@", r"\1:********@", secret)
