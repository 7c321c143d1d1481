"""Tasks as iCalendar files: out, in again, from foreign programs, and what is refused."""

import asyncio
import io
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest
from dateutil.rrule import rrulestr
from dateutil.tz import tzical
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskhand.app import Desk
from deskhand.config import load
from tests.home import TOKEN, Home
from tests.old_database import database_at
from tests.requirements import requirement
from tests.tasks.service import Service

pytestmark = pytest.mark.anyio

HOSTILE = [
    "a;b,c\\d\\n:e\\",
    'END:VTODO\r\nEND:VCALENDAR\r\nATTACH:x "quoted"',
    "\x0b\x1f\x7f\x85\u2028 bell \x07",
    "ü" * 100 + "🙂" * 50,
    " leading;TZID=x:\ttab",
]
FOREIGN = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//Another program//EN\r
BEGIN:VTIMEZONE\r
TZID:Europe/Vienna\r
BEGIN:STANDARD\r
DTSTART:19701025T030000\r
TZOFFSETFROM:+0200\r
TZOFFSETTO:+0100\r
END:STANDARD\r
END:VTIMEZONE\r
BEGIN:VTODO\r
UID:part\r
RELATED-TO:whole\r
SUMMARY;LANGUAGE=de:Teil eins\\, mit
 \x20Beistrich\r
