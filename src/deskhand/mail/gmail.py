"""Gmail as a mailbox: REST over HTTP.

A draft's id is the token of a send: Gmail consumes it when it sends, so that a second send of the same id is refused.
"""

import asyncio
import base64
import html
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import Any

import httpx2

from deskhand import clock
from deskhand.config import Settings
from deskhand.errors import (
    DeskError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    ProviderDown,
    SendFailed,
    Unavailable,
)
from deskhand.mail import (
    Arrived,
    FullMessage,
    Keep,
    MailSummary,
    NotSent,
    Outgoing,
    SavedDraft,
    Sent,
    Unclear,
    headers,
    mime,
)
from deskhand.mail.changes import Deed
from deskhand.mail.google_auth import LOGIN, GoogleAuth
from deskhand.mail.google_http import (
    Doubt,
    GmailApi,
    GoogleAnswer,
    GoogleRequest,
    NoAnswer,
    Parameters,
    body_of,
    failure_of,
)

LABELS = GoogleRequest("labels", {"fields": "labels(id,name)"})
MOST_CACHED = 5000
MOST_SEARCHED = 100
LONGEST_RAW = 2_000_000
"""Gmail takes 5 MB in a request, in base64; a longer mail is uploaded beside it."""
"""How many sent mails or drafts are looked through for one whose fate is unclear."""

_ONCE = "once:"
"""Begins the token where only gmail.send was granted: no draft, one attempt, and an unclear answer stays unclear."""
_METADATA = {"format": "metadata", "metadataHeaders": ["From", "To", "Subject", "Date"]}
_SUMMARY = "id,threadId,labelIds,snippet,internalDate,payload/headers"
_PAGE = 500
_HISTORY = {
    "historyTypes": "messageAdded",
    "labelId": "INBOX",
    "fields": "history(messagesAdded(message(id,labelIds))),historyId,nextPageToken",
}


