"""Words for days, times and rules against a table: over time zones, and over the nights in which the clock jumps."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from deskhand.errors import InvalidInput
from deskhand.tasks import due
from deskhand.tasks.oneline import Line, describe_rule, read_line, read_rule
from tests.gate.test_terminal_yes import Keyboard
from tests.home import Home
from tests.requirements import requirement

MONDAY = "2026-11-16T10:00Z"
TABLE = f"""
{MONDAY} Europe/Berlin
  today = 2026-11-16 23:59
  Today = 2026-11-16 23:59
  TOMORROW = 2026-11-17 23:59
  tomorrow 17:00 = 2026-11-17 17:00
  tomorrow at 17:00 = 2026-11-17 17:00
  tomorrow, 17:00 = 2026-11-17 17:00
  tomorrow 5pm = 2026-11-17 17:00
  tomorrow 5 pm = 2026-11-17 17:00
  tomorrow 5:30pm = 2026-11-17 17:30
  tomorrow noon = 2026-11-17 12:00
  tomorrow 00:00 = 2026-11-17 00:00
  tomorrow 0:00 = 2026-11-17 00:00
  5pm tomorrow = 2026-11-17 17:00
  17:00 tomorrow = 2026-11-17 17:00
  at 9:30 tomorrow = 2026-11-17 09:30
  9:30 on fri = 2026-11-20 09:30
  noon fri = 2026-11-20 12:00
  mon = 2026-11-23 23:59
  monday = 2026-11-23 23:59
  tue = 2026-11-17 23:59
  tuesday = 2026-11-17 23:59
  wed = 2026-11-18 23:59
  wednesday = 2026-11-18 23:59
  thu = 2026-11-19 23:59
  thursday = 2026-11-19 23:59
  fri = 2026-11-20 23:59
  Friday = 2026-11-20 23:59
  by friday = 2026-11-20 23:59
  by 5pm = 2026-11-16 17:00
  on friday = 2026-11-20 23:59
  sat = 2026-11-21 23:59
  saturday = 2026-11-21 23:59
  sun = 2026-11-22 23:59
  sunday = 2026-11-22 23:59
  fri 9:30 = 2026-11-20 09:30
  fri at 5pm = 2026-11-20 17:00
  friday  17:00 = 2026-11-20 17:00
  fri 8am = 2026-11-20 08:00
  +0d = 2026-11-16 23:59
  +1d = 2026-11-17 23:59
  +3d = 2026-11-19 23:59
  +3d 08:00 = 2026-11-19 08:00
  +2w = 2026-11-30 23:59
  +2w 08:00 = 2026-11-30 08:00
  in 3 days = 2026-11-19 23:59
  in a day = 2026-11-17 23:59
  in 1 day = 2026-11-17 23:59
  in a week = 2026-11-23 23:59
  in 2 weeks = 2026-11-30 23:59
  in 2 weeks at noon = 2026-11-30 12:00
  in a month = 2026-12-16 23:59
  in 2 months = 2027-01-16 23:59
  in 14 months = 2028-01-16 23:59
  in two weeks = 2026-11-30 23:59
  in ten days 9:00 = 2026-11-26 09:00
  in Three Months = 2027-02-16 23:59
  in two hours = 2026-11-16 13:00
  eom = 2026-11-30 23:59
  eom 12:00 = 2026-11-30 12:00
  30 nov = 2026-11-30 23:59
  30 Nov = 2026-11-30 23:59
  30 november = 2026-11-30 23:59
  30th november = 2026-11-30 23:59
  on 30 nov = 2026-11-30 23:59
  nov 30 = 2026-11-30 23:59
  November 30 = 2026-11-30 23:59
  nov 30th = 2026-11-30 23:59
  nov 30 17:00 = 2026-11-30 17:00
  30 nov at 5pm = 2026-11-30 17:00
  30 nov 2026 = 2026-11-30 23:59
  30 nov 2026 5pm = 2026-11-30 17:00
  nov 30, 2026 = 2026-11-30 23:59
  nov 30, 2026, 9:00 = 2026-11-30 09:00
  30 nov 2027 = 2027-11-30 23:59
  16 nov = 2026-11-16 23:59
  15 nov = 2027-11-15 23:59
  1 jan = 2027-01-01 23:59
  1st jan = 2027-01-01 23:59
  2nd feb = 2027-02-02 23:59
  3rd mar = 2027-03-03 23:59
  4 apr = 2027-04-04 23:59
  may 5 = 2027-05-05 23:59
  5 may = 2027-05-05 23:59
  june 6 = 2027-06-06 23:59
  7 jul = 2027-07-07 23:59
  8 august = 2027-08-08 23:59
  9 sep = 2027-09-09 23:59
  9 sept = 2027-09-09 23:59
  10 oct = 2027-10-10 23:59
  24 dec 18:00 = 2026-12-24 18:00
  29 feb = 2028-02-29 23:59
  29 feb 2028 = 2028-02-29 23:59
  30.11. = 2026-11-30 23:59
  1.12. = 2026-12-01 23:59
  01.12.2026 = 2026-12-01 23:59
  1. 12. 2026 = 2026-12-01 23:59
  30.11. 17:00 = 2026-11-30 17:00
  2026-11-30 = 2026-11-30 23:59
  2026-11-30 17:00 = 2026-11-30 17:00
  2026-11-01 = 2026-11-01 23:59
  17:00 = 2026-11-16 17:00
  at 17:00 = 2026-11-16 17:00
  11:01 = 2026-11-16 11:01
  11:00 = 2026-11-17 11:00
  9:00 = 2026-11-17 09:00
  5pm = 2026-11-16 17:00
  9am = 2026-11-17 09:00
  noon = 2026-11-16 12:00
  +2h = 2026-11-16 13:00
  +15h = 2026-11-17 02:00
  in an hour = 2026-11-16 12:00
  in 2 hours = 2026-11-16 13:00
  in 30 minutes = 2026-11-16 11:30
  in 30 min = 2026-11-16 11:30
  in a minute = 2026-11-16 11:01
  2026-11-20T10:00Z = 2026-11-20T10:00Z
  2026-11-20T10:00:00+05:30 = 2026-11-20T04:30Z

