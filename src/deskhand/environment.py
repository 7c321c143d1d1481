"""Reads the environment and config.toml as they stand; config.py says what the options mean.

Nobody else reads them. It imports next to nothing: a hook runs after every step of an agent, and must know its own
name before anything heavy is imported.
"""

import os
import sys

GUARDED_HOME = "/var/lib/deskhand"
"""The home of a desk that runs as an operating-system user of its own."""

GUARDED_PROGRAM = "/opt/deskhand"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_NO_MATTER = ("TERM", "LANG", "LC_ALL", "SUDO_USER")

Environment = os._Environ[str] | dict[str, str]
NO_WINDOWS = "deskhand runs on Linux and macOS; on Windows install and run it inside WSL\n"


def variables() -> Environment:
    return os.environ


def forget_strangers() -> None:
    """Let no variable count that reached root's shell: `su` keeps what a program of the person's account has set.

    That holds for the program that is root's own. Whoever can change another one needs no variable.
    """
    if os.geteuid() != 0 or not __file__.startswith(f"{GUARDED_PROGRAM}/"):
        return
    import pwd

    kept = {name: os.environ[name] for name in _NO_MATTER if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=pwd.getpwuid(0).pw_dir, PATH=SYSTEM_PATH)


def home(environment: Environment) -> str:
    """The folder of the desk's config, database and keys."""
    if given := environment.get("DESKHAND_HOME"):
        return os.path.abspath(os.path.expanduser(given))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/deskhand")
    data = environment.get("XDG_DATA_HOME", "").strip() or os.path.expanduser(
        "~/.local/share"
    )
    return os.path.join(data, "deskhand")


def timezone(environment: Environment) -> str:
    """The machine's time zone by its name; UTC where it does not say."""
    from zoneinfo import ZoneInfo

    named = environment.get("TZ", "").lstrip(":")
    for name in (named, os.path.realpath("/etc/localtime")):
        try:
            found = ZoneInfo(name.rpartition("/zoneinfo/")[2]).key
        except (
            ValueError,
            OSError,
            KeyError,
        ):  # a rule in place of a name, a zone that is not known here
            continue
        return found.replace("Etc/UTC", "UTC")
    return "UTC"


def editor(environment: Environment) -> list[str]:
    """The person's own editor, with its arguments; empty where none is named."""
    import shlex

    return shlex.split(
        environment.get("VISUAL", "").strip() or environment.get("EDITOR", "")
    )


def config_file(environment: Environment) -> str:
    return os.path.join(home(environment), "config.toml")


def read_config(file: str) -> dict[str, object]:
    """What config.toml says, each key with its table's name before it; nothing where there is no file."""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        import tomllib

        return dict(flat(tomllib.loads(text)))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {file}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"cannot read {file}: its values are nested too deeply") from error


def flat(table: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Each key with its tables' names before it."""
    found: list[tuple[str, object]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found
