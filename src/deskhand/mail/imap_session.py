"""One signed-in IMAP connection: folders and what lies in them. Blocking; one thread uses it."""

import base64
import contextlib
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from imapclient import IMAPClient, SocketTimeout, imap_utf7
from imapclient.exceptions import IMAPClientAbortError, IMAPClientError, LoginError
from imapclient.response_parser import parse_message_list

from deskhand.errors import AuthRequired, Denied, InvalidInput, Unavailable
from deskhand.mail import mime
from deskhand.mail.accounts import LOGIN, Account

Role = Literal["inbox", "sent", "drafts", "junk", "trash"]
ROLES: dict[Role, tuple[str, bytes, str, tuple[str, ...]]] = {
    "inbox": ("INBOX", b"\\Inbox", "INBOX", ("inbox",)),
    "sent": ("SENT", b"\\Sent", "Sent", ("sent", "sent items", "sent mail", "sent messages")),
    "drafts": ("DRAFT", b"\\Drafts", "Drafts", ("drafts", "draft")),
    "junk": ("SPAM", b"\\Junk", "Junk", ("junk", "spam", "junk e-mail", "bulk mail")),
    "trash": ("TRASH", b"\\Trash", "Trash", ("trash", "bin", "deleted items", "deleted messages")),
}
"""Each role: the label that says it, the special use, the folder made where there is none, the names it often has."""

