"""Speaks to the tasks backend, in another process or in this one, with the same code.

A read is tried again when nobody knows whether it arrived, and so is a create where the backend has shown that it
makes one task of one idempotency key. Every other write is made once: after a timeout it may or may not have happened,
and the error says so.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any
from urllib.parse import quote

import anyio
import httpx2

from deskhand.askers import current_asker
from deskhand.errors import (
    AuthRequired,
    BackendFailed,
    Changed,
    Denied,
    DeskError,
    FieldProblem,
    InvalidInput,
    NotFound,
    RateLimited,
    TimedOut,
    Unavailable,
    printable,
)
from deskhand.tasks import listing, recording
from deskhand.tasks.models import problems

log = logging.getLogger("deskhand.tasks.client")

AGAIN = frozenset({502, 503, 504})
_LOOK = "List the tasks to see what came of it before you try again"
_CHECK = (
    "Check that the tasks backend runs and that FASTAPI_BASE_URL is right, then try again"
)


class TasksClient:
    """One pool of connections for all calls and all users."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        token: str,
        *,
        timeout: float,
        retries: int,
        pause: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._http = http
        self._token = token
        self._timeout = timeout
        self._retries = retries
        self._pause = pause
        self._is_keyed = False
        """Whether this backend has shown that it honours idempotency keys."""

    async def call(self, user: str, method: str, path: str, **sent: Any) -> Any:
        """The backend's answer, or the desk's error for its refusal. The arguments are those of `send`."""
        return content_of(await self.send(user, method, path, **sent))

    async def page(self, user: str, asked: Mapping[str, Any], **sent: Any) -> Any:
        """One page of tasks as our own backend gives it, also from a backend that answers
        with a list of them all."""
        content = await self.call(user, "GET", "/tasks", query=asked, **sent)
        if isinstance(content, list) and str(len(content)) == str(asked.get("limit")):
            # Perhaps it cut the list there, in a way of its own.
            content = await self.call(user, "GET", "/tasks", **sent)
        if isinstance(content, list):
            return listing.page_of(content, asked)
        return content

    async def send(
        self,
        user: str,
        method: str,
        path: str,
        *,
        actor: str,
        body: Mapping[str, Any] | bytes | None = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        match: str | None = None,
        session: str | None = None,
    ) -> httpx2.Response:
        """The backend's answer, whatever it says. The record names `actor`; the ETag `match` must still hold."""
        headers = {
            "Authorization": f"Bearer {self._token}",
            "X-User-ID": user,
            "Content-Type": "application/json",
            "X-Request-ID": uuid.uuid4().hex,
            recording.ACTOR: actor,
        }
        if asker := current_asker():
            headers[recording.ASKER] = quote(asker)
        if key:
            headers["Idempotency-Key"] = key
        if match:
            headers["If-Match"] = match
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            headers["Content-Type"] = "text/calendar"
            sent = {"content": body}
        # A user's name may have any letters.
        encoded = httpx2.Headers(headers, encoding="utf-8")
        request = self._http.build_request(
            method, path, params=query, headers=encoded, timeout=None, **sent
        )
        who = {"user_id": user, "session_id": session}
        for attempt in range(self._retries):
            try:
                answer = await self._attempt(request, who)
                if answer.status_code not in AGAIN or not await self._may_repeat(
                    request, who
                ):
                    return answer
            except Unavailable:
                if not await self._may_repeat(request, who):
                    raise
            await self._pause(2**attempt)
        return await self._attempt(request, who)

    async def close(self) -> None:
        await self._http.aclose()

    async def _may_repeat(
        self, request: httpx2.Request, who: Mapping[str, str | None]
    ) -> bool:
        if request.method == "GET" or "idempotency-key" not in request.headers:
            return request.method == "GET"
        if not self._is_keyed:
            named = {"X-Request-ID": request.headers["x-request-id"]}
            question = self._http.build_request(
                "GET", "/health", headers=named, timeout=None
            )
            with suppress(Unavailable):
                await self._attempt(question, who)
        return self._is_keyed

    async def _attempt(
        self, request: httpx2.Request, who: Mapping[str, str | None]
    ) -> httpx2.Response:
        started = perf_counter()
        status: int | None = None
        problem: str | None = None
        try:
            with anyio.fail_after(self._timeout):
                answer = await self._http.send(request)
            status = answer.status_code
            self._is_keyed = self._is_keyed or recording.KEYED in answer.headers
            if status >= 400:
                problem = f"HTTP {status}"
        except (TimeoutError, httpx2.TimeoutException) as error:
            problem = "timeout"
            doubt = _doubt(request)
            raise TimedOut(
                f"Request timed out: the backend did not answer within {self._timeout:g} s{doubt}",
                hint=_LOOK if doubt else "Try again in a moment",
            ) from error
        except httpx2.ConnectError as error:
            problem = type(error).__name__
            raise Unavailable(
                "Unable to connect to backend service", hint=_CHECK, reason=problem
            ) from error
        except httpx2.TransportError as error:
            problem = type(error).__name__
            doubt = _doubt(request)
            raise Unavailable(
                f"Unable to connect to backend service: it broke off{doubt}",
                hint=_LOOK if doubt else _CHECK,
                reason=problem,
            ) from error
        else:
            return answer
        finally:
            _log(request, who, status, (perf_counter() - started) * 1000, problem)


