"""Beyond the contract: labels, projects, subtasks, recurrence, bulk, undo, words for due dates."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import error_response
from deskhand.servers.server import DeskServer
from deskhand.servers.tasks import invalid_arguments, more_tasks_tools, tasks_tools
from deskhand.tasks import due, recurrence
from tests.home import Home
from tests.requirements import requirement
from tests.tasks.service import fields, ok, refused

pytestmark = pytest.mark.anyio

SUNDAY_NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAILY = {
    "title": "water the plants",
    "due_date": "2126-01-01T09:00:00Z",
    "recurrence": "freq=daily;interval=2",
}


@pytest.fixture
async def whole(embedded_desk: Desk) -> AsyncIterator[Client]:
    tools = tasks_tools(embedded_desk) + more_tasks_tools(embedded_desk)
    server = DeskServer(
        "desk", tools, error_form=error_response, invalid_arguments=invalid_arguments
    )
    async with Client(server, mode="2026-07-28") as client:
        yield client


@requirement("tasks:beyond")
async def test_projects_and_labels_are_filters(rest: httpx2.AsyncClient) -> None:
    await rest.post(
        "/tasks", json={"title": "a", "project": "Home", "labels": ["red", "blue", "red"]}
    )
    await rest.post("/tasks", json={"title": "b", "project": "home", "labels": ["redder"]})

    async def titles(**query: str) -> list[str]:
        return [
            task["title"]
            for task in (await rest.get("/tasks", params=query)).json()["tasks"]
        ]

    assert await titles(project="Home") == ["a"]
    assert await titles(label="red") == ["a"]
    assert await titles(label="Red") == []
    assert (await rest.get("/tasks", params={"label": "blue"})).json()["tasks"][0][
        "labels"
    ] == ["red", "blue"]
    assert (
        await rest.post("/tasks", json={"title": "c", "labels": ["a\nb"]})
    ).status_code == 422


@requirement("tasks:beyond")
async def test_a_subtask_has_a_parent_that_is_there_and_is_none_itself(
    rest: httpx2.AsyncClient,
) -> None:
    async def made(**task: object) -> httpx2.Response:
        return await rest.post("/tasks", json={"title": "t"} | task)

    parent = (await made()).json()["id"]
    child = (await made(parent_id=parent)).json()["id"]

    for parent_id in (child, 2**40):
        answer = await made(parent_id=parent_id)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (
            409,
            "parent_id",
        )
    for task_id, parent_id in (
        (parent, child),
        (parent, parent),
        (parent, (await made()).json()["id"]),
    ):
        assert (
            await rest.put(f"/tasks/{task_id}", json={"parent_id": parent_id})
        ).status_code == 409
    assert [
        task["id"]
        for task in (await rest.get("/tasks", params={"parent_id": parent})).json()["tasks"]
    ] == [child]


@requirement("tasks:clear-has-a-word")
async def test_null_leaves_a_task_as_it_was_arranged_and_clear_takes_away(
    whole: Client,
) -> None:
    made = await ok(whole, "create_task", title="t", due_date="2126-01-01T09:00:00Z")
    task_id = made["id"]
    arranged = await ok(
        whole,
        "arrange_task",
        task_id=task_id,
        project="home",
        labels=["a"],
        recurrence="FREQ=DAILY",
        clear=[],
    )
    # What a client in strict mode sends of a call that names one thing.
    nothing: dict[str, Any] = dict.fromkeys(
        ("project", "labels", "parent_id", "recurrence", "due", "clear")
    )
    labelled = await ok(
        whole, "arrange_task", **nothing | {"task_id": task_id, "labels": ["b"]}
    )
    empty = await refused(whole, "arrange_task", **nothing | {"task_id": task_id})
    both = await refused(
        whole, "arrange_task", task_id=task_id, project="work", clear=["project"]
    )
    cleared = await ok(
        whole,
        "arrange_task",
        task_id=task_id,
        labels=[],
        clear=["project", "recurrence", "due"],
    )

    kept = ("project", "recurrence", "due_date", "parent_id")
    assert {name: labelled[name] for name in kept} == {
        name: arranged[name] for name in kept
    }
    assert (labelled["labels"], arranged["recurrence"]) == (["b"], "FREQ=DAILY")
    assert (empty["error_type"], fields(both)) == ("validation_error", {"clear"})
    assert [cleared[name] for name in kept] == [None] * 4
    assert cleared["labels"] == []


@requirement("tasks:beyond")
async def test_completing_a_repeated_task_makes_the_next_one_once(
    rest: httpx2.AsyncClient,
) -> None:
    task = (await rest.post("/tasks", json=DAILY)).json()
    assert task["recurrence"] == "FREQ=DAILY;INTERVAL=2"

    done = [
        (await rest.patch(f"/tasks/{task['id']}", json={"completed": True})).json()
        for _ in range(2)
    ]
    following = (await rest.get(f"/tasks/{done[0]['next_id']}")).json()

    assert done[0] == done[1]
    assert (following["due_date"], following["completed"]) == (
        "2126-01-03T09:00:00.000000Z",
        False,
    )
    assert following["recurrence"] == task["recurrence"]
    assert (await rest.get("/tasks")).json()["total"] == 2
    undone = (await rest.post("/tasks/undo")).json()
    assert (undone["removed"], undone["restored"][0]["completed"]) == (
        [following["id"]],
        False,
    )


@requirement("tasks:beyond")
async def test_rescheduling_keeps_the_series(rest: httpx2.AsyncClient) -> None:
    task = (await rest.post("/tasks", json=DAILY)).json()
    await rest.put(f"/tasks/{task['id']}", json={"due_date": "2126-01-02T15:00:00Z"})

    done = (await rest.patch(f"/tasks/{task['id']}", json={"completed": True})).json()

    assert (await rest.get(f"/tasks/{done['next_id']}")).json()[
        "due_date"
    ] == "2126-01-03T09:00:00.000000Z"


@requirement("tasks:beyond")
@pytest.mark.parametrize(
    "rule",
    [
        "",
        "DAILY",
        "FREQ=HOURLY",
        "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;FREQ=DAILY",
        "FREQ=WEEKLY;BYDAY=XX",
    ],
)
async def test_a_rule_that_is_not_understood_is_refused(
    rest: httpx2.AsyncClient, rule: str
) -> None:
    answer = await rest.post("/tasks", json=DAILY | {"recurrence": rule})

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "recurrence")
    assert (
        await rest.post("/tasks", json={"title": "t", "recurrence": "FREQ=DAILY"})
    ).status_code == 409


DAYS = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])
RULES = st.builds(
    lambda freq, interval, days, months, end: (
        f"FREQ={freq};INTERVAL={interval}{days}{months}{end}"
    ),
    st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    st.integers(1, 4),
    st.just("")
    | st.lists(DAYS, min_size=1, max_size=3, unique=True).map(
        lambda days: f";BYDAY={','.join(days)}"
    ),
    st.sampled_from(["", ";BYMONTH=2", ";BYMONTH=3,9"]),
    st.sampled_from(["", ";COUNT=1", ";COUNT=5", ";UNTIL=20270601T000000Z"]),
)
PLACES = [
    "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    "FREQ=MONTHLY;INTERVAL=2;BYDAY=SA,SU;BYSETPOS=1,-1",
    "FREQ=MONTHLY;BYMONTHDAY=13,14,15;BYDAY=FR,SA;BYSETPOS=1",
    "FREQ=YEARLY;BYMONTH=3,10;BYDAY=SU;BYSETPOS=-1",
    "FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU",
    "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=100",
    "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=SU",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=2;WKST=SU",
    "FREQ=MONTHLY;BYDAY=2TU,-1FR",
    "FREQ=MONTHLY;BYMONTHDAY=-1",
    "FREQ=MONTHLY;BYMONTHDAY=31",
    "FREQ=MONTHLY",
    "FREQ=YEARLY",
]
ZONES = [
    "America/New_York",
    "Pacific/Auckland",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "UTC",
]
STARTS = st.datetimes(
    datetime(2026, 1, 1),  # noqa: DTZ001
    datetime(2027, 12, 31),  # noqa: DTZ001
).map(lambda at: at.replace(microsecond=0))


@requirement("tasks:beyond")
@settings(max_examples=60)
@given(rule=RULES, day=st.integers(0, 364), later=st.integers(0, 700))
def test_the_next_time_is_the_one_that_a_foreign_judge_names(
    rule: str, day: int, later: int
) -> None:
    start = datetime(2026, 1, 1, 9, 0, tzinfo=UTC) + timedelta(day)
    after = start + timedelta(later)

    assert recurrence.following(recurrence.parse(rule), start, after, UTC) == judged(
        rule, start, after
    )


def judged(rule: str, start: datetime, after: datetime) -> datetime | None:
    """The next time by python-dateutil, which walks the wall time of the start's own zone."""
    parsed = recurrence.parse(rule)
    begin = start.replace(fold=0)
    if parsed.freq == "WEEKLY" and parsed.places:
        # It counts places from the first day on; a week has them from its own beginning.
        begin -= timedelta((begin.weekday() - parsed.week_start) % 7)
    foreign = rrulestr(rule, dtstart=begin)
    series = (
        list(foreign)
        if parsed.count
        else foreign.between(start, after + timedelta(4400), inc=True)
    )
    # The first task of a series counts, whether or not the rule would name its day.
    series = (series if start in series else [start, *series])[: parsed.count]
    return next(
        (each for each in (moment.astimezone(UTC) for moment in series) if each > after),
        None,
    )


