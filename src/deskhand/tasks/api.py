"""The tasks backend: REST over the tables. With problems.py and openapi.py the only home of FastAPI.

An answer leaves after its commit: each handler awaits the store, and nothing happens behind the answer. A change
and the entry about it in the record are written together or not at all.
"""

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import count
from operator import attrgetter
from time import perf_counter
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand import __version__, audit, tokens
from deskhand.askers import describe_actor
from deskhand.errors import (
    AuthRequired,
    DeskError,
    InvalidInput,
    OutOfScope,
    Unavailable,
    printable,
)
from deskhand.store import Store, Transaction
from deskhand.tasks import calendars, due, models, openapi, problems, recording, rows, vtodo
from deskhand.tasks.models import LARGEST_ID, NewTask, TaskChanges, TaskFilter

log = logging.getLogger("deskhand.tasks")

KEY_LIFE = timedelta(hours=24)
"""How long a create may be repeated under its key."""
_LONGEST_ASKER = 400
PURGE_EVERY = 1000
"""After this many creates with a key the old keys are deleted."""
Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Asked = TypeVar("Asked", NewTask, TaskChanges)
T = TypeVar("T")


class _Digits(StringConvertor):
    """Keeps ids apart from the names beside them (/tasks/undo); how large one may be is the handler's to say."""

    regex = "[0-9]+"


register_url_convertor("digits", _Digits())


class _TasksApi(FastAPI):
    def openapi(self) -> dict[str, Any]:
        document = self.openapi_schema
        if document is None:
            document = super().openapi()
            openapi.complete(document)
        return document


def tasks_api(
    store: Store,
    service_token: str,
    now: Callable[[], datetime],
    zone: str,
    user: str | None = None,
) -> FastAPI:
    """The backend as an ASGI application; a token that names no user stands for `user`."""
    backend = _Backend(store, service_token, now, ZoneInfo(zone), user)
    app = _make_app()
    identified = _identifying_route(backend.identify)
    for method, path, handler, status, answer, name in backend.routes():
        app.router.add_api_route(
            path,
            handler,
            methods=[method],
            operation_id=name,
            status_code=status,
            response_model=None,
            response_class=Response,
            responses=openapi.responses(method, path, status, answer),
            openapi_extra=openapi.EXTRA.get((method, path)),
            route_class_override=identified,
        )
    _add_health(app, backend)
    _add_closed_routes(app, backend)
    app.add_middleware(_Seam, backend=backend)
    return app


def _make_app() -> _TasksApi:
    return _TasksApi(
        title="Deskhand tasks",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        swagger_ui_oauth2_redirect_url=None,
        # Nobody else is told what was asked here, whatever the environment names.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
        },
        exception_handlers={
            DeskError: problems.refuse,
            RequestValidationError: problems.refuse_fields,
            HTTPException: problems.refuse_route,
        },
    )


def _add_health(app: FastAPI, backend: "_Backend") -> None:
    health: dict[int | str, dict[str, Any]] = {
        200: {"description": "it answers"},
        503: openapi.PROBLEM,
    }
    app.add_api_route(
        "/health",
        backend.health,
        operation_id="check_health",
        response_model=None,
        response_class=Response,
        responses=health,
    )


def _add_closed_routes(app: FastAPI, backend: "_Backend") -> None:
    """What is nobody's task, for who has a token."""

    async def document(request: Request) -> Response:
        said = app.openapi()
        if root := request.scope.get("root_path"):
            said = said | {"servers": [{"url": root}]}
        return _json(said)

    admitted = _identifying_route(backend.admit)
    closed: dict[str, Callable[..., Any]] = {
        "/metrics": backend.metrics,
        "/openapi.json": document,
    }
    for path, handler in closed.items():
        app.router.add_api_route(
            path, handler, include_in_schema=False, route_class_override=admitted
        )


class _Route(NamedTuple):
    method: str
    path: str
    handler: Callable[..., Any]
    status: int
    answer: type[BaseModel] | None
    name: str
    """What the document calls it, and the record where it changes something."""