class GmailMailbox:
    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], datetime] = clock.utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(30, connect=10), follow_redirects=False
        )
        self._auth = GoogleAuth(settings, self._http, now)
        self._api = GmailApi(
            settings.gmail_api_endpoint, self._http, self._auth, sleep, chance
        )
        self._poll = settings.poll_seconds
        self._address: str | None = None
        self._told_by: str | None = None
        """The sign-in that told the address."""
        self._known: dict[str, MailSummary] = {}
        """What never changes of a mail, by id: all but its labels."""

    async def address(self) -> str:
        if self._address is None or self._told_by != self._auth.sign_in:
            profile = await self._api.read(
                GoogleRequest("profile", {"fields": "emailAddress"})
            )
            self._address = str(profile["emailAddress"])
            self._told_by = self._auth.sign_in
        return self._address

    async def search(self, query: str, limit: int) -> list[MailSummary]:
        ids = await self._ids(limit, {"q": query} if query.strip() else {})
        if not ids:
            return []
        labels, *mails = await self._read_present(
            [LABELS, *map(self._summary_request, ids)]
        )
        names = _label_names(labels)
        return await self._summaries(mails, names)

    async def get(self, message_id: str) -> FullMessage:
        request = GoogleRequest(
            _path("messages", message_id), {"format": "raw"}, what=f"mail {message_id}"
        )
        data, names = await self._with_labels(request)
        parsed = await asyncio.to_thread(mime.parse, _read_raw(data))
        return parsed.full(self._summary(data, names, parsed))

    async def read_raw(self, message_id: str) -> bytes:
        query = {"format": "raw", "fields": "raw"}
        data = await self._api.read(
            GoogleRequest(_path("messages", message_id), query, what=f"mail {message_id}")
        )
        return _read_raw(data)

    async def thread(self, thread_id: str) -> list[MailSummary]:
        query = {**_METADATA, "fields": f"messages({_SUMMARY})"}
        request = GoogleRequest(
            _path("threads", thread_id), query, what=f"thread {thread_id}"
        )
        data, names = await self._with_labels(request)
        return sorted(
            await self._summaries(data["messages"], names), key=attrgetter("date")
        )

    async def move(self, message_id: str, label: str) -> None:
        added = await self._label_id(message_id, label)
        removed = {"INBOX"} - {added}
        await self._modify(message_id, addLabelIds=[added], removeLabelIds=[*removed])

    async def add_label(self, message_id: str, label: str) -> None:
        await self._modify(
            message_id, addLabelIds=[await self._label_id(message_id, label)]
        )

    async def list_mails(self, ids: Sequence[str]) -> list[MailSummary]:
        requests = [LABELS, *map(self._summary_request, ids)]
        answers = await self._api.read_many(requests)
        labels, *mails = [
            body_of(answer, request)
            for answer, request in zip(answers, requests, strict=True)
        ]
        return await self._summaries(mails, _label_names(labels))

    async def change(self, ids: Sequence[str], change: Deed) -> int:
        """In one call for all mails that get and lose the same labels, which Gmail does whole or not at all."""
        known = [each for each in dict.fromkeys(ids) if _is_id(each)]
        labels, *mails = await self._read_present(
            [LABELS, *map(self._summary_request, known)]
        )
        alike: dict[tuple[frozenset[str], frozenset[str]], list[str]] = {}
        for data in mails:
            alike.setdefault(change.labels_for(data.get("labelIds", ())), []).append(
                str(data["id"])
            )
        names = {
            name.casefold(): label_id for label_id, name in _label_names(labels).items()
        }
        if change.do == "label" and mails and change.label.casefold() not in names:
            names[change.label.casefold()] = await self._make_label(change.label)
        done = 0
        for (gets, loses), same in alike.items():
            body = {"ids": same}
            body |= {"addLabelIds": [names[each.casefold()] for each in gets]}
            body |= {
                "removeLabelIds": [
                    names[each.casefold()] for each in loses if each.casefold() in names
                ]
            }
            if body["addLabelIds"] or body["removeLabelIds"]:
                await self._write(GoogleRequest("messages/batchModify", body=body))
                done += len(same)
        return done

    async def create_draft(self, raw: bytes, thread_id: str | None) -> SavedDraft:
        request = _draft_request(raw, thread_id)
        made = await self._create_draft(request, raw)
        if isinstance(made, SavedDraft):
            return made
        raise failure_of(made, request)

    async def prepare(self, mail: Outgoing) -> str:
        request = _draft_request(_with_bcc(mail), mail.thread_id)
        made = await self._create_draft(request, mail.raw)
        match made:
            case SavedDraft(id=token):
                return token
            case GoogleAnswer(status=403, reason="insufficientPermissions"):
                return f"{_ONCE}{mail.action_id}"
            case Doubt(answer):
                raise _refused_send(answer)
            case GoogleAnswer(status=404) if mail.thread_id is None:
                raise _refused_send(made)
            case GoogleAnswer(status=404) | NoAnswer():
                raise failure_of(made, request)
            case GoogleAnswer():
                raise _send_failure(made, request)

    async def send(self, token: str, mail: Outgoing, keep: Keep) -> Sent:
        """The bytes travel with the draft's id, so that a draft which somebody edited
        meanwhile changes nothing."""
        await keep(token)
        message, media = _wire(_with_bcc(mail), mail.thread_id)
        if token.startswith(_ONCE):
            request = GoogleRequest("messages/send", body=message, media=media)
        else:
            request = GoogleRequest(
                "drafts/send", body={"id": token, "message": message}, media=media
            )

        async def is_undone() -> bool:
            return isinstance(await self.check(token, mail), NotSent)

        try:
            answer = await self._api.change(request, is_undone)
        except (
            Unavailable
        ) as error:  # the sign-in, which comes before the mail is handed over
            raise SendFailed(f"{error.message}; nothing was sent") from error
        match answer:
            case GoogleAnswer(status=200, body={"id": str(sent), "threadId": str(thread)}):
                return Sent(sent, thread)
            case GoogleAnswer(status=404) if await is_undone():
                raise _refused_send(answer)
            case failure:
                raise _send_failure(failure, request)

    async def check(self, token: str, mail: Outgoing) -> Sent | NotSent | Unclear:
        if token.startswith(_ONCE):
            return Unclear(
                "only sending was granted at Gmail, so that nobody can look what became of it"
            )
        try:
            await self._api.read(
                GoogleRequest(_path("drafts", token), {"format": "minimal", "fields": "id"})
            )
        except NotFound:
            return await self._find_sent(mail) or Unclear(
                "the draft is gone, and the mail is not among the sent ones"
            )
        return NotSent(token)

    async def position(self) -> str:
        profile = await self._api.read(GoogleRequest("profile", {"fields": "historyId"}))
        return str(profile["historyId"])

    async def find_arrived(self, cursor: str) -> Arrived | None:
        """By the account's history; Gmail keeps about a week of it and answers 404 for what is older."""
        if not cursor.isdecimal():
            return None
        ids: dict[str, None] = {}
        try:
            async for answer in self._pages(
                "history", {"startHistoryId": cursor, **_HISTORY}
            ):
                ids |= dict.fromkeys(_ids_added(answer))
                cursor = str(answer["historyId"])
        except NotFound:
            return None
        return Arrived(tuple(ids), cursor)

    async def wait(self, cursor: str, seconds: float) -> None:
        """Gmail rings only through a public address of one's own, which a desk does not have."""
        del cursor
        await asyncio.sleep(min(seconds, self._poll))

    async def close(self) -> None:
        await self._http.aclose()

    async def _pages(self, path: str, query: Parameters) -> AsyncIterator[dict[str, Any]]:
        page: dict[str, str] = {}
        while True:
            answer = await self._api.read(GoogleRequest(path, {**query, **page}))
            yield answer
            following = answer.get("nextPageToken")
            if following is None:
                return
            if following == page.get("pageToken"):
                raise ProviderDown("Gmail's answer has no next page", hint="try again")
            page["pageToken"] = str(following)

    async def _ids(self, limit: int, query: Parameters) -> list[str]:
        ids: list[str] = []
        page = {
            "maxResults": str(min(limit, _PAGE)),
            "fields": "messages(id),nextPageToken",
        }
        async for answer in self._pages("messages", {**query, **page}):
            ids += [str(each["id"]) for each in answer.get("messages", ())]
            if len(ids) >= limit:
                break
        return ids[:limit]

    async def _read_present(
        self, requests: Sequence[GoogleRequest]
    ) -> list[dict[str, Any]]:
        """The answers, without those to what is gone since it was listed."""
        bodies = []
        for request, answer in zip(
            requests, await self._api.read_many(requests), strict=True
        ):
            with suppress(NotFound):
                bodies.append(body_of(answer, request))
        return bodies

    def _summary_request(self, message_id: str) -> GoogleRequest:
        query: Parameters = {**_METADATA, "fields": _SUMMARY}
        if message_id in self._known:
            query = {"format": "minimal", "fields": "id,labelIds"}
        return GoogleRequest(
            _path("messages", message_id), query, what=f"mail {message_id}"
        )

    async def _summaries(
        self, mails: Sequence[dict[str, Any]], names: dict[str, str]
    ) -> list[MailSummary]:
        fresh = [data for data in mails if data["id"] not in self._known]
        read = dict(
            zip((data["id"] for data in fresh), await _parse_headers(fresh), strict=True)
        )
        return [self._summary(data, names, read.get(data["id"])) for data in mails]

    def _summary(
        self, data: dict[str, Any], names: dict[str, str], parsed: mime.Parsed | None
    ) -> MailSummary:
        labels = tuple(names.get(label, label) for label in data.get("labelIds", ()))
        if data["id"] not in self._known:
            if len(self._known) >= MOST_CACHED:
                self._known.pop(next(iter(self._known)))
            self._known[data["id"]] = _without_labels(
                data, parsed or mime.parse(_header_bytes(data))
            )
        return self._known[data["id"]]._replace(
            labels=labels, label_ids=tuple(data.get("labelIds", ()))
        )

    async def _with_labels(
        self, request: GoogleRequest
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """A read and the labels' names, in one round trip."""
        answer, labels = await self._api.read_many([request, LABELS])
        return body_of(answer, request), _label_names(body_of(labels, LABELS))

    async def _label_id(self, message_id: str, label: str) -> str:
        """The id of a label, made where it is missing, but only for a mail that is there."""
        what = f"mail {message_id}"
        name = label.strip()
        if not name:
            raise InvalidInput("a label needs a name")
        exists = GoogleRequest(
            _path("messages", message_id), {"format": "minimal", "fields": "id"}, what=what
        )
        _, names = await self._with_labels(exists)
        return _find_label(names, name) or await self._make_label(name)

    async def _make_label(self, name: str) -> str:
        """Its id, also where somebody else made it at the same moment."""
        try:
            made = await self._write(GoogleRequest("labels", body={"name": name}))
        except InvalidInput:
            answer, *_ = await self._api.read_many([LABELS])
            found = _find_label(_label_names(body_of(answer, LABELS)), name)
            if found is None:
                raise
            return found
        return str(made["id"])

    async def _modify(self, message_id: str, **change: list[str]) -> None:
        path = f"{_path('messages', message_id)}/modify"
        await self._write(
            GoogleRequest(path, {"fields": "id"}, change, what=f"mail {message_id}")
        )

    async def _write(self, request: GoogleRequest) -> dict[str, Any]:
        return body_of(await self._api.once(request), request)

    async def _create_draft(
        self, request: GoogleRequest, raw: bytes
    ) -> SavedDraft | GoogleAnswer | NoAnswer | Doubt:
        mail = await asyncio.to_thread(mime.parse, raw)
        made: list[SavedDraft] = []

        async def is_undone() -> bool:
            made.extend(await self._find_drafts(mail))
            return not made

        answer = await self._api.change(request, is_undone)
        if made:
            return made[0]
        match answer:
            case GoogleAnswer(
                status=200, body={"id": str(draft), "message": dict(message)}
            ):
                return SavedDraft(draft, str(message["id"]), str(message["threadId"]))
            case failure:
                return failure

    async def _find_drafts(self, mail: mime.Parsed) -> list[SavedDraft]:
        """The drafts with this Message-ID, among the newest."""
        listing = {
            "maxResults": str(MOST_SEARCHED),
            "fields": "drafts(id,message(id,threadId))",
        }
        listed = await self._api.read(GoogleRequest("drafts", listing))
        drafts = {str(each["message"]["id"]): each for each in listed.get("drafts", ())}
        metadata = {
            "format": "metadata",
            "metadataHeaders": "Message-ID",
            "fields": "id,payload/headers",
        }
        found = await self._read_present(
            [GoogleRequest(_path("messages", each), metadata) for each in drafts]
        )
        read = zip(found, await _parse_headers(found), strict=True)
        ours = [data["id"] for data, parsed in read if parsed.message_id == mail.message_id]
        return [
            SavedDraft(
                str(drafts[each]["id"]), each, str(drafts[each]["message"]["threadId"])
            )
            for each in ours
        ]

    async def _find_sent(self, mail: Outgoing) -> Sent | None:
        """Our mail among the sent ones, by the header that names its action: Gmail rewrites Message-ID."""
        # The label lists a mail at once, the search index moments later; the index finds it among many.
        fields = "id,threadId,payload/headers"
        metadata = {
            "format": "metadata",
            "metadataHeaders": mime.ACTION_HEADER,
            "fields": fields,
        }
        for query in ({}, {"q": f"to:{mail.recipients[0]}"}):
            ids = await self._ids(MOST_SEARCHED, {"labelIds": "SENT", **query})
            found = await self._read_present(
                [GoogleRequest(_path("messages", each), metadata) for each in ids]
            )
            for data, parsed in zip(found, await _parse_headers(found), strict=True):
                if parsed.action_id == mail.action_id:
                    return Sent(str(data["id"]), str(data["threadId"]))
        return None


async def _parse_headers(mails: Sequence[dict[str, Any]]) -> list[mime.Parsed]:
    def parse() -> list[mime.Parsed]:
        return [mime.parse(_header_bytes(data)) for data in mails]

    return await asyncio.to_thread(parse)


def _send_failure(
    failure: GoogleAnswer | NoAnswer | Doubt, request: GoogleRequest
) -> DeskError:
    match failure:
        case NoAnswer(may_have_arrived=False):
            return SendFailed("Gmail cannot be reached; nothing was sent")
        case NoAnswer():
            return OutcomeUnknown("Gmail's answer was lost")
        case GoogleAnswer() if failure.wants_fewer or failure.status == 401:
            return failure_of(failure, request)
        case GoogleAnswer(status=404):
            return OutcomeUnknown(
                "the draft to be sent is gone: sent already, or deleted", status=404
            )
        case GoogleAnswer(status=status) if status >= 300:
            return _refused_send(failure)
        case Doubt(answer) | (GoogleAnswer() as answer):
            return OutcomeUnknown(
                f"Gmail may or may not have sent it: {answer.message}", status=answer.status
            )


def _refused_send(answer: GoogleAnswer) -> SendFailed:
    """Certainly not sent, whatever the status says."""
    hint = None
    if answer.status == 403:
        hint = f"run `{LOGIN}` and tick every box"
    reason = answer.reason or None
    said = f"Gmail did not take the mail: {answer.message}"
    return SendFailed(said, hint=hint, status=answer.status, reason=reason)


def _with_bcc(mail: Outgoing) -> bytes:
    """Gmail reads from the headers who gets a mail, and takes this one out of every copy but the sender's own."""
    if not mail.bcc:
        return mail.raw
    return headers.fold("Bcc", list(mail.bcc), separator=",").encode() + b"\r\n" + mail.raw


def _draft_request(raw: bytes, thread_id: str | None) -> GoogleRequest:
    message, media = _wire(raw, thread_id)
    what = "" if thread_id is None else f"thread {thread_id}"
    return GoogleRequest("drafts", body={"message": message}, media=media, what=what)


def _ids_added(answer: dict[str, Any]) -> list[str]:
    """What came into the inbox. Drafts and sent mails are added too; what was deleted meanwhile has no labels."""
    messages = [
        each["message"]
        for record in answer.get("history", ())
        for each in record.get("messagesAdded", ())
    ]
    return [
        str(message["id"]) for message in messages if "INBOX" in message.get("labelIds", ())
    ]


def _is_id(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name) is not None


def _path(kind: str, name: str) -> str:
    if not _is_id(name):
        raise NotFound(
            f"{kind.removesuffix('s').replace('message', 'mail')} {name[:100]} not found"
        )
    return f"{kind}/{name}"


def _wire(raw: bytes, thread_id: str | None) -> tuple[dict[str, str], bytes | None]:
    """A mail as Gmail takes it: in the request itself, or beside it where it is long."""
    message = {} if thread_id is None else {"threadId": thread_id}
    if len(raw) > LONGEST_RAW:
        return message, raw
    return message | {"raw": base64.urlsafe_b64encode(raw).decode()}, None


def _find_label(names: Mapping[str, str], name: str) -> str | None:
    return next(
        (
            label_id
            for label_id, known in names.items()
            if known.casefold() == name.casefold()
        ),
        None,
    )


def _label_names(labels: dict[str, Any]) -> dict[str, str]:
    return {str(label["id"]): str(label["name"]) for label in labels.get("labels", ())}


def _header_bytes(data: dict[str, Any]) -> bytes:
    headers = data.get("payload", {}).get("headers", ())
    return "".join(
        f"{each['name']}: {' '.join(each['value'].split())}\r\n" for each in headers
    ).encode()


def _date(data: dict[str, Any]) -> datetime:
    try:
        return clock.from_ms(int(data["internalDate"]))
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise ProviderDown("Gmail's answer has a date that is none") from error


def _read_raw(data: dict[str, Any]) -> bytes:
    try:
        return base64.urlsafe_b64decode(data["raw"] + "==")
    except ValueError as error:
        raise ProviderDown("Gmail's answer has a mail that cannot be read") from error


def _without_labels(data: dict[str, Any], parsed: mime.Parsed) -> MailSummary:
    date = _date(data)
    snippet = html.unescape(data.get("snippet", ""))
    return parsed.summary(str(data["id"]), str(data["threadId"]), date, snippet, labels=())