DUE;VALUE=DATE:20261224\r
CATEGORIES:Arbeit,zu\\,Hause\r
CATEGORIES: garden \r
PRIORITY:2\r
END:VTODO\r
BEGIN:VTODO\r
UID:whole\r
SUMMARY:The whole\r
DUE;TZID=Europe/Vienna:20261224T180000\r
RRULE:FREQ=WEEKLY;WKST=MO;UNTIL=20271231\r
STATUS:IN-PROCESS\r
X-SOMETHING;X-A="b:c;d":ignored\r
BEGIN:VALARM\r
TRIGGER:-PT15M\r
DESCRIPTION:not the task's\r
END:VALARM\r
END:VTODO\r
BEGIN:VTODO\r
UID:long\r
SUMMARY:From a start\\nand a length\r
DTSTART:20261224T230000Z\r
DURATION:P1DT2H\r
PRIORITY:9\r
COMPLETED:20261225T000000Z\r
END:VTODO\r
BEGIN:VTODO\r
UID:gone\r
SUMMARY:Cancelled\r
STATUS:CANCELLED\r
END:VTODO\r
BEGIN:VEVENT\r
UID:party\r
SUMMARY:An event\r
END:VEVENT\r
END:VCALENDAR\r
"""


def calendar(*lines: str) -> bytes:
    return "\n".join(
        ["BEGIN:VCALENDAR", "BEGIN:VTODO", "UID:u", *lines, "END:VTODO", "END:VCALENDAR"]
    ).encode()


GOOD = calendar("SUMMARY:good")
NO_CALENDAR = {
    "no END": (GOOD.replace(b"END:VTODO\nEND:VCALENDAR", b""), 2),
    "another END": (GOOD.replace(b"END:VTODO", b"END:VEVENT"), 5),
    "something after the end": (GOOD + b"\nUID:x", 7),
    "a line between the tasks": (GOOD.replace(b"BEGIN:VTODO", b"nonsense\nBEGIN:VTODO"), 2),
    "no calendar": (b"<html></html>", 1),
    "a task alone": (GOOD.replace(b"BEGIN:VCALENDAR", b""), 2),
    "nothing": (b"", 1),
}
NOT_TAKEN = {
    "no UID": (GOOD.replace(b"UID:u", b"X-U:u"), 2),
    "no SUMMARY": (calendar("STATUS:COMPLETED"), 2),
    "a blank title": (calendar("SUMMARY: "), 2),
    "no property": (calendar("SUMMARY:a", "nonsense"), 5),
    "an open quote": (calendar("SUMMARY:a", 'X-A;B="c:d'), 5),
    "a long UID": (GOOD.replace(b"UID:u", b"UID:" + b"u" * 501), 3),
    "not UTF-8": (calendar("SUMMARY:a", "X-A:b").replace(b"X-A:b", b"X-A:\xff"), 5),
    "a control character": (calendar("SUMMARY:a\x00b"), 4),
}
LONG = "x" * 201
TAKEN: dict[str, tuple[bytes, int, dict[str, Any]]] = {
    "a long title": (
        calendar("DESCRIPTION:d", f"SUMMARY:{LONG}"),
        5,
        {"title": f"{LONG[:199]}…", "description": f"{LONG}\n\nd"},
    ),
    "a long folded title": (
        calendar("DESCRIPTION:d\n d\n d", f"SUMMARY:{LONG}"),
        7,
        {"title": f"{LONG[:199]}…"},
    ),
    "a long text": (
        calendar("SUMMARY:a", f"DESCRIPTION:{'y' * 10_001}"),
        5,
        {"description": "y" * 10_000},
    ),
    "two titles": (calendar("SUMMARY:a", "SUMMARY:b"), 5, {"title": "a"}),
    "a naive nonsense time": (calendar("SUMMARY:a", "DUE:tomorrow"), 5, {"due_date": None}),
    "an impossible day": (
        calendar("SUMMARY:a", "DUE:20260230T100000Z"),
        5,
        {"due_date": None},
    ),
    "an impossible hour": (
        calendar("SUMMARY:a", "DUE:20260220T250000Z"),
        5,
        {"due_date": None},
    ),
    "a time out of range": (
        calendar("SUMMARY:a", "DTSTART:99991231T235959Z", "DURATION:P9W"),
        6,
        {"due_date": None},
    ),
    "a foreign zone": (
        calendar("SUMMARY:a", "DUE;TZID=../../etc/passwd:20260220T100000"),
        5,
        {"due_date": "2026-02-20T10:00:00.000000Z"},
    ),
    "a length of nothing": (calendar("SUMMARY:a", "DURATION:PT1H"), 5, {"due_date": None}),
    "a strange status": (calendar("SUMMARY:a", "STATUS:MAYBE"), 5, {"completed": False}),
    "a strange priority": (calendar("SUMMARY:a", "PRIORITY:10"), 5, {"priority": "Medium"}),
    "a rule unknown here": (
        calendar("SUMMARY:a", "DUE:20260220T100000Z", "RRULE:FREQ=YEARLY;BYWEEKNO=20"),
        6,
        {"due_date": "2026-02-20T10:00:00.000000Z", "recurrence": None},
    ),
    "a rule without a due date": (
        calendar("SUMMARY:a", "RRULE:FREQ=DAILY"),
        5,
        {"recurrence": None},
    ),
    "too many labels": (
        calendar("SUMMARY:a", f"CATEGORIES:{','.join(map(str, range(21)))}"),
        5,
        {"labels": [str(number) for number in range(20)]},
    ),
    "a label of a hundred letters": (
        calendar("SUMMARY:a", f"CATEGORIES:b,{'c' * 100}"),
        5,
        {"labels": ["b"]},
    ),
    "a part of nothing": (
        calendar("SUMMARY:a", "RELATED-TO:nobody"),
        5,
        {"parent_id": None},
    ),
    "a part of itself": (calendar("SUMMARY:a", "RELATED-TO:u"), 5, {"parent_id": None}),
}
OUTLOOK = """BEGIN:VCALENDAR
BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VTIMEZONE
TZID:/example.com/New_York
BEGIN:DAYLIGHT
DTSTART:20060402T020000
RDATE:20260308T020000,20270314T020000
TZOFFSETFROM:-0500
TZOFFSETTO:-0400
END:DAYLIGHT
BEGIN:STANDARD
DTSTART:20061029T020000
RRULE:FREQ=YEARLY;BYDAY=1SU;BYMONTH=11
TZOFFSETFROM:-0400
TZOFFSETTO:-0500
END:STANDARD
END:VTIMEZONE
%s
END:VCALENDAR
"""


async def exported(rest: httpx2.AsyncClient) -> bytes:
    answer = await rest.get("/tasks/export")
    assert (answer.status_code, answer.headers["content-type"]) == (
        200,
        "text/calendar; charset=utf-8",
    )
    return answer.content


async def taken(rest: httpx2.AsyncClient, content: bytes) -> dict[str, Any]:
    answer = await rest.post(
        "/tasks/import", content=content, headers={"Content-Type": "text/calendar"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def listed(rest: httpx2.AsyncClient) -> list[dict[str, Any]]:
    return (await rest.get("/tasks", params={"sort": "created_at"})).json()["tasks"]


_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
_NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
).filter(lambda n: n == n.strip())
TASKS = st.fixed_dictionaries(
    {
        "title": st.text(_CHARACTERS, min_size=1, max_size=200).filter(str.strip)
        | st.sampled_from(HOSTILE),
        "priority": st.sampled_from(["Low", "Medium", "High", "Urgent"]),
        "labels": st.lists(_NAMES, max_size=4, unique=True),
    },
    optional={
        "description": st.text(_CHARACTERS, max_size=300) | st.sampled_from(HOSTILE),
        "project": _NAMES,
        "due_date": st.datetimes()
        .map(lambda at: at.isoformat(timespec="seconds") + "+02:00")
        .filter(lambda text: "0001-01-02" < text < "9999-12-30"),
    },
)


@requirement("tasks:vtodo")
def test_for_any_tasks_export_then_import_gives_the_same(
    service: Service, scale: int
) -> None:
    @settings(
        max_examples=12 * scale,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
    )
    @given(st.lists(st.tuples(TASKS, st.booleans(), st.booleans()), min_size=1, max_size=6))
    def holds(wanted: list[tuple[dict[str, Any], bool, bool]]) -> None:
        headers = [
            {"Authorization": f"Bearer {TOKEN}", "X-User-ID": service.new_user()}
            for _ in range(2)
        ]
        with (
            httpx2.Client(base_url=service.rest, headers=headers[0], timeout=60) as mine,
            httpx2.Client(base_url=service.rest, headers=headers[1], timeout=60) as theirs,
        ):
            parent: int | None = None
            for task, done, part in wanted:
                made = mine.post(
                    "/tasks", json=task | ({"parent_id": parent} if part else {})
                )
                assert made.status_code == 201, made.text
                parent = parent or made.json()["id"]
                if done:
                    mine.patch(f"/tasks/{made.json()['id']}", json={"completed": True})
            file = mine.get("/tasks/export").content

            assert max(map(len, file.split(b"\r\n"))) <= 75
            assert theirs.post("/tasks/import", content=file).json()["imported"] == len(
                wanted
            )
            assert shown(theirs) == shown(mine)
            assert theirs.post("/tasks/import", content=file).json()["imported"] == 0
            assert theirs.get("/tasks/export").content.count(b"BEGIN:VTODO") == len(wanted)

    holds()


def shown(http: httpx2.Client) -> list[list[Any]]:
    """What a file can hold of each task: with parents by their titles, and no control characters."""
    tasks = http.get("/tasks", params={"sort": "created_at"}).json()["tasks"]
    titles = {task["id"]: spoken(task["title"]) for task in tasks}
    kept = ("priority", "due_date", "completed", "labels", "project", "recurrence")
    return sorted(
        [
            [
                spoken(task["title"]),
                spoken(task["description"]),
                titles.get(task["parent_id"]),
            ]
            + [task[name] for name in kept]
            for task in tasks
        ],
        key=repr,
    )


def spoken(text: str | None) -> str | None:
    if text is None:
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        "\ufffd" if (sign < " " and sign not in "\t\n") or sign == "\x7f" else sign
        for sign in text
    )


@requirement("tasks:vtodo")
async def test_hostile_text_stays_in_its_property(rest: httpx2.AsyncClient) -> None:
    for text in HOSTILE:
        await rest.post(
            "/tasks",
            json={
                "title": text,
                "description": text,
                "labels": ["a,b;c\\"],
                "project": "p\\n",
            },
        )

    file = (await exported(rest)).decode()

    unfolded = file.replace("\r\n ", "")
    assert "\r" not in unfolded.replace("\r\n", "")
    assert "\n" not in unfolded.replace("\r\n", "")
    assert unfolded.count("\r\nEND:VTODO\r\n") == len(HOSTILE)
    assert "\r\nATTACH" not in unfolded
    assert "SUMMARY:a\\;b\\,c\\\\d\\\\n:e\\\\\r\n" in unfolded
    assert "CATEGORIES:a\\,b\\;c\\\\\r\n" in unfolded
    assert 'SUMMARY:END:VTODO\\nEND:VCALENDAR\\nATTACH:x "quoted"\r\n' in unfolded


@requirement("tasks:vtodo")
async def test_a_repeated_task_goes_on_where_it_was(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    rules = [
        "FREQ=WEEKLY;INTERVAL=2",
        "FREQ=DAILY;COUNT=5",
        "FREQ=MONTHLY;BYDAY=-1FR;UNTIL=22001231T235959Z",
    ]
    for rule in rules:
        body = {"title": rule, "due_date": "2126-01-04T09:00:00Z", "recurrence": rule}
        made = (await rest.post("/tasks", json=body)).json()
        await rest.patch(f"/tasks/{made['id']}", json={"completed": True})
    file = await exported(rest)

    async with service.http(service.new_user()) as other:
        assert await taken(other, file) == {
            "imported": 6,
            "already_there": 0,
            "left_out": 0,
            "problems": [],
        }
        followed = []
        for http in (rest, other):
            for task in await listed(http):
                if not task["completed"]:
                    await http.patch(f"/tasks/{task['id']}", json={"completed": True})
            tasks = (await http.get("/tasks", params={"completed": False})).json()["tasks"]
            followed.append(sorted((task["title"], task["due_date"]) for task in tasks))

    assert followed[0] == followed[1]
    assert len(followed[0]) == 3
    # A rule that counts cannot be said to others from its middle on; the finished ones have none.
    assert file.count(b"\r\nRRULE:") == 2
    assert file.count(b"\r\nX-DESKHAND-RECURRENCE:FREQ=DAILY;COUNT=5") == 1


@requirement("tasks:vtodo")
async def test_a_foreign_programs_file_is_understood(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    assert await taken(rest, b"\xef\xbb\xbf" + FOREIGN.encode()) == {
        "imported": 3,
        "already_there": 0,
        "left_out": 2,
        "problems": [],
    }

    found = {task["title"]: task for task in await listed(rest)}
    part, whole, long = (
        found[t]
        for t in ("Teil eins, mit Beistrich", "The whole", "From a start\nand a length")
    )
    assert (part["parent_id"], part["labels"], part["priority"]) == (
        whole["id"],
        ["Arbeit", "zu,Hause", "garden"],
        "High",
    )
    assert part["due_date"] == "2026-12-24T23:59:00.000000Z"
    assert (whole["due_date"], whole["description"]) == (
        "2026-12-24T17:00:00.000000Z",
        None,
    )
    assert (whole["recurrence"], whole["priority"]) == (
        "FREQ=WEEKLY;UNTIL=20271231T235959Z",
        "Medium",
    )
    assert (long["due_date"], long["completed"], long["priority"]) == (
        "2026-12-26T01:00:00.000000Z",
        True,
        "Low",
    )
    # Its own names are kept: what goes back to that program is known there.
    names = {
        line
        for line in (await exported(rest)).decode().split("\r\n")
        if line.startswith(("UID:", "RELATED-TO"))
    }
    assert names == {"UID:part", "UID:whole", "UID:long", "RELATED-TO;RELTYPE=PARENT:whole"}


@requirement("tasks:vtodo")
async def test_a_second_import_changes_nothing_and_a_deleted_task_comes_back(
    rest: httpx2.AsyncClient,
) -> None:
    for title in ("own", "other"):
        await rest.post("/tasks", json={"title": title})
    file = await exported(rest)
    before = await listed(rest)
    assert await taken(rest, file) == {
        "imported": 0,
        "already_there": 2,
        "left_out": 0,
        "problems": [],
    }
    assert await listed(rest) == before

    await rest.put(f"/tasks/{before[0]['id']}", json={"title": "edited here"})
    await rest.delete(f"/tasks/{before[1]['id']}")
    assert await taken(rest, file) == {
        "imported": 1,
        "already_there": 1,
        "left_out": 0,
        "problems": [],
    }
    assert [(task["id"], task["title"]) for task in await listed(rest)] == [
        (before[0]["id"], "edited here"),
        (before[1]["id"], "other"),
    ]

    # One import is one change: undo takes all of it back.
    assert (await taken(rest, FOREIGN.encode()))["imported"] == 3
    assert len((await rest.post("/tasks/undo")).json()["removed"]) == 3
    assert len(await listed(rest)) == 2


@requirement("tasks:vtodo")
async def test_a_file_imported_many_times_at_once_is_there_once(
    rest: httpx2.AsyncClient,
) -> None:
    answers = await asyncio.gather(*(taken(rest, FOREIGN.encode()) for _ in range(6)))

    assert sum(answer["imported"] for answer in answers) == 3
    assert len(await listed(rest)) == 3


@requirement("tasks:isolation")
async def test_another_users_file_makes_tasks_of_ones_own(
    service: Service, rest: httpx2.AsyncClient
) -> None:
    await rest.post("/tasks", json={"title": "hers"})
    before = await listed(rest)
    file = await exported(rest)

    async with service.http(service.new_user()) as other:
        assert (await taken(other, file.replace(b"SUMMARY:hers", b"SUMMARY:mine")))[
            "imported"
        ] == 1
        assert [task["title"] for task in await listed(other)] == ["mine"]
        # By its UID nobody makes a subtask of another's task.
        uid = next(line for line in file.split(b"\r\n") if line.startswith(b"UID:"))[4:]
        child = calendar("SUMMARY:child", "RELATED-TO:%s").replace(b"%s", uid)
        async with service.http(service.new_user()) as third:
            assert (await taken(third, child))["problems"][0]["line"] == 5
            assert [task["parent_id"] for task in await listed(third)] == [None]

    assert await listed(rest) == before


GOOD_TOO = b"BEGIN:VTODO\nUID:good\nSUMMARY:good\nEND:VTODO\n"


def with_good(content: bytes) -> bytes:
    """The file with a good task before everything else; what was in line 2 is in line 6 now."""
    return content.replace(b"BEGIN:VCALENDAR\n", b"BEGIN:VCALENDAR\n" + GOOD_TOO, 1)


@requirement("tasks:vtodo")
async def test_what_is_no_calendar_is_refused_with_its_line_and_nothing_of_it_is_taken(
    rest: httpx2.AsyncClient,
) -> None:
    for name, (content, line) in NO_CALENDAR.items():
        answer = await rest.post("/tasks/import", content=content)
        assert (answer.status_code, answer.headers["content-type"]) == (
            422,
            "application/problem+json",
        ), name
        assert answer.json()["detail"].startswith(f"line {line}: "), (name, answer.text)
        if b"BEGIN:VCALENDAR\n" in content:
            answer = await rest.post("/tasks/import", content=with_good(content))
            assert answer.json()["detail"].startswith(f"line {line + 4}: "), (
                name,
                answer.text,
            )
    endless = f"BEGIN:VCALENDAR\nBEGIN:{'x' * 9_000_000}\nEND:VTODO\n".encode()
    assert len((await rest.post("/tasks/import", content=endless)).content) < 1000
    large = calendar(f"SUMMARY:{'x' * 10_000_000}")
    assert (
        "larger than" in (await rest.post("/tasks/import", content=large)).json()["detail"]
    )

    assert await listed(rest) == []


@requirement("tasks:vtodo")
async def test_a_task_that_cannot_be_taken_is_told_with_its_line_and_the_others_are_taken(
    service: Service,
) -> None:
    for name, (content, line) in NOT_TAKEN.items():
        async with service.http(service.new_user()) as rest:
            answer = await taken(rest, with_good(content))
            assert [task["title"] for task in await listed(rest)] == ["good"], name
        assert [(each["line"], each["imported"]) for each in answer["problems"]] == [
            (line + 4, False)
        ], (name, answer)
        assert (answer["imported"], answer["left_out"]) == (1, 0)
    twice = calendar("SUMMARY:a", "END:VTODO", "BEGIN:VTODO", "UID:u", "SUMMARY:b")
    async with service.http(service.new_user()) as rest:
        answer = await taken(rest, twice)
        assert [task["title"] for task in await listed(rest)] == ["a"]
    (told,) = answer["problems"]
    assert told == {
        "line": 6,
        "title": "b",
        "message": "the UID of line 2 again",
        "imported": False,
    }


@requirement("tasks:vtodo")
async def test_what_of_a_task_cannot_be_kept_is_told_with_its_line_and_the_task_is_taken(
    service: Service,
) -> None:
    for name, (content, line, kept) in TAKEN.items():
        async with service.http(service.new_user()) as rest:
            answer = await taken(rest, content)
            (task,) = await listed(rest)
        assert [(each["line"], each["imported"]) for each in answer["problems"]] == [
            (line, True)
        ], (name, answer)
        assert {key: task[key] for key in kept} == kept, name


@requirement("tasks:vtodo")
async def test_a_part_of_a_part_is_a_part_of_the_whole_and_a_circle_has_none(
    rest: httpx2.AsyncClient,
) -> None:
    tasks = [
        ("whole", None),
        ("part", "whole"),
        ("detail", "part"),
        ("bolt", "detail"),
        ("hen", "egg"),
        ("egg", "hen"),
    ]
    lines = [
        f"BEGIN:VTODO\nUID:{uid}\nSUMMARY:{uid}\n"
        + (f"RELATED-TO:{parent}\n" if parent else "")
        + "END:VTODO\n"
        for uid, parent in reversed(tasks)
    ]

    answer = await taken(rest, f"BEGIN:VCALENDAR\n{''.join(lines)}END:VCALENDAR".encode())

    found = {task["title"]: task for task in await listed(rest)}
    whole = found["whole"]["id"]
    assert {title: task["parent_id"] for title, task in found.items()} == {
        "whole": None,
        **dict.fromkeys(("part", "detail", "bolt"), whole),
        **dict.fromkeys(("hen", "egg")),
    }
    assert sorted(each["title"] for each in answer["problems"]) == [
        "bolt",
        "detail",
        "egg",
        "hen",
    ]


@requirement("tasks:vtodo")
@pytest.mark.parametrize(
    ("due", "instant"),
    [
        ("W. Europe Standard Time:20260701T090000", "2026-07-01T07:00"),
        ("W. Europe Standard Time:20261224T180000", "2026-12-24T17:00"),
        ("W. Europe Standard Time:20260329T015959", "2026-03-29T00:59"),
        ("W. Europe Standard Time:20260329T030000", "2026-03-29T01:00"),
        ('"/example.com/New_York":20260701T090000', "2026-07-01T13:00"),
        ('"/example.com/New_York":20270101T090000', "2027-01-01T14:00"),
        ("Europe/Vienna:20261224T180000", "2026-12-24T17:00"),
    ],
)
async def test_a_zone_that_the_calendar_brings_along_is_used(
    rest: httpx2.AsyncClient, due: str, instant: str
) -> None:
    todo = f"BEGIN:VTODO\nUID:u\nSUMMARY:t\nDUE;TZID={due}\nEND:VTODO"

    answer = await taken(rest, (OUTLOOK % todo).encode())

    (task,) = await listed(rest)
    assert task["due_date"].startswith(instant)
    assert answer["problems"] == []


@requirement("tasks:vtodo")
async def test_the_time_of_completion_is_kept_on_the_way_in_and_out(
    rest: httpx2.AsyncClient,
) -> None:
    await taken(
        rest, calendar("SUMMARY:a", "STATUS:COMPLETED", "COMPLETED:20200102T030405Z")
    )
    (task,) = await listed(rest)

    assert b"\r\nCOMPLETED:20200102T030405Z\r\n" in await exported(rest)
    await rest.put(f"/tasks/{task['id']}", json={"title": "b"})
    assert b"\r\nCOMPLETED:20200102T030405Z\r\n" in await exported(rest)
    await rest.patch(f"/tasks/{task['id']}", json={"completed": False})
    assert b"COMPLETED:" not in await exported(rest)
    await rest.post("/tasks/undo")
    assert b"\r\nCOMPLETED:20200102T030405Z\r\n" in await exported(rest)


@requirement("tasks:vtodo")
@pytest.mark.parametrize(
    "due_date",
    [
        "0001-01-01T00:00:00Z",
        "0002-01-01T10:00:00Z",
        "9995-06-01T12:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
async def test_the_first_and_the_last_years_stop_nobody(home: Home, due_date: str) -> None:
    desk = Desk(
        load(
            home.environment
            | {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": "America/New_York"}
        ).settings
    )
    try:
        body = {"title": "t", "due_date": due_date, "recurrence": "FREQ=DAILY"}
        made = await desk.tasks.call("ann", "POST", "/tasks", actor="tasks_mcp", body=body)
        file: str = await desk.tasks.call("ann", "GET", "/tasks/export", actor="tasks_mcp")
        done = await desk.tasks.call(
            "ann",
            "PATCH",
            f"/tasks/{made['id']}",
            actor="tasks_mcp",
            body={"completed": True},
        )
        again = await desk.tasks.call(
            "bob", "POST", "/tasks/import", actor="tasks_mcp", body=file.encode()
        )
    finally:
        await desk.leave_tasks()
        desk.close()

    assert "RECURRENCE:FREQ=DAILY" in file
    assert (done["completed"], again["imported"], again["problems"]) == (True, 1, [])


@requirement("store:upgraded")
async def test_a_task_that_was_completed_before_keeps_the_last_time_it_can_have_been(
    home: Home,
) -> None:
    home.path.mkdir()
    columns = "user_id, title, completed, priority, created_at, updated_at, labels, version, search"
    with database_at(f"sqlite:///{home.path / 'desk.db'}", "0011") as connection:
        for done in (0, 1):
            row = (
                "ann",
                "t",
                done,
                1,
                "2026-01-01T00:00:00.000000Z",
                "2026-02-03T04:05:06.000000Z",
                "",
                1,
                "t",
            )
            connection.execute(
                f"INSERT INTO task ({columns}) VALUES ({', '.join('?' * len(row))})", row
            )
    desk = Desk(load(home.environment | {"DESKHAND_USER": "ann"}).settings)
    try:
        file: str = await desk.tasks.call("ann", "GET", "/tasks/export", actor="tasks_mcp")
    finally:
        await desk.leave_tasks()
        desk.close()

    assert (
        file.count("BEGIN:VTODO"),
        file.count("\r\nCOMPLETED:20260203T040506Z\r\n"),
    ) == (2, 1)


@requirement("tasks:vtodo")
@pytest.mark.parametrize(
    ("zone", "due_date"),
    [
        ("America/New_York", "2126-03-01T21:00:00-05:00"),
        ("Europe/Berlin", "2126-03-30T00:30:00+01:00"),
        ("UTC", "2126-03-01T09:00:00Z"),
    ],
)
async def test_another_program_reads_the_same_series_and_a_task_is_due_after_it_began(
    home: Home, zone: str, due_date: str
) -> None:
    desk = Desk(
        load(
            home.environment | {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": zone}
        ).settings
    )
    try:
        body = {
            "title": "t",
            "due_date": due_date,
            "recurrence": "FREQ=DAILY;UNTIL=21260405",
        }
        await desk.tasks.call("ann", "POST", "/tasks", actor="tasks_mcp", body=body)
        file: str = await desk.tasks.call("ann", "GET", "/tasks/export", actor="tasks_mcp")
    finally:
        await desk.leave_tasks()
        desk.close()

    said = dict(
        re.findall(
            r"\r\n(DTSTART|DUE|RRULE)((?:;TZID=[^:]*)?:[^\r]*)",
            file.partition("BEGIN:VTODO")[2],
        )
    )
    # A foreign reader of VTIMEZONE knows the zone by what the file says of it alone.
    zones = tzical(io.StringIO(file)) if zone != "UTC" else None

    def moment(text: str) -> datetime:
        wall = datetime.strptime(text.rpartition(":")[2].rstrip("Z"), "%Y%m%dT%H%M%S")  # noqa: DTZ007
        return wall.replace(tzinfo=zones.get(zone) if zones else UTC)

    begun, due = moment(said["DTSTART"]), moment(said["DUE"])
    assert begun < due
    assert due.astimezone(UTC) == datetime.fromisoformat(due_date)
    series = rrulestr(said["RRULE"][1:], dtstart=begun)
    read = [(each + (due - begun)).astimezone(ZoneInfo(zone)) for each in series]
    assert {each.time() for each in read} == {datetime.fromisoformat(due_date).time()}
    assert read[-1].date() == date(2126, 4, 5)


@requirement("tasks:vtodo")
def test_tasks_go_to_a_file_and_come_from_one_on_the_command_line(
    service: Service, user: str, home: Home, tmp_path: Path
) -> None:
    on = {"DESKHAND_DATABASE_URL": service.database, "DESKHAND_USER": user}
    file, copy = tmp_path / "foreign.ics", tmp_path / "copy.ics"
    file.write_bytes(FOREIGN.encode())

    first = home.command("tasks", "import", str(file), **on)
    second = home.command("tasks", "import", str(file), "--json", **on)
    assert home.command("tasks", "export", str(copy), **on).returncode == 0
    printed = home.command("tasks", "export", **on)
    file.write_text("BEGIN:VCALENDAR\nnonsense\n")
    broken = home.command("tasks", "import", str(file), **on)

    assert (
        first.stdout
        == "3 tasks imported, 0 were already there, 2 left out (no tasks, or cancelled).\n"
    )
    assert (
        second.stdout
        == '{"imported": 0, "already_there": 3, "left_out": 2, "problems": []}\n'
    )
    assert printed.stdout == copy.read_text()
    assert printed.stdout.count("BEGIN:VTODO") == 3
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "line 2: not a property" in broken.stderr
    assert (
        home.command("tasks", "export", DESKHAND_DATABASE_URL=service.database).returncode
        == 3
    )
    assert (
        home.command("tasks", "import", str(tmp_path / "nowhere.ics"), **on).returncode == 2
    )
    assert (
        home.command(
            "tasks", "export", str(tmp_path / "nowhere" / "x.ics"), **on
        ).returncode
        == 2
    )
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "foreign.ics",
        "copy.ics",
    }
