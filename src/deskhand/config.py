"""Every option once, with its sentence; the only reader of the environment.

An option comes from the environment, else from `config.toml` in DESKHAND_HOME, else it is the default. An
unknown key and a bad value are errors: a misspelt `approvals` must not quietly mean the weaker choice.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from deskhand import environment as places
from deskhand.errors import BadConfig, FieldProblem


class Option(NamedTuple):
    """Where an option is written: its key in config.toml and its variable."""

    key: str
    variable: str
    form: str


def _expanded(path: Path) -> Path:
    return path.expanduser().absolute()


def _web_url(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise ValueError("not an http or https URL")
    return url.rstrip("/")


def _database_url(url: SecretStr) -> SecretStr:
    if not re.match(r"(sqlite:///|postgres(ql)?://)\S", url.get_secret_value()):
        raise ValueError("not a SQLite or PostgreSQL URL")
    return url


def _zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError("not a time zone") from None


def _agent(name: str) -> str:
    if name == "person":
        raise ValueError("under this name the person writes")
    return name


def _not_blank(text: Any) -> Any:
    if isinstance(text, str) and not text.strip():
        raise ValueError("must not be empty")
    return text


def _yes_or_no(text: Any) -> Any:
    known = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    return known.get(text.strip().lower(), text) if isinstance(text, str) else text


Folder = Annotated[Path, BeforeValidator(_not_blank), AfterValidator(_expanded)]
Text = Annotated[str, BeforeValidator(_not_blank)]
Secret = Annotated[SecretStr, BeforeValidator(_not_blank)]
Switch = Annotated[bool, BeforeValidator(_yes_or_no)]
Origin = Annotated[str, BeforeValidator(_not_blank), AfterValidator(_web_url)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text),
]


class Settings(BaseModel):
    """The desk's options. Each has one sentence; `deskhand config show` prints them all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Annotated[Folder, Option("home", "DESKHAND_HOME", "a folder")] = Field(
        description="Folder of the desk's config, database and keys."
    )
    vault_path: Annotated[Folder | None, Option("vault_path", "VAULT_PATH", "a folder")] = Field(
        None, description="The vault: a folder of Markdown notes."
    )
    database_url: Annotated[
        Annotated[Secret, AfterValidator(_database_url)] | None,
        Option("database_url", "DESKHAND_DATABASE_URL", "sqlite:///FILE or postgresql://…"),
    ] = Field(None, description="Database; without it a SQLite file in the desk's home.")
    log_level: Annotated[LogLevel, Option("log_level", "MCP_LOG_LEVEL", "DEBUG, INFO, WARNING or ERROR")] = Field(
        "INFO", description="How much the servers write to stderr."
    )
    service_auth_token: Annotated[
        Secret | None, Option("service_auth_token", "SERVICE_AUTH_TOKEN", "a secret text")
    ] = Field(None, description="Bearer token that the HTTP servers demand and the tasks client sends.")
    port: Annotated[int, Option("port", "MCP_SERVER_PORT", "a port, 1 to 65535")] = Field(
        3000, ge=1, le=65535, description="Port of an MCP server that speaks HTTP."
    )
    user: Annotated[Text | None, Option("user", "DESKHAND_USER", "a user id")] = Field(
        None, description="Whose tasks these are where the connection does not tell."
    )
    timezone: Annotated[
        Annotated[str, AfterValidator(_zone)], Option("timezone", "DESKHAND_TIMEZONE", "a zone such as Europe/Berlin")
    ] = Field("UTC", description="Where the person's days begin: what today and 17:00 mean.")
    dev_mode: Annotated[Switch, Option("dev_mode", "DEV_MODE", "true or false")] = Field(
        False, description="Log what would be sent and send nothing."
    )
    approvals: Annotated[Literal["seed", "sealed"], Option("approvals", "DESKHAND_APPROVALS", "seed or sealed")] = (
        Field("seed", description="Which approval files release mail: hand-written and sealed, or sealed ones only.")
    )
    max_sends: Annotated[int, Option("max_sends", "DESKHAND_MAX_SENDS", "a whole number from 0")] = Field(
        10, ge=0, description="Mails that may leave within the window."
    )
    window_seconds: Annotated[int, Option("window_seconds", "DESKHAND_WINDOW_SECONDS", "seconds, from 1")] = Field(
        3600, ge=1, description="Length of the rate window."
    )
    mail: Annotated[Literal["local", "gmail", "imap"], Option("mail.kind", "DESKHAND_MAIL", "local, gmail or imap")] = (
        Field("local", description="Which mailbox the desk works on.")
    )
    address: Annotated[Text | None, Option("mail.address", "DESKHAND_ADDRESS", "a mail address")] = Field(
        None, description="The desk's own address where the mailbox does not tell it."
    )
    gmail_credentials: Annotated[
        Folder | None, Option("mail.gmail_credentials", "DESKHAND_GMAIL_CREDENTIALS", "a file")
    ] = Field(None, description="Google's authorized-user JSON.")
    gmail_api_endpoint: Annotated[
        Origin, Option("mail.gmail_api_endpoint", "DESKHAND_GMAIL_API_ENDPOINT", "an http or https origin")
    ] = Field("https://gmail.googleapis.com", description="Where every Gmail request goes, batch included.")
    imap_url: Annotated[Secret | None, Option("mail.imap_url", "DESKHAND_IMAP_URL", "imaps://USER@HOST")] = Field(
        None, description="IMAP account."
    )
    smtp_url: Annotated[Secret | None, Option("mail.smtp_url", "DESKHAND_SMTP_URL", "smtps://USER@HOST")] = Field(
        None, description="SMTP account that sends for it."
    )
    fastapi_base_url: Annotated[Origin | None, Option("tasks.base_url", "FASTAPI_BASE_URL", "an http or https URL")] = (
        Field(None, description="Tasks backend; without it the embedded one.")
    )
    backend_timeout: Annotated[float, Option("tasks.timeout", "BACKEND_TIMEOUT", "seconds, more than 0")] = Field(
        30.0, gt=0, allow_inf_nan=False, description="Longest wait for one answer of the tasks backend."
    )
    backend_max_retries: Annotated[int, Option("tasks.max_retries", "BACKEND_MAX_RETRIES", "a whole number from 0")] = (
        Field(2, ge=0, description="How often a safe backend call is tried again.")
    )
    agent: Annotated[
        Annotated[Text, AfterValidator(_agent)] | None, Option("agents.name", "DESKHAND_AGENT", "a name")
    ] = Field(None, description="This agent's name outside tmux.")
    tmux: Annotated[str | None, Option("agents.tmux", "TMUX", "set by tmux")] = Field(
        None, description="Says that this runs inside tmux."
    )
    tmux_pane: Annotated[str | None, Option("agents.pane", "TMUX_PANE", "set by tmux")] = Field(
        None, description="The tmux pane this runs in; its window's name is the agent's."
    )
    agents_store: Annotated[
        Literal["files", "database"], Option("agents.store", "DESKHAND_AGENTS_STORE", "files or database")
    ] = Field("files", description="Where agents' messages are kept.")
    agents_room: Annotated[Text | None, Option("agents.room", "DESKHAND_AGENTS_ROOM", "a name")] = Field(
        None, description="Which agents share mailboxes in a database; without it the repository's folder name."
    )
    agents_programs: Annotated[
        Text, Option("agents.programs", "DESKHAND_AGENTS_PROGRAMS", "names with blanks between")
    ] = Field(
        "claude codex gemini opencode aider amp goose cursor-agent copilot",
        description="Programs into which the mailman may type; into any other it never does.",
    )
    model: Annotated[
        Annotated[str, Field(pattern=r"^[a-z-]+:\S+$")] | None,
        Option("model.name", "DESKHAND_MODEL", "PROVIDER:MODEL"),
    ] = Field(None, description="Model that triages mail; without it the rules do.")
    model_base_url: Annotated[
        Origin | None, Option("model.base_url", "DESKHAND_MODEL_BASE_URL", "an http or https URL")
    ] = Field(None, description="Any OpenAI-compatible server.")
    model_api_key: Annotated[Secret | None, Option("model.api_key", "DESKHAND_MODEL_API_KEY", "a secret text")] = Field(
        None, description="Key for the model's server."
    )

    first_days: Annotated[int, Option("orchestrator.first_days", "DESKHAND_FIRST_DAYS", "days, from 0")] = Field(
        14, ge=0, description="How old unread mail may be that the orchestrator takes in at its first run."
    )
    lease_seconds: Annotated[
        float, Option("orchestrator.lease_seconds", "DESKHAND_LEASE_SECONDS", "seconds, from 1")
    ] = Field(30.0, ge=1, allow_inf_nan=False, description="After how long another worker takes over from a dead one.")
    poll_seconds: Annotated[float, Option("orchestrator.poll_seconds", "DESKHAND_POLL_SECONDS", "seconds, from 1")] = (
        Field(15.0, ge=1, allow_inf_nan=False, description="How often a mailbox without a doorbell is asked for mail.")
    )
    gmail_server: Annotated[
        Text | None, Option("orchestrator.gmail_server", "DESKHAND_GMAIL_SERVER", "a command or an http URL")
    ] = Field(None, description="Gmail server of this desk that sends; without it the orchestrator starts one.")

    hold_seconds: Annotated[float, Option("inbox.hold_seconds", "DESKHAND_HOLD_SECONDS", "seconds, from 0")] = Field(
        10.0, ge=0, allow_inf_nan=False, description="How long a yes given on the page can be undone before it acts."
    )
    inbox_port: Annotated[int, Option("inbox.port", "DESKHAND_PORT", "a port, 1 to 65535")] = Field(
        8642, ge=1, le=65535, description="Port of the whole desk (`deskhand up`)."
    )
    notify: Annotated[Secret | None, Option("inbox.notify", "DESKHAND_NOTIFY", "Apprise URLs with blanks between")] = (
        Field(None, description="Whom to tell that something waits; a message links to the page and never decides.")
    )

    @property
    def database(self) -> str:
        if self.database_url is None:
            return f"sqlite:///{self.home / 'desk.db'}"
        return self.database_url.get_secret_value()

    @property
    def own_address(self) -> str:
        """The desk's own address, which must be set: nobody is guessed."""
        if self.address is None:
            raise BadConfig(
                "the desk has no mail address",
                hint="set DESKHAND_ADDRESS to your address, or address under [mail] in config.toml",
            )
        return self.address

    @property
    def vault(self) -> Path:
        """The vault, which must be set and be there: no folder is ever guessed or made."""
        if self.vault_path is None:
            raise BadConfig(
                "no vault is configured",
                hint="set VAULT_PATH to the folder of your notes, or vault_path in config.toml",
            )
        if not self.vault_path.is_dir():
            raise BadConfig(
                f"the vault {self.vault_path} is not a folder",
                hint="correct VAULT_PATH (or vault_path in config.toml), or make the folder",
            )
        return self.vault_path


