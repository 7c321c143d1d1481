"""One signed-in IMAP connection: folders and what lies in them. Blocking; one thread uses it."""

import base64
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from imapclient import SocketTimeout, imap_utf7
from imapclient.exceptions import (
    IMAPClientAbortError,
    IMAPClientError,
    LoginError,
    ProtocolError,
)

from deskhand.errors import (
    AuthRequired,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    ProviderDown,
    printable,
)
from deskhand.mail import mime
from deskhand.mail.accounts import LOGIN, Account, Bearer
from deskhand.mail.imap_connection import ImapConnection, reading, words_of
from deskhand.mail.imap_folders import ROLES, Role, find_archive, find_roles

log = logging.getLogger("deskhand.imap")

_SPAM_WORDS = ("junk", "nonjunk", "notjunk")
"""The keywords by which mail programs and servers learn what is spam."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RECEIVED = re.compile(rb"(?im)^received[ \t]*:[^\n]*+(?:\n[ \t][^\n]*+)*+")
FIELDS = "FROM TO SUBJECT DATE MESSAGE-ID REFERENCES IN-REPLY-TO RECEIVED"
MOST_ASKED = 50
"""So many Message-IDs are searched for in one search."""
OPENING = 8192
"""How many bytes of a mail are fetched for its beginning where the server makes no previews."""


_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    label: str
    role: Role | None


INBOX = Folder("INBOX", "INBOX", "inbox")


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
    size: int | None = None
    """How many bytes it has; not every server tells."""
    way: str = ""
    """Stands for what the servers wrote that it passed."""


@dataclass(frozen=True, slots=True)
class Selected:
    """What a server says of a folder when it is selected."""

    mails: int
    uidvalidity: int
    uidnext: int | None
    """A UID that no mail has reached yet; not every server tells."""
    flags_kept: frozenset[bytes]


class ImapSession:
    def __init__(self, account: Account, password: str) -> None:
        self._names: tuple[str, str] | None = None
        with translate_errors(account):
            self._client = ImapConnection(
                account.host,
                account.port,
                ssl=account.tls,
                ssl_context=account.context(),
                timeout=SocketTimeout(connect=10, read=30),
            )
            self._client.normalise_times = False
            try:
                if self._client.is_signed_in:
                    _demand_private(account)
                else:
                    if not account.tls:
                        self._encrypt(account)
                    self._sign_in(account, password)
            except (IMAPClientError, OSError, DeskError):
                self.drop()
                raise

    def _encrypt(self, account: Account) -> None:
        if self._client.has_capability("STARTTLS"):
            self._client.starttls(account.context())
        elif not account.is_local:
            raise Denied(
                f"{account.host} does not offer encryption (STARTTLS), so it is not told the password",
                reason="no_encryption",
                hint="imaps:// is TLS from the first byte; look at the port",
            )

    def _show_token(self, account: Account, token: Bearer) -> None:
        try:
            if self._client.has_capability("AUTH=OAUTHBEARER"):
                self._client.oauthbearer_login(account.user, token)
            elif self._client.has_capability("AUTH=XOAUTH2"):
                self._client.oauth2_login(account.user, token)
            else:
                raise Denied(f"{account.host} takes no OAuth token", reason="unsupported")
        except LoginError as error:
            raise _explain_refusal(
                error, account.host, "OAuth token", "deskhand mail login oauth"
            ) from None

    def _sign_in(self, account: Account, password: str) -> None:
        if isinstance(password, Bearer):
            self._show_token(account, password)
            return
        closed = self._client.has_capability("LOGINDISABLED")
        plain = self._client.has_capability("AUTH=PLAIN")
        beyond = not f"{account.user}{password}".isascii()  # which LOGIN cannot say
        if beyond and not plain:
            raise Denied(
                f"{account.host} takes no name or password beyond ASCII",
                reason="unsupported",
            )
        if closed and not plain:
            raise Denied(
                f"{account.host} takes no password on this connection (LOGINDISABLED)",
                reason="no_encryption",
                hint="it wants encryption: imaps:// is TLS from the first byte",
            )
        try:
            if closed or beyond:
                self._client.plain_login(account.user, password)
            else:
                self._client.login(account.user, password)
        except LoginError as error:
            # Not chained: the server's text may repeat what it was given.
            raise _explain_refusal(error, account.host, "password", LOGIN) from None

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
        listed = self._list()
        roles = find_roles([(flags, path) for flags, path, _ in listed])
        found: list[Folder] = []
        for (_, path, name), role in zip(listed, roles, strict=True):
            label = ROLES[role].label if role else path
            found.append(Folder(name, label, role))
        return sorted(found, key=lambda folder: folder.role != "inbox")

    def _list(self) -> list[tuple[set[bytes], str, str]]:
        """The flags of each folder that can hold mail, its path with slashes, and its name."""
        prefix, _ = self._namespace()
        listed: list[tuple[set[bytes], str, str]] = []
        for folder in self._client.list_folders():
            if folder.flags.isdisjoint({b"\\noselect", b"\\nonexistent"}):
                path = folder.name.removeprefix(prefix).replace(folder.delimiter, "/")
                listed.append(({*folder.flags}, path, folder.name))
        return listed

    def folder_for(self, role: Role) -> Folder | None:
        return next((folder for folder in self.folders() if folder.role == role), None)

    def ensure_folder(self, role: Role) -> Folder:
        """The folder with this role, made where there is none."""
        return self.folder_for(role) or self.create(ROLES[role].made)

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

    def search(
        self, folder: Folder, criteria: Sequence[bytes], limit: int | None = None
    ) -> list[Copy]:
        """The copies in `folder` that match, the newest first; none where it is closed to this account."""
        selected = self._look_where_open(folder)
        if selected is None or not selected.mails:
            return []
        if self._client.has_capability("SORT"):
            uids = self._client.sort([b"(REVERSE ARRIVAL)", b"UTF-8", *criteria])
        else:
            uids = self._client.find([b"CHARSET", b"UTF-8", *criteria])
            dates = self._client.fetch(uids, ["INTERNALDATE"]) if uids else {}
            uids = [uid for uid in uids if uid in dates]  # others may have gone meanwhile
            uids.sort(key=lambda uid: _date(dates[uid]) or _UNDATED, reverse=True)
        return self._fetch(folder, selected.uidvalidity, uids[:limit])

    def at(self, folder: Folder, uidvalidity: int, uid: int) -> list[Copy]:
        """The copy with this UID, or nothing where it is gone or the folder has numbered its mails again."""
        if self._look_into(folder).uidvalidity != uidvalidity:
            return []
        return self._fetch(folder, uidvalidity, [uid])

    def inbox(self) -> tuple[int, int]:
        """UIDVALIDITY, and a UID that no mail in the inbox has reached yet."""
        # Of the selected folder a server may tell in STATUS what it knew when it was selected.
        selected = self._look_into(INBOX)
        if selected.uidnext is not None:
            return selected.uidvalidity, selected.uidnext
        return selected.uidvalidity, self._last_uid(selected.mails) + 1

    def _last_uid(self, mails: int) -> int:
        """The UID of the last of so many mails in the selected folder."""
        if not mails:
            return 0
        self._client.use_uid = False  # the last one is known by its place alone
        try:
            last = self._client.fetch([mails], ["UID"]).get(mails, {}).get(b"UID")
        finally:
            self._client.use_uid = True
        if last is None:  # it has just gone
            last = max(self._client.find([b"ALL"]), default=0)
        return int(last)

    def since(self, uidvalidity: int, uid: int) -> list[Copy]:
        """The mails in the selected inbox from this UID on, in the order in which they came."""
        # `n:*` always means the last mail too, even where its UID lies below n.
        uids = sorted(
            found
            for found in self._client.find([b"UID", f"{uid}:*".encode()])
            if found >= uid
        )
        return self._fetch(INBOX, uidvalidity, uids)

    def like(self, uidvalidity: int, copies: Sequence[Copy]) -> list[Copy]:
        """The other mails in the selected inbox with the Message-IDs of these."""
        named = [copy.parsed.message_id for copy in copies if copy.parsed.message_id]
        found: list[int] = []
        for start in range(0, len(named), MOST_ASKED):
            some = named[start : start + MOST_ASKED]
            criteria = [b"OR"] * (len(some) - 1)
            criteria += [key for name in some for key in header("MESSAGE-ID", name)]
            found += self._client.find([b"CHARSET", b"UTF-8", *criteria])
        others = {*found} - {copy.uid for copy in copies}
        return self._fetch(INBOX, uidvalidity, sorted(others))

    def idle(self, seconds: float, began: Callable[[], object]) -> None:
        """Until the server says that something changed in the inbox; it tells nothing of
        what came before `began`."""
        if not self.rings:
            return
        self.inbox()
        self._client.idle()
        try:
            began()
            with reading():
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
        self._look_into(copy.folder)
        fetched = self._client.fetch([copy.uid], ["BODY.PEEK[]"])
        raw = fetched.get(copy.uid, {}).get(b"BODY[]")
        if raw is None:
            raise NotFound("the mail has just gone from its folder", hint="search anew")
        return bytes(raw)

    def archive(self) -> str:
        """The label of the folder that the server or the person keeps for what is done with."""
        return find_archive([(flags, path) for flags, path, _ in self._list()])

    def move(self, copies: Sequence[Copy], label: str) -> None:
        """From one folder into the one that a label names. Where the server refuses, no
        folder stays that was made."""
        if not copies:
            return
        if not any(map(self._client.has_capability, ("MOVE", "UIDPLUS"))):
            raise Denied(
                "this server cannot move mail (it lacks IMAP's MOVE and UIDPLUS)",
                reason="unsupported",
            )
        known = self._find_folder(label)
        target = known or self._make_folder(label)
        first = copies[0]
        if target.name == first.folder.name:
            return
        try:
            self._open(first.folder)
            self._move([copy.uid for copy in copies], target)
        except IMAPClientError:
            if known is None and self.at(first.folder, first.uidvalidity, first.uid):
                self._remove_made(target)
            raise

    def _move(self, uids: list[int], target: Folder) -> None:
        if self._client.has_capability("MOVE"):
            self._client.move(uids, target.name)
            return
        # In this order the mail is never nowhere, and UID EXPUNGE removes no other that somebody marked.
        self._client.copy(uids, target.name)
        self._client.add_flags(uids, ["\\Deleted"])
        try:
            self._client.uid_expunge(uids)
        except IMAPClientError:
            self._client.remove_flags(uids, ["\\Deleted"])
            raise

    def _remove_made(self, folder: Folder) -> None:
        """Remove the folder that was made for one mail, which still lies where it was."""
        with contextlib.suppress(IMAPClientError):
            if self._look_into(folder).mails <= 1:
                self._look_into(INBOX)
                self._client.unsubscribe_folder(folder.name)
                self._client.delete_folder(folder.name)

    def _find_folder(self, label: str) -> Folder | None:
        folders = [
            folder
            for folder in self.folders()
            if folder.label.casefold() == label.casefold()
        ]
        return folders[0] if folders else None

    def _make_folder(self, label: str) -> Folder:
        for place in ROLES.values():
            if place.label == label.upper():
                return self.create(place.made)
        _, delimiter = self._namespace()
        (role,) = find_roles([(set(), label.replace(delimiter, "/"))])
        if role:
            taken = ROLES[role].label
            raise InvalidInput(
                f"a folder {label!r} would be taken for {taken}",
                hint=f"move it to {taken}, or choose another name",
            )
        return self.create(label)

    def flag(
        self, copies: Sequence[Copy], *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """All of them lie in one folder."""
        if not copies:
            return
        kept = self._open(copies[0].folder).flags_kept
        uids = [copy.uid for copy in copies]
        if b"\\*" not in kept and not {flag.lower().encode() for flag in add} <= kept:
            raise Denied("this server keeps no labels of one's own", reason="unsupported")
        if add:
            self._client.add_flags(uids, add)
        if remove:
            self._client.remove_flags(uids, remove)

    def append(self, role: Role, raw: bytes, flags: Sequence[str]) -> None:
        folder = self.ensure_folder(role)
        # Some servers add nothing to a folder that is open for reading only.
        self._open(folder)
        self._client.append(folder.name, raw, flags)

    def _look_into(self, folder: Folder) -> Selected:
        """Select the folder, and change nothing in it."""
        return _selected(self._client.select_folder(folder.name, readonly=True))

    def _look_where_open(self, folder: Folder) -> Selected | None:
        """None for a folder that the server lists and does not open: of others', or one that has just gone."""
        try:
            return self._look_into(folder)
        except IMAPClientAbortError:
            raise
        except IMAPClientError as error:
            if folder.role is not None:
                raise
            log.warning("folder_closed", extra={"folder": folder.name, "why": str(error)})
            return None

    def _open(self, folder: Folder) -> Selected:
        return _selected(self._client.select_folder(folder.name))

    def _namespace(self) -> tuple[str, str]:
        """What every folder of the person's own begins with, and what stands between a folder and those in it."""
        if self._names is None:
            prefix, delimiter = "", None
            if self._client.has_capability("NAMESPACE"):
                prefix, delimiter = self._client.personal_namespace()
            self._names = prefix, delimiter or "/"
        return self._names

    def _fetch(self, folder: Folder, uidvalidity: int, uids: Sequence[int]) -> list[Copy]:
        if not uids:
            return []
        opening = f"BODY.PEEK[]<0.{OPENING}>"
        beginning = "PREVIEW" if self._client.has_capability("PREVIEW") else opening
        wanted = [
            "FLAGS",
            "INTERNALDATE",
            "RFC822.SIZE",
            f"BODY.PEEK[HEADER.FIELDS ({FIELDS})]",
            beginning,
        ]
        fetched = self._client.fetch(uids, wanted)
        # A server that can make previews need not have made this one.
        bare = [uid for uid, data in fetched.items() if data.get(b"PREVIEW", b"") is None]
        for uid, data in (self._client.fetch(bare, [opening]) if bare else {}).items():
            fetched[uid] |= data
        with reading():
            found = [
                _copy(folder, uidvalidity, uid, fetched[uid])
                for uid in uids
                if uid in fetched
            ]
        return [copy for copy in found if copy is not None]


