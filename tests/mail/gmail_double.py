"""A Gmail of our own on loopback: real HTTP, Google's discovery document as the judge, and a plan of faults.

    with GmailDouble() as gmail:
        gmail.account.deliver(raw)
        gmail.plan("drafts.send", Cut(accepted=True))      # the mail leaves, the answer is lost
        GmailMailbox(gmail.settings(home))

Methods are named as in the document without `gmail.users.`; the batch, the token endpoint and the consent page are
`batch`, `token` and `consent`.
"""

import base64
import email
import hashlib
import json
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.mail import discovery
from tests.mail.discovery import Method, Refused
from tests.mail.gmail_account import Account

MODIFY = "https://www.googleapis.com/auth/gmail.modify"
SEND = "https://www.googleapis.com/auth/gmail.send"
ADDRESS = "me@example.com"
CLIENT = {"client_id": "deskhand.apps.example", "client_secret": "not-a-secret"}


@dataclass(frozen=True)
class Status:
    """Gmail answers `code`, and has done what was asked only where `accepted` says so."""

    code: int
    reason: str = "backendError"
    retry_after: int | None = None
    accepted: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection ends without an answer, before or after the request was accepted."""

    accepted: bool


@dataclass(frozen=True)
class Slow:
    """The answer waits until `until` is set, or so many seconds at most."""

    seconds: float
    until: threading.Event | None = None


@dataclass(frozen=True)
class Expired:
    """The bearer token is no longer valid from now on."""


@dataclass(frozen=True)
class Says:
    """What was asked happens, and the answer is another one."""

    body: Any


Fault = Status | Cut | Slow | Expired | Says


class _Drop(Exception):
    """End the connection now."""


class GmailDouble:
    def __init__(
        self,
        *,
        scope: str = MODIFY,
        latency: float = 0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.account = Account(ADDRESS, now)
        self.scope = scope
        self.latency = latency
        self.asked: list[str] = []
        """Each request by name, the parts of a batch after it."""
        self.round_trips = 0
        self.chance: Callable[[str], Fault | None] = lambda _: None
        """Faults beyond the plan, for those who throw dice."""
        self.refresh_token: str | None = "refresh-1"
        self.rotates = False
        self._plan: dict[str, deque[Fault]] = defaultdict(deque)
        self._bearers: set[str] = set()
        self._challenges: dict[str, str] = {}
        self._lies: list[str] = []
        self._lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.double = self

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        assert not self._lies, f"answers that are not Google's: {self._lies}"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def plan(self, name: str, *faults: Fault) -> None:
        """The next requests of that name go wrong in this order."""
        self._plan[name].extend(faults)

    def forget(self, name: str) -> None:
        """Nothing that was planned for this method happens any more."""
        self._plan[name].clear()

    def credentials(self, file: Path, **changes: Any) -> Path:
        """Google's authorized-user JSON for this account, as a file."""
        user = CLIENT | {
            "type": "authorized_user",
            "refresh_token": "refresh-1",
            "token_uri": f"{self.origin}/token",
        }
        file.write_text(
            json.dumps(
                {key: value for key, value in (user | changes).items() if value is not None}
            )
        )
        return file

    def environment(self, folder: Path) -> dict[str, str]:
        """What leads a desk to this account."""
        return {
            "DESKHAND_MAIL": "gmail",
            "DESKHAND_GMAIL_CREDENTIALS": str(self.credentials(folder / "gmail.json")),
            "DESKHAND_GMAIL_API_ENDPOINT": self.origin,
        }

    @property
    def delivered(self) -> list[bytes]:
        return self.account.delivered

    def expire(self) -> None:
        self._bearers.clear()

    def fault(self, name: str) -> Fault | None:
        return self._plan[name].popleft() if self._plan[name] else self.chance(name)

    def token(self, form: dict[str, str]) -> dict[str, Any]:
        match form["grant_type"]:
            case "refresh_token":
                if (
                    self.refresh_token is None
                    or form["refresh_token"] != self.refresh_token
                ):
                    raise _OAuth("invalid_grant")
            case "authorization_code":
                proof = base64.urlsafe_b64encode(
                    hashlib.sha256(form["code_verifier"].encode()).digest()
                )
                if self._challenges.pop(form["code"], None) != proof.rstrip(b"=").decode():
                    raise _OAuth("invalid_grant")
                self.refresh_token = "refresh-of-the-consent"
        if {name: form[name] for name in CLIENT} != CLIENT:
            raise _OAuth("invalid_client")
        bearer = f"bearer-{len(self.asked)}"
        self._bearers.add(bearer)
        answer = {
            "access_token": bearer,
            "expires_in": 3599,
            "scope": self.scope,
            "token_type": "Bearer",
        }
        if self.rotates:
            self.refresh_token = f"refresh-{len(self.asked)}"
        given = self.rotates or form["grant_type"] == "authorization_code"
        return answer | ({"refresh_token": self.refresh_token} if given else {})

    def consent(self, query: dict[str, str]) -> str:
        """Where Google sends the browser of a person who agreed."""
        assert query["access_type"] == "offline"
        assert query["prompt"] == "consent"
        assert query["code_challenge_method"] == "S256"
        code = f"code-{len(self._challenges)}"
        self._challenges[code] = query["code_challenge"]
        return f"{query['redirect_uri']}/?{urlencode({'code': code, 'state': query['state'], 'scope': self.scope})}"

    def serve(
        self, verb: str, target: str, bearer: str, body: Any
    ) -> dict[str, Any] | None:
        """One request of the API, alone or out of a batch; some methods answer nothing."""
        url = urlsplit(target)
        method, path = discovery.route(verb, url.path)
        query = parse_qs(url.query, keep_blank_values=True)
        with self._lock:
            self.asked.append(method.name)
            fault = self.fault(method.name)
        if isinstance(fault, Expired):
            self.expire()
        self._admit(method, bearer)
        discovery.check_query(method, query)
        discovery.check_body(method, body)
        match fault:
            case Status(code, reason, retry_after, accepted=False):
                raise Refused(code, reason, "planned", retry_after)
            case Cut(accepted=False):
                raise _Drop
            case Slow(seconds, until):
                (until or threading.Event()).wait(seconds)
        result = self._perform(method, path, query, body)
        match fault:
            case Status(code, reason, retry_after):
                raise Refused(code, reason, "planned", retry_after)
            case Cut():
                raise _Drop
            case Says(body):
                return cast("dict[str, Any]", body)
        return result

    def _admit(self, method: Method, bearer: str) -> None:
        if bearer.removeprefix("Bearer ") not in self._bearers:
            raise Refused(
                401, "authError", "Request had invalid authentication credentials."
            )
        if self.scope not in method.scopes:
            raise Refused(
                403,
                "insufficientPermissions",
                "Request had insufficient authentication scopes.",
            )

    def _perform(
        self, method: Method, path: dict[str, str], query: dict[str, list[str]], body: Any
    ) -> dict[str, Any] | None:
        handler = HANDLERS.get(method.name)
        if handler is None:
            raise Refused(501, "notImplemented", f"the double does not do {method.name}")
        with self._lock:
            result = handler(self.account, path, query, body or {})
        if method.response is None:
            return None
        if problem := discovery.mismatch({"$ref": method.response}, result):
            self._lies.append(f"{method.name}: {problem}")
        fields = query.get("fields")
        return discovery.masked(method, fields[0], result) if fields else result


