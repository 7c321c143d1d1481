"""The vault's approval files: sealed ones, which the desk wrote, and hand-written ones, which a person wrote.

    Pending_Approval/ ─► Approved/ ─► Approved/.sending/ ─► Done/
                    └──► Rejected/

A sealed file is bound to one revision of one action by an HMAC over its whole text; the key is never in the vault.
A file is claimed by renaming it out of Approved/, which only one process can do.
"""

import difflib
import hmac
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from deskhand.clock import iso
from deskhand.errors import Changed, DeskError, InvalidInput, Unreadable
from deskhand.gate.actions import Action
from deskhand.gate.ledger import Row
from deskhand.gate.policy import risks
from deskhand.mail import mime
from deskhand.mail.addresses import recipient
from deskhand.notes import disk, frontmatter, paths

Folder = Literal["Pending_Approval", "Drafts", "Approved", "Rejected", "Done"]
DRAFT = "email_draft"
"""The type of the orchestrator's drafts."""

_TYPES = {"send_email": "email_send", "reply_email": "email_reply"}
_SENDING = ("Approved", ".sending")
_SEALED_KEYS = frozenset({"action_id", "digest", "seal"})
_MESSAGE = re.compile(r"^## Message\n\n(`{3,})text\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """An approval file and what was in it."""

    folder: Folder
    name: str
    text: str
    properties: dict[str, Any]
    body: str = ""
    changed: int = 0
    """When the file was written last, in nanoseconds."""

    @property
    def is_draft(self) -> bool:
        return self.properties.get("type") == DRAFT

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def content(self) -> str:
        """By what it is used up: a draft by its name, so that no copy and no edit releases it again."""
        if self.is_draft and isinstance(draft_id := self.properties.get("draft_id"), str):
            return f"{DRAFT}:{draft_id}"
        return sha256(self.text.encode()).hexdigest()


class Approvals:
    def __init__(self, root: Path, key: bytes) -> None:
        self._root = root
        self._key = key

    # Sealed files.

    def request(self, row: Row) -> str:
        """Write the request that waits for the person, unless it is there; its path."""
        self._write("Pending_Approval", row.file, self.rendered(row))
        return f"Pending_Approval/{row.file}"

    def rendered(self, row: Row) -> str:
        """The text of a row's request: always the same for the same row."""
        text = frontmatter.render(_properties(row), _page(row))
        opening, _, rest = text.partition("\n---\n")
        return f'{opening}\nseal: "{self._seal(text)}"\n---\n{rest}'

    def is_intact(self, found: Found, row: Row) -> bool:
        """Whether the file is, byte for byte, what the desk wrote for this revision of this action."""
        given = found.properties
        named = (given.get("action_id"), given.get("digest"), given.get("revision", 1))
        if named != (row.id, row.action.digest, row.revision):
            return False
        seal = str(given.get("seal"))
        unsealed = found.text.replace(f'\nseal: "{seal}"\n', "\n", 1)
        return hmac.compare_digest(self._seal(unsealed).encode(), seal.encode())

    def locate(self, row: Row) -> Found | None:
        """Where the row's file lies now. A no counts before a yes, should there be copies in both folders."""
        by_name: tuple[Folder, ...] = ("Rejected", "Approved", "Pending_Approval")
        for folder in by_name:
            if found := self.read(folder, row.file):
                return found
        # Obsidian and the person may have renamed it.
        for folder in by_name[1:]:
            for found in self.files(folder):
                if found.properties.get("action_id") == row.id:
                    return found
        return None

    def move(self, found: Found, folder: Folder, name: str | None = None) -> Found:
        with self._opened(found.folder) as source, self._opened(folder) as target:
            free = _free_name(target, name or found.name)
            disk.move(source, found.name, target, free)
        return Found(folder, free, found.text, found.properties)

    def replace(self, found: Found, revised: Row) -> None:
        """An edited file out of Approved/ first; only then does it become the new request."""
        moved = self.move(found, "Pending_Approval", revised.file)
        with self._opened(moved.folder) as folder, disk.locked(folder):
            disk.replace(folder, moved.name, self.rendered(revised).encode(), None)

    def difference(self, row: Row, found: Found) -> str:
        old, new = self.rendered(row).splitlines(), found.text.splitlines()
        return "\n".join(difflib.unified_diff(old, new, "as the desk wrote it", "as it was edited", lineterm="", n=1))

    def rewrite(self, found: Found, text: str) -> None:
        """Only where the file still says what was found."""
        with self._opened(found.folder) as folder, disk.locked(folder):
            disk.replace(folder, found.name, text.encode(), disk.etag(found.text.encode()))

    def mark(self, found: Found, changes: dict[str, Any]) -> None:
        with self._opened(found.folder) as folder:
            _mark(folder, found.name, changes)

    # Claiming.

    def take(self, found: Found, row: Row) -> None:
        """Rename the file out of Approved/; of several processes one can. What is taken is what was read."""
        claimed = f"{row.id} {found.name}"
        with self._opened("Approved") as source, self._opened(*_SENDING) as target:
            try:
                disk.move(source, found.name, target, claimed)
            except FileNotFoundError:
                raise Changed(f"{found.path} is gone") from None
            if disk.read(target, claimed) != found.text.encode():
                disk.move(target, claimed, source, found.name)
                raise Changed(f"{found.path} was changed in this moment")

    def claimed(self) -> list[str]:
        """The ids of the actions whose files are claimed."""
        with self._opened(*_SENDING) as folder:
            return [name.partition(" ")[0] for name in _names(folder)]

    def put(self, action_id: str, folder: Folder, marks: dict[str, Any]) -> None:
        """Move the file claimed for an action on; `marks` are written into its frontmatter."""
        with self._opened(*_SENDING) as source, self._opened(folder) as target:
            for claimed in _names(source):
                if claimed.startswith(f"{action_id} "):
                    if marks:
                        _mark(source, claimed, marks)
                    disk.move(source, claimed, target, _free_name(target, claimed.partition(" ")[2]))

    def close(self, row: Row, status: str) -> None:
        """A request that nobody will answer any more goes to Done."""
        found = self.locate(row)
        if found and found.folder != "Rejected":
            moved = self.move(found, "Done")
            with self._opened("Done") as folder:
                _mark(folder, moved.name, {"status": status})

    # The disk.

    @contextmanager
    def _opened(self, *folders: str) -> Iterator[int]:
        with paths.opened(self._root, folders, create=True) as (opened, _):
            yield opened

    def _write(self, folder: Folder, name: str, text: str) -> None:
        with self._opened(folder) as opened, disk.locked(opened):
            if paths.on_disk(opened, name) is None:
                disk.create(opened, name, text.encode())

    def names(self, folder: Folder) -> list[tuple[str, int, int]]:
        """Each note's name, when it was changed (in nanoseconds) and its size; the newest first."""
        with self._opened(folder) as opened:
            entries = [entry for entry in os.scandir(opened) if entry.name.lower().endswith(".md")]
            found = [_stamped(entry) for entry in entries if not entry.name.startswith(".")]
        return sorted(found, key=lambda each: (each[1], each[0]), reverse=True)

    def files(self, folder: Folder) -> Iterator[Found]:
        for name, _, _ in self.names(folder):
            if found := self.read(folder, name):
                yield found

    def read(self, folder: Folder, name: str) -> Found | None:
        with self._opened(folder) as opened:
            try:
                text = disk.read(opened, name).decode()
                changed = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime_ns
            except (FileNotFoundError, UnicodeDecodeError, DeskError):
                return None  # no ordinary text file: it can release nothing
        try:
            note = frontmatter.parse(text)
            return Found(folder, name, text, note.frontmatter, note.body, changed)
        except Unreadable:
            return Found(folder, name, text, {})

    def _seal(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), sha256).hexdigest()


def edited(action: Action, found: Found) -> Action:
    """The action as the person left it in the file; as it was, where the file can no longer be read as a mail."""
    message = _MESSAGE.search(found.text)
    given = {key: value for key in ("to", "subject") if isinstance(value := found.properties.get(key), str)}
    body = message[2] if message else action.body
    try:
        return Action.model_validate(action.model_dump() | given | {"body": body})
    except InvalidInput:
        return action


def _properties(row: Row) -> dict[str, Any]:
    action = row.action
    found: dict[str, Any] = {
        "type": _TYPES[action.kind],
        "status": "pending_approval",
        "action_type": action.kind,
        "to": action.to,
        "subject": action.subject,
        "created": iso(row.created),
    }
    if action.thread_id:
        found["thread_id"] = action.thread_id
    found |= {"action_id": row.id, "digest": action.digest, "expires": iso(row.expires)}
    return found | ({"revision": row.revision} if row.revision > 1 else {})


def _page(row: Row) -> str:
    action = row.action
    how = "Move this file to Approved/ to say yes, to Rejected/ to say no; nothing has to be edited."
    back = "Before it left: move this file to Rejected/. Afterwards only a second mail can correct it."
    parts = [
        f"# {'Reply to' if action.kind == 'reply_email' else 'Send to'} {action.to}?",
        f"It would leave from {action.account}, exactly as it stands here.\n{how}",
        f"## Message\n\n{fenced(action.body)}",
        "## Risk assessment\n\n" + "\n".join(f"- {risk}" for risk in risks(action)),
        f"## Rollback plan\n\n{back}",
    ]
    if row.state == "unknown" and row.note:
        parts.insert(2, f"## Please look first\n\n{row.note}")
    if row.difference:
        parts.append(f"## What was changed\n\n{fenced(row.difference)}")
    return "\n" + "\n\n".join(parts) + "\n"


