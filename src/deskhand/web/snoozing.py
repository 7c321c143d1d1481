"""Until when something is put off: choices that say their time, or a date that the person types."""

from datetime import datetime, timedelta

from starlette.datastructures import FormData

from deskhand.errors import FieldProblem, InvalidInput
from deskhand.tasks import due
from deskhand.web import times
from deskhand.web.request import text_in


def offered(now: datetime, zone: str) -> dict[str, tuple[str, datetime]]:
    """Each choice by its name, with its words and its time."""
    return {
        "hour": ("One hour", now + timedelta(hours=1)),
        "tomorrow": ("Tomorrow morning", times.tomorrow_morning(now, zone)),
        "week": ("Next week", times.next_monday(now, zone)),
    }


def words_in(form: FormData) -> str:
    """Until when, as the person said it: a passkey signs these words."""
    choice = text_in(form, "until")
    if choice == "when" and (typed := text_in(form, "when").strip()):
        return f"until {typed}"
    return "hour" if choice == "when" else choice


def read_until(form: FormData, now: datetime, zone: str) -> datetime:
    """The choice of the form, or the time that was typed; one hour where nothing was."""
    choice = text_in(form, "until")
    typed = text_in(form, "when").strip()
    if choice == "when" and typed:
        return due.read_later(typed, now, zone)
    if choice == "when":
        choice = "hour"
    found = offered(now, zone).get(choice)
    if found is None:
        problem = FieldProblem(
            "until", "is none of the choices", choice[:40], "hour, tomorrow, week or when"
        )
        raise InvalidInput("that is no time to snooze until", fields=[problem])
    return found[1]