class _Backend:
    """The handlers and what they share."""

    def __init__(
        self,
        store: Store,
        service_token: str,
        now: Callable[[], datetime],
        zone: ZoneInfo,
        user: str | None,
    ) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._store = store
        self._service_token = service_token.encode()
        self._now = now
        self._zone = zone
        self._user = user
        self._keyed = count()
        self._actions = {
            (each.method, each.path.replace(":digits", "")): each.name
            for each in self.routes()
            if each.method != "GET"
        }

    def routes(self) -> list[_Route]:
        one = "/tasks/{task_id:digits}"
        return [
            _Route("POST", "/tasks", self.create, 201, models.Task, "create_task"),
            _Route("GET", "/tasks", self.page, 200, models.TaskPage, "list_tasks"),
            _Route(
                "POST",
                "/tasks/bulk-delete",
                self.bulk_delete,
                200,
                models.Deleted,
                "delete_tasks",
            ),
            _Route(
                "POST", "/tasks/bulk", self.bulk, 200, models.BulkResults, "change_tasks"
            ),
            _Route(
                "POST", "/tasks/undo", self.undo, 200, models.Undone, "undo_task_change"
            ),
            _Route("GET", "/tasks/export", self.export, 200, None, "export_tasks"),
            _Route(
                "POST", "/tasks/import", self.take, 200, models.Imported, "import_tasks"
            ),
            _Route("GET", one, self.get, 200, models.Task, "get_task"),
            _Route("PUT", one, self.update, 200, models.Task, "update_task"),
            _Route("PATCH", one, self.complete, 200, models.Task, "mark_task_completed"),
            _Route("DELETE", one, self.delete, 204, None, "delete_task"),
            _Route(
                "POST", f"{one}/restore", self.restore, 200, models.Task, "restore_task"
            ),
        ]

    # Who asks.

    async def identify(self, request: Request) -> None:
        """The service's token names its user in X-User-ID; any other token names its
        owner; nobody else enters."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        users = request.headers.getlist("x-user-id")
        request.state.actor = "tasks_api"
        user = None
        if scheme.lower() == "bearer" and token:
            if not users:
                found = await self._find(token, request)
                user = found and (found.user_id or self._user)
            elif secrets.compare_digest(
                token.encode("utf-8", "surrogateescape"), self._service_token
            ):
                named = tokens.user_in_header(users[0])
                user = named if len(users) == 1 and tokens.is_user_id(named) else None
                if (door := request.headers.get(recording.ACTOR)) in recording.DOORS:
                    request.state.actor = door
                    asker = unquote(request.headers.get(recording.ASKER, ""))
                    request.state.asker = printable(asker, _LONGEST_ASKER) or None
        if user is None:
            raise AuthRequired(
                "nobody is identified",
                hint="send the service token with X-User-ID, or your own bearer token (`deskhand token create`)",
            )
        request.state.user = user

    async def admit(self, request: Request) -> None:
        """For what is nobody's: the service's token, or any that reads tasks."""
        request.state.actor = "tasks_api"
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if secrets.compare_digest(
                token.encode("utf-8", "surrogateescape"), self._service_token
            ):
                return
            if await self._find(token, request) is not None:
                return
        raise AuthRequired("this is for who has a token", hint="send one as a bearer token")

    async def _find(self, text: str, request: Request) -> tokens.Token | None:
        """The token of an assistant or a user; one without the scope is refused."""
        found = await tokens.authenticate(self._store, text, self._now())
        if found is None:
            return None
        request.state.client = found.name
        writes = request.method != "GET"
        if not tokens.opens(found.scopes, "tasks", writes=writes):
            needed = "tasks:write" if writes else "tasks:read"
            raise OutOfScope(f"the token has no scope {needed}", scope=needed)
        return found

    # Handlers.

    async def create(self, request: Request, new: NewTask) -> Response:
        at = self._now()
        key = None
        if (name := _header(request, "idempotency-key")) is not None:
            key = rows.Key(name, sha256(new.model_dump_json().encode()).hexdigest())
            if next(self._keyed) % PURGE_EVERY == 0:
                await self._store.write(
                    partial(rows.forget_keys, before=due.utc_text(at - KEY_LIFE))
                )
        wanted = self._resolve_due(new, at)
        now = rows.Now(due.utc_text(at), _who(request))

        def work(tx: Transaction) -> rows.WireTask:
            made = rows.create(tx, request.state.user, wanted, now, key)
            # A repetition is the same deed: the first one is on the record.
            if made.fresh:
                self._record(tx, request, f"task {made.task['id']}", subject=new.title)
            return made.task

        task = await self._store.write(work)
        request.state.recorded = True
        answer = _task(task, 201)
        answer.headers["location"] = (
            f"{request.scope.get('root_path', '')}/tasks/{task['id']}"
        )
        return answer

    async def page(self, request: Request) -> Response:
        work = partial(rows.page, user=request.state.user, wanted=_filter(request))
        return _json(await self._store.read_one(work))

    async def get(self, request: Request, task_id: Id) -> Response:
        work = partial(rows.get, user=request.state.user, task_id=task_id)
        return _task(await self._store.read_one(work))

    async def update(self, request: Request, task_id: Id, changes: TaskChanges) -> Response:
        given = changes.model_fields_set
        if not given:
            raise InvalidInput(
                "nothing was given to change", hint="send at least one field"
            )
        said: dict[str, Any] = {"fields": sorted(given)}
        if "title" in given:
            said["subject"] = changes.title
        wanted = self._resolve_due(changes, self._now())
        work = partial(
            rows.update,
            task_id=task_id,
            changes=wanted,
            if_match=_header(request, "if-match"),
        )
        return _task(await self._do(request, work, f"task {task_id}", **said))

    async def complete(
        self,
        request: Request,
        task_id: Id,
        change: models.Completion,
    ) -> Response:
        work = partial(
            rows.complete,
            task_id=task_id,
            completed=change.completed,
            if_match=_header(request, "if-match"),
            zone=self._zone,
        )
        action = "mark_task_completed" if change.completed else "reopen_task"
        return _task(await self._do(request, work, f"task {task_id}", action=action))

    async def delete(self, request: Request, task_id: Id) -> Response:
        await self._do(
            request,
            partial(rows.delete, task_id=task_id, if_match=_header(request, "if-match")),
            f"task {task_id}",
        )
        return Response(status_code=204)

    async def restore(self, request: Request, task_id: Id) -> Response:
        return _task(
            await self._do(
                request, partial(rows.restore, task_id=task_id), f"task {task_id}"
            )
        )

    async def bulk_delete(self, request: Request, which: models.TaskIds) -> Response:
        done = await self._bulk(request, "delete", which.task_ids)
        deleted = [task_id for task_id, here in done.items() if here]
        missing = [task_id for task_id, here in done.items() if not here]
        return _json({"deleted": deleted, "not_found": missing})

    async def bulk(self, request: Request, asked: models.Bulk) -> Response:
        done = await self._bulk(request, asked.action, asked.task_ids)
        results = [
            {"task_id": key, "result": "done" if here else "not_found"}
            for key, here in done.items()
        ]
        return _json({"results": results})

    async def _bulk(
        self, request: Request, action: str, task_ids: list[int]
    ) -> dict[int, bool]:
        work = partial(rows.bulk, action=action, task_ids=task_ids, zone=self._zone)
        return await self._do(
            request, work, "tasks", action=f"{action}_tasks", task_ids=task_ids
        )

    async def undo(self, request: Request) -> Response:
        return _json(await self._do(request, rows.undo, "tasks"))

    async def export(self, request: Request) -> Response:
        found = await self._store.read(partial(calendars.read_all, user=request.state.user))
        text = await asyncio.to_thread(calendars.write_calendar, found, self._zone)
        return Response(text, media_type="text/calendar; charset=utf-8")

    async def take(self, request: Request) -> Response:
        content = await _read_body(request, vtodo.LARGEST)
        file = await asyncio.to_thread(vtodo.parse_todos, content, self._zone)
        work = partial(calendars.import_todos, todos=file.todos)
        done = await self._do(request, work, "tasks", in_file=len(file.todos))
        there = len(file.todos) - done.imported
        told = sorted([*file.problems, *done.problems], key=attrgetter("line"))
        answer = models.Imported(
            imported=done.imported,
            already_there=there,
            left_out=file.left_out,
            problems=told,
        )
        return _json(answer)

    async def health(self) -> Response:
        await self._store.read_one(_answer_one)
        return _json({"status": "ok"})

    async def metrics(self) -> Response:
        lines = ["# TYPE deskhand_tasks_requests_total counter"]
        lines += [
            f'deskhand_tasks_requests_total{{method="{method}",route="{route}",status="{status}"}} {number}'
            for (method, route, status), number in sorted(self.counts.items())
        ]
        lines.append("# TYPE deskhand_tasks_request_seconds_total counter")
        lines += [
            f'deskhand_tasks_request_seconds_total{{method="{method}",route="{route}"}} {seconds:.6f}'
            for (method, route), seconds in sorted(self.seconds.items())
        ]
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    def _resolve_due(self, asked: Asked, now: datetime) -> Asked:
        if not isinstance(asked.due_date, str):
            return asked
        return asked.model_copy(
            update={"due_date": due.resolve(asked.due_date, now, self._zone)}
        )

    # The record.

    async def _do(
        self,
        request: Request,
        work: Callable[..., T],
        target: str,
        *,
        action: str | None = None,
        **parameters: Any,
    ) -> T:
        """Let the user's change happen now, together with its entry in the record."""
        now = rows.Now(due.utc_text(self._now()), _who(request))

        def both(tx: Transaction) -> T:
            done = work(tx, user=request.state.user, now=now)
            self._record(tx, request, target, action=action, **parameters)
            return done

        done = await self._store.write(both)
        request.state.recorded = True
        return done

    def _record(
        self,
        tx: Transaction,
        request: Request,
        target: str,
        *,
        action: str | None = None,
        error: DeskError | None = None,
        **parameters: Any,
    ) -> None:
        """Of a task's text only the title goes there, under the record's own rule for subjects."""
        named = {"user_id": getattr(request.state, "user", None)} | _named(request)
        entry = audit.Entry.of(
            self._now(),
            request.state.actor,
            action or self._action(request) or "read_tasks",
            target,
            parameters={
                key: audit.parameter_of(value)
                for key, value in (named | parameters).items()
                if value is not None
            },
            error=error,
            milliseconds=round((perf_counter() - request.state.started) * 1000),
        )
        audit.append(tx, entry)

    async def record_refusal(self, request: Request) -> None:
        """What an identified user was refused is on the record too, and whoever has a token without the scope."""
        action = self._action(request)
        error = getattr(request.state, "error", None) or Unavailable("the call failed")
        is_users = hasattr(request.state, "user") and action
        if getattr(request.state, "recorded", False) or not (
            is_users or isinstance(error, OutOfScope)
        ):
            return
        task_id = request.path_params.get("task_id")
        target = f"task {printable(task_id, 20)}" if task_id else "tasks"
        try:
            # A database that is gone takes no entry either: asking it again would only keep the caller waiting.
            if isinstance(error, Unavailable):
                raise error
            await self._store.write(
                partial(self._record, request=request, target=target, error=error)
            )
        except DeskError as failure:
            log.critical(
                "not_on_record", extra={"action": action, "failure": failure.message}
            )
        else:
            request.state.recorded = True

    def _action(self, request: Request) -> str | None:
        return self._actions.get(
            (request.method, getattr(request.scope.get("route"), "path_format", ""))
        )


