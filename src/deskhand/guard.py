"""A guarded desk runs as an operating-system user of its own: who it is, whom it serves, and who may do what there.

What is written here can be read by everybody and written by root alone. Nothing of it keeps anybody out: the machine's
users and permissions do. It says where to turn instead of failing at a closed door.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deskhand import environment
from deskhand.errors import Denied, Unavailable

USER = "deskhand"
HOME = Path(environment.GUARDED_HOME)
PROGRAM = Path(environment.GUARDED_PROGRAM)
RECORD = PROGRAM / "guarded.json"
RUNTIME = Path("/run/deskhand")
PYTHON = PROGRAM / "bin" / "python"
_OPEN = frozenset({"service", "doctor", "connect", "completion", "agentmail"})
"""Commands that touch nothing of the guarded desk, or say what may be said of it to the person's account."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What was set up when the desk was guarded."""

    person: str
    uid: int
    moved: str
    """The person's own home of the desk before, which is brought back there."""
    vault: str | None = None
    port: int = 8642
    above: list[str] = field(default_factory=list)
    """The folders above the vaults that the desk was let through."""
    others: list[str] = field(default_factory=list)
    """The vaults beside the first one."""

    @property
    def vaults(self) -> list[str]:
        if self.vault is None:
            return []
        return [self.vault, *self.others]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode(
            "utf-8", "surrogateescape"
        )


def find() -> Guard | None:
    """How this machine's desk is guarded; None where it is not."""
    try:
        return Guard(**json.loads(RECORD.read_bytes()))
    except FileNotFoundError:
        return None


def users_of(home: Path) -> set[int]:
    """Who else than its own user may use the desk of this home."""
    found = find() if home == HOME else None
    return {found.uid} if found else set()


def as_user(user: str, *command: str) -> list[str]:
    """The command as that user, with no right more than theirs."""
    import pwd

    account = pwd.getpwnam(user)
    who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    return [
        "setpriv",
        *who,
        "--no-new-privs",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--",
        *command,
    ]


def desk_command(*arguments: str) -> list[str]:
    """`deskhand ARGUMENTS` as the desk's user, from the files that only root can write."""
    return as_user(USER, str(PYTHON), "-I", "-m", "deskhand", *arguments)


def desk_environment() -> dict[str, str]:
    """All that the guarded desk knows of an environment; its options stand in its home."""
    around = environment.variables()
    kept = {name: around[name] for name in ("TERM", "LANG", "LC_ALL") if name in around}
    return kept | {
        "PATH": environment.SYSTEM_PATH,
        "HOME": str(HOME),
        "DESKHAND_HOME": str(HOME),
    }


def direct(arguments: Sequence[str]) -> None:
    """Let root act as the desk's user, and tell the person's account where to turn; all
    others go their own way."""
    found = find()
    if found is None or not arguments or arguments[0].startswith("-"):
        return
    if not is_own_home(environment.variables().get("DESKHAND_HOME")):
        return
    if "--demo" in arguments:  # a desk of its own, which is gone afterwards
        return
    if os.geteuid() == 0 and arguments[0] in ("service", "doctor"):
        os.chdir("/")  # others, as whom root acts there, may not enter where it stands
    if os.geteuid() == 0 and arguments[0] not in _OPEN:
        os.chdir(HOME)
        os.umask(0o077)
        os.execvpe("setpriv", desk_command(*arguments), desk_environment())  # noqa: S606 - no shell is wanted
    if (
        os.geteuid() == found.uid
        and arguments[0] == "mcp"
        and not {"--alone", "--http"} & set(arguments)
    ):
        raise Unavailable(
            "this desk is guarded, and could not be joined",
            hint="sudo deskhand service status says more",
        )
    if os.geteuid() == found.uid and arguments[0] not in _OPEN:
        raise Denied(
            f"this desk is guarded: {found.person}'s account cannot do that",
            reason="guarded",
            hint=f"answer at {found.address}; to administer the desk: sudo deskhand {arguments[0]}",
        )


def is_own_home(named: str | None) -> bool:
    """Whether this DESKHAND_HOME, or none, means the guarded desk: its own, or the one that it was made of."""
    found = find()
    if not named or found is None:
        return found is not None
    return os.path.normpath(named) in (str(HOME), found.moved)
