"""No body, secret or whole address in the vault's log, in the chained record or in the process's log."""

import io
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deskhand import audit
from deskhand.log import JsonLines, mask_addresses, mask_beginning
from deskhand.orchestrator.loop import Orchestrator
from tests.gate.site import HELLO, Site
from tests.hostile.shapes import LATER, UNNOTICED
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

# Each begins with letters that stand in no word of ours: a log may well say "error:".
PLAIN = st.text(
    "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+/=?^_`{|}~-", min_size=6, max_size=20
).map("qx{}".format)
STRANGE = st.text("abcdefghijklmnopqrstuvwxyz äöü.,;:()<>[]", min_size=6, max_size=20).map(
    '"qx{}"'.format
)
FORMS = st.sampled_from(
    [
        "{}",
        "Ann <{}>",
        "{}, {}",
        "ann@example.com <{}>",
        "friends: {};",
        "{}\nBcc: {}",
        " {}",
    ]
)
SECRET = "the-words-of-the-body"


@requirement("audit:redacted")
@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    local=st.one_of(PLAIN, STRANGE),
    form=FORMS,
    tool=st.sampled_from(["send_email", "draft_email"]),
    domain=st.sampled_from(["example.org", "[10.0.0.1]", "[IPv6:::1]"]),
)
async def test_no_log_holds_a_body_or_a_whole_address(
    site: Site,
    caplog: pytest.LogCaptureFixture,
    local: str,
    form: str,
    tool: str,
    domain: str,
) -> None:
    address = f"{local}@{domain}"
    caplog.set_level(logging.DEBUG, "deskhand")
    letter = {
        "to": form.replace("{}", address),
        "subject": f"For {address} only",
        "body": f"{SECRET} {address}",
    }
    site.write(to=address)
    local_mail = {
        "DESKHAND_MAIL": "local",
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_MAX_SENDS": "1000",
    }
    async with site.client("email", **local_mail) as client:
        await client.call_tool(tool, letter)
        await client.call_tool(tool, letter | {"secret": SECRET})
        await client.call_tool("search_email", {"query": f"to:{address}"})
        await client.call_tool(
            "reply_email", {"thread_id": address, "message_id": address, "body": SECRET}
        )

    desk = site.desk()
    chained = [
        entry.model_dump_json()
        for _, entry in desk.store.write_sync(lambda tx: audit.entries(tx, limit=4))
    ]
    desk.close()
    logged = [
        str(vars(record)) for record in caplog.records if record.name.startswith("deskhand")
    ]
    lines = [str(line) for line in site.log()[-4:]]
    assert len(chained) == len(lines) == 4
    for line in (*chained, *lines, *logged):
        assert SECRET not in line
        assert address not in line
        assert local.strip('"') not in line


def _log_files(site: Site) -> str:
    return "".join(
        file.read_text() for file in (site.home.vault / "Logs").rglob("*") if file.is_file()
    )


@requirement("gate:recorded")
@requirement("audit:redacted")
@pytest.mark.parametrize("way", ["orchestrator", "page"])
async def test_what_the_desk_sends_later_is_logged_as_the_tool_of_the_door_that_asked(
    site: Site, way: str
) -> None:
    letters = {
        "email": HELLO,
        "gmail": HELLO | {"to": "carl@example.org", "body": "Of the other server.\n"},
    }
    for server, letter in letters.items():
        async with site.client(server) as client:
            assert (await client.call_tool("send_email", letter)).is_error
    desk = site.desk(DESKHAND_HOLD_SECONDS="0")
    cards, _ = await desk.waiting.cards()
    for card in cards:
        if way == "page":
            await desk.answers.approve(card.id, card.digest, "person")
    if way == "orchestrator":
        for file in site.files("Pending_Approval"):
            site.approve(file)
        orchestrator = Orchestrator(desk)
        await orchestrator.once()
        await orchestrator.close()
    await desk.close_mailbox()
    desk.close()
    assert len(site.sent) == 2
    sent_by = "orchestrator" if way == "orchestrator" else "desk"
    lines = [
        (line["actor"], line["action_type"], line["parameters"].get("sent_by"))
        for line in site.log()
    ]
    doors = ["email_mcp", "gmail_mcp"]
    assert sorted(lines[2:]) == [(door, "send_email", sent_by) for door in doors]

    async with site.client("email") as client:
        assert not (await client.call_tool("send_email", HELLO)).is_error
    told = site.log()[-1]
    assert (told["actor"], told["action_type"], told["parameters"]["told"]) == (
        "email_mcp",
        "send_email",
        True,
    )
    shown = site.home.command("log").stdout.splitlines()
    again = [
        line for line in shown if "Send a mail, asked again: it was done before" in line
    ]
    assert again == shown[-1:]

    kept = _log_files(site)
    assert "see you" not in kept
    assert HELLO["to"] not in kept
    # The line before each mail of the Gmail server is asked for, and shows how the mail begins.
    (before,) = site.home.vault.glob("Logs/gmail_mcp_*.jsonl")
    (line,) = before.read_text().splitlines()
    assert (json.loads(line)["to"], json.loads(line)["body_preview"]) == (
        "carl@example.org",
        "Of the other server.\n",
    )


