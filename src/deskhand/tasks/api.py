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
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand import __version__, audit, tokens
from deskhand.errors import AuthRequired, DeskError, InvalidInput, OutOfScope, Unavailable, printable
from deskhand.store import Store, Transaction
from deskhand.tasks import calendars, due, models, openapi, problems, recording, rows, vtodo
from deskhand.tasks.models import LARGEST_ID, NewTask, TaskChanges, TaskFilter

log = logging.getLogger("deskhand.tasks")

KEY_LIFE = timedelta(hours=24)
"""How long a create may be repeated under its key."""
PURGE_EVERY = 1000
"""After this many creates with a key the old keys are deleted."""
Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
IfMatch = Annotated[str | None, Header(min_length=1, max_length=1000, description='the ETag you saw, or "*"')]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
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
    store: Store, service_token: str, now: Callable[[], datetime], zone: str, user: str | None = None
) -> FastAPI:
    """The backend as an ASGI application; a token that names no user stands for `user`."""
    backend = _Backend(store, service_token, now, ZoneInfo(zone), user)
    app = _TasksApi(
        title="Deskhand tasks",
        version=__version__,
        openapi_url=None,
        exception_handlers={
            DeskError: problems.refuse,
            RequestValidationError: problems.refuse_fields,
            HTTPException: problems.refuse_route,
        },
    )
    identified = _guarded_route(backend.identify)
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
    for path, handler, name, route in (
        ("/health", backend.health, "check_health", APIRoute),
        ("/metrics", backend.metrics, "read_metrics", _guarded_route(backend.admit)),
        ("/openapi.json", backend.document, "read_document", _guarded_route(backend.admit)),
    ):
        app.router.add_api_route(
            path,
            handler,
            operation_id=name,
            response_model=None,
            response_class=Response,
            responses=openapi.machine_responses(path),
            include_in_schema=path != "/openapi.json",
            route_class_override=route,
        )
    app.add_middleware(_Seam, backend=backend)
    return app


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
        self, store: Store, service_token: str, now: Callable[[], datetime], zone: ZoneInfo, user: str | None
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
            (each.method, each.path.replace(":digits", "")): each.name for each in self.routes() if each.method != "GET"
        }

    def routes(self) -> list[_Route]:
        one = "/tasks/{task_id:digits}"
        return [
            _Route("POST", "/tasks", self.create, 201, models.Task, "create_task"),
            _Route("GET", "/tasks", self.page, 200, models.TaskPage, "list_tasks"),
            _Route("POST", "/tasks/bulk-delete", self.bulk_delete, 200, models.Deleted, "delete_tasks"),
            _Route("POST", "/tasks/bulk", self.bulk, 200, models.BulkResults, "change_tasks"),
            _Route("POST", "/tasks/undo", self.undo, 200, models.Undone, "undo_task_change"),
            _Route("GET", "/tasks/export", self.export, 200, None, "export_tasks"),
            _Route("POST", "/tasks/import", self.take, 200, models.Imported, "import_tasks"),
            _Route("GET", one, self.get, 200, models.Task, "get_task"),
            _Route("PUT", one, self.update, 200, models.Task, "update_task"),
            _Route("PATCH", one, self.complete, 200, models.Task, "mark_task_completed"),
            _Route("DELETE", one, self.delete, 204, None, "delete_task"),
            _Route("POST", f"{one}/restore", self.restore, 200, models.Task, "restore_task"),
        ]

    # Who asks.

    async def identify(self, request: Request) -> None:
        """The service's token names its user in X-User-ID; any other token names its owner; nobody else enters."""
        token = _bearer(request)
        users = request.headers.getlist("x-user-id")
        request.state.actor = "tasks_api"
        user = None
        if not users and (found := await self._find_token(token, request.method)):
            user = found.user_id or self._user
        elif users and self._is_service(token):
            named = tokens.user_in_header(users[0])
            user = named if len(users) == 1 and tokens.is_user_id(named) else None
            if (door := request.headers.get(recording.ACTOR)) in recording.DOORS:
                request.state.actor = door
        if user is None:
            raise AuthRequired(
                "nobody is identified",
                hint="send the service token with X-User-ID, or your own bearer token (`deskhand token create`)",
            )
        request.state.user = user

    async def admit(self, request: Request) -> None:
        """Whoever has a token of this desk; of what machines ask no user is needed."""
        token = _bearer(request)
        if not self._is_service(token) and await self._find_token(token, request.method) is None:
            raise AuthRequired("nobody is identified", hint="send the service token, or your own bearer token")

    def _is_service(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._service_token)

    async def _find_token(self, token: str, method: str) -> tokens.Token | None:
        found = await tokens.authenticate(self._store, token, self._now()) if token else None
        writes = method != "GET"
        if found is not None and not tokens.opens(found.scopes, "tasks", writes=writes):
            needed = "tasks:write" if writes else "tasks:read"
            raise OutOfScope(f"the token has no scope {needed}", scope=needed)
        return found

    # Handlers.

    async def create(self, request: Request, new: NewTask, idempotency_key: IdempotencyKey = None) -> Response:
        now = self._now()
        key = None
        if idempotency_key is not None:
            key = rows.Key(idempotency_key, sha256(new.model_dump_json().encode()).hexdigest())
            if next(self._keyed) % PURGE_EVERY == 0:
                await self._store.write(partial(rows.forget_keys, before=due.utc_text(now - KEY_LIFE)))
        wanted = self._resolve_due(new, now)

        def work(tx: Transaction) -> rows.WireTask:
            made = rows.create(tx, request.state.user, wanted, due.utc_text(now), key)
            # A repetition is the same deed: the first one is on the record.
            if made.fresh:
                self._record(tx, request, f"task {made.task['id']}", subject=new.title)
            return made.task

        task = await self._store.write(work)
        request.state.recorded = True
        answer = _task(task, 201)
        answer.headers["location"] = f"{request.scope.get('root_path', '')}/tasks/{task['id']}"
        return answer

    async def page(self, request: Request) -> Response:
        work = partial(rows.page, user=request.state.user, wanted=_filter(request))
        return _json(await self._store.read_one(work))

    async def get(self, request: Request, task_id: Id) -> Response:
        work = partial(rows.get, user=request.state.user, task_id=task_id)
        return _task(await self._store.read_one(work))

    async def update(self, request: Request, task_id: Id, changes: TaskChanges, if_match: IfMatch = None) -> Response:
        given = changes.model_fields_set
        if not given:
            raise InvalidInput("nothing was given to change", hint="send at least one field")
        said: dict[str, Any] = {"fields": sorted(given)}
        if "title" in given:
            said["subject"] = changes.title
        wanted = self._resolve_due(changes, self._now())
        work = partial(rows.update, task_id=task_id, changes=wanted, if_match=if_match)
        return _task(await self._do(request, work, f"task {task_id}", **said))

    async def complete(
        self, request: Request, task_id: Id, change: models.Completion, if_match: IfMatch = None
    ) -> Response:
        work = partial(rows.complete, task_id=task_id, completed=change.completed, if_match=if_match, zone=self._zone)
        action = "mark_task_completed" if change.completed else "reopen_task"
        return _task(await self._do(request, work, f"task {task_id}", action=action))

    async def delete(self, request: Request, task_id: Id, if_match: IfMatch = None) -> Response:
        await self._do(request, partial(rows.delete, task_id=task_id, if_match=if_match), f"task {task_id}")
        return Response(status_code=204)

    async def restore(self, request: Request, task_id: Id) -> Response:
        return _task(await self._do(request, partial(rows.restore, task_id=task_id), f"task {task_id}"))

    async def bulk_delete(self, request: Request, which: models.TaskIds) -> Response:
        done = await self._bulk(request, "delete", which.task_ids)
        deleted = [task_id for task_id, here in done.items() if here]
        missing = [task_id for task_id, here in done.items() if not here]
        return _json({"deleted": deleted, "not_found": missing})

    async def bulk(self, request: Request, asked: models.Bulk) -> Response:
        done = await self._bulk(request, asked.action, asked.task_ids)
        results = [{"task_id": key, "result": "done" if here else "not_found"} for key, here in done.items()]
        return _json({"results": results})

    async def _bulk(self, request: Request, action: str, task_ids: list[int]) -> dict[int, bool]:
        work = partial(rows.bulk, action=action, task_ids=task_ids, zone=self._zone)
        return await self._do(request, work, "tasks", action=f"{action}_tasks", task_ids=task_ids)

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
        answer = models.Imported(imported=done.imported, already_there=there, left_out=file.left_out, problems=told)
        return _json(answer)

    async def health(self) -> Response:
        await self._store.read_one(_answer_one)
        return _json({"status": "ok"})

    async def document(self, request: Request) -> Response:
        document = request.app.openapi()
        if root := request.scope.get("root_path", "").rstrip("/"):
            document = document | {"servers": [{"url": root}]}
        return _json(document)

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
        return asked.model_copy(update={"due_date": due.resolve(asked.due_date, now, self._zone)})

    # The record.

    async def _do(
        self, request: Request, work: Callable[..., T], target: str, *, action: str | None = None, **parameters: Any
    ) -> T:
        """Let the user's change happen now, together with its entry in the record."""
        now = due.utc_text(self._now())

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
        user: str = request.state.user
        entry = audit.Entry.of(
            self._now(),
            request.state.actor,
            action or self._action(request) or "",
            target,
            parameters={"user_id": printable(user)} | {key: printable(value) for key, value in parameters.items()},
            error=error,
            milliseconds=round((perf_counter() - request.state.started) * 1000),
        )
        audit.append(tx, entry)

    async def record_refusal(self, request: Request) -> None:
        """What an identified user was refused is on the record too."""
        action = self._action(request)
        if getattr(request.state, "recorded", False) or not hasattr(request.state, "user") or not action:
            return
        error = getattr(request.state, "error", None) or Unavailable("the call failed")
        task_id = request.path_params.get("task_id")
        target = f"task {printable(task_id, 20)}" if task_id else "tasks"
        try:
            # A database that is gone takes no entry either: asking it again would only keep the caller waiting.
            if isinstance(error, Unavailable):
                raise error
            await self._store.write(partial(self._record, request=request, target=target, error=error))
        except DeskError as failure:
            log.critical("not_on_record", extra={"action": action, "failure": failure.message})
        else:
            request.state.recorded = True

    def _action(self, request: Request) -> str | None:
        return self._actions.get((request.method, getattr(request.scope.get("route"), "path_format", "")))


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
                said = [recording.KEYED]
                if getattr(request.state, "recorded", False):
                    said.append(recording.RECORDED)
                message["headers"] = [*message["headers"], *((name.lower().encode(), b"1") for name in said)]
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


def _bearer(request: Request) -> str:
    """The token that the request carries; "" for none, which nobody has."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _guarded_route(let_in: Callable[[Request], Awaitable[None]]) -> type[APIRoute]:
    """A route that nobody enters without a key; said as a dependency it would cost more than it does."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_guarded(request: Request) -> Response:
                await let_in(request)
                return await handle(request)

            return handle_guarded

    return Guarded


def _filter(request: Request) -> TaskFilter:
    # Taken apart parameter by parameter, as FastAPI does it, a list takes a tenth longer.
    try:
        return TaskFilter.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


async def _read_body(request: Request, most: int) -> bytes:
    """The body, if it is not too large; no more of it is kept than that."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise InvalidInput(f"the file is larger than {most:,} bytes", hint="import it in parts")
    return bytes(body)


def _answer_one(tx: Transaction) -> object:
    return tx.one("SELECT 1")


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")


def _task(task: rows.WireTask, status: int = 200) -> Response:
    return _json(task, status, {"etag": rows.etag(task["version"])})