def _demand_private(account: Account) -> None:
    """Refuse a server that greets as if somebody were signed in where anybody on the way can say so."""
    if account.tls or account.is_local:
        return
    raise Denied(
        f"{account.host} has somebody signed in before anything is encrypted (PREAUTH)",
        reason="no_encryption",
        hint="imaps:// is TLS from the first byte; look at the port",
    )


@contextlib.contextmanager
def translate_errors(account: Account) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise account.explain(error) from error
    except IMAPClientAbortError as error:
        raise ProviderDown(f"{account.host} broke off", hint="try again") from error
    except ProtocolError as error:
        raise ProviderDown(
            f"{account.host} gives {printable(str(error))}", hint="try again"
        ) from error
    except IMAPClientError as error:
        raise Denied(
            f"{account.host} refuses it: {printable(str(error))}", reason="refused"
        ) from error


def header(name: str, value: str) -> list[bytes]:
    """A search key: the header field contains the value."""
    return [b"HEADER", name.encode(), quote(value)]


def quote(value: str) -> bytes:
    """A search argument that no server can take for syntax; beyond ASCII the client sends it as a literal."""
    clean = " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", value).split()).encode(
        "utf-8", "replace"
    )
    if not clean.isascii():
        return clean
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", clean) + b'"'


def keyword(label: str) -> str:
    """A label as an IMAP keyword: what an atom cannot hold is written in IMAP's own UTF-7, and so is a dollar at its
    beginning, which marks what mail programs say to each other."""
    return re.sub(r"^\$|[^A-Za-z0-9_.$+,/-]+", _utf7, label)


