"""Gmail's REST API over HTTP: one exchange, many requests in one batch, and what each answer means.

What only reads is tried again when the trouble may pass. What changes something is tried again where nothing happened:
after 401 and 429, and after a failure of Gmail's once somebody has looked.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2

from deskhand.errors import (
    AuthRequired,
    BadConfig,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    ProviderDown,
    RateLimited,
)
from deskhand.mail.charsets import without_surrogates
from deskhand.mail.google_auth import LOGIN, GoogleAuth

RETRIES = 3
FIRST_WAIT = 0.5
LONGEST_WAIT = 15.0
"""A wait that Gmail asks for beyond this is the caller's to decide."""
PARTS = 51
"""Gmail takes 100 requests in a batch and recommends 50; one more asks for the labels' names."""

_RATE_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded"}
)
_BOUNDARY = "deskhand-batch"
_RELATED = f"deskhand-{secrets.token_hex(16)}"
"""Nobody who writes a mail knows it."""


class GoogleBody(dict[str, Any]):
    """An object in an answer: what is null is not there, and what is not there nobody takes for a fault of ours.

    No text in it has half a character, which JSON can name and nobody can write.
    ValueError where a member is of another kind than Google's own.
    """

    def __init__(self, members: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(
            (without_surrogates(key), _made_whole(value))
            for key, value in members
            if value is not None
        )
        for key, value in self.items():
            if not _is_of_its_kind(key, value):
                raise ValueError(key)

    def __missing__(self, key: str) -> Any:
        raise ProviderDown(f"Gmail's answer lacks {key!r}", hint="try again")


_TEXTS = frozenset({"id", "threadId", "snippet", "raw", "name", "value", "nextPageToken"})
_LISTS = frozenset({"messages", "labels", "history", "messagesAdded", "drafts", "headers"})


def _is_of_its_kind(key: str, value: Any) -> bool:
    if key in _TEXTS:
        return isinstance(value, str)
    if key in _LISTS:
        return isinstance(value, list) and all(
            isinstance(each, GoogleBody) for each in value
        )
    if key == "labelIds":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return key != "payload" or isinstance(value, GoogleBody)


def _made_whole(value: Any) -> Any:
    """Without half characters; an object in it was made whole when it was read."""
    match value:
        case str():
            return without_surrogates(value)
        case list():
            return [_made_whole(each) for each in value]
    return value


Parameters = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class GoogleRequest:
    path: str
    """Below /gmail/v1/users/me/."""
    query: Parameters = field(default_factory=dict)
    body: dict[str, Any] | None = None
    """What is posted; a request without it only reads."""
    media: bytes | None = None
    """A mail that is too long for the body: it is uploaded beside it."""
    what: str = ""
    """What is asked for, for the error that says it is not there."""

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def target(self) -> str:
        return f"/gmail/v1/users/me/{self.path}?{httpx2.QueryParams(self.query)}".rstrip(
            "?"
        )


@dataclass(frozen=True, slots=True)
class GoogleAnswer:
    status: int
    body: dict[str, Any] = field(default_factory=dict)
    retry_after: float | None = None
    is_readable: bool = True
    """It is an object, and its members are what Google says they are."""

    @property
    def reason(self) -> str:
        match self.body:
            case {"error": {"errors": [{"reason": str(reason)}, *_]}}:
                return reason
        return ""

    @property
    def message(self) -> str:
        match self.body:
            case {"error": {"message": str(message)}}:
                return message
        return f"HTTP status {self.status}"

    @property
    def wants_fewer(self) -> bool:
        """Gmail refuses because too much was asked of it."""
        return self.status == 429 or (self.status == 403 and self.reason in _RATE_REASONS)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer came."""

    error: httpx2.TransportError
    retry_after: float | None = None

    @property
    def may_have_arrived(self) -> bool:
        """Gmail may have got the request all the same."""
        return not isinstance(
            self.error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
        )


@dataclass(frozen=True, slots=True)
class Doubt:
    """Gmail failed, and what was asked may have happened all the same."""

    answer: GoogleAnswer


class GmailApi:
    def __init__(
        self,
        origin: str,
        http: httpx2.AsyncClient,
        auth: GoogleAuth,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
    ) -> None:
        self._origin = origin
        self._http = http
        self._auth = auth
        self._sleep = sleep
        self._chance = chance

    async def read(self, request: GoogleRequest) -> dict[str, Any]:
        (answer,) = await self.read_many([request])
        return body_of(answer, request)

    async def read_many(
        self, requests: Sequence[GoogleRequest]
    ) -> list[GoogleAnswer | NoAnswer]:
        """Each request's answer; what may pass is tried again, each on its own."""
        answers = await self._exchange(requests)
        for attempt in range(RETRIES):
            again = [place for place, answer in enumerate(answers) if _may_pass(answer)]
            if not again:
                break
            wait = self._wait(attempt, *(answers[place] for place in again))
            if wait > LONGEST_WAIT:
                break
            await self._sleep(wait)
            newer = await self._exchange([requests[place] for place in again])
            for place, answer in zip(again, newer, strict=True):
                answers[place] = answer
        return answers

    def _wait(self, attempt: int, *answers: GoogleAnswer | NoAnswer) -> float:
        jitter = FIRST_WAIT * (1 << attempt) * (0.5 + self._chance() / 2)
        return max(jitter, *(answer.retry_after or 0 for answer in answers))

    async def change(
        self, request: GoogleRequest, is_undone: Callable[[], Awaitable[bool]]
    ) -> GoogleAnswer | NoAnswer | Doubt:
        """The answer to what changes something; where Gmail failed, `is_undone` looks whether it happened."""
        patience = LONGEST_WAIT
        attempt = 0
        while True:
            answer = await self.once(request)
            if isinstance(answer, NoAnswer) or not _may_pass(answer):
                return answer
            if not answer.wants_fewer and not await _is_certain(is_undone):
                return Doubt(answer)
            wait = self._wait(attempt, answer)
            patience -= wait
            attempt += 1
            if attempt > RETRIES or patience < 0:
                return answer
            await self._sleep(wait)

    async def once(self, request: GoogleRequest) -> GoogleAnswer | NoAnswer:
        """The answer to what changes something: it is never tried again, whatever happened."""
        (answer,) = await self._exchange([request])
        return answer

    async def _exchange(
        self, requests: Sequence[GoogleRequest]
    ) -> list[GoogleAnswer | NoAnswer]:
        bearer = await self._auth.bearer()
        answers = await self._ask_all(requests, bearer)
        refused = [
            place
            for place, answer in enumerate(answers)
            if isinstance(answer, GoogleAnswer) and answer.status == 401
        ]
        if refused:
            bearer = await self._auth.bearer(refused=bearer)
            newer = await self._ask_all([requests[place] for place in refused], bearer)
            for place, answer in zip(refused, newer, strict=True):
                answers[place] = answer
        return answers

    async def _ask_all(
        self, requests: Sequence[GoogleRequest], bearer: str
    ) -> list[GoogleAnswer | NoAnswer]:
        if len(requests) == 1:
            return [await self._ask(requests[0], bearer)]
        batches = [
            requests[start : start + PARTS] for start in range(0, len(requests), PARTS)
        ]
        answers = await asyncio.gather(
            *(self._ask_batch(batch, bearer) for batch in batches)
        )
        return [answer for batch in answers for answer in batch]

    async def _ask(self, request: GoogleRequest, bearer: str) -> GoogleAnswer | NoAnswer:
        url = self._origin + request.target
        headers = {"Authorization": f"Bearer {bearer}"}
        sent: dict[str, Any] = {"json": request.body}
        if request.media is not None:
            url = f"{self._origin}/upload{request.target}?uploadType=multipart"
            headers["Content-Type"] = f"multipart/related; boundary={_RELATED}"
            sent = {"content": _related_body(request.body, request.media)}
        try:
            answer = await self._http.request(request.method, url, headers=headers, **sent)
        except httpx2.TransportError as error:
            return NoAnswer(error)
        return _answer(
            answer.status_code, answer.headers.get("Retry-After"), answer.content
        )

    async def _ask_batch(
        self, requests: Sequence[GoogleRequest], bearer: str
    ) -> list[GoogleAnswer | NoAnswer]:
        kind = f"multipart/mixed; boundary={_BOUNDARY}"
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": kind}
        url = f"{self._origin}/batch/gmail/v1"
        try:
            answer = await self._http.post(
                url, content=_batch_body(requests), headers=headers
            )
        except httpx2.TransportError as error:
            return [NoAnswer(error) for _ in requests]
        if answer.status_code in (400, 404, 405, 410, 501):
            raise BadConfig(
                f"{self._origin} has no /batch/gmail/v1, which every search needs: it answers {answer.status_code}",
                hint="DESKHAND_GMAIL_API_ENDPOINT must be an endpoint with Gmail's batch",
            )
        if answer.status_code != 200:
            whole = _answer(
                answer.status_code, answer.headers.get("Retry-After"), answer.content
            )
            return [whole for _ in requests]
        parts = dict(_batch_answers(answer.headers.get("Content-Type", ""), answer.content))
        missing = GoogleAnswer(
            502, {"error": {"message": "the batch left this request unanswered"}}
        )
        return [parts.get(place, missing) for place in range(len(requests))]


def body_of(answer: GoogleAnswer | NoAnswer, request: GoogleRequest) -> dict[str, Any]:
    """The body of a success; any failure is raised as what it means."""
    if isinstance(answer, GoogleAnswer) and 200 <= answer.status < 300:
        if request.method == "GET" and not answer.is_readable:
            raise ProviderDown("Gmail's answer cannot be read", hint="try again")
        return answer.body
    raise failure_of(answer, request)


def failure_of(
    answer: GoogleAnswer | NoAnswer | Doubt, request: GoogleRequest
) -> DeskError:
    match answer:
        case NoAnswer(error=httpx2.TimeoutException()):
            return ProviderDown("Gmail does not answer in time")
        case NoAnswer(error=error):
            return ProviderDown("Gmail cannot be reached", cause=type(error).__name__)
        case Doubt(failed) | (GoogleAnswer() as failed):
            return _refusal(failed, request)


def _refusal(answer: GoogleAnswer, request: GoogleRequest) -> DeskError:
    if answer.wants_fewer:
        return RateLimited(
            f"Gmail wants fewer requests: {answer.message}", retry_after=answer.retry_after
        )
    match answer.status:
        case 401:
            return AuthRequired("Gmail does not accept this sign-in", hint=f"run `{LOGIN}`")
        case 403:
            hint = f"run `{LOGIN}` and tick every box"
            return Denied(
                f"Gmail does not allow it: {answer.message}",
                reason=answer.reason or "forbidden",
                hint=hint,
            )
        case status if status == 404 or answer.message.startswith("Invalid id value"):
            return NotFound(f"{request.what or request.path} not found")
        case status if 400 <= status < 500:
            return InvalidInput(f"Gmail refuses it: {answer.message}", status=status)
        case status:
            return ProviderDown(f"Gmail is in trouble: {answer.message}", status=status)


async def _is_certain(is_undone: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await is_undone()
    except DeskError:
        return False


def _may_pass(answer: GoogleAnswer | NoAnswer) -> bool:
    return isinstance(answer, NoAnswer) or answer.wants_fewer or answer.status >= 500


def _answer(status: int, retry_after: str | None, content: bytes) -> GoogleAnswer:
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(content, object_pairs_hook=GoogleBody)
    seconds = float(retry_after[:9]) if retry_after and retry_after.isdecimal() else None
    if not isinstance(body, GoogleBody):
        return GoogleAnswer(status, GoogleBody(), seconds, is_readable=False)
    return GoogleAnswer(status, body, seconds)


def _related_body(body: dict[str, Any] | None, media: bytes) -> bytes:
    """What Google calls a multipart upload: the request, and beside it the mail."""
    about = json.dumps(body).encode()
    head = f"--{_RELATED}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode()
    edge = f"\r\n--{_RELATED}\r\nContent-Type: message/rfc822\r\n\r\n".encode()
    return head + about + edge + media + f"\r\n--{_RELATED}--\r\n".encode()


def _batch_body(requests: Sequence[GoogleRequest]) -> bytes:
    parts: list[str] = []
    for place, request in enumerate(requests):
        envelope = f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{place}>\r\n\r\n"
        parts.append(f"{envelope}{request.method} {request.target} HTTP/1.1\r\n\r\n\r\n")
    return f"{''.join(parts)}--{_BOUNDARY}--\r\n".encode("ascii")


def _batch_answers(content_type: str, content: bytes) -> Iterator[tuple[int, GoogleAnswer]]:
    """Each part answers the request whose Content-ID it repeats, in any order."""
    boundary = re.search(r'boundary="?([^";\s]+)', content_type)
    if boundary is None:
        return
    for part in content.split(f"--{boundary[1]}".encode())[1:]:
        envelope, _, answer = part.partition(b"\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        place = re.search(
            rb"(?im)^content-id:(?:[^\r\n]*[^\r\n\d])?(\d{1,9})>?\r?$", envelope
        )
        status = re.match(rb"HTTP/\S+ (\d{3})", head)
        waits = re.findall(rb"(?im)^retry-after: *(\d{1,9})", head) or [b""]
        if place and status:
            yield int(place[1]), _answer(int(status[1]), waits[0].decode(), body)