{MONDAY} America/New_York
  today = 2026-11-16 23:59
  5am = 2026-11-17 05:00
  5:01 = 2026-11-16 05:01
  fri 17:00 = 2026-11-20T22:00Z
  14 mar 2:30 = refused
  14 mar 2027 1:59 = 2027-03-14T06:59Z
  14 mar 2027 3:00 = 2027-03-14T07:00Z
  7 nov 2027 1:30 = 2027-11-07T05:30Z

{MONDAY} Asia/Kathmandu
  today = 2026-11-16T18:14Z
  17:00 = 2026-11-16T11:15Z
  15:45 = 2026-11-17T10:00Z

{MONDAY} Pacific/Auckland
  today = 2026-11-16T10:59Z
  tomorrow = 2026-11-17T10:59Z
  23:30 = 2026-11-16T10:30Z
  22:30 = 2026-11-17T09:30Z
  tue = 2026-11-17T10:59Z

2026-11-16T10:30Z Pacific/Kiritimati
  today = 2026-11-17 23:59
  tue = 2026-11-24 23:59

2027-03-27T11:00Z Europe/Berlin
  tomorrow 1:59 = 2027-03-28T00:59Z
  tomorrow 2:00 = refused
  tomorrow 2:30 = refused
  tomorrow 3:00 = 2027-03-28T01:00Z
  tomorrow = 2027-03-28T21:59Z
  2:30 = 2027-03-29T00:30Z
  +24h = 2027-03-28T11:00Z

2026-10-24T10:00Z Europe/Berlin
  tomorrow 1:59 = 2026-10-24T23:59Z
  tomorrow 2:30 = 2026-10-25T00:30Z
  2:30 = 2026-10-25T00:30Z
  tomorrow 3:00 = 2026-10-25T02:00Z
  tomorrow = 2026-10-25T22:59Z

2026-10-25T00:40Z Europe/Berlin
  2:30 = 2026-10-25T01:30Z
  2:45 = 2026-10-25T00:45Z
  in 2 hours = 2026-10-25T02:40Z

2026-10-25T01:40Z Europe/Berlin
  2:30 = 2026-10-26T01:30Z
  2:45 = 2026-10-25T01:45Z

