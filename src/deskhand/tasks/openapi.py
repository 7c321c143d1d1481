"""The OpenAPI document of the backend, with what FastAPI cannot know: filters, refusals, and how to sign in."""

from typing import Any

from pydantic import BaseModel

from deskhand.tasks import vtodo
from deskhand.tasks.models import HEADERS, TaskFilter
from deskhand.tasks.problems import Problem

_REFERENCE = "#/components/schemas/{model}"


def _with_header(name: str) -> dict[str, Any]:
    schema = HEADERS[name].json_schema()
    said = {"name": name, "in": "header", "required": False, "schema": schema}
    return {"parameters": [said]}


_ONE = "/tasks/{task_id:digits}"
EXTRA: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/tasks"): {
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in TaskFilter.model_json_schema(ref_template=_REFERENCE)[
                "properties"
            ].items()
        ],
    },
    ("POST", "/tasks"): _with_header("idempotency-key"),
    **{(method, _ONE): _with_header("if-match") for method in ("PUT", "PATCH", "DELETE")},
    ("POST", "/tasks/import"): {
        "requestBody": {
            "required": True,
            "content": {
                "text/calendar": {"schema": {"type": "string", "pattern": vtodo.USUAL}}
            },
        }
    },
}
PROBLEM: dict[str, Any] = {
    "description": "Refused",
    "content": {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    },
}


def responses(
    method: str, path: str, status: int, answer: type[BaseModel] | None
) -> dict[int | str, dict[str, Any]]:
    """What a route answers: when it is done, and when it refuses."""
    refusals = {401, 403, 422, 503}
    if "{task_id" in path or path.endswith("/undo"):
        refusals.add(404)
    if "{task_id" in path and method in ("PUT", "PATCH", "DELETE"):
        refusals.add(412)
    if method in ("POST", "PUT", "PATCH"):
        refusals |= {400, 409}
    if path == "/tasks":
        refusals.add(409)
    documented: dict[int | str, dict[str, Any]] = dict.fromkeys(sorted(refusals), PROBLEM)
    documented[status] = {"description": "Done"}
    if answer:
        documented[status]["model"] = answer
    if path == "/tasks/export":
        documented[status]["content"] = {"text/calendar": {"schema": {"type": "string"}}}
    return documented


def complete(document: dict[str, Any]) -> None:
    """Add to the document that FastAPI has made."""
    parts = document["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema(ref_template=_REFERENCE)
    parts["schemas"] |= parts["schemas"]["Problem"].pop("$defs")
    parts["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "the service's token, or a user's own",
        },
        "user": {
            "type": "apiKey",
            "in": "header",
            "name": "X-User-ID",
            "description": "with the service's token",
        },
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/tasks"):
                operation["security"] = [{"token": [], "user": []}, {"token": []}]