_KEYED = (recording.KEYED.lower().encode(), b"1")
_RECORDED = (recording.RECORDED.lower().encode(), b"1")


class _Seam:
    """Around every request: a crash tells nothing, a refusal goes on the record, what was answered is counted."""

    def __init__(self, app: ASGIApp, backend: _Backend) -> None:
        self._app = app
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        started = perf_counter()
        request = Request(scope)
        request.state.started = started

        async def send_recorded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400:
                    await self._backend.record_refusal(request)
                said = [_KEYED]
                if getattr(request.state, "recorded", False):
                    said.append(_RECORDED)
                message["headers"] = [*message["headers"], *said]
            await send(message)

        try:
            await self._app(scope, receive, send_recorded)
        except Exception as error:
            if status:
                raise
            answer = await problems.refuse_crash(request, error)
            await answer(scope, receive, send_recorded)
        finally:
            # The route's own pattern: a path as it came would make a line for every id and every guess.
            route = getattr(scope.get("route"), "path_format", "none")
            method = scope["method"] if route != "none" else "any"
            self._backend.counts[method, route, status] += 1
            self._backend.seconds[method, route] += perf_counter() - started


def _identifying_route(identify: Callable[[Request], Awaitable[None]]) -> type[APIRoute]:
    """A route that nobody enters unidentified; said as a dependency it would cost more than it does."""

    class Identified(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_identified(request: Request) -> Response:
                await identify(request)
                return await handle(request)

            return handle_identified

    return Identified


def _named(request: Request) -> dict[str, str | None]:
    """The token that the caller showed, and who asked at a door of the desk."""
    known = request.scope["state"]
    return {"client": known.get("client"), "asker": known.get("asker")}


def _who(request: Request) -> str:
    """Who changes a task, as the record's line about it names them."""
    return describe_actor(request.state.actor, _named(request), {})


def _filter(request: Request) -> TaskFilter:
    # Taken apart parameter by parameter, as FastAPI does it, a list takes a tenth longer.
    try:
        return TaskFilter.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _header(request: Request, name: str) -> str | None:
    # As a parameter of the handler it costs 3 % of a create.
    value = request.headers.get(name)
    if value is None:
        return None
    try:
        return models.HEADERS[name].validate_python(value)
    except ValidationError as error:
        found = [{**each, "loc": ("header", name)} for each in error.errors()]
        raise RequestValidationError(found) from error


async def _read_body(request: Request, most: int) -> bytes:
    """The body, if it is not too large; no more of it is kept than that."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise InvalidInput(
                f"the file is larger than {most:,} bytes", hint="import it in parts"
            )
    return bytes(body)


def _answer_one(tx: Transaction) -> object:
    return tx.one("SELECT 1")


def _json(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")


def _task(task: rows.WireTask, status: int = 200) -> Response:
    return _json(task, status, {"etag": rows.etag(task["version"])})