@requirement("tasks:wall-time")
@settings(max_examples=120)
@given(
    rule=st.sampled_from(PLACES) | RULES,
    zone=st.sampled_from(ZONES),
    wall=STARTS,
    later=st.integers(0, 9000),
)
def test_the_next_time_is_the_foreign_judges_in_every_zone(
    rule: str, zone: str, wall: datetime, later: int
) -> None:
    here = ZoneInfo(zone)
    # A wall time that the clock never showed is no start.
    start = wall.replace(tzinfo=here).astimezone(UTC).astimezone(here)
    after = start.astimezone(UTC) + timedelta(hours=later)

    found = recurrence.following(recurrence.parse(rule), start.astimezone(UTC), after, here)

    assert found == judged(rule, start, after)


@requirement("tasks:wall-time")
@pytest.mark.parametrize(
    ("zone", "due_date", "rule", "following"),
    [
        (
            "America/New_York",
            "2126-03-01T21:00:00-05:00",
            "FREQ=WEEKLY;BYDAY=FR",
            "2126-03-08T21:00:00-05:00",
        ),
        (
            "Pacific/Auckland",
            "2126-06-03T08:00:00+12:00",
            "FREQ=WEEKLY;BYDAY=MO",
            "2126-06-10T08:00:00+12:00",
        ),
        (
            "Europe/Berlin",
            "2126-03-30T09:00:00+01:00",
            "FREQ=DAILY",
            "2126-03-31T09:00:00+02:00",
        ),
        (
            "Europe/Berlin",
            "2126-10-26T09:00:00+02:00",
            "FREQ=DAILY",
            "2126-10-27T09:00:00+01:00",
        ),
        (
            "Europe/Berlin",
            "2126-01-31T00:30:00+01:00",
            "FREQ=MONTHLY;BYMONTHDAY=-1",
            "2126-02-28T00:30:00+01:00",
        ),
        (
            "America/New_York",
            "2126-12-24T20:00:00-05:00",
            "FREQ=DAILY;UNTIL=21261225",
            "2126-12-25T20:00:00-05:00",
        ),
        (
            "America/New_York",
            "2126-12-25T20:00:00-05:00",
            "FREQ=DAILY;UNTIL=21261225",
            None,
        ),
    ],
)
async def test_a_repeated_task_comes_back_by_the_persons_clock(
    home: Home, zone: str, due_date: str, rule: str, following: str | None
) -> None:
    desk = Desk(
        load(
            home.environment | {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": zone}
        ).settings
    )
    try:
        task = {"title": "t", "due_date": due_date, "recurrence": rule}
        made = await desk.tasks.call("ann", "POST", "/tasks", actor="tasks_mcp", body=task)
        done = await desk.tasks.call(
            "ann",
            "PATCH",
            f"/tasks/{made['id']}",
            actor="tasks_mcp",
            body={"completed": True},
        )
        found = done["next_id"] and await desk.tasks.call(
            "ann", "GET", f"/tasks/{done['next_id']}", actor="tasks_mcp"
        )
    finally:
        await desk.leave_tasks()
        desk.close()

    instants = [
        each and datetime.fromisoformat(each)
        for each in (found and found["due_date"], following)
    ]
    assert instants[0] == instants[1]


@requirement("tasks:wall-time")
@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("America/New_York", "America/New_York"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("Etc/UTC", "UTC"),
    ],
)
def test_without_a_setting_the_zone_is_the_machines(
    home: Home, variable: str, zone: str
) -> None:
    assert load(home.environment | {"TZ": variable}).settings.timezone == zone
    set_ = home.environment | {"TZ": variable, "DESKHAND_TIMEZONE": "Africa/Cairo"}
    assert load(set_).settings.timezone == "Africa/Cairo"