def fenced(text: str) -> str:
    """As it is, in a fence that nothing inside can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def covers(given: dict[str, Any], action: Action, now: datetime) -> bool:
    """Seeds 001 and 002: type, status, recipient; subject, thread and the rest where they are given."""
    if _SEALED_KEYS & given.keys():
        return False
    by_thread = action.kind == "reply_email" and given.get("thread_id") is not None
    return (
        given.get("type") == _TYPES[action.kind]
        and given.get("status") == "approved"
        and given.get("action_type", action.kind) == action.kind
        and (_same_address(given.get("to"), action.to) or (by_thread and given.get("to") is None))
        and _same_or_absent(given.get("thread_id"), action.thread_id)
        and _same_or_absent(given.get("reply_to_message_id"), action.reply_to_message_id)
        and _same_subject(given.get("subject"), action)
        and _is_fresh(given.get("expires"), now)
    )


def _same_address(given: Any, address: str) -> bool:
    try:
        return isinstance(given, str) and recipient(given.strip()).casefold() == address.casefold()
    except InvalidInput:
        return False


def _same_or_absent(given: Any, actual: str | None) -> bool:
    return given is None or str(given) == actual


def _same_subject(given: Any, action: Action) -> bool:
    if given is None or given == "":
        return True
    text = str(given).strip()
    return text == action.subject.strip() or (
        action.kind == "reply_email" and mime.reply_subject(text) == action.subject
    )


def _is_fresh(expires: Any, now: datetime) -> bool:
    if expires is None:
        return True
    try:
        until = datetime.fromisoformat(str(expires))
    except ValueError:
        return False
    return now < (until if until.tzinfo else until.replace(tzinfo=UTC))


def _names(folder: int) -> list[str]:
    return [name for name in os.listdir(folder) if not name.startswith(".")]


def _stamped(entry: "os.DirEntry[str]") -> tuple[str, int, int]:
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return entry.name, 0, 0
    return entry.name, info.st_mtime_ns, info.st_size


def _free_name(folder: int, name: str) -> str:
    stem, _, ending = name.rpartition(".")
    number = 1
    while paths.on_disk(folder, name if number == 1 else f"{stem} ({number}).{ending}") is not None:
        number += 1
    return name if number == 1 else f"{stem} ({number}).{ending}"


def _mark(folder: int, name: str, changes: dict[str, Any]) -> None:
    """Note in the file what became of it; a file that cannot take it keeps its text."""
    with disk.locked(folder):
        try:
            text = disk.read(folder, name).decode()
            disk.replace(folder, name, frontmatter.merge(text, changes).encode(), None)
        except (FileNotFoundError, UnicodeDecodeError, DeskError):
            return
