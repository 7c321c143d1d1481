"""A task, what may be asked about tasks, and how a refused field is described: one set for wire, rows and tools."""

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    MISSING,
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    TypeAdapter,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from deskhand.errors import FieldProblem, printable
from deskhand.tasks import due, recurrence

LARGEST_ID = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
TITLE_LENGTH = 200
DESCRIPTION_LENGTH = 10_000
NAME_LENGTH = 50
MOST_LABELS = 20
MOST_IDS = 500
LARGEST_PAGE = 200


class PriorityLevel(StrEnum):
    LOW = "Low"
    MEDIUM = "Medium"
    HIGH = "High"
    URGENT = "Urgent"


PRIORITIES = tuple(PriorityLevel)
"""By rank: the row keeps the rank, so that it sorts."""


def _refuse_nul(text: Any) -> Any:
    if isinstance(text, str) and "\x00" in text:
        raise PydanticCustomError("nul", "The text holds a NUL character")
    return text


def _strip(text: Any) -> Any:
    return text.strip() if isinstance(text, str) else text


def _refuse_blank(text: Any) -> Any:
    if isinstance(text, str) and not text.strip():
        raise PydanticCustomError("title", "Title cannot be empty")
    return text


def _one_line(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise PydanticCustomError("name", "A name is one line without spaces around it")
    return name


def to_int(number: Any) -> Any:
    """To JSON 5.0 is the integer 5, and some clients write it as text."""
    if isinstance(number, float) and number.is_integer():
        return int(number)
    if isinstance(number, str) and re.fullmatch(r"[0-9]{1,16}", number):
        return int(number)
    return number


def _demand_time(text: str) -> str:
    """What a backend gives as a time, as it stands; a day is its beginning."""
    moment = datetime.fromisoformat(text)
    if len(text) <= len("2026-03-01"):
        return moment.isoformat()
    return text


def _drop_repeats(labels: list[str]) -> list[str]:
    return list(dict.fromkeys(labels))


_NAME = r"^[^\s\x00-\x1f](?:[^\x00-\x1f]*[^\s\x00-\x1f])?$"
# The patterns say to a reader of the schema what the validators check.
_SPOKEN = {"pattern": r"^[^\x00]*$"}
_NOT_BLANK = {"pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
_MOMENT = Field(json_schema_extra={"format": "date-time"})

Title = Annotated[
    StrictStr,
    Field(min_length=1, max_length=TITLE_LENGTH, json_schema_extra=_NOT_BLANK),
    BeforeValidator(_strip),
    BeforeValidator(_refuse_blank),
    BeforeValidator(_refuse_nul),
]
Description = Annotated[
    StrictStr,
    Field(max_length=DESCRIPTION_LENGTH, json_schema_extra=_SPOKEN),
    BeforeValidator(_refuse_nul),
]
SearchText = Annotated[
    str,
    Field(min_length=1, max_length=TITLE_LENGTH, json_schema_extra=_NOT_BLANK),
    BeforeValidator(_strip),
    BeforeValidator(_refuse_nul),
]
Name = Annotated[
    StrictStr,
    Field(min_length=1, max_length=NAME_LENGTH, json_schema_extra={"pattern": _NAME}),
    AfterValidator(_one_line),
]
Labels = Annotated[list[Name], Field(max_length=MOST_LABELS), AfterValidator(_drop_repeats)]
Instant = Annotated[str, BeforeValidator(due.parse_instant), _MOMENT]
Due = Annotated[
    str,
    BeforeValidator(due.check_due),
    Field(
        description="ISO 8601 with an offset, or words: today, friday, +3d, 30 nov, eom, 17:00, friday 17:00",
        json_schema_extra={
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "string", "pattern": due.WORDS},
            ]
        },
        examples=["2025-12-20T10:00:00Z", "tomorrow 17:00"],
    ),
]
RecurrenceRule = Annotated[
    StrictStr,
    Field(
        max_length=recurrence.LONGEST,
        examples=["FREQ=WEEKLY;BYDAY=MO,TH"],
        json_schema_extra={"pattern": recurrence.USUAL},
    ),
    BeforeValidator(recurrence.check_rule),
]
TaskId = Annotated[int, Field(strict=True, gt=0, le=LARGEST_ID), BeforeValidator(to_int)]
Moment = Annotated[
    str,
    AfterValidator(_demand_time),
    Field(json_schema_extra={"format": "date-time"}),
]
Sort = Literal[
    "created_at", "-created_at", "due_date", "-due_date", "priority", "-priority"
]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TaskResponse(BaseModel):
    """Task data returned to AI assistant."""

    id: int = Field(description="Unique task identifier")
    title: str = Field(description="Task title", max_length=TITLE_LENGTH)
    description: str | None = Field(None, description="Detailed task description")
    completed: bool = Field(description="Whether task is completed")
    priority: PriorityLevel = Field(description="Task priority level")
    due_date: Moment | None = Field(None, description="Task due date (ISO 8601 format)")
    created_at: Moment = Field(description="Timestamp when task was created")
    updated_at: Moment = Field(description="Timestamp when task was last updated")
    user_id: str = Field(description="User who owns this task")