OPTIONS: dict[str, Option] = {
    name: next(item for item in field.metadata if isinstance(item, Option))
    for name, field in Settings.model_fields.items()
}


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
            yield Shown(option.key, shown(getattr(self.settings, name)), self.sources[name])


def sentence(name: str) -> str:
    return Settings.model_fields[name].description or ""


def load(environment: Mapping[str, str] | None = None, env_file: Path | None = None) -> Loaded:
    """`env_file` is seed 003's `.env`: it may set that seed's options and no other one."""
    environment = places.variables() if environment is None else dict(environment)
    file = places.config_file(environment)
    given: dict[str, Any] = {"home": places.home(environment)}
    sources = dict.fromkeys(OPTIONS, "default")
    problems = list(_unknown_variables(environment))

    fields = {option.key: name for name, option in OPTIONS.items() if name != "home"}
    for key, value in _written(file).items():
        if key in fields:
            given[fields[key]], sources[fields[key]] = value, "config.toml"
        else:
            problems.append(_unknown(key, fields, "config.toml"))
    beside = _read_env(env_file) if env_file else {}
    for name, option in OPTIONS.items():
        if option.variable in beside:
            given[name], sources[name] = beside[option.variable], ".env"
        if option.variable in environment:
            given[name], sources[name] = environment[option.variable], "environment"
    problems += _token_for_a_stranger(given, sources)
    # A provider's own key goes to that provider, never to another server that happens to speak its language.
    own_key = _OWN_KEYS.get(str(given.get("model", "")).partition(":")[0], "")
    if own_key in environment and not {"model_api_key", "model_base_url"} & given.keys():
        given["model_api_key"], sources["model_api_key"] = environment[own_key], "environment"
    try:
        settings = Settings(**given)
    except ValidationError as error:
        problems += [_problem(given, sources, details) for details in error.errors(include_url=False)]
    if problems:
        raise BadConfig(
            "the configuration has errors",
            hint=f"`deskhand config options` lists every option; the file is {file}",
            fields=problems,
        )
    return Loaded(settings, sources)