def keyword_to_set(label: str) -> str:
    if label.casefold().removeprefix("$") in _SPAM_WORDS:
        raise Denied("what is spam, the person says", reason="protected")
    return keyword(label)


def labels(copies: Iterable[Copy]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for copy in copies:
        found[copy.folder.label] = None
        flags = {flag.lower() for flag in copy.flags}
        if "\\seen" not in flags and copy.folder.role not in ("sent", "drafts"):
            found["UNREAD"] = None
        if "\\flagged" in flags:
            found["STARRED"] = None
        found |= {_label_of(flag): None for flag in copy.flags if flag[0] not in "\\$"}
    return tuple(found)


def find_keywords(copy: Copy, label: str) -> set[str]:
    """By which keywords a mail has a label: of labels capitals do not count, and the
    server knows none but ASCII's."""
    named = label.casefold()
    return {flag for flag in copy.flags if _label_of(flag).casefold() == named}


def _label_of(flag: str) -> str:
    """What is no text, as half a character or the end of a line is none, is the keyword as it stands."""
    try:
        label = str(imap_utf7.decode(flag.encode()))
        label.encode()
    except ValueError:  # another program's word with an & in it
        return flag
    return flag if _CONTROL.search(label) else label


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


def _selected(answer: dict[bytes, Any]) -> Selected:
    if b"EXISTS" not in answer:
        raise ProtocolError("no number of mails in a folder")
    with reading():
        words = words_of(answer.get(b"PERMANENTFLAGS"))
    flags = frozenset(word.lower() for word in words)
    return Selected(
        answer[b"EXISTS"], answer.get(b"UIDVALIDITY", 0), answer.get(b"UIDNEXT"), flags
    )


def _utf7(unsafe: re.Match[str]) -> str:
    coded = base64.b64encode(unsafe[0].encode("utf-16-be")).rstrip(b"=").replace(b"/", b",")
    return f"&{coded.decode()}-"


def _copy(
    folder: Folder, uidvalidity: int, uid: int, data: dict[bytes, Any]
) -> Copy | None:
    """None where the server has no header of it any more: it has just gone."""
    header = _text_of(data, b"BODY[HEADER")
    if header is None:
        return None
    parsed = mime.parse(header)
    if data.get(b"PREVIEW") is not None:
        snippet = _bytes(data[b"PREVIEW"]).decode("utf-8", "replace")
    else:
        snippet = mime.parse(_text_of(data, b"BODY[]") or b"").snippet
    flags = words_of(data.get(b"FLAGS"))
    return Copy(
        mail_id(parsed, folder.name, uidvalidity, uid),
        folder,
        uidvalidity,
        uid,
        tuple(flag.decode("ascii", "replace") for flag in flags if flag),
        _date(data) or parsed.date or _UNDATED,
        parsed,
        snippet,
        _size(data),
        _way(header),
    )


def _size(data: dict[bytes, Any]) -> int | None:
    given = data.get(b"RFC822.SIZE")
    return given if isinstance(given, int) else None


def _way(header: bytes) -> str:
    passed = b"".join(_RECEIVED.findall(header))
    return sha256(passed).hexdigest()[:10] if passed else "0"


def _text_of(data: dict[bytes, Any], part: bytes) -> bytes | None:
    found = (value for key, value in data.items() if key.startswith(part))
    text = next(found, None)
    if text is None:
        return None
    return _bytes(text)


def _bytes(given: Any) -> bytes:
    """The library takes a word of digits for a number."""
    if isinstance(given, bytes):
        return given
    return str(given).encode()


def _date(data: dict[bytes, Any]) -> datetime | None:
    """When the server took the mail; None where it does not say, or no date that there is."""
    given = data.get(b"INTERNALDATE")
    if not isinstance(given, datetime):
        return None
    try:
        return given.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _explain_refusal(
    error: LoginError, host: str, shown: str, command: str
) -> ProviderDown | AuthRequired:
    """What it means that nobody was signed in: the server cannot now, or does not take what it was shown."""
    cut_off = isinstance(error.__context__, IMAPClientAbortError)
    if cut_off or "[UNAVAILABLE]" in str(error).upper():
        return ProviderDown(f"{host} cannot sign anybody in right now", hint="try again")
    return AuthRequired(f"{host} does not accept the {shown}", hint=f"run `{command}`")
