"""Where mail is stored: the repository's `.agentmail` folder and its file names; and whether a mailbox is surely empty.

Imports next to nothing: `agentmail receive --hook` runs after every step of an agent, nearly always for nothing.
"""

import os

STORE = ".agentmail"


def repository(folder: str) -> str | None:
    """The root of the repository around `folder`; of a git worktree, that of the repository it belongs to."""
    folder = os.path.abspath(folder)
    while True:
        entry = os.path.join(folder, ".git")
        if os.path.isdir(entry):
            return folder
        if os.path.isfile(entry):
            return _main_worktree(entry) or folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _main_worktree(entry: str) -> str | None:
    """Where a worktree's `.git` file leads; None for a submodule, which is a repository of its own."""
    with open(entry, encoding="utf-8", errors="surrogateescape") as file:
        target = file.read().removeprefix("gitdir:").strip()
    private = os.path.join(os.path.dirname(entry), target)
    try:
        with open(
            os.path.join(private, "commondir"), encoding="utf-8", errors="surrogateescape"
        ) as file:
            common = os.path.normpath(os.path.join(private, file.read().strip()))
    except FileNotFoundError:
        return None
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def mailbox(root: str, name: str) -> str:
    return os.path.join(root, STORE, "mailboxes", f"{file_name(name)}.jsonl")


def cursor(root: str, name: str) -> str:
    return os.path.join(root, STORE, "cursors", file_name(name))


def registration(root: str, name: str) -> str:
    """The file that says: an agent of this name was here, outside tmux."""
    return os.path.join(root, STORE, "agents", file_name(name))


def file_name(name: str) -> str:
    """The file name for an agent: its own name where that can be one, otherwise percent-encoded."""
    if not (
        "/" in name
        or "\0" in name
        or name.startswith("..")
        or name in ("", ".")
        or agent_name(name) != name
    ):
        return name
    encoded = name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded or "%"


def agent_name(file: str) -> str:
    """The agent's name from which `file_name` made this one."""
    if file == "%":
        return ""
    head, *parts = file.split("%")
    known = {"25": "%", "2F": "/", "00": "\0", "2E": "."}
    return head + "".join(
        known[part[:2]] + part[2:] if part[:2] in known else f"%{part}" for part in parts
    )


def register(root: str, name: str) -> None:
    """Make the agent known to the others."""
    path = registration(root, name)
    os.makedirs(os.path.dirname(path), 0o750, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.utime(path)


def read_cursor(root: str, name: str) -> tuple[int, int, bytes]:
    """Start, end and id of the last line up to which everything was read; zeros where nobody left a mark."""
    try:
        with open(cursor(root, name), "rb") as file:
            start, end, identifier = file.readline().rstrip(b"\n").split(b" ", 2)
        return int(start), int(end), identifier
    except (OSError, ValueError):
        return 0, 0, b""


def cursor_holds(fd: int, start: int, end: int, identifier: bytes) -> bool:
    """Whether the mailbox still has that line in that place: another program may have rewritten the file."""
    if end <= start:
        return False
    before = os.pread(fd, 1, start - 1) if start else b"\n"
    head = os.pread(fd, min(end - start, 4096), start)
    tail = os.pread(fd, min(end - start, 256), max(start, end - 256))
    marked = b'"id":"' + identifier + b'"' in head and b'"read_flag":false' not in tail
    return before == b"\n" and tail.endswith(b"\n") and marked


def surely_empty(root: str, name: str) -> bool:
    """Whether nothing can be unread, told by the mailbox's size and the cursor alone."""
    try:
        fd = os.open(mailbox(root, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        size = os.fstat(fd).st_size
        start, end, identifier = read_cursor(root, name)
        return size == 0 or (size == end and cursor_holds(fd, start, end, identifier))
    finally:
        os.close(fd)