2028-02-28T12:00Z UTC
  tomorrow = 2028-02-29 23:59
  29 feb = 2028-02-29 23:59
  +2d = 2028-03-01 23:59
  eom = 2028-02-29 23:59
  in a month = 2028-03-28 23:59

2028-02-29T12:00Z UTC
  29 feb = 2028-02-29 23:59
  28 feb = 2029-02-28 23:59

2026-12-31T23:30Z UTC
  tomorrow = 2027-01-01 23:59
  23:45 = 2026-12-31 23:45
  23:30 = 2027-01-01 23:30
  fri = 2027-01-01 23:59
  31 dec = 2026-12-31 23:59
  1 jan = 2027-01-01 23:59
  in 2 months = refused

{MONDAY} Africa/Casablanca
  someday = refused
  soon = refused
  next monday = refused
  next friday = refused
  next week = refused
  this friday = refused
  tonight = refused
  midnight = refused
  tomorrow evening = refused
  yesterday = refused
  morgen um 17 Uhr = refused
  11/12 = refused
  11/30/2026 = refused
  30.11 = refused
  31 feb = refused
  30 feb = refused
  29 feb 2027 = refused
  0 nov = refused
  32 dec = refused
  1.13. = refused
  2026-13-01 = refused
  2026-02-30 = refused
  2026-11-31 17:00 = refused
  25:00 = refused
  24:00 = refused
  17:60 = refused
  17 = refused
  5 = refused
  13pm = refused
  0am = refused
  12am = refused
  12pm = refused
  tomorrow 12 pm = refused
  +3 = refused
  +3m = refused
  +3x = refused
  -3d = refused
  in days = refused
  in 3 years = refused
  in some days = refused
  in eleven days = refused
  tommorow = refused
  30 nov 26 = refused
  nov = refused
  november = refused
  may = refused
  fri sat = refused
  fri 17:00 18:00 = refused
  2026-11-20T10:00 = refused
  eow = refused
  Ⅴ pm = refused
  ５pm = refused