def _log(
    request: httpx2.Request,
    who: Mapping[str, str | None],
    status: int | None,
    milliseconds: float,
    problem: str | None,
) -> None:
    """The contract's BackendRequestLogEvent, and the session where its client names one."""
    fields = {
        "request_id": request.headers["x-request-id"],
        **{name: value for name, value in who.items() if value is not None},
        "method": request.method,
        "endpoint": request.url.path,
        "status_code": status,
        "duration_ms": round(milliseconds, 3),
        "error": problem,
    }
    log.info("backend_request", extra=fields)


def _doubt(request: httpx2.Request) -> str:
    """What to say of a request whose answer is missing; nothing where it can have changed nothing."""
    if request.method == "GET":
        return ""
    if "idempotency-key" in request.headers:
        return "; the task may or may not exist"
    return "; the change may or may not have been made"


def content_of(answer: httpx2.Response) -> Any:
    """What the backend gave; its refusal is raised as the desk's own error."""
    if answer.status_code >= 400:
        raise _refusal(answer)
    if answer.headers.get("content-type", "").startswith("text/calendar"):
        return answer.text
    try:
        return answer.json() if answer.content else None
    except ValueError as error:
        raise _backend_failure(answer, "its answer is not JSON") from error


def _refusal(answer: httpx2.Response) -> DeskError:  # noqa: PLR0911 - one case for each line of the contract's table
    said = _problem_of(answer)
    reason = _reason_of(said)
    message = reason or f"HTTP {answer.status_code}"
    match answer.status_code:
        case 401:
            return AuthRequired(
                f"Service authentication failed: {message}",
                hint="Check SERVICE_AUTH_TOKEN on both sides",
                status=401,
            )
        case 403:
            return Denied(
                f"User not authorized to access this resource: {message}",
                reason="forbidden",
                hint="Ask for one of the user's own tasks",
            )
        case 404:
            missing = NotFound(
                f"Requested resource not found: {message}", hint=_where(answer.request)
            )
            missing.to_person = (
                message,
                "`deskhand tasks list`, or Tasks on the page, shows the tasks there are",
            )
            return missing
        case 412:
            return Changed(message, hint="Read the task again, then decide")
        case 400 | 409 | 422:
            return InvalidInput(f"Input validation failed: {message}", fields=_fields(said))
        case 429:
            return RateLimited(f"Backend service error: {message}", hint="Try again later")
        case status if status < 500:
            return _backend_failure(answer, reason or "it refused")
        case _:
            return _backend_failure(answer, "it failed")


def _where(request: httpx2.Request) -> str:
    """Where to look for what is not there; a backend without `/tasks` is another program, or lies elsewhere."""
    if request.url.path.endswith("/tasks"):
        return (
            "Check that FASTAPI_BASE_URL is the address under which the backend has /tasks"
        )
    return "Use list_tasks to see the tasks there are"


def misread(answer: httpx2.Response) -> BackendFailed:
    """An answer that nobody can read: what was asked may have happened all the same."""
    return _backend_failure(answer, "its answer is not the one that was agreed on")


def _backend_failure(answer: httpx2.Response, message: str) -> BackendFailed:
    reference = _problem_of(answer).get("reference")
    # A refusal changed nothing, and ours means what it says; of another nobody knows what came before its failure.
    refused = 400 <= answer.status_code < 500
    doubt = ""
    if not refused and recording.KEYED not in answer.headers:
        doubt = _doubt(answer.request)
    return BackendFailed(
        f"Backend service error: {message} (HTTP {answer.status_code}){doubt}",
        hint=_LOOK
        if doubt
        else "Try again in a moment; if it stays, look into the backend's log",
        status=answer.status_code,
        reference=printable(reference) if reference else None,
    )


def _problem_of(answer: httpx2.Response) -> dict[str, Any]:
    try:
        said = answer.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _reason_of(said: dict[str, Any]) -> str:
    """Why the backend refuses, under the names that backends have for it."""
    given = (said.get(name) for name in ("detail", "message", "error"))
    return next(
        (printable(each, 500) for each in given if each and isinstance(each, str)), ""
    )


def _fields(said: dict[str, Any]) -> list[FieldProblem]:
    """The backend's field list: ours, or the one that FastAPI makes by itself. What has another form is left out."""
    match said:
        case {"errors": [*found]}:
            return [
                _read_field(item)
                for item in found
                if isinstance(item, dict) and _has_texts(item, "field", "message")
            ]
        case {"detail": [*found]}:
            told = [
                item | {"msg": printable(item["msg"], 500)}
                for item in found
                if isinstance(item, dict)
                and isinstance(item.get("loc"), list)
                and _has_texts(item, "msg")
            ]
            return problems({"input": None, "type": "", **item} for item in told)
        case _:
            return []


def _read_field(item: dict[str, Any]) -> FieldProblem:
    more = {
        name: printable(item[name], 500)
        for name in ("received_value", "suggestion")
        if item.get(name) is not None
    }
    return FieldProblem(printable(item["field"]), printable(item["message"], 500), **more)


def _has_texts(item: dict[str, Any], *names: str) -> bool:
    return all(isinstance(item.get(name), str) for name in names)