class Task(TaskResponse):
    """A task with all that our own backend knows of it; another one may leave the rest out."""

    project: str | None = None
    labels: list[str] = []
    parent_id: int | None = None
    recurrence: str | None = None
    next_id: int | None = Field(
        None, description="the task that followed when this repeated one was completed"
    )
    version: int = Field(0, description="its ETag; 0 where the backend keeps none")
    created_by: str | None = Field(None, description="who made it, where that is known")
    changed_by: str | None = Field(
        None, description="who changed it last, where that is known"
    )


class TaskPage(BaseModel):
    tasks: list[Task]
    total: int
    next_cursor: str | None


class NewTask(_Asked):
    """A task to be made."""

    title: Title
    description: Description | None = None
    priority: PriorityLevel = PriorityLevel.MEDIUM
    due_date: Due | None = None
    project: Name | None = None
    labels: Labels = []
    parent_id: TaskId | None = None
    recurrence: RecurrenceRule | None = None


_NOTHING_BUT_FILLED_IN: JsonDict = {
    "additionalProperties": {"type": "null"},
    "anyOf": [{"required": ["title"]}, {"required": ["priority"]}],
}


class TaskChanges(_Asked):
    """Changes of a task: what is absent stays, null clears what a task need not have. Null for title or priority is as
    good as absent, and the other nulls beside it as well: such a client fills in what was left out."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "not": _NOTHING_BUT_FILLED_IN}
    )

    title: Title | MISSING | None = MISSING
    description: Description | MISSING | None = MISSING
    priority: PriorityLevel | MISSING | None = MISSING
    due_date: Due | MISSING | None = MISSING
    project: Name | MISSING | None = MISSING
    labels: Labels | MISSING = MISSING
    parent_id: TaskId | MISSING | None = MISSING
    recurrence: RecurrenceRule | MISSING | None = MISSING

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_was_filled_in(cls, asked: Any) -> Any:
        if not isinstance(asked, dict):
            return asked
        if all(asked.get(name, MISSING) is not None for name in ("title", "priority")):
            return asked
        # Labels are never null, whoever says it.
        return {
            name: value
            for name, value in asked.items()
            if value is not None or name == "labels"
        }


class Completion(_Asked):
    completed: StrictBool


class TaskIds(_Asked):
    task_ids: list[TaskId] = Field(min_length=1, max_length=MOST_IDS)


class Bulk(TaskIds):
    action: Literal["complete", "reopen", "delete", "restore"]


class Deleted(BaseModel):
    deleted: list[int]
    not_found: list[int]


class BulkResult(BaseModel):
    task_id: int
    result: Literal["done", "not_found"]


class BulkResults(BaseModel):
    results: list[BulkResult]


class Undone(BaseModel):
    """The tasks that are again as they were; a created one is gone again."""

    restored: list[Task]
    removed: list[int]


class ImportProblem(BaseModel):
    """A task of a calendar file that was not imported, or not as it stands there."""

    line: int
    title: str
    message: str
    imported: bool


class Imported(BaseModel):
    """What became of a calendar file: made or brought back, here before, no task at all;
    and what is to be told."""

    imported: int
    already_there: int
    left_out: int
    problems: list[ImportProblem]


class TaskFilter(_Asked):
    """Which tasks, in which order, from where."""

    completed: bool | None = None
    priority: PriorityLevel | None = None
    due_before: Instant | None = None
    due_after: Instant | None = None
    q: SearchText | None = None
    project: Name | None = None
    label: Name | None = None
    parent_id: Annotated[int, Field(gt=0, le=LARGEST_ID)] | None = None
    sort: Sort = "-created_at"
    limit: int = Field(50, ge=1, le=LARGEST_PAGE)
    cursor: Annotated[str, Field(min_length=1, max_length=400)] | None = None


HEADERS: dict[str, TypeAdapter[str]] = {
    "idempotency-key": TypeAdapter(
        Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
    ),
    "if-match": TypeAdapter(
        Annotated[
            str,
            Field(min_length=1, max_length=1000, description='the ETag you saw, or "*"'),
        ]
    ),
}
"""What a request may say beside its body."""

_ISO_HINT = "Use ISO 8601 format: 2025-12-20T10:00:00Z"
SUGGESTIONS = {
    "title": f"Provide a task title (1-{TITLE_LENGTH} characters)",
    "description": f"Send a text of at most {DESCRIPTION_LENGTH} characters without NUL, or null",
    "priority": f"Use one of: {', '.join(PRIORITIES)}",
    "due_date": _ISO_HINT,
    "due_before": _ISO_HINT,
    "due_after": _ISO_HINT,
    "task_id": f"Use the id of a task: a whole number from 1 to {LARGEST_ID}",
    "parent_id": "Use the id of a task that is not a subtask itself",
    "task_ids": f"Send a list of 1 to {MOST_IDS} task ids",
    "completed": "Send true or false",
    "limit": f"Send a whole number from 1 to {LARGEST_PAGE}",
    "cursor": "Send the next_cursor of the page before, with the same sort",
    "q": f"Send a text to look for (1-{TITLE_LENGTH} characters)",
    "project": f"Send a name in one line (1-{NAME_LENGTH} characters)",
    "label": f"Send a name in one line (1-{NAME_LENGTH} characters)",
    "labels": f"Send a list of at most {MOST_LABELS} names",
    "recurrence": "Send an RRULE such as FREQ=WEEKLY;BYDAY=MO,TH; it needs a due date",
    "sort": "Use created_at, due_date or priority, with a minus for descending",
}


def problems(errors: Iterable[Any]) -> list[FieldProblem]:
    """What pydantic refused, one line for each field and fault."""
    # A union reports each of its members, and a list each of its items.
    return list(
        {(found.field, found.message): found for found in map(_problem, errors)}.values()
    )


def _problem(details: Any) -> FieldProblem:
    places = [
        part for part in details["loc"] if part not in ("body", "query", "path", "header")
    ]
    name = printable(places[0]) if places and isinstance(places[0], str) else "body"
    received = None
    if details["type"] != "missing" and details["input"] is not None:
        received = printable(details["input"])
    match details["type"]:
        case "extra_forbidden":
            return FieldProblem(
                name, "There is no such field", received, "Leave this field out"
            )
        case "missing":
            return FieldProblem(
                name, "Field required", None, SUGGESTIONS.get(name, "Provide this field")
            )
        case _:
            return FieldProblem(
                name, details["msg"], received, SUGGESTIONS.get(name, "See the schema")
            )
