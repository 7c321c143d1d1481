"""Places on a machine of which a person should know that a call touches them: the desk's own files, keys, and what
starts programs. Pure: a path is looked at as it is written, and a shell can hide one.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

_READS = frozenset({"Read", "Glob", "Grep", "LS", "NotebookRead"})
"""Tools of Claude Code that change nothing."""
_NAMES_PLACE = re.compile(r"path|folder|directory|file")
"""Arguments of a program's own tools that are a path, and no text."""
_SPLIT = re.compile(r"[\s;|&<>(){}=,:'\"`]+")
_QUOTES = str.maketrans("", "", "'\"\\`")
_LONGEST = 4096
"""Characters of a path."""
_LONGEST_COMMAND = 20_000

_CLOSED = {
    "the desk's own files": (
        r"/(?:var/lib|opt|run|\.local/share|application support)/\.?deskhand\b"
        r"|/deskhand(?:-ordinary)?/(?:config\.toml|guard\.toml|rules\.toml|desk\.(?:db|sock)|mail\.db)"
        r"|/(?:seal|proof|push)\.key$|/deskhand\.service\b|/bin/(?:deskhand|agentmail)$"
        r"|/(?:approved|pending_approval|rejected)/[^/]+\.md$"
    ),
    "keys and passwords": (
        r"/\.(?:ssh|gnupg|aws|kube|password-store)(?:/|$)|/\.(?:netrc|pgpass|git-credentials)$"
        r"|/etc/(?:shadow|gshadow)|/keyrings/"
    ),
}
_STARTS = {
    "who may become root": r"/etc/(?:sudoers|pam\.d|passwd|group|security|polkit-1|doas\.conf)",
    "what starts programs": (
        r"/\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|xprofile|xinitrc|xsession|inputrc"
        r"|zshrc|zshenv|zprofile|zlogin|kshrc|tcshrc|cshrc|login|tmux\.conf|vimrc|pam_environment)$"
        r"|/\.config/(?:fish|autostart|systemd|environment\.d|git)(?:/|$)|/\.gitconfig$|/\.git/(?:hooks|config)(?:/|$)"
        r"|/library/launch(?:agents|daemons)/|/etc/(?:cron|profile|bash|zsh|environment|ld\.so|systemd"
        r"|init|rc|xdg|apt)|/(?:cron|crontabs)/|/systemd/|/dev/tcp/"
    ),
    "what an assistant's program is allowed": (
        r"/\.claude(?:\.json$|/(?:settings[^/]*\.json|hooks|plugins)(?:/|$))|/\.mcp\.json$"
        r"|/claude_desktop_config\.json$|/\.(?:codex|gemini|cursor|windsurf|continue)/[^/]*\.(?:json|toml)$"
    ),
}
_PROGRAMS = {"programs that others start": r"/\.local/bin/|/usr/(?:local/)?s?bin/"}
"""Who only runs one of them does not touch it."""
_BEGIN = r"(?:^|[\n;|&(])\s{0,9}(?:\w{1,40}=\S{0,80}\s{1,9}|(?:env|nohup|exec|command|time|xargs)\s{1,9}){0,9}"
"""Where a command begins."""
_COMMANDS = {
    "becomes another user": rf"{_BEGIN}(?:sudo|su|doas|pkexec|runuser|setpriv|nsenter|unshare)\s",
    "answers or administers the desk": r"\bdeskhand\s+(?:approve|reject|respond|edit|snooze|link|pair|password|passkey"
    r"|token|permit|service|restore|orchestrate|init|connect)\b",
    "changes what starts programs": rf"{_BEGIN}(?:crontab|systemctl|launchctl|update-rc\.d|loginctl)\s",
    "runs what it fetches": r"\b(?:curl|wget)\b[^\n|]{0,500}\|\s{0,9}(?:sudo\s{1,9})?(?:\S{0,80}/)?"
    r"(?:(?:ba|z|da|k)?sh|python|perl|ruby|node)",
}


def find_touched(
    tool: str, folder: str | None, rows: tuple[tuple[str, str], ...]
) -> Iterator[str]:
    """What the arguments of a call touch, a sentence for each; `folder` is where a program's own tool would be used."""
    watched = _CLOSED if tool in _READS else _CLOSED | _STARTS
    seen: set[str] = set()
    for name, value in rows:
        if folder is not None and name == "command":
            seen.update(_find_commands(value))
            text = value[:_LONGEST_COMMAND]
            for word in {*_SPLIT.split(text), *_SPLIT.split(text.translate(_QUOTES))}:
                seen.update(_find_places(word, folder, watched))
        elif folder is not None and not _NAMES_PLACE.search(name):
            continue
        elif tool in _READS:
            seen.update(_find_places(value, folder, watched))
        else:
            seen.update(_find_places(value, folder, watched | _PROGRAMS))
    yield from sorted(seen)


def _find_commands(text: str) -> Iterator[str]:
    if len(text) > _LONGEST_COMMAND:
        yield f"A command of {len(text):,} characters is looked at by nobody."
        return
    for what, pattern in _COMMANDS.items():
        if re.search(pattern, text.translate(_QUOTES)):
            yield f"It {what}."


def _find_places(
    word: str, folder: str | None, watched: Mapping[str, str]
) -> Iterator[str]:
    if not word or len(word) > _LONGEST or "\n" in word:
        return
    if folder is None and not word.startswith(("/", "~", ".", "file:")):
        return
    path = posixpath.normpath(posixpath.join(folder or "/", word.removeprefix("file://")))
    for what, pattern in watched.items():
        if re.search(pattern, path, re.IGNORECASE):
            yield f"It touches {what}: {path[:200]}."