FIELDS = "FROM TO SUBJECT DATE MESSAGE-ID REFERENCES IN-REPLY-TO"
OPENING = 8192
"""How many bytes of a mail are fetched for its beginning where the server makes no previews."""


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    label: str
    role: Role | None


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a mail, where it lies now."""

    id: str
    folder: Folder
    uidvalidity: int
    uid: int
    flags: tuple[str, ...]
    date: datetime
    parsed: mime.Parsed
    snippet: str


class ImapSession:
    def __init__(self, account: Account, password: str) -> None:
        self._names: tuple[str, str] | None = None
        with translate_errors(account.host):
            self._client = IMAPClient(
                account.host, account.port, ssl=account.tls, timeout=SocketTimeout(connect=10, read=30)
            )
            self._client.normalise_times = False
            try:
                if not account.tls and not account.is_local:
                    self._client.starttls()
                self._client.login(account.user, password)
            except LoginError:
                self.drop()
                # Not chained: the server's text may repeat what it was given.
                raise AuthRequired(f"{account.host} does not accept the password", hint=f"run `{LOGIN}`") from None
            except (IMAPClientError, OSError):
                self.drop()
                raise

    @property
    def knows_ages(self) -> bool:
        return bool(self._client.has_capability("WITHIN"))

    def alive(self) -> bool:
        try:
            self._client.noop()
        except (IMAPClientAbortError, OSError):
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(IMAPClientError, OSError):
            self._client.logout()

    def drop(self) -> None:
        """Let go of a connection that is dead."""
        with contextlib.suppress(OSError):
            self._client.shutdown()

    def folders(self) -> list[Folder]:
        """Every folder that can hold mail, the inbox first."""
        prefix, _ = self._namespace()
        listed = [
            (flags, (delimiter or b"/").decode(), name)
            for flags, delimiter, name in self._client.list_folders()
            if {b"\\Noselect", b"\\NonExistent"}.isdisjoint(flags)
        ]
        declared = {use for flags, _, _ in listed for use in flags}
        found: list[Folder] = []
        for flags, delimiter, name in listed:
            role = _role(flags, name.rpartition(delimiter)[2], declared)
            label = ROLES[role][0] if role else name.removeprefix(prefix).replace(delimiter, "/")
            found.append(Folder(name, label, role))
        return sorted(found, key=lambda folder: folder.role != "inbox")

    def folder_for(self, role: Role) -> Folder | None:
        return next((folder for folder in self.folders() if folder.role == role), None)

    def ensure_folder(self, role: Role) -> Folder:
        """The folder with this role, made where there is none."""
        return self.folder_for(role) or self.create(ROLES[role][2])

    def create(self, label: str) -> Folder:
        prefix, delimiter = self._namespace()
        name = prefix + label.replace("/", delimiter)
        try:
            self._client.create_folder(name)
            self._client.subscribe_folder(name)
        except IMAPClientAbortError:
            raise
        except IMAPClientError as error:
            raise InvalidInput(f"the server makes no folder {label!r}: {error}") from error
        return Folder(name, label, None)

    def search(self, folder: Folder, criteria: Sequence[bytes], limit: int | None = None) -> list[Copy]:
        """The copies in `folder` that match, the newest first."""
        selected = self._client.select_folder(folder.name, readonly=True)
        if not selected[b"EXISTS"]:
            return []
        if self._client.has_capability("SORT"):
            answer = self._ask(b"SORT", [b"(REVERSE ARRIVAL)", b"UTF-8", *criteria])
            uids = [*map(int, answer[0].split())]
        else:
            uids = list(parse_message_list(self._ask(b"SEARCH", [b"CHARSET", b"UTF-8", *criteria])))
            dates = self._client.fetch(uids, ["INTERNALDATE"]) if uids else {}
            uids.sort(key=lambda uid: dates[uid][b"INTERNALDATE"], reverse=True)
        return self._fetch(folder, selected[b"UIDVALIDITY"], uids[:limit])

    def at(self, folder: Folder, uidvalidity: int, uid: int) -> list[Copy]:
        """The copy with this UID, or nothing where it is gone or the folder has numbered its mails again."""
        selected = self._client.select_folder(folder.name, readonly=True)
        if selected[b"UIDVALIDITY"] != uidvalidity:
            return []
        return self._fetch(folder, uidvalidity, [uid])

    def inbox(self) -> tuple[int, int]:
        """UIDVALIDITY, and a UID that no mail in the inbox has reached yet."""
        # Of the selected folder a server may tell in STATUS what it knew when it was selected.
        selected = self._client.select_folder("INBOX", readonly=True)
        return int(selected[b"UIDVALIDITY"]), int(selected[b"UIDNEXT"])

    def since(self, uidvalidity: int, uid: int) -> list[Copy]:
        """The mails in the selected inbox from this UID on, in the order in which they came."""
        # `n:*` always means the last mail too, even where its UID lies below n.
        uids = sorted(found for found in self._client.search(["UID", f"{uid}:*"]) if found >= uid)
        return self._fetch(Folder("INBOX", "INBOX", "inbox"), uidvalidity, uids)

    def idle(self, seconds: float, began: Callable[[], object]) -> None:
        """Until the server says that something changed in the inbox; it tells nothing of what came before `began`."""
        if not self.rings:
            return
        self.inbox()
        self._client.idle()
        try:
            began()
            self._client.idle_check(timeout=seconds)
        finally:
            self._client.idle_done()

    @property
    def rings(self) -> bool:
        return bool(self._client.has_capability("IDLE"))

    def hang_up(self) -> None:
        """From another thread: whoever waits on this connection finds it dead."""
        with contextlib.suppress(OSError):
            self._client.socket().shutdown(socket.SHUT_RDWR)

    def raw(self, copy: Copy) -> bytes:
        self._client.select_folder(copy.folder.name, readonly=True)
        fetched = self._client.fetch([copy.uid], ["BODY.PEEK[]"])
        return bytes(fetched.get(copy.uid, {}).get(b"BODY[]", b""))

    def move(self, copy: Copy, target: Folder) -> None:
        if not self._client.has_capability("MOVE"):
            raise Denied("this server cannot move mail (it lacks IMAP's MOVE)", reason="unsupported")
        self._client.select_folder(copy.folder.name)
        self._client.move([copy.uid], target.name)

    def flag(self, copy: Copy, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        selected = self._client.select_folder(copy.folder.name)
        kept = {flag.lower() for flag in selected.get(b"PERMANENTFLAGS", ())}
        if b"\\*" not in kept and not {flag.lower().encode() for flag in add} <= kept:
            raise Denied("this server keeps no labels of one's own", reason="unsupported")
        if add:
            self._client.add_flags([copy.uid], add)
        if remove:
            self._client.remove_flags([copy.uid], remove)

    def append(self, role: Role, raw: bytes, flags: Sequence[str]) -> None:
        self._client.append(self.ensure_folder(role).name, raw, flags)

    def _namespace(self) -> tuple[str, str]:
        """What every folder of the person's own begins with, and what stands between a folder and those in it."""
        if self._names is None:
            spaces = self._client.namespace().personal if self._client.has_capability("NAMESPACE") else None
            prefix, delimiter = spaces[0] if spaces else ("", None)
            self._names = prefix, delimiter or "/"
        return self._names

    def _fetch(self, folder: Folder, uidvalidity: int, uids: Sequence[int]) -> list[Copy]:
        if not uids:
            return []
        beginning = "PREVIEW" if self._client.has_capability("PREVIEW") else f"BODY.PEEK[]<0.{OPENING}>"
        wanted = ["FLAGS", "INTERNALDATE", f"BODY.PEEK[HEADER.FIELDS ({FIELDS})]", beginning]
        fetched = self._client.fetch(uids, wanted)
        return [_copy(folder, uidvalidity, uid, fetched[uid]) for uid in uids if uid in fetched]

    def _ask(self, command: bytes, arguments: list[bytes]) -> list[bytes]:
        # The client's own search quotes only what holds a space: a brace or parenthesis would be read as syntax.
        answer: list[bytes] = self._client._raw_command_untagged(command, arguments)  # noqa: SLF001
        return [b""] if answer[0] is None else answer