Query = dict[str, list[str]]
Handler = Callable[[Account, dict[str, str], Query, dict[str, Any]], dict[str, Any] | None]


def _profile(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    return {"emailAddress": account.address, "messagesTotal": len(account.mails)} | {
        "threadsTotal": 1,
        "historyId": str(account.history_id),
    }


def _history_list(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    start, page = int(query["startHistoryId"][0]), int(query.get("pageToken", ["0"])[0])
    if start < account.history_begins:
        raise Refused(404, "notFound", "Requested entity was not found.")
    wanted = set(query.get("labelId", []))
    added = [
        (number, mail)
        for number, mail in account.history
        if number > start and wanted <= set(mail.labels)
    ]
    records = [
        {"id": str(number), "messagesAdded": [{"message": mail.resource()}]}
        for number, mail in added[page : page + 2]
    ]
    answer: dict[str, Any] = {"historyId": str(account.history_id)}
    if records:
        answer["history"] = records
    if len(added) > page + 2:
        answer["nextPageToken"] = str(page + 2)
    return answer


def _messages_list(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    most = min(int(query.get("maxResults", ["100"])[0]), 500)
    start = int(query.get("pageToken", ["0"])[0])
    everywhere = query.get("includeSpamTrash") == ["true"]
    found = account.search(
        query.get("q", [""])[0], query.get("labelIds", []), everywhere=everywhere
    )
    page = [
        {"id": mail.id, "threadId": mail.thread_id} for mail in found[start : start + most]
    ]
    answer: dict[str, Any] = {"resultSizeEstimate": len(found)}
    if page:
        answer["messages"] = page
    if len(found) > start + most:
        answer["nextPageToken"] = str(start + most)
    return answer


def _form(query: Query) -> tuple[str, list[str]]:
    return query.get("format", ["full"])[0], query.get("metadataHeaders", [])


def _messages_get(
    account: Account, path: dict[str, str], query: Query, body: Any
) -> dict[str, Any]:
    return account.mail(path["id"]).resource(*_form(query))


def _messages_modify(
    account: Account, path: dict[str, str], query: Query, body: Any
) -> dict[str, Any]:
    mail = account.mail(path["id"])
    account.modify(mail, body.get("addLabelIds", []), body.get("removeLabelIds", []))
    return {"id": mail.id, "threadId": mail.thread_id, "labelIds": mail.labels}


def _messages_batch_modify(account: Account, path: Any, query: Query, body: Any) -> None:
    if len(body.get("ids", [])) > 1000:
        raise Refused(400, "invalidArgument", "Too many ids")
    for mail in [account.mails[each] for each in body["ids"] if each in account.mails]:
        account.modify(mail, body.get("addLabelIds", []), body.get("removeLabelIds", []))


def _messages_send(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    mail = account.send(_raw(body), body.get("threadId"))
    return {"id": mail.id, "threadId": mail.thread_id, "labelIds": mail.labels}


def _drafts_create(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    message = body.get("message", {})
    draft_id = account.draft(_raw(message), message.get("threadId"))
    mail = account.mails[account.drafts[draft_id]]
    return {
        "id": draft_id,
        "message": {"id": mail.id, "threadId": mail.thread_id, "labelIds": mail.labels},
    }


def _drafts_get(
    account: Account, path: dict[str, str], query: Query, body: Any
) -> dict[str, Any]:
    if path["id"] not in account.drafts:
        raise Refused(404, "notFound", "Requested entity was not found.")
    return {
        "id": path["id"],
        "message": account.mails[account.drafts[path["id"]]].resource(_form(query)[0]),
    }


def _drafts_list(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    drafts = [
        {
            "id": draft_id,
            "message": {"id": mail_id, "threadId": account.mails[mail_id].thread_id},
        }
        for draft_id, mail_id in account.drafts.items()
    ]
    return {"drafts": drafts, "resultSizeEstimate": len(drafts)}


def _drafts_send(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    message = body.get("message", {})
    mail = account.send_draft(
        body.get("id", ""), _raw(message) if "raw" in message else None
    )
    return {"id": mail.id, "threadId": mail.thread_id, "labelIds": mail.labels}


def _labels_list(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    kinds = {
        label_id: "user" if label_id.startswith("Label_") else "system"
        for label_id in account.labels
    }
    return {
        "labels": [
            {"id": each, "name": name, "type": kinds[each]}
            for each, name in account.labels.items()
        ]
    }


def _labels_create(account: Account, path: Any, query: Query, body: Any) -> dict[str, Any]:
    if not body.get("name", "").strip():
        raise Refused(400, "invalidArgument", "Invalid label name")
    return {"id": account.add_label(body["name"]), "name": body["name"]}


def _threads_get(
    account: Account, path: dict[str, str], query: Query, body: Any
) -> dict[str, Any]:
    mails = account.thread(path["id"])
    if not mails:
        raise Refused(404, "notFound", "Requested entity was not found.")
    return {
        "id": path["id"],
        "historyId": "1",
        "messages": [mail.resource(*_form(query)) for mail in mails],
    }


def _raw(message: dict[str, Any]) -> bytes:
    try:
        bare = message["raw"].rstrip("=")
        return base64.b64decode(
            bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True
        )
    except (KeyError, ValueError) as error:
        raise Refused(
            400, "invalidArgument", "'raw' RFC822 payload message string is required"
        ) from error


HANDLERS: dict[str, Handler] = {
    "getProfile": _profile,
    "messages.list": _messages_list,
    "messages.get": _messages_get,
    "messages.modify": _messages_modify,
    "messages.batchModify": _messages_batch_modify,
    "messages.send": _messages_send,
    "drafts.create": _drafts_create,
    "drafts.get": _drafts_get,
    "drafts.list": _drafts_list,
    "drafts.send": _drafts_send,
    "labels.list": _labels_list,
    "labels.create": _labels_create,
    "threads.get": _threads_get,
    "history.list": _history_list,
}


LONGEST_BODY = 5_000_000
LARGEST_UPLOAD = 36_700_160


class _OAuth(Exception):
    pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    double: GmailDouble


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = -1  # head and body in one packet, or Nagle waits for the client's ACK

    def do_GET(self) -> None:
        double = self.server.double
        double.round_trips += 1
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(double.latency)
        try:
            match self.command, urlsplit(self.path).path:
                case "POST", "/token":
                    self._token(content)
                case "GET", "/consent":
                    query = {
                        key: values[0]
                        for key, values in parse_qs(urlsplit(self.path).query).items()
                    }
                    self._answer(302, b"", Location=double.consent(query))
                case "POST", "/batch/gmail/v1":
                    self._batch(content)
                case _:
                    status, head, body = self._single(self.command, self.path, content)
                    self._answer(status, body, **head)
        except _Drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - names that the standard library looks for

    def _single(
        self, verb: str, target: str, content: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            target, body = self._read_body(target, content)
            result = self.server.double.serve(
                verb, target, self.headers.get("Authorization", ""), body
            )
        except Refused as refused:
            head = (
                {}
                if refused.retry_after is None
                else {"Retry-After": str(refused.retry_after)}
            )
            return refused.status, head, json.dumps(refused.body).encode()
        if result is None:
            return 204, {}, b""
        return 200, {}, json.dumps(result).encode()

    def _read_body(self, target: str, content: bytes) -> tuple[str, Any]:
        if target.startswith("/upload/"):
            return self._uploaded(target, content)
        if len(content) > LONGEST_BODY:
            raise Refused(413, "uploadTooLarge", "Request payload size exceeds the limit.")
        return target, json.loads(content) if content else None

    def _uploaded(self, target: str, content: bytes) -> tuple[str, Any]:
        """A multipart upload as the same request with the mail in it."""
        path, _, query = target.removeprefix("/upload").partition("?")
        if query != "uploadType=multipart":
            raise Refused(400, "badRequest", f"the double does not do {query}")
        if len(content) > LARGEST_UPLOAD:
            raise Refused(413, "uploadTooLarge", "Media larger than allowed.")
        whole = (
            b"Content-Type: "
            + self.headers["Content-Type"].encode()
            + b"\r\n\r\n"
            + content
        )
        boundary = email.message_from_bytes(whole[:1000]).get_param("boundary")
        _, about, media, _ = content.split(f"--{boundary}".encode())
        body = json.loads(about.partition(b"\r\n\r\n")[2])
        raw = media.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        message = body if path.endswith("messages/send") else body.setdefault("message", {})
        message["raw"] = base64.urlsafe_b64encode(raw).decode()
        self.server.double.asked.append("upload")
        return path, body

    def _batch(self, content: bytes) -> None:
        double = self.server.double
        double.asked.append("batch")
        match double.fault("batch"):
            case Status(code, reason, retry_after):
                head = {} if retry_after is None else {"Retry-After": str(retry_after)}
                return self._answer(
                    code, json.dumps(Refused(code, reason, "planned").body).encode(), **head
                )
            case Cut():
                raise _Drop
            case Slow(seconds, until):
                (until or threading.Event()).wait(seconds)
            case Expired():
                double.expire()
        whole = (
            b"Content-Type: "
            + self.headers["Content-Type"].encode()
            + b"\r\n\r\n"
            + content
        )
        message = email.message_from_bytes(whole)
        parts = [
            part
            for part in message.get_payload()
            if part.get_content_type() == "application/http"
        ]
        if not 0 < len(parts) <= 100:
            refused = Refused(
                400, "invalidArgument", "The batch must have 1 to 100 requests."
            )
            return self._answer(400, json.dumps(refused.body).encode())
        # Gmail promises no order.
        lines = [self._part(part) for part in reversed(parts)]
        body = b"".join([*lines, b"--batch_double--\r\n"])
        return self._answer(
            200, body, **{"Content-Type": "multipart/mixed; boundary=batch_double"}
        )

    def _part(self, part: Any) -> bytes:
        line = part.get_payload(decode=True).split(b"\r\n")[0].decode()
        verb, target, _ = line.split(" ")
        status, head, body = self._single(verb, target, b"")
        headers = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        name = str(part["Content-ID"]).strip("<>")
        return (
            (
                f"--batch_double\r\nContent-Type: application/http\r\nContent-ID: <response-{name}>\r\n\r\n"
                f"HTTP/1.1 {status} Status\r\nContent-Type: application/json; charset=UTF-8\r\n{headers}\r\n"
            ).encode()
            + body
            + b"\r\n"
        )

    def _token(self, content: bytes) -> None:
        double = self.server.double
        double.asked.append("token")
        form = {key: values[0] for key, values in parse_qs(content.decode()).items()}
        match double.fault("token"):
            case Status(code, reason):
                self._answer(code, json.dumps({"error": reason}).encode())
            case Cut():
                raise _Drop
            case _:
                try:
                    self._answer(200, json.dumps(double.token(form)).encode())
                except _OAuth as refused:
                    self._answer(400, json.dumps({"error": str(refused)}).encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in (
            {"Content-Type": "application/json; charset=UTF-8"} | headers
        ).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass
