"""Tasks as iCalendar files: out, in again, from foreign programs, and what is refused."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.home import TOKEN, Home
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
    return "\n".join(["BEGIN:VCALENDAR", "BEGIN:VTODO", "UID:u", *lines, "END:VTODO", "END:VCALENDAR"]).encode()


GOOD = calendar("SUMMARY:good")
BROKEN = {
    "no UID": (GOOD.replace(b"UID:u", b"X-U:u"), 2),
    "no SUMMARY": (calendar("STATUS:COMPLETED"), 2),
    "a blank title": (calendar("SUMMARY: "), 4),
    "a long title": (calendar("DESCRIPTION:d", f"SUMMARY:{'x' * 201}"), 5),
    "a long folded title": (calendar("DESCRIPTION:d\n d\n d", f"SUMMARY:{'x' * 201}"), 7),
    "two titles": (calendar("SUMMARY:a", "SUMMARY:b"), 5),
    "no property": (calendar("SUMMARY:a", "nonsense"), 5),
    "an open quote": (calendar("SUMMARY:a", 'X-A;B="c:d'), 5),
    "a naive nonsense time": (calendar("SUMMARY:a", "DUE:tomorrow"), 5),
    "an impossible day": (calendar("SUMMARY:a", "DUE:20260230T100000Z"), 5),
    "an impossible hour": (calendar("SUMMARY:a", "DUE:20260220T250000Z"), 5),
    "a time out of range": (calendar("SUMMARY:a", "DTSTART:99991231T235959Z", "DURATION:P9W"), 6),
    "a foreign zone": (calendar("SUMMARY:a", "DUE;TZID=../../etc/passwd:20260220T100000"), 5),
    "a length of nothing": (calendar("SUMMARY:a", "DURATION:PT1H"), 5),
    "a strange status": (calendar("SUMMARY:a", "STATUS:MAYBE"), 5),
    "a strange priority": (calendar("SUMMARY:a", "PRIORITY:10"), 5),
    "a rule unknown here": (calendar("SUMMARY:a", "DUE:20260220T100000Z", "RRULE:FREQ=DAILY;BYSETPOS=1"), 6),
    "a rule without a due date": (calendar("SUMMARY:a", "RRULE:FREQ=DAILY"), 5),
    "too many labels": (calendar("SUMMARY:a", f"CATEGORIES:{','.join(map(str, range(21)))}"), 5),
    "a part of nothing": (calendar("SUMMARY:a", "RELATED-TO:nobody"), 5),
    "a part of itself": (calendar("SUMMARY:a", "RELATED-TO:u"), 5),
    "a long UID": (GOOD.replace(b"UID:u", b"UID:" + b"u" * 501), 3),
    "not UTF-8": (calendar("SUMMARY:a", "X-A:b").replace(b"X-A:b", b"X-A:\xff"), 5),
    "a control character": (calendar("SUMMARY:a\x00b"), 4),
    "no END": (GOOD.replace(b"END:VTODO\nEND:VCALENDAR", b""), 2),
    "another END": (GOOD.replace(b"END:VTODO", b"END:VEVENT"), 5),
    "something after the end": (GOOD + b"\nUID:x", 7),
    "no calendar": (b"<html></html>", 1),
    "a task alone": (GOOD.replace(b"BEGIN:VCALENDAR", b""), 2),
    "nothing": (b"", 1),
}


async def exported(rest: httpx2.AsyncClient) -> bytes:
    answer = await rest.get("/tasks/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/calendar; charset=utf-8")
    return answer.content


async def taken(rest: httpx2.AsyncClient, content: bytes) -> dict[str, int]:
    answer = await rest.post("/tasks/import", content=content, headers={"Content-Type": "text/calendar"})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def listed(rest: httpx2.AsyncClient) -> list[dict[str, Any]]:
    return (await rest.get("/tasks", params={"sort": "created_at"})).json()["tasks"]


_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
    lambda n: n == n.strip()
)
TASKS = st.fixed_dictionaries(
    {
        "title": st.text(_CHARACTERS, min_size=1, max_size=200).filter(str.strip) | st.sampled_from(HOSTILE),
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
def test_for_any_tasks_export_then_import_gives_the_same(service: Service, scale: int) -> None:
    @settings(max_examples=12 * scale, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(st.lists(st.tuples(TASKS, st.booleans(), st.booleans()), min_size=1, max_size=6))
    def holds(wanted: list[tuple[dict[str, Any], bool, bool]]) -> None:
        headers = [{"Authorization": f"Bearer {TOKEN}", "X-User-ID": service.new_user()} for _ in range(2)]
        with (
            httpx2.Client(base_url=service.rest, headers=headers[0], timeout=30) as mine,
            httpx2.Client(base_url=service.rest, headers=headers[1], timeout=30) as theirs,
        ):
            parent: int | None = None
            for task, done, part in wanted:
                made = mine.post("/tasks", json=task | ({"parent_id": parent} if part else {}))
                assert made.status_code == 201, made.text
                parent = parent or made.json()["id"]
                if done:
                    mine.patch(f"/tasks/{made.json()['id']}", json={"completed": True})
            file = mine.get("/tasks/export").content

            assert max(map(len, file.split(b"\r\n"))) <= 75
            assert theirs.post("/tasks/import", content=file).json()["imported"] == len(wanted)
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
            [spoken(task["title"]), spoken(task["description"]), titles.get(task["parent_id"])]
            + [task[name] for name in kept]
            for task in tasks
        ],
        key=repr,
    )


def spoken(text: str | None) -> str | None:
    if text is None:
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join("\ufffd" if (sign < " " and sign not in "\t\n") or sign == "\x7f" else sign for sign in text)


@requirement("tasks:vtodo")
async def test_hostile_text_stays_in_its_property(rest: httpx2.AsyncClient) -> None:
    for text in HOSTILE:
        await rest.post("/tasks", json={"title": text, "description": text, "labels": ["a,b;c\\"], "project": "p\\n"})

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
async def test_a_repeated_task_goes_on_where_it_was(service: Service, rest: httpx2.AsyncClient) -> None:
    rules = ["FREQ=WEEKLY;INTERVAL=2", "FREQ=DAILY;COUNT=5", "FREQ=MONTHLY;BYDAY=-1FR;UNTIL=22001231T235959Z"]
    for rule in rules:
        body = {"title": rule, "due_date": "2126-01-04T09:00:00Z", "recurrence": rule}
        made = (await rest.post("/tasks", json=body)).json()
        await rest.patch(f"/tasks/{made['id']}", json={"completed": True})
    file = await exported(rest)

    async with service.http(service.new_user()) as other:
        assert await taken(other, file) == {"imported": 6, "already_there": 0, "left_out": 0}
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
async def test_a_foreign_programs_file_is_understood(service: Service, rest: httpx2.AsyncClient) -> None:
    assert await taken(rest, b"\xef\xbb\xbf" + FOREIGN.encode()) == {"imported": 3, "already_there": 0, "left_out": 2}

    found = {task["title"]: task for task in await listed(rest)}
    part, whole, long = (found[t] for t in ("Teil eins, mit Beistrich", "The whole", "From a start\nand a length"))
    assert (part["parent_id"], part["labels"], part["priority"]) == (
        whole["id"],
        ["Arbeit", "zu,Hause", "garden"],
        "High",
    )
    assert part["due_date"] == "2026-12-24T23:59:00.000000Z"
    assert (whole["due_date"], whole["description"]) == ("2026-12-24T17:00:00.000000Z", None)
    assert (whole["recurrence"], whole["priority"]) == ("FREQ=WEEKLY;UNTIL=20271231T235959Z", "Medium")
    assert (long["due_date"], long["completed"], long["priority"]) == ("2026-12-26T01:00:00.000000Z", True, "Low")
    # Its own names are kept: what goes back to that program is known there.
    names = {line for line in (await exported(rest)).decode().split("\r\n") if line.startswith(("UID:", "RELATED-TO"))}
    assert names == {"UID:part", "UID:whole", "UID:long", "RELATED-TO;RELTYPE=PARENT:whole"}


@requirement("tasks:vtodo")
async def test_a_second_import_changes_nothing_and_a_deleted_task_comes_back(rest: httpx2.AsyncClient) -> None:
    for title in ("own", "other"):
        await rest.post("/tasks", json={"title": title})
    file = await exported(rest)
    before = await listed(rest)
    assert await taken(rest, file) == {"imported": 0, "already_there": 2, "left_out": 0}
    assert await listed(rest) == before

    await rest.put(f"/tasks/{before[0]['id']}", json={"title": "edited here"})
    await rest.delete(f"/tasks/{before[1]['id']}")
    assert await taken(rest, file) == {"imported": 1, "already_there": 1, "left_out": 0}
    assert [(task["id"], task["title"]) for task in await listed(rest)] == [
        (before[0]["id"], "edited here"),
        (before[1]["id"], "other"),
    ]

    # One import is one change: undo takes all of it back.
    assert (await taken(rest, FOREIGN.encode()))["imported"] == 3
    assert len((await rest.post("/tasks/undo")).json()["removed"]) == 3
    assert len(await listed(rest)) == 2


@requirement("tasks:vtodo")
async def test_a_file_imported_many_times_at_once_is_there_once(rest: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(taken(rest, FOREIGN.encode()) for _ in range(6)))

    assert sum(answer["imported"] for answer in answers) == 3
    assert len(await listed(rest)) == 3


@requirement("tasks:isolation")
async def test_another_users_file_makes_tasks_of_ones_own(service: Service, rest: httpx2.AsyncClient) -> None:
    await rest.post("/tasks", json={"title": "hers"})
    before = await listed(rest)
    file = await exported(rest)

    async with service.http(service.new_user()) as other:
        assert (await taken(other, file.replace(b"SUMMARY:hers", b"SUMMARY:mine")))["imported"] == 1
        assert [task["title"] for task in await listed(other)] == ["mine"]
        # By its UID nobody makes a subtask of another's task.
        uid = next(line for line in file.split(b"\r\n") if line.startswith(b"UID:"))[4:]
        child = calendar("SUMMARY:child", "RELATED-TO:%s").replace(b"%s", uid)
        async with service.http(service.new_user()) as third:
            assert (await third.post("/tasks/import", content=child)).status_code == 422

    assert await listed(rest) == before


@requirement("tasks:vtodo")
async def test_a_broken_file_is_refused_with_its_line_and_nothing_of_it_is_taken(rest: httpx2.AsyncClient) -> None:
    good = "BEGIN:VTODO\nUID:good\nSUMMARY:good\nEND:VTODO\n"
    for name, (content, line) in BROKEN.items():
        answer = await rest.post("/tasks/import", content=content)
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), name
        assert answer.json()["detail"].startswith(f"line {line}: "), (name, answer.text)
        # The good task before the broken one stays out too.
        if b"BEGIN:VCALENDAR\n" in content:
            with_good = content.replace(b"BEGIN:VCALENDAR\n", f"BEGIN:VCALENDAR\n{good}".encode(), 1)
            answer = await rest.post("/tasks/import", content=with_good)
            assert answer.json()["detail"].startswith(f"line {line + 4}: "), (name, answer.text)
    twice = calendar("SUMMARY:a", "END:VTODO", "BEGIN:VTODO", "UID:u", "SUMMARY:b")
    assert "line 6: the UID of line 2" in (await rest.post("/tasks/import", content=twice)).json()["detail"]
    deep = "".join(f"BEGIN:VTODO\nUID:{n}\nSUMMARY:a\nRELATED-TO:{n + 1}\nEND:VTODO\n" for n in range(2))
    deep = f"BEGIN:VCALENDAR\n{deep}BEGIN:VTODO\nUID:2\nSUMMARY:a\nEND:VTODO\nEND:VCALENDAR"
    assert "line 5: a subtask" in (await rest.post("/tasks/import", content=deep.encode())).json()["detail"]
    endless = f"BEGIN:VCALENDAR\nBEGIN:{'x' * 9_000_000}\nEND:VTODO\n".encode()
    assert len((await rest.post("/tasks/import", content=endless)).content) < 1000
    large = calendar(f"SUMMARY:{'x' * 10_000_000}")
    assert "larger than" in (await rest.post("/tasks/import", content=large)).json()["detail"]

    assert await listed(rest) == []


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

    assert first.stdout == "3 tasks imported, 0 were already there, 2 left out (no tasks, or cancelled)\n"
    assert second.stdout == '{"imported": 0, "already_there": 3, "left_out": 2}\n'
    assert printed.stdout == copy.read_text()
    assert printed.stdout.count("BEGIN:VTODO") == 3
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "line 2: not a property" in broken.stderr
    assert home.command("tasks", "export", DESKHAND_DATABASE_URL=service.database).returncode == 3
    assert home.command("tasks", "import", str(tmp_path / "nowhere.ics"), **on).returncode == 2
    assert home.command("tasks", "export", str(tmp_path / "nowhere" / "x.ics"), **on).returncode == 2
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"foreign.ics", "copy.ics"}