@contextlib.contextmanager
def translate_errors(host: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{host} cannot be reached",
            hint="look at the name and port, and at the network",
            reason=type(error).__name__,
        ) from error
    except IMAPClientAbortError as error:
        raise Unavailable(f"{host} broke off", hint="try again") from error
    except IMAPClientError as error:
        raise Denied(f"{host} refuses it: {error}", reason="refused") from error


def header(name: str, value: str) -> list[bytes]:
    """A search key: the header field contains the value."""
    return [b"HEADER", name.encode(), quote(value)]


def quote(value: str) -> bytes:
    """A search argument that no server can take for syntax; beyond ASCII the client sends it as a literal."""
    clean = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", value).split()).encode("utf-8", "replace")
    if not clean.isascii():
        return clean
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", clean) + b'"'


def keyword(label: str) -> str:
    """A label as an IMAP keyword: what an atom cannot hold is written in IMAP's own UTF-7."""
    return re.sub(r"[^A-Za-z0-9_.$+,/-]+", _utf7, label)


def labels(copies: Iterable[Copy]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for copy in copies:
        found[copy.folder.label] = None
        flags = {flag.lower() for flag in copy.flags}
        if "\\seen" not in flags and copy.folder.role not in ("sent", "drafts"):
            found["UNREAD"] = None
        if "\\flagged" in flags:
            found["STARRED"] = None
        found |= {str(imap_utf7.decode(flag.encode())): None for flag in copy.flags if flag[0] not in "\\$"}
    return tuple(found)


def mail_id(parsed: mime.Parsed, folder: str, uidvalidity: int, uid: int) -> str:
    """Names the mail, not its place, so that it holds when the mail moves.

    The digest keeps apart mails that claim the same Message-ID. A mail without one is named by its place.
    """
    if not parsed.message_id:
        return f"{_encode_name(folder)}.{uidvalidity}.{uid}"
    claims = f"{parsed.message_id}\0{parsed.sender}\0{parsed.subject}\0{parsed.date_header}"
    return f"{_encode_name(parsed.message_id.strip('<>'))}.{sha256(claims.encode()).hexdigest()[:10]}"


def thread_id(parsed: mime.Parsed, own_id: str) -> str:
    """The mail that began the thread names it."""
    root = next(iter(parsed.references), parsed.in_reply_to or parsed.message_id)
    return _encode_name(root.strip("<>")) if root else own_id


def _encode_name(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def decode_name(name: str) -> str | None:
    """What was put into an id; None where it is no such id."""
    try:
        return base64.urlsafe_b64decode(f"{name}==").decode()
    except ValueError:
        return None


def _role(flags: Sequence[bytes], name: str, declared: set[bytes]) -> Role | None:
    if name.upper() == "INBOX":
        return "inbox"
    for role, (_, use, _, names) in ROLES.items():
        # What the server declares counts; names are guessed only for a role that it declares for no folder.
        if use in flags or (use not in declared and name.lower() in names):
            return role
    return None


def _utf7(unsafe: re.Match[str]) -> str:
    coded = base64.b64encode(unsafe[0].encode("utf-16-be")).rstrip(b"=").replace(b"/", b",")
    return f"&{coded.decode()}-"


def _copy(folder: Folder, uidvalidity: int, uid: int, data: dict[bytes, Any]) -> Copy:
    header = next(value for key, value in data.items() if key.startswith(b"BODY[HEADER"))
    parsed = mime.parse(header)
    if b"PREVIEW" in data:
        snippet = (data[b"PREVIEW"] or b"").decode("utf-8", "replace")
    else:
        opening = next((value for key, value in data.items() if key.startswith(b"BODY[]")), b"")
        snippet = mime.parse(opening).snippet
    flags = tuple(flag.decode("ascii", "replace") for flag in data[b"FLAGS"])
    own_id = mail_id(parsed, folder.name, uidvalidity, uid)
    return Copy(own_id, folder, uidvalidity, uid, flags, data[b"INTERNALDATE"].astimezone(UTC), parsed, snippet)