def inherited() -> dict[str, str]:
    """The whole environment, for a server of this desk that runs in a process of its own."""
    return dict(places.variables())


_SEED_003 = frozenset(
    {
        "SERVICE_AUTH_TOKEN",
        "FASTAPI_BASE_URL",
        "MCP_LOG_LEVEL",
        "MCP_SERVER_PORT",
        "BACKEND_TIMEOUT",
        "BACKEND_MAX_RETRIES",
    }
)


def _read_env(file: Path) -> dict[str, str]:
    """NAME=VALUE lines; other names are other programs' business."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot read {file}: {error}", hint="correct the file or move it away") from error
    pairs = (re.fullmatch(r"\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*", line) for line in lines)
    found = {pair[1].upper(): re.sub(r"^(['\"])(.*)\1$", r"\2", pair[2]) for pair in pairs if pair}
    return {name: value for name, value in found.items() if name in _SEED_003}


def _token_for_a_stranger(given: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[FieldProblem]:
    """A folder's `.env` may name a backend, but not have this desk's own token sent to it over the network."""
    theirs = sources["fastapi_base_url"] == ".env" and sources["service_auth_token"] not in (".env", "default")
    if theirs and not re.match(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:|/|$)", str(given["fastapi_base_url"])):
        yield FieldProblem(
            "FASTAPI_BASE_URL",
            "the .env names a backend elsewhere, but SERVICE_AUTH_TOKEN is the desk's own",
            given["fastapi_base_url"],
            "set both in one place",
        )


def _written(file: str) -> dict[str, object]:
    try:
        return places.written(file)
    except ValueError as error:
        raise BadConfig(str(error), hint="correct the file or move it away") from error


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[FieldProblem]:
    known = {option.variable for option in OPTIONS.values()}
    for variable in environment:
        if variable.startswith("DESKHAND_") and variable not in known:
            yield _unknown(variable, known, "environment")


def _unknown(key: str, known: Any, where: str) -> FieldProblem:
    near = get_close_matches(key, known, n=1)
    return FieldProblem(key, f"unknown option in the {where}", None, f"did you mean {near[0]}?" if near else None)


def _problem(given: Mapping[str, Any], sources: Mapping[str, str], details: Any) -> FieldProblem:
    name = str(details["loc"][0])
    option = OPTIONS[name]
    where = option.variable if sources[name] in ("environment", ".env") or name == "home" else option.key
    received = "********" if is_secret(name) else str(given[name])
    return FieldProblem(where, details["msg"].removeprefix("Value error, "), received, f"allowed: {option.form}")


def is_secret(name: str) -> bool:
    return "SecretStr" in str(Settings.model_fields[name].annotation)


def shown(value: Any) -> str | None:
    """A value as a person may see it; None where there is none."""
    if isinstance(value, SecretStr):
        # Of a URL all but the password may be seen; of any other secret nothing.
        url = re.fullmatch(r"(\w+://)(?:([^:@/]*)(:[^@]*)?@)?(.*)", value.get_secret_value())
        if url is None:
            return "********"
        scheme, user, password, rest = url.groups()
        return f"{scheme}{user or ''}{':********' if password else ''}{'@' if user is not None else ''}{rest}"
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