@requirement("tasks:wall-time")
@pytest.mark.parametrize("variable", ["CET-1CEST", "Mars/Olympus", "", "../../etc/passwd"])
def test_a_zone_of_the_machine_that_has_no_name_stops_nobody(
    home: Home, variable: str
) -> None:
    assert ZoneInfo(load(home.environment | {"TZ": variable}).settings.timezone)


@requirement("tasks:beyond")
def test_no_rule_keeps_the_desk_busy() -> None:
    rules = [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=366;COUNT=9999",
    ]
    start = datetime(1970, 1, 1, tzinfo=UTC)
    started = time.process_time()

    for rule in rules:
        assert (
            recurrence.following(
                recurrence.parse(rule), start, start + timedelta(20_000), ZoneInfo(ZONES[0])
            )
            is None
        )
    assert time.process_time() - started < 5


@requirement("tasks:beyond")
@pytest.mark.parametrize(
    ("word", "instant"),
    [
        ("today", "2026-11-15T22:59"),
        ("tomorrow", "2026-11-16T22:59"),
        ("Sunday", "2026-11-22T22:59"),
        ("fri 9:30", "2026-11-20T08:30"),
        ("+3d", "2026-11-18T22:59"),
        ("+2w 08:00", "2026-11-29T07:00"),
        ("eom", "2026-11-30T22:59"),
        ("17:00", "2026-11-15T16:00"),
        ("9:00", "2026-11-16T08:00"),
    ],
)
def test_a_word_means_one_instant_where_the_person_is(word: str, instant: str) -> None:
    found = due.resolve(due.check_due(word), SUNDAY_NOON, ZoneInfo("Europe/Berlin"))

    assert found == f"{instant}:00.000000Z"


