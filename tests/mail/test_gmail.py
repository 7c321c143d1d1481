"""Gmail as a mailbox, over real HTTP against the double."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest

from deskhand.config import load
from deskhand.errors import (
    AuthRequired,
    BadConfig,
    Denied,
    DeskError,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    ProviderDown,
    RateLimited,
    SendFailed,
    Unavailable,
)
from deskhand.mail import NotSent, Sent, Unclear
from deskhand.mail.gmail import GmailMailbox
from deskhand.mail.google_auth import installed_client, sign_in
from tests.home import Home
from tests.mail.gmail_double import (
    CLIENT,
    SEND,
    Cut,
    Expired,
    GmailDouble,
    Says,
    Slow,
    Status,
)
from tests.mail.letters import DATE, letter, outgoing, unwritten
from tests.requirements import requirement
from tests.warm import warm_python

pytestmark = pytest.mark.anyio


@pytest.fixture
def gmail() -> Iterator[GmailDouble]:
    with GmailDouble() as double:
        yield double


@pytest.fixture
def waits() -> list[float]:
    """How long the mailbox would have waited between attempts."""
    return []


@pytest.fixture
async def mailbox(
    gmail: GmailDouble, waits: list[float], tmp_path: Path
) -> AsyncIterator[GmailMailbox]:
    made = opened(gmail, tmp_path, waits)
    yield made
    await made.close()


def opened(
    gmail: GmailDouble, folder: Path, waits: list[float] | None = None
) -> GmailMailbox:
    async def wait(seconds: float) -> None:
        (waits if waits is not None else []).append(seconds)

    environment = {"DESKHAND_HOME": str(folder / "home")} | gmail.environment(folder)
    return GmailMailbox(load(environment).settings, sleep=wait, chance=lambda: 0.0)


@requirement("gmail:round-trips")
async def test_a_search_of_fifty_takes_three_round_trips_with_the_sign_in_and_then_two(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    for number in range(60):
        gmail.account.deliver(letter(subject=f"Invoice {number}"))

    found = await mailbox.search("subject:invoice", 50)
    assert gmail.round_trips == 3
    again = await mailbox.search("subject:invoice", 50)

    assert gmail.round_trips == 5
    assert found == again
    assert [mail.subject for mail in found] == [
        f"Invoice {number}" for number in reversed(range(10, 60))
    ]


async def test_a_mail_reads_as_it_was_written(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    raw = letter(
        sender="Jürgen <j@example.org>", subject="Grüße & <mehr>", body="Schöne Grüße"
    )
    held = gmail.account.deliver(raw, at=DATE)

    (summary,) = await mailbox.search("", 10)
    full = await mailbox.get(held.id)

    assert full.summary == summary
    assert (summary.sender, summary.subject) == ("Jürgen <j@example.org>", "Grüße & <mehr>")
    assert summary.snippet == "Schöne Grüße"
    assert summary.labels == ("INBOX", "UNREAD")
    assert summary.date == DATE
    assert full.body.strip() == "Schöne Grüße"


async def test_a_label_that_several_make_at_the_same_moment_is_made_once(
    mailbox: GmailMailbox, gmail: GmailDouble
) -> None:
    mails = [
        gmail.account.deliver(letter(message_id=f"<{number}@x.example>")).id
        for number in range(5)
    ]

    await asyncio.gather(*(mailbox.add_label(each, "New") for each in mails))

    assert {mail.id for mail in await mailbox.search("label:New", 10)} == set(mails)
    assert list(gmail.account.labels.values()).count("New") == 1


async def test_labels_have_their_names_and_stay_fresh_while_the_rest_is_remembered(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    held = gmail.account.deliver(letter(), "INBOX")
    await mailbox.search("", 10)

    await mailbox.add_label(held.id, "Clients/Ann")
    await mailbox.add_label(held.id, "clients/ann")
    (labelled,) = await mailbox.search("label:clients/ann", 10)
    await mailbox.move(held.id, "DONE")
    (moved,) = await mailbox.search("", 10)
    await mailbox.move(held.id, "inbox")
    (back,) = await mailbox.search("", 10)

    assert labelled.labels == ("INBOX", "Clients/Ann")
    assert moved.labels == ("Clients/Ann", "DONE")
    assert back.labels == ("Clients/Ann", "DONE", "INBOX")
    assert gmail.asked.count("labels.create") == 2


async def test_a_label_is_not_made_for_a_mail_that_is_not_there(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    with pytest.raises(NotFound):
        await mailbox.add_label("18d5a0000000ffff", "New")
    with pytest.raises(InvalidInput):
        await mailbox.add_label(gmail.account.deliver(letter()).id, "SENT")
    with pytest.raises(InvalidInput):
        await mailbox.move("18d5a0000000ffff", "  ")

    assert "labels.create" not in gmail.asked


async def test_a_reply_joins_its_thread_and_the_thread_reads_oldest_first(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    first = gmail.account.deliver(letter(subject="Plan", message_id="<one@example.org>"))
    reply = outgoing(
        subject="Re: Plan", in_reply_to="<one@example.org>", thread_id=first.thread_id
    )

    sent = await mailbox.send(await mailbox.prepare(reply), reply, unwritten)
    thread = await mailbox.thread(first.thread_id)

    assert sent.thread_id == first.thread_id
    assert [mail.id for mail in thread] == [first.id, sent.message_id]


@pytest.mark.parametrize(
    "name", ["18d5a0000000ffff", "not an id", "../labels", "..", "", "x" * 5000, "a\r\nb"]
)
async def test_what_is_not_there_is_not_found_however_it_is_spelled(
    gmail: GmailDouble, mailbox: GmailMailbox, name: str
) -> None:
    for ask in (mailbox.get, mailbox.thread):
        with pytest.raises(NotFound):
            await ask(name)
    assert set(gmail.asked) <= {
        "token",
        "batch",
        "messages.get",
        "threads.get",
        "labels.list",
    }


async def test_a_mail_that_vanishes_during_the_search_is_left_out(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    gmail.account.deliver(letter())
    gmail.plan("messages.get", Status(404, "notFound"))

    assert await mailbox.search("", 10) == []


@requirement("gmail:reads-retried")
async def test_reads_wait_and_try_again_at_most_three_times(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float]
) -> None:
    gmail.plan(
        "messages.list",
        Status(503),
        Cut(accepted=False),
        Status(403, "userRateLimitExceeded", retry_after=7),
    )

    assert await mailbox.search("", 10) == []
    assert waits == [0.25, 0.5, 7.0]


@requirement("gmail:reads-retried")
async def test_of_a_batch_only_the_part_that_failed_is_asked_again(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float]
) -> None:
    for _ in range(5):
        gmail.account.deliver(letter())
    gmail.plan("messages.get", Status(429, "rateLimitExceeded"), Status(500))

    assert len(await mailbox.search("", 10)) == 5
    assert gmail.asked.count("messages.get") == 7
    assert gmail.asked.count("batch") == 2
    assert len(waits) == 1


@requirement("gmail:errors")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(500), Unavailable),
        (Status(503), Unavailable),
        (Status(429, "rateLimitExceeded"), RateLimited),
        (Status(403, "rateLimitExceeded"), RateLimited),
        (Cut(accepted=False), Unavailable),
    ],
)
async def test_trouble_that_stays_is_told_after_the_last_attempt(
    gmail: GmailDouble,
    mailbox: GmailMailbox,
    waits: list[float],
    fault: Any,
    error: type[DeskError],
) -> None:
    gmail.plan("messages.list", *[fault] * 4)

    with pytest.raises(error):
        await mailbox.search("", 10)
    assert len(waits) == 3
    assert gmail.asked.count("messages.list") == 4


@requirement("gmail:errors")
async def test_refusals_are_not_tried_again(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float]
) -> None:
    gmail.plan(
        "messages.list",
        Status(403, "insufficientPermissions"),
        Status(400, "invalidArgument"),
    )

    with pytest.raises(Denied) as denied:
        await mailbox.search("", 10)
    with pytest.raises(InvalidInput):
        await mailbox.search("", 10)

    assert "deskhand mail login gmail" in (denied.value.hint or "")
    assert waits == []


@requirement("gmail:reads-retried")
async def test_a_wait_that_is_too_long_is_the_callers_to_decide(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float]
) -> None:
    gmail.plan("messages.list", Status(429, "rateLimitExceeded", retry_after=3600))

    with pytest.raises(RateLimited) as limited:
        await mailbox.search("", 10)
    assert limited.value.details["retry_after"] == 3600
    assert waits == []


@requirement("gmail:reads-retried")
@pytest.mark.parametrize(
    "fault", [Status(500), Status(429, "rateLimitExceeded"), Cut(accepted=False)]
)
async def test_what_changes_something_is_never_tried_again(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float], fault: Any
) -> None:
    held = gmail.account.deliver(letter())
    gmail.plan("messages.modify", fault)

    with pytest.raises((Unavailable, RateLimited)):
        await mailbox.move(held.id, "TRASH")

    assert waits == []
    assert gmail.asked.count("messages.modify") == 1


@requirement("gmail:nothing-happened")
@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    "fault", [Status(500), Status(503), Status(429, "rateLimitExceeded", retry_after=2)]
)
async def test_a_draft_is_made_once_however_often_gmail_fails(
    gmail: GmailDouble,
    mailbox: GmailMailbox,
    waits: list[float],
    fault: Status,
    accepted: bool,
) -> None:
    accepted &= fault.code != 429
    await mailbox.create_draft(outgoing(action_id="another").raw, None)
    gmail.plan("drafts.create", fault, fault, replace(fault, accepted=accepted))

    draft = await mailbox.create_draft(outgoing().raw, None)

    assert list(gmail.account.drafts)[1:] == [draft.id]
    assert gmail.account.drafts[draft.id] == draft.message_id
    assert len(waits) == (2 if accepted else 3)


@requirement("gmail:nothing-happened")
@pytest.mark.parametrize(
    "fault", [Status(500), Status(503), Status(429, "rateLimitExceeded")]
)
@pytest.mark.parametrize("times", [3, 4])
async def test_a_mail_that_gmail_fails_to_send_is_sent_again_three_times_at_most(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float], fault: Status, times: int
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", *[fault] * times)

    if times == 3:
        assert isinstance(await mailbox.send(token, mail, unwritten), Sent)
    else:
        with pytest.raises((SendFailed, RateLimited)) as failed:
            await mailbox.send(token, mail, unwritten)
        assert not isinstance(failed.value, OutcomeUnknown)
        if fault.code != 429:
            assert failed.value.details["status"] == fault.code

    assert gmail.asked.count("drafts.send") == 4
    assert waits == [0.25, 0.5, 1.0]
    assert len(gmail.delivered) == (times == 3)


@requirement("gmail:nothing-happened")
async def test_a_wait_beyond_the_lease_is_left_to_the_caller(
    gmail: GmailDouble, mailbox: GmailMailbox, waits: list[float]
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", *[Status(429, "rateLimitExceeded", retry_after=10)] * 4)

    with pytest.raises(RateLimited):
        await mailbox.send(token, mail, unwritten)

    assert waits == [10]


@requirement("gmail:nothing-happened")
@pytest.mark.parametrize("fault", [Status(500), Status(500, accepted=True)])
async def test_where_nobody_can_look_a_failed_send_is_not_repeated(
    gmail: GmailDouble, mailbox: GmailMailbox, fault: Status
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", fault)
    gmail.plan("drafts.get", *[Status(503)] * 4)

    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)

    assert gmail.asked.count("drafts.send") == 1


@requirement("gmail:errors")
@pytest.mark.parametrize("name", ["drafts.create", "drafts.send"])
@pytest.mark.parametrize("code", [400, 403, 412, 500, 502, 503])
async def test_whatever_gmail_says_to_a_send_but_yes_is_a_failed_send_with_its_status(
    gmail: GmailDouble, mailbox: GmailMailbox, name: str, code: int
) -> None:
    gmail.plan(name, *[Status(code, "forbidden")] * 4)
    mail = outgoing()

    with pytest.raises(SendFailed) as failed:
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)

    assert (failed.value.code, failed.value.details["status"]) == ("send_failed", code)
    assert not isinstance(failed.value, OutcomeUnknown)
    assert gmail.delivered == []


@requirement("gmail:errors")
async def test_a_draft_that_gmail_does_not_find_is_a_failed_send(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    gmail.plan("drafts.create", Status(404, "notFound"))

    with pytest.raises(SendFailed) as failed:
        await mailbox.prepare(outgoing())

    assert failed.value.details["status"] == 404


@requirement("gmail:errors")
@pytest.mark.parametrize("code", [404, 405, 501])
async def test_an_endpoint_without_batch_is_named(
    gmail: GmailDouble, mailbox: GmailMailbox, code: int
) -> None:
    held = gmail.account.deliver(letter())
    gmail.plan("batch", *[Status(code, "notFound")] * 3)

    for asked in (
        mailbox.search("", 10),
        mailbox.get(held.id),
        mailbox.add_label(held.id, "Done"),
    ):
        with pytest.raises(BadConfig, match=r"has no /batch/gmail/v1") as named:
            await asked
        assert "DESKHAND_GMAIL_API_ENDPOINT" in (named.value.hint or "")


@requirement("gmail:sign-in")
async def test_an_expired_token_is_renewed_once_and_the_call_succeeds(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    held = gmail.account.deliver(letter())
    await mailbox.search("", 10)

    gmail.plan("messages.get", Expired())
    assert (await mailbox.get(held.id)).summary.id == held.id
    gmail.plan("drafts.send", Expired())
    mail = outgoing()
    await mailbox.send(await mailbox.prepare(mail), mail, unwritten)

    assert gmail.asked.count("token") == 3
    assert gmail.delivered == [mail.raw]


@requirement("gmail:sign-in")
async def test_a_revoked_sign_in_says_which_command_to_run(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    await mailbox.address()
    gmail.refresh_token = None
    gmail.expire()

    with pytest.raises(AuthRequired) as refused:
        await mailbox.search("", 10)
    assert refused.value.hint == "run `deskhand mail login gmail`"
    assert refused.value.details["reason"] == "invalid_grant"


@requirement("gmail:sign-in")
async def test_a_token_that_is_refused_again_right_after_its_renewal_is_no_endless_loop(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    gmail.plan("getProfile", Expired(), Expired())

    with pytest.raises(AuthRequired):
        await mailbox.address()
    assert gmail.asked == ["token", "getProfile", "token", "getProfile"]


@requirement("gmail:sign-in")
async def test_a_rotated_token_is_kept_and_only_its_owner_can_read_it(
    gmail: GmailDouble, mailbox: GmailMailbox, tmp_path: Path
) -> None:
    gmail.rotates = True
    assert await mailbox.address() == "me@example.com"
    gmail.expire()
    await mailbox.search("", 1)

    file = tmp_path / "gmail.json"
    assert json.loads(file.read_text())["refresh_token"] == gmail.refresh_token
    assert json.loads(file.read_text())["type"] == "authorized_user"
    assert file.stat().st_mode & 0o777 == 0o600


@requirement("gmail:sign-in")
@pytest.mark.parametrize(
    "content", [None, "", "{}", "[1]", '{"client_id": 3}', b"\xff\xfe"]
)
async def test_credentials_that_are_missing_or_broken_are_a_matter_of_signing_in(
    gmail: GmailDouble, tmp_path: Path, content: str | bytes | None
) -> None:
    mailbox = opened(gmail, tmp_path)
    file = tmp_path / "gmail.json"
    match content:
        case None:
            file.unlink()
        case str():
            file.write_text(content)
        case bytes():
            file.write_bytes(content)

    with pytest.raises(AuthRequired, match="credentials"):
        await mailbox.address()
    await mailbox.close()


@requirement("gmail:sign-in")
async def test_trouble_of_the_sign_in_server_is_not_taken_for_a_revoked_token(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    for fault in (Status(503), Cut(accepted=False)):
        gmail.plan("token", fault)
        with pytest.raises(Unavailable):
            await mailbox.address()
    assert await mailbox.address() == "me@example.com"


@requirement("gmail:never-twice")
async def test_a_mail_leaves_byte_for_byte_even_when_somebody_edited_its_draft(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.account.mails[gmail.account.drafts[token]].raw = letter(body="something else")

    sent = await mailbox.send(token, mail, unwritten)

    assert gmail.delivered == [mail.raw]
    assert gmail.account.drafts == {}
    assert (await mailbox.get(sent.message_id)).summary.labels == ("SENT",)


@requirement("gmail:never-twice")
@pytest.mark.parametrize(
    "fault",
    [
        Cut(accepted=False),
        Cut(accepted=True),
        Status(500, accepted=True),
        Status(503, accepted=True),
        Status(404, "notFound", accepted=True),
    ],
)
async def test_a_lost_answer_is_cleared_up_and_the_mail_leaves_once(
    gmail: GmailDouble, mailbox: GmailMailbox, fault: Any
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", fault)

    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    seen = await mailbox.check(token, mail)
    if fault.accepted:
        assert isinstance(seen, Sent)
        assert gmail.account.mails[seen.message_id].labels == ["SENT"]
    else:
        assert seen == NotSent(token)
        await mailbox.send(token, mail, unwritten)

    assert gmail.delivered == [mail.raw]
    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    assert gmail.delivered == [mail.raw]


@requirement("gmail:never-twice")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(429, "rateLimitExceeded", retry_after=20), RateLimited),
        (Status(403, "userRateLimitExceeded", retry_after=20), RateLimited),
        (Status(403, "forbidden"), SendFailed),
        (Status(400, "invalidArgument"), SendFailed),
    ],
)
async def test_a_refused_send_is_certainly_not_sent_and_its_draft_is_kept(
    gmail: GmailDouble, mailbox: GmailMailbox, fault: Status, error: type[DeskError]
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", fault)

    with pytest.raises(error) as refused:
        await mailbox.send(token, mail, unwritten)

    assert not isinstance(refused.value, OutcomeUnknown)
    assert gmail.delivered == []
    assert await mailbox.check(token, mail) == NotSent(token)


@requirement("gmail:never-twice")
async def test_a_draft_that_somebody_deleted_leaves_the_question_to_the_person(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.account.drafts.clear()

    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    assert isinstance(await mailbox.check(token, mail), Unclear)


@requirement("gmail:never-twice")
async def test_another_mail_to_the_same_person_is_not_taken_for_ours(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    first, second = outgoing(action_id="a1"), outgoing(action_id="a2")
    await mailbox.send(await mailbox.prepare(first), first, unwritten)
    token = await mailbox.prepare(second)
    gmail.account.drafts.clear()

    assert isinstance(await mailbox.check(token, second), Unclear)


@requirement("gmail:never-twice")
async def test_a_gmail_that_cannot_be_reached_has_sent_nothing(
    gmail: GmailDouble, mailbox: GmailMailbox, tmp_path: Path
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    unreachable = {"DESKHAND_GMAIL_API_ENDPOINT": "http://127.0.0.1:9"}
    settings = load(
        {"DESKHAND_HOME": str(tmp_path)} | gmail.environment(tmp_path) | unreachable
    ).settings
    elsewhere = GmailMailbox(settings)

    with pytest.raises(SendFailed) as failed:
        await elsewhere.send(token, mail, unwritten)

    assert not isinstance(failed.value, OutcomeUnknown)
    await elsewhere.close()


@requirement("gmail:never-twice")
async def test_a_sign_in_that_fails_before_the_send_has_sent_nothing(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", Expired())
    gmail.plan("token", Status(503))

    with pytest.raises(SendFailed) as failed:
        await mailbox.send(token, mail, unwritten)

    assert not isinstance(failed.value, OutcomeUnknown)
    assert await mailbox.check(token, mail) == NotSent(token)


@requirement("gmail:never-twice")
@pytest.mark.parametrize("fault", [None, Cut(accepted=True), Cut(accepted=False)])
async def test_where_only_sending_was_granted_there_is_one_attempt_and_no_guess(
    tmp_path: Path, fault: Any
) -> None:
    with GmailDouble(scope=SEND) as gmail:
        mailbox = opened(gmail, tmp_path)
        mail = outgoing()
        token = await mailbox.prepare(mail)
        if fault is None:
            await mailbox.send(token, mail, unwritten)
        else:
            gmail.plan("messages.send", fault)
            with pytest.raises(OutcomeUnknown):
                await mailbox.send(token, mail, unwritten)
            assert isinstance(await mailbox.check(token, mail), Unclear)
        await mailbox.close()

    assert gmail.delivered == ([] if fault == Cut(accepted=False) else [mail.raw])
    assert gmail.asked.count("messages.send") == 1


@requirement("gmail:errors")
async def test_an_answer_that_does_not_come_in_time_says_so(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    await mailbox.address()
    mailbox._http.timeout = httpx2.Timeout(0.05)
    gmail.plan("messages.list", *[Slow(5)] * 4)

    with pytest.raises(ProviderDown, match="in time"):
        await mailbox.search("", 10)


@dataclass
class Terminal:
    """A person who signs in, with a browser that follows the address they are shown."""

    home: Home
    gmail: GmailDouble

    def client(self, folder: Path) -> Path:
        addresses = {
            "auth_uri": f"{self.gmail.origin}/consent",
            "token_uri": f"{self.gmail.origin}/token",
        }
        file = folder / "client.json"
        file.write_text(json.dumps({"installed": CLIENT | addresses}))
        return file

    def signs_in(
        self, *arguments: str, alter: Callable[[str], str] = str
    ) -> tuple[int, str, str]:
        environment = self.home.environment | {
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "DESKHAND_GMAIL_API_ENDPOINT": self.gmail.origin,
        }
        command = [
            warm_python(),
            "-m",
            "deskhand",
            "mail",
            "login",
            "gmail",
            "--no-browser",
            *arguments,
        ]
        pipes: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        with subprocess.Popen(command, env=environment, **pipes) as login:
            url = next(
                (line.strip() for line in login.stdout if "code_challenge" in line), None
            )
            if url is not None:
                with urllib.request.urlopen(alter(url)) as page:
                    assert page.status == 200
            said, complained = login.communicate(timeout=60)
        return login.returncode, said, complained


@pytest.fixture
def terminal(home: Home, gmail: GmailDouble) -> Terminal:
    return Terminal(home, gmail)


@requirement("gmail:sign-in")
def test_the_person_signs_in_with_a_browser_and_the_token_is_kept_where_it_is_announced(
    gmail: GmailDouble, terminal: Terminal, tmp_path: Path
) -> None:
    code, said, complained = terminal.signs_in("--client", str(terminal.client(tmp_path)))

    secret = terminal.home.path / "gmail.secret"
    assert code == 0, complained
    assert str(secret) in said
    assert "Signed in as me@example.com" in said
    assert secret.stat().st_mode & 0o777 == 0o600
    assert json.loads(secret.read_text())["refresh_token"] == gmail.refresh_token

    gmail.refresh_token = None
    code, said, complained = terminal.signs_in()
    assert code == 0, complained
    assert "Signed in as me@example.com" in said


@requirement("gmail:sign-in")
def test_doctor_explains_why_a_sign_in_ends_after_seven_days(
    gmail: GmailDouble, terminal: Terminal, tmp_path: Path
) -> None:
    code, _, complained = terminal.signs_in("--client", str(terminal.client(tmp_path)))
    assert code == 0, complained
    gmail.refresh_token = None
    gmail.expire()

    found = terminal.home.command("doctor", DESKHAND_MAIL="gmail")

    assert "Google no longer accepts this sign-in" in found.stdout
    assert "every seven days" in found.stdout


@requirement("gmail:sign-in")
def test_the_person_pastes_the_address_at_which_a_browser_elsewhere_ended(
    gmail: GmailDouble, terminal: Terminal, tmp_path: Path
) -> None:
    settings = load(
        terminal.home.environment
        | {"DESKHAND_GMAIL_CREDENTIALS": str(tmp_path / "kept.json")}
    ).settings
    client = installed_client(terminal.client(tmp_path))
    seen: list[str] = []

    def browse() -> str:
        query = dict(parse_qsl(urlsplit(seen[-1]).query))
        return f" {gmail.consent(query)}\n"

    place = sign_in(settings, client, seen.append, browse)
    with pytest.raises(AuthRequired, match="another sign-in"):
        sign_in(settings, client, seen.append, lambda: "http://127.0.0.1:1/?state=x&code=y")
    with pytest.raises(AuthRequired, match="not the address"):
        sign_in(settings, client, seen.append, lambda: "4/abc")

    assert place == str(tmp_path / "kept.json")
    assert (
        json.loads((tmp_path / "kept.json").read_text())["refresh_token"]
        == gmail.refresh_token
    )


@requirement("gmail:sign-in")
def test_an_answer_to_another_sign_in_is_refused(
    terminal: Terminal, tmp_path: Path
) -> None:
    client = str(terminal.client(tmp_path))

    code, _, complained = terminal.signs_in(
        "--client", client, alter=lambda url: url.replace("state=", "state=x")
    )

    assert code == 6
    assert "another sign-in" in complained
    assert not (terminal.home.path / "gmail.secret").exists()


@requirement("gmail:sign-in")
def test_the_first_sign_in_says_that_it_needs_a_client(
    terminal: Terminal, tmp_path: Path
) -> None:
    wrong = tmp_path / "client.json"
    wrong.write_text('{"web": {}}')

    without, with_wrong = terminal.signs_in(), terminal.signs_in("--client", str(wrong))

    assert (without[0], with_wrong[0]) == (3, 3)
    assert "--client FILE.json" in without[2]
    assert "Desktop app" in with_wrong[2]


ODD: tuple[object, ...] = (
    {},
    [],
    None,
    "ok",
    {"error": {"message": "quota"}},
    {"id": None, "raw": None, "messages": None, "labels": None, "historyId": None},
    {"id": "1", "threadId": "1", "raw": "=", "labelIds": None, "messages": [{}]},
    {"id": "1", "threadId": "1", "internalDate": "soon", "raw": ""},
    {"id": "1", "threadId": "1", "internalDate": "9" * 30, "payload": {"headers": [{}]}},
    {"historyId": "5", "history": [{"messagesAdded": [{}]}], "nextPageToken": "again"},
)


@requirement("gmail:odd-answers")
@pytest.mark.parametrize("body", ODD, ids=str)
async def test_a_success_that_says_nothing_is_gmails_fault_and_nobody_waits(
    gmail: GmailDouble, mailbox: GmailMailbox, body: object
) -> None:
    mail = gmail.account.deliver(letter(), "INBOX")
    calls: dict[str, list[Callable[[], Any]]] = {
        "messages.get": [
            lambda: mailbox.search("", 5),
            lambda: mailbox.get(mail.id),
            lambda: mailbox.read_raw(mail.id),
        ],
        "messages.list": [lambda: mailbox.search("", 5)],
        "labels.list": [lambda: mailbox.search("", 5)],
        "threads.get": [lambda: mailbox.thread(mail.thread_id)],
        "getProfile": [mailbox.position],
        "history.list": [lambda: mailbox.find_arrived("1")],
        "drafts.create": [lambda: mailbox.create_draft(letter(), None)],
    }
    for method, asked in calls.items():
        for ask in asked:
            gmail.plan(method, *[Says(body)] * 3)
            with suppress(ProviderDown), anyio.fail_after(20):
                await ask()
            gmail.forget(method)
    assert (await mailbox.get(mail.id)).summary.id == mail.id


@requirement("gmail:odd-answers")
@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        5,
        "<html>",
        {"messages": "x"},
        {"messages": [5]},
        {"messages": [{"id": 5}]},
    ],
    ids=str,
)
async def test_an_answer_that_cannot_be_read_is_not_taken_for_an_empty_mailbox(
    gmail: GmailDouble, mailbox: GmailMailbox, body: object
) -> None:
    gmail.account.deliver(letter(), "INBOX")
    gmail.plan("messages.list", *[Says(body)] * 3)

    with pytest.raises(ProviderDown, match="cannot be read"):
        await mailbox.search("", 5)


@requirement("gmail:odd-answers")
async def test_what_is_null_in_an_answer_is_not_there(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    gmail.plan("messages.list", Says({"messages": None, "nextPageToken": None}))
    assert await mailbox.search("", 5) == []


@requirement("gmail:odd-answers")
async def test_a_text_cut_inside_a_character_is_read_as_far_as_it_goes(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    half = "Well done \ud83d"
    fields = [{"name": "Subject", "value": half}, {"name": half, "value": "x"}]
    cut = {
        "id": "5",
        "threadId": half,
        "labelIds": ["Label_1", half],
        "snippet": half,
        "internalDate": "1",
        "payload": {"headers": fields},
    }
    gmail.account.deliver(letter(), "INBOX")
    gmail.plan("labels.list", Says({"labels": [{"id": "Label_1", "name": half}]}))
    gmail.plan("messages.get", Says(cut))

    (found,) = await mailbox.search("", 5)

    whole = "Well done ?"
    assert (found.subject, found.snippet, found.thread_id) == (whole, whole, whole)
    assert found.labels == (whole, whole)


@requirement("gmail:odd-answers")
async def test_a_refusal_cut_inside_a_character_can_be_written(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    gmail.plan("messages.list", Status(403, "half\ud83d"))

    with pytest.raises(Denied) as refused:
        await mailbox.search("", 5)

    assert refused.value.details["reason"] == "half?"

    gmail.plan("token", Status(400, "half\ud83d"))
    gmail.expire()
    with pytest.raises(AuthRequired) as ended:
        await mailbox.search("", 5)
    assert ended.value.details["reason"] == "half?"


@requirement("gmail:odd-answers")
async def test_a_send_that_is_answered_with_nothing_is_known_by_nobody(
    gmail: GmailDouble, mailbox: GmailMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    gmail.plan("drafts.send", Says({"id": None, "threadId": None}))
    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    assert isinstance(await mailbox.check(token, mail), Sent)
