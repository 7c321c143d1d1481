"""Every refusal of the backend as problem+json (RFC 9457)."""

import logging
import secrets
from collections.abc import Mapping, Sequence

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from deskhand.errors import DeskError, FieldProblem, Internal, InvalidInput, printable
from deskhand.tasks import models

log = logging.getLogger("deskhand.tasks")

_TITLES = {
    400: "Bad Request",
    401: "Not identified",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    422: "Not valid",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}


class Problem(BaseModel):
    """RFC 9457: what is wrong, which fields, and what would help."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]
    suggestions: list[str]
    reference: str | None = None


async def refuse(request: Request, error: Exception) -> Response:
    """The desk's own error. It stays with the request, for the record."""
    assert isinstance(error, DeskError)  # noqa: S101 - registered for it
    request.state.error = error
    fields = [FieldProblem(**field) for field in error.details.get("fields", ())]
    return _problem(
        error.http_status,
        error.message,
        fields,
        error.hint,
        reference=error.details.get("reference"),
    )


async def refuse_fields(request: Request, error: Exception) -> Response:
    """What FastAPI found wrong with the request."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    found = models.problems(error.errors())
    names = ", ".join(sorted({problem.field for problem in found}))
    request.state.error = InvalidInput(f"the request is not valid: {printable(names)}")
    return _problem(422, "the request is not valid", found)


async def refuse_route(request: Request, error: Exception) -> Response:
    """A path or a method that is not served, or a body that cannot be read at all."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    request.state.error = InvalidInput(printable(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # The router names the methods of one route; a path has several.
        found = (
            route
            for route in request.app.routes
            if route.matches(request.scope)[0] is not Match.NONE
        )
        headers["allow"] = ", ".join(
            sorted({method for route in found for method in route.methods})
        )
    return _problem(error.status_code, str(error.detail), headers=headers)


async def refuse_crash(request: Request, error: Exception) -> Response:
    """A crash: its text stays in the log, under a reference."""
    reference = secrets.token_hex(4)
    log.error(
        "crash", extra={"path": request.url.path, "reference": reference}, exc_info=error
    )
    return await refuse(
        request,
        Internal("an unexpected error; nothing of it is shown here", reference=reference),
    )


def _problem(
    status: int,
    detail: str,
    fields: Sequence[FieldProblem] = (),
    hint: str | None = None,
    *,
    reference: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    suggestions = [hint, *(field.suggestion for field in fields)]
    problem = Problem(
        type="about:blank",
        title=_TITLES.get(status, "Refused"),
        status=status,
        detail=detail,
        errors=list(fields),
        suggestions=[each for each in suggestions if each],
        reference=reference,
    )
    more = dict(headers or {})
    if status == 401:
        more["www-authenticate"] = "Bearer"
    return Response(
        problem.model_dump_json(), status, more, media_type="application/problem+json"
    )