@requirement("tasks:beyond")
@pytest.mark.parametrize(
    "word",
    ["someday", "tomorrow evening", "25:00", "+3", "next friday", "morgen um 17 Uhr"],
)
async def test_a_word_it_does_not_know_is_refused(
    rest: httpx2.AsyncClient, word: str
) -> None:
    assert (
        await rest.post("/tasks", json={"title": "t", "due_date": word})
    ).status_code == 422


@requirement("tasks:beyond")
async def test_the_whole_desk_has_tools_for_all_of_it(whole: Client) -> None:
    parent = await ok(whole, "create_task", title="parent")
    task = await ok(whole, "create_task", title="t")
    arranged = await ok(
        whole,
        "arrange_task",
        task_id=task["id"],
        project="Home",
        labels=["x"],
        parent_id=parent["id"],
        due="tomorrow",
        recurrence="FREQ=DAILY",
    )
    assert (arranged["project"], arranged["labels"], arranged["parent_id"]) == (
        "Home",
        ["x"],
        parent["id"],
    )
    assert arranged["due_date"].endswith("T23:59:00.000000Z")
    assert await ok(whole, "get_task", task_id=task["id"]) == arranged

    await ok(whole, "mark_task_completed", task_id=parent["id"])
    assert (await ok(whole, "reopen_task", task_id=parent["id"]))["completed"] is False
    results = await ok(whole, "change_tasks", task_ids=[task["id"], 2**40], action="delete")
    assert [each["result"] for each in results["results"]] == ["done", "not_found"]
    assert [each["id"] for each in (await ok(whole, "undo_task_change"))["restored"]] == [
        task["id"]
    ]

    assert (await refused(whole, "undo_task_change"))["error_type"] == "not_found_error"
    assert fields(await refused(whole, "arrange_task", task_id=1, due="someday")) == {"due"}
    assert (await refused(whole, "arrange_task", task_id=1))[
        "error_type"
    ] == "validation_error"
    contradiction = await refused(
        whole, "arrange_task", task_id=task["id"], parent_id=2**40
    )
    assert (contradiction["error_type"], fields(contradiction)) == (
        "validation_error",
        {"parent_id"},
    )