@requirement("audit:redacted")
@pytest.mark.parametrize(
    "text",
    [
        "ann@example.org",
        "mail:gmail:ann@example.org:17",
        "to='ann@example.org' or ann@example.org",
        '"ann b"@x.org',
        "no such address: ann@[10.0.0.1] or ann@[IPv6:::1]",
        "ann(at work)@example.org",
        "ann\uff20example.org",
        "ann@",
        r'"ann\"b"@example.org',
        'a."ann b".c@example.org',
        "ann @ example.org",
        "ann (at work) @example.org",
        "mailto:ann%40example.org",
        "ann&#64;example.org",
        "@ann@example.org",
        "ann@example.organn@example.org",
    ],
)
def test_no_line_of_the_desks_own_log_holds_a_whole_address(text: str) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("deskhand.test")
    log.addHandler(handler)
    try:
        int(text)
    except ValueError:
        log.exception("refused: %s", text, extra={"why": text})
    finally:
        log.removeHandler(handler)
    assert "ann" not in written.getvalue()
    assert json.loads(written.getvalue())["level"] == "ERROR"


@requirement("audit:redacted")
def test_what_a_line_of_the_log_holds_in_a_list_is_masked_too() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "seen",
            "to": ["ann@example.org", {"ann@example.org": Path("of/ann@example.org")}],
            "failure": ValueError("no such mailbox: ann@example.org"),
            "user_id": "ann@example.org",
            "tries": 3,
        }
    )
    line = json.loads(JsonLines().format(record))
    assert line["to"] == ["a***@example.org", {"a***@example.org": "o***@example.org"}]
    assert line["failure"] == "no such mailbox: a***@example.org"
    assert (line["user_id"], line["tries"]) == ("ann@example.org", 3)


@pytest.mark.parametrize("word", ["a", "a=", '"@', '\\"@', '"\\"', "@", '"a@', "(a"])
def test_a_long_word_without_an_address_is_read_once(word: str) -> None:
    began = time.monotonic()
    assert mask_addresses(f"@{word * 70_000}")
    assert time.monotonic() - began < 2


PIECES_OF_ADDRESSES = [
    *'ab@"\\ .,;:<>()[]\uff20',
    "%40",
    "&#64;",
    '"@',
    '"a b"',
    "(at work)",
    "x.org",
    "a word ",
]


@requirement("audit:redacted")
@settings(max_examples=2000)
@given(
    st.lists(st.sampled_from(PIECES_OF_ADDRESSES), max_size=120).map("".join),
    st.integers(1, 20),
)
def test_the_beginning_of_a_long_text_shows_no_more_of_an_address_than_the_whole(
    text: str, limit: int
) -> None:
    begun = mask_beginning(text, limit)
    assert len(begun) <= limit
    assert mask_addresses(text).startswith(begun)


@requirement("audit:redacted")
@pytest.mark.parametrize("text", ["a word ", "ann@example.org ", "a%40b.org\n"])
def test_the_beginning_of_a_long_text_is_kept(text: str) -> None:
    whole = text * 1000
    assert mask_beginning(whole, 200) == mask_addresses(whole)[:200]
    assert (
        audit.short_text(whole)
        == f"{mask_addresses(whole)[:200]}… ({len(whole)} characters)"
    )


WORKS: list[Callable[[str], object]] = [
    audit.short_text,
    audit.masked,
    lambda text: audit.redact({"a": text}),
    lambda text: JsonLines().format(logging.makeLogRecord({"msg": text, "why": [text]})),
]


@requirement("audit:redacted")
@pytest.mark.parametrize(
    "word", ["@a", "a", "a b", '"a', "a@b,", "%40", '"@', '\\"', "(a", "<a@b.c>"]
)
def test_of_a_text_of_a_megabyte_the_logs_read_what_they_keep(word: str) -> None:
    whole, quarter = ((word * size)[:size] for size in (1_000_000, 250_000))
    for work in WORKS:
        assert len(str(work(whole))) < 300_000
        assert least_time(work, whole) < LATER * least_time(work, quarter) + UNNOTICED


def least_time(work: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        began = time.thread_time()
        work(text)
        times.append(time.thread_time() - began)
    return min(times)


@requirement("audit:redacted")
async def test_an_address_is_masked_before_a_long_text_is_cut(site: Site) -> None:
    long = f"{'qx' * 150}@example.org"
    query = f"{'x' * 190} {'qx' * 8}@example.org"
    async with site.client("email") as client:
        await client.call_tool("draft_email", {"to": long, "subject": [long], "body": "b"})
        await client.call_tool("search_email", {"query": query})

    assert all("qxqx" not in str(line) for line in site.log())


@requirement("audit:redacted")
@pytest.mark.parametrize(
    ("to", "logged"),
    [
        ("ann@example.org, bob@example.net", "a***@example.org, b***@example.net"),
        ("ann@example.org;bob@example.net", "a***@example.org, b***@example.net"),
        ("ann@example.org bob@example.net", "a***@example.org, b***@example.net"),
        ("ann@bob@example.net", "a***@example.net"),
    ],
)
async def test_no_log_names_an_address_that_nobody_wrote(
    site: Site, to: str, logged: str
) -> None:
    async with site.client("email") as client:
        await client.call_tool("send_email", {"to": to, "subject": "s", "body": "b"})

    (line,) = site.log()
    assert (line["target"], line["parameters"]["to"]) == (logged, logged)