"""


def rows() -> list[tuple[str, str, str, str]]:
    """Each line of the table: when it is asked, where, the words, and what they mean."""
    found = []
    now = zone = ""
    for line in TABLE.splitlines():
        words, equals, meant = line.partition(" = ")
        if equals:
            found.append((now, zone, words[2:], meant))
        elif line:
            now, _, zone = line.partition(" ")
    return found


def read(text: str, now: str, zone: str) -> str:
    try:
        return due.read(text, datetime.fromisoformat(now), ZoneInfo(zone))
    except InvalidInput:
        return "refused"


@requirement("tasks:phrases")
def test_a_hundred_and_fifty_phrases_mean_what_the_table_says_and_none_is_guessed() -> None:
    wrong = []
    for now, zone, words, meant in rows():
        wanted = meant
        if meant != "refused":
            moment = datetime.fromisoformat(meant)
            wanted = due.utc_text(
                moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
            )
        if (found := read(words, now, zone)) != wanted:
            wrong.append(f"{words!r} at {now} in {zone}: {found} instead of {wanted}")
    assert not wrong
    assert len(rows()) >= 150


NOW = datetime(2026, 11, 16, 10, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@requirement("tasks:phrases")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "next Mon 17:00",
            '"next mon" may mean two days: write mon for the first one after today, or a date such as 30 Nov',
        ),
        ("this friday", '"this friday" may mean two days: write friday for the first'),
        ("next week", '"next week" names no day: write one, such as mon, +1w or 30 Nov'),
        ("someday", "Try: today, tomorrow, fri"),
    ],
)
def test_words_that_may_mean_two_days_are_refused_with_words_that_mean_one(
    text: str, hint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        due.read(text, NOW, BERLIN)
    with pytest.raises(InvalidInput) as put_off:
        due.read_later(text, NOW, "Europe/Berlin")

    assert hint in str(refused.value.hint)
    if "two days" in hint:
        assert hint in put_off.value.details["fields"][0]["suggestion"]


@requirement("tasks:phrases")
@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("Buy milk tommorow", "tomorrow"),
        ("Buy milk tomorow.", "tomorrow"),
        ("Call Ann firday", "friday"),
        ("Call Ann Thrusday 17:00", "thursday"),
        ("Call Ann tommorow morning", "tomorrow"),
        ("Call Ann thurs", "thursday"),
        ("Call Ann wensday", "wednesday"),
        ("Buy milk tomorrow", None),
        ('"Buy milk tommorow"', None),
        ("Feed the monkey", None),
        ("Fry fish", None),
        ("Call Sandy", None),
        ("Tommorow", None),
    ],
)
def test_what_is_nearly_a_day_stays_in_the_title_and_is_told(
    text: str, day: str | None
) -> None:
    line = read_line(text, NOW, BERLIN)
    assert line.near_day == day
    assert (line.doubt is None) == (day is None)
    if day:
        assert text.split()[2].strip(".") in line.title


@requirement("tasks:phrases")
def test_whoever_waits_for_an_answer_is_told_so_and_why_a_day_is_none() -> None:
    for words, why in (("30 feb", "there is no such day"), ("next friday", "friday")):
        with pytest.raises(InvalidInput) as refused:
            due.read_wait(words, NOW, "Europe/Berlin", "when")
        assert "an answer is awaited" in refused.value.message
        (field,) = refused.value.details["fields"]
        assert why in f"{field['message']} {field['suggestion']}"


def repeated(title: str, minute: str, rule: str) -> Line:
    return Line(title, f"{minute}:00.000000Z", recurrence=rule)


@requirement("tasks:phrases")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "Call sawmill fri 17:00 #phone !high every week",
            Line(
                "Call sawmill",
                "2026-11-20T16:00:00.000000Z",
                "High",
                None,
                ("phone",),
                "FREQ=WEEKLY",
            ),
        ),
        ("every fri 17:00 is in the title", Line("every fri 17:00 is in the title")),
        (
            "Call every fri 17:00",
            repeated("Call", "2026-11-20T16:00", "FREQ=WEEKLY;BYDAY=FR"),
        ),
        (
            "#a Call !LOW mum @Family #b",
            Line("Call mum", None, "Low", "Family", ("a", "b")),
        ),
        (
            "Gym every mon and thu 7pm",
            repeated("Gym", "2026-11-16T18:00", "FREQ=WEEKLY;BYDAY=MO,TH"),
        ),
        (
            "Rent every 1st",
            repeated("Rent", "2026-12-01T22:59", "FREQ=MONTHLY;BYMONTHDAY=1"),
        ),
        (
            "Pay every 31st",
            repeated("Pay", "2026-12-31T22:59", "FREQ=MONTHLY;BYMONTHDAY=31"),
        ),
        (
            "Water every 2 days tomorrow",
            repeated("Water", "2026-11-17T22:59", "FREQ=DAILY;INTERVAL=2"),
        ),
        (
            "Bins every 2 weeks on tue",
            repeated("Bins", "2026-11-17T22:59", "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU"),
        ),
        ('"Plan next week" fri', Line("Plan next week", "2026-11-20T22:59:00.000000Z")),
        ("Call Ann, fri.", Line("Call Ann", "2026-11-20T22:59:00.000000Z")),
        ("Dentist 30.11.", Line("Dentist", "2026-11-30T22:59:00.000000Z")),
        ("Call Ann!", Line("Call Ann!")),
        ("Install 3.11.2", Line("Install 3.11.2")),
        ("Read chapter 5", Line("Read chapter 5")),
        ("Buy sun cream", Line("Buy sun cream")),
        ("Fix #12", Line("Fix #12")),
        ("Write to ann@example.org", Line("Write to ann@example.org")),
        ("Read may the force", Line("Read may the force")),
    ],
)
def test_a_line_is_a_task(text: str, line: Line) -> None:
    assert read_line(text, NOW, BERLIN) == line


@requirement("tasks:phrases")
@pytest.mark.parametrize(
    "text",
    [
        "Plan next week",
        "Call Bob next monday",
        "Finish before fri",
        "Holiday mon to fri",
        "Meet mon or tue",
        "Meet 11/12",
        "Dinner tonight",
        "Buy milk tmrw",
        "Report eod",
        "Meet at 5",
        "Meet fri 5",
        "Meet fri week",
        "Dentist 30.11.26",
        "Meet 2026-11-20T10:00",
        "Meet 2026-11-20T10:00Z.",
        "Call tomorrow evening",
        "Pay on the 15th",
        "Party sat 25:00",
        "Report 31 feb",
        "Lunch 12pm",
        "Water plants every 2 days",
        "Review every month",
        "Run every now and then",
        "Standup daily",
        "Bins fortnightly",
        "Pay rent each month",
        "Call tomorrow tomorrow",
        "Meet fri sat",
        "Meet mon 17:00 tue",
        "Sing every blue moon",
        "a !soon",
        "a !high !low",
        "a @x @y",
        '"a" and more',
        "#only",
        "fri",
        "",
        "every " * 200,
    ],
)
def test_a_line_that_could_mean_something_else_is_refused_with_what_is_known(
    text: str,
) -> None:
    with pytest.raises(InvalidInput):
        read_line(text, NOW, BERLIN)


@requirement("tasks:phrases")
@pytest.mark.parametrize(
    "words",
    [
        "every day",
        "every 3 weeks",
        "every weekday",
        "every mon",
        "every mon and thu",
        "every 2 weeks on tue",
        "every 15th",
        "every last fri",
        "every last day of the month",
        "every 24 dec",
        "every year",
    ],
)
def test_a_rule_is_shown_in_the_words_that_make_it(words: str) -> None:
    rule = read_rule(words)

    assert rule is not None
    assert describe_rule(rule) == words
    assert (
        describe_rule("FREQ=MONTHLY;BYSETPOS=-1;BYDAY=MO,TU")
        == "FREQ=MONTHLY;BYSETPOS=-1;BYDAY=MO,TU"
    )


@requirement("tasks:cli")
def test_the_list_is_kept_at_the_command_line(home: Home) -> None:
    own = {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": "Europe/Berlin"}
    made = home.command(
        "tasks", "add", "Call", "sawmill", "2030-11-20", "17:00", "#phone", "--json", **own
    )
    task = json.loads(made.stdout)
    by_day = home.command("tasks", "add", "Order compost 2030-11-08", **own)
    home.command("tasks", "undo", **own)
    nearly = home.command("tasks", "add", "Buy milk tommorow", **own)
    assert "no date was read: did you mean tomorrow?" in nearly.stderr
    home.command("tasks", "undo", **own)
    unread = home.command("tasks", "add", "Call next monday", **own)
    shown = home.command("tasks", "list", **own).stdout
    done = home.command("tasks", "done", str(task["id"]), **own).stdout
    nothing = home.command("tasks", "list", **own).stdout
    home.command("tasks", "undo", **own)
    again = json.loads(
        home.command("tasks", "list", "--label", "phone", "--json", **own).stdout
    )

    assert (task["due_date"], task["labels"]) == ("2030-11-20T16:00:00.000000Z", ["phone"])
    assert by_day.stdout.rstrip().endswith("Order compost  Fri 8 Nov 2030")
    assert unread.returncode == 2
    assert (
        '"next monday" may mean two days: write monday for the first one after today, or a date such as 30 Nov'
        in unread.stderr
    )
    assert shown.splitlines() == [
        "Later",
        f"  {task['id']:>4}  Call sawmill  Wed 20 Nov 2030, 17:00  #phone",
    ]
    assert done.startswith("Done: Call sawmill")
    assert nothing == "No task here.\n"
    assert [each["title"] for each in again["tasks"]] == ["Call sawmill"]


@requirement("tasks:cli")
def test_what_repeats_says_when_it_comes_again(home: Home) -> None:
    own = {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": "Europe/Berlin"}
    home.command("tasks", "add", "Water roses 2030-11-22 every week", **own)
    done = home.command("tasks", "done", "1", **own).stdout
    missing = home.command("tasks", "done", "99", **own)

    assert done == (
        "Done: Water roses; it comes again as 2, Fri 29 Nov 2030; `deskhand tasks undo` takes it back.\n"
    )
    assert missing.returncode == 4
    assert "`deskhand tasks list`" in missing.stderr
    assert "list_tasks" not in missing.stderr


@requirement("tasks:cli")
def test_a_day_alone_moves_one_task_of_a_series_and_with_the_rule_all_that_follow(
    home: Home,
) -> None:
    own = {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": "Europe/Berlin"}
    home.command("tasks", "add", "Sport 2030-11-19 9:00 every week", **own)
    once = home.command("tasks", "edit", "1", "2030-11-20", "10:00", **own).stdout
    as_before = home.command("tasks", "done", "1", **own).stdout
    moved = home.command(
        "tasks", "edit", "2", "2030-11-27", "10:00", "every", "week", **own
    ).stdout
    as_moved = home.command("tasks", "done", "2", **own).stdout

    assert once.splitlines() == [
        "Changed: 1  Sport  Wed 20 Nov 2030, 10:00  every week",
        "  this time only; name the rule as well to move what follows: … every week",
    ]
    assert "it comes again as 2, Tue 26 Nov 2030, 09:00" in as_before
    assert "this time only" not in moved
    assert "it comes again as 3, Wed 4 Dec 2030, 10:00" in as_moved


@requirement("tasks:cli")
def test_a_task_is_changed_by_the_words_that_make_one_and_deleted_and_comes_back(
    home: Home,
) -> None:
    own = {"DESKHAND_USER": "ann", "DESKHAND_TIMEZONE": "Europe/Berlin"}

    def run(*words: str) -> str:
        done = home.command("tasks", *words, **own)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("add", "Call sawmill 2030-11-20 17:00 #phone !high @Barn")
    assert run("edit", "1", "9:30") == (
        "Changed: 1  Call sawmill  Wed 20 Nov 2030, 09:30  !high  @Barn  #phone\n"
    )
    assert run(
        "edit", "1", "Call", "the", "mill", "!low", "#wood", "every", "2", "weeks"
    ) == (
        "Changed: 1  Call the mill  Wed 20 Nov 2030, 09:30  every 2 weeks  !low  @Barn  #phone  #wood\n"
    )
    assert "Thu 21 Nov 2030, 09:30  !low" in run(
        "edit", "1", "2030-11-21 9:30", "--clear", "repeat"
    )
    cleared = json.loads(
        run("edit", "1", "#oak", "--clear", "due", "--clear", "labels", "--json")
    )
    assert (cleared["due_date"], cleared["labels"]) == (None, ["oak"])
    assert cleared["title"] == "Call the mill"
    run("undo")

    for words, why in (
        ((), "Nothing is said that would change the task"),
        (("next monday",), "may mean two days"),
        (("!soon",), "There are !low, !medium, !high and !urgent"),
    ):
        refused = home.command("tasks", "edit", "1", *words, **own)
        assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
    assert home.command("tasks", "edit", "99", "fri", **own).returncode == 4
    asks = home.command("tasks", "delete", "1", **own)
    assert (asks.returncode, "Add --yes" in asks.stderr) == (2, True)

    assert run("delete", "1", "--yes") == (
        "Deleted: Call the mill; `deskhand tasks undo` brings it back.\n"
    )
    assert run("list") == "No task here.\n"
    run("undo")
    assert "1  Call the mill  Thu 21 Nov 2030, 09:30  !low  @Barn  #phone  #wood" in run(
        "list"
    )
    assert json.loads(run("delete", "1", "--yes", "--json")) == {
        "deleted": 1,
        "title": "Call the mill",
    }
    assert home.command("tasks", "delete", "1", "--yes", **own).returncode == 4
    lines = home.command("log", "--json", **own).stdout.splitlines()
    assert {(json.loads(line)["actor"]) for line in lines} == {"tasks_cli"}
    assert "you  Delete task  task 1  done" in home.command("log", **own).stdout


@requirement("tasks:cli")
def test_a_deletion_is_asked_for_at_a_terminal(home: Home) -> None:
    own = {"DESKHAND_USER": "ann"}
    home.command("tasks", "add", "Call sawmill", **own)
    terminal = Keyboard(home, "tasks", "delete", "1", PYTHONIOENCODING="utf-8", **own)
    terminal.wait_for("Delete the task “Call sawmill”? [y/N]")
    terminal.type("n\n")
    terminal.wait_for("othing was deleted")
    assert terminal.end() == 2
    assert "Call sawmill" in home.command("tasks", "list", **own).stdout
