"""An IMAP account as a mailbox: a real Dovecot, a real relay."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after, to_thread
from anyio.lowlevel import checkpoint

from deskhand.config import load
from deskhand.errors import (
    AuthRequired,
    BadConfig,
    Denied,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    SendFailed,
    Unavailable,
    UnderWay,
)
from deskhand.mail import NotSent, Sent, Unclear, smtp
from deskhand.mail.changes import Deed
from deskhand.mail.imap import ImapMailbox
from tests.mail.dovecot import (
    LONG_AGO,
    Cut,
    Dovecot,
    Early,
    ImapAccount,
    Late,
    Process,
    Relay,
    Say,
    Slow,
    Torn,
)
from tests.mail.letters import DATE, letter, outgoing, unwritten
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Dovecot]:
    with Dovecot() as dovecot:
        yield dovecot


@pytest.fixture
def relay(server: Dovecot) -> Iterator[Relay]:
    with Relay(server) as made:
        yield made


@pytest.fixture
async def mailbox(
    server: Dovecot, relay: Relay, tmp_path: Path
) -> AsyncIterator[ImapMailbox]:
    made = opened(server, relay, tmp_path)
    yield made
    await made.close()


def opened(
    server: ImapAccount, relay: Relay, folder: Path, **variables: str
) -> ImapMailbox:
    return ImapMailbox(
        load(
            {"DESKHAND_HOME": str(folder)} | server.environment(relay) | variables
        ).settings
    )


@requirement("imap:stable")
async def test_a_mail_keeps_its_id_wherever_it_is_moved(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(subject="Plan", message_id="<one@example.org>"))
    (first,) = await mailbox.search("", 10)

    await mailbox.move(first.id, "Clients/Ann & Söhne")
    (moved,) = await mailbox.search("label:clients/ann-&-söhne", 10)
    assert (moved.id, moved.labels) == (first.id, ("Clients/Ann & Söhne", "UNREAD"))
    await mailbox.move(first.id, "TRASH")
    assert await mailbox.search("", 10) == []
    (binned,) = await mailbox.search("in:trash", 10)
    assert (binned.id, binned.labels) == (first.id, ("TRASH", "UNREAD"))
    await mailbox.move(first.id, "INBOX")

    assert (await mailbox.get(first.id)).summary == first


@requirement("mail:bulk-waits")
async def test_no_folder_is_made_that_would_be_taken_for_the_trash_or_for_spam(
    tmp_path: Path,
) -> None:
    """What goes there is the person's to say, and whoever asks them knows these places by one name alone."""
    names = [
        "Deleted Items",
        "deleted messages",
        "INBOX.Trash",
        "Old/Bin",
        "Junk",
        "junk e-mail",
        "Papierkorb",
        "INBOX.Corbeille",
        "E\u0301le\u0301ments supprime\u0301s",
        "迷惑メール",
    ]
    with Process(LONG_AGO) as old, Dovecot(old) as server, Relay(server) as relay:
        server.deliver(letter(subject="Plan", message_id="<one@example.org>"))
        mailbox = opened(server, relay, tmp_path)
        (mail,) = await mailbox.search("", 10)
        for name in names:
            with pytest.raises(InvalidInput, match="would be taken for"):
                await mailbox.move(mail.id, name)
        after = await mailbox.search("", 10)
        await mailbox.close()

    assert after == [mail]


LANGUAGES = {
    "German": ("Gesendet", "Entwürfe", "Spamverdacht", "Papierkorb", "Archiv"),
    "French": (
        "Messages envoyés",
        "Brouillons",
        "Indésirables",
        "Corbeille",
        "Archives",
    ),
    "Japanese": ("送信済みメール", "下書き", "迷惑メール", "ゴミ箱", "アーカイブ"),
}


@requirement("imap:places")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_folders_are_known_by_their_names_in_other_languages(
    language: str, tmp_path: Path
) -> None:
    """On a server that declares no special use, where the person's mail program made them."""
    _, _, junk, trash, archive = LANGUAGES[language]
    with Process(LONG_AGO) as old, Dovecot(old) as server, Relay(server) as relay:
        with server.client() as client:
            for name in LANGUAGES[language]:
                client.create_folder(f"INBOX.{name}")
            client.create_folder(f"INBOX.Clients.{trash}")
        server.deliver(letter(subject="Offer", message_id="<0@x>"), f"INBOX.{junk}")
        for subject in ("Old", "Done"):
            server.deliver(letter(subject=subject, message_id=f"<{subject}@x>"))
        mailbox = opened(server, relay, tmp_path)
        done, old_one = sorted(await mailbox.search("", 10), key=lambda mail: mail.subject)
        await mailbox.change([old_one.id], Deed("trash"))
        await mailbox.change([done.id], Deed("archive"))
        mail = outgoing()
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
        await mailbox.create_draft(letter(message_id="<draft@x>"), None)
        with server.client() as client:
            mails = {
                name: client.select_folder(f"INBOX.{name}")[b"EXISTS"]
                for name in (*LANGUAGES[language], f"Clients.{trash}")
            }
            names = {name for _, _, name in client.list_folders()}
        shown = {
            each.subject: each.labels for each in await mailbox.search("in:anywhere", 10)
        }
        plain = {each.subject for each in await mailbox.search("", 10)}
        await mailbox.close()

    assert mails == dict.fromkeys(LANGUAGES[language], 1) | {f"Clients.{trash}": 0}
    assert names.isdisjoint({"INBOX.Trash", "INBOX.Sent", "INBOX.Drafts", "INBOX.Archive"})
    assert shown["Old"] == ("TRASH", "UNREAD")
    assert shown["Offer"] == ("SPAM", "UNREAD")
    assert shown["Done"] == (archive, "UNREAD")
    assert plain.isdisjoint({"Old", "Offer"})


@requirement("imap:places")
async def test_a_folder_in_another_language_is_a_plain_one_where_a_place_is_known_already(
    tmp_path: Path,
) -> None:
    with Process(LONG_AGO) as old, Dovecot(old) as server, Relay(server) as relay:
        with server.client() as client:
            client.create_folder("INBOX.Trash")
            client.create_folder("INBOX.Papierkorb")
        server.deliver(letter(subject="Kept", message_id="<k@x>"), "INBOX.Papierkorb")
        mailbox = opened(server, relay, tmp_path)
        (mail,) = await mailbox.search("", 10)
        await mailbox.change([mail.id], Deed("trash"))
        (binned,) = await mailbox.search("in:trash", 10)
        await mailbox.close()

    assert mail.labels == ("Papierkorb", "UNREAD")
    assert binned.id == mail.id


@requirement("imap:stable")
async def test_another_program_may_move_it_too(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(message_id="<one@example.org>"))
    (first,) = await mailbox.search("", 10)
    with server.client() as client:
        client.create_folder("Elsewhere")
        client.select_folder("INBOX")
        client.move([1], "Elsewhere")

    assert (await mailbox.get(first.id)).summary.labels == ("Elsewhere", "UNREAD")


@requirement("imap:stable")
async def test_copies_of_a_mail_are_one_mail_and_forgeries_are_another(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    mail = letter(message_id="<one@example.org>")
    server.deliver(mail)
    server.deliver(mail, "Work", ("\\Seen",))
    server.deliver(
        letter(sender="eve@evil.example", message_id="<one@example.org>"), "Work"
    )

    found = {each.sender: each.labels for each in await mailbox.search("", 10)}

    assert found == {
        "Ann <ann@example.org>": ("INBOX", "UNREAD", "Work"),
        "eve@evil.example": ("Work", "UNREAD"),
    }


EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


def twins() -> tuple[bytes, bytes]:
    """Two mails whose Message-ID, sender, subject and date are the same."""
    name = "<one@example.org>"
    return (
        letter(body="Pay nothing before we speak.", message_id=name),
        letter(body="Pay 9,000 to XX12 today.", message_id=name),
    )


@requirement("imap:twins")
async def test_a_mail_that_claims_to_be_another_is_new_and_leaves_the_others_id_alone(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, tmp_path: Path
) -> None:
    one, other = twins()
    server.deliver(one, at=EARLIER)
    (first,) = await mailbox.search("", 10)
    cursor = await mailbox.position()
    server.deliver(other)

    for box in (mailbox, opened(server, relay, tmp_path / "other")):
        arrived = await box.find_arrived(cursor)
        assert arrived is not None
        (second,) = arrived.ids
        assert second != first.id
        assert "Pay nothing" in (await box.get(first.id)).body
        assert "9,000" in (await box.get(second)).body
        assert {each.id for each in await box.search("", 10)} == {first.id, second}
        await box.change([second], Deed(do="trash"))
        assert "TRASH" in (await box.get(second)).summary.labels
        assert (await box.get(first.id)).summary.labels == ("INBOX", "UNREAD")
        await box.change([second], Deed(do="untrash"))
        if box is not mailbox:
            await box.close()


@requirement("imap:twins")
async def test_of_mails_that_claim_to_be_one_the_first_keeps_its_id_in_whatever_order_they_are_seen(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, tmp_path: Path
) -> None:
    one, other = twins()
    server.deliver(other)
    (alone,) = await mailbox.search("", 10)
    server.deliver(one, "Work", at=EARLIER)

    found = {each.id: each for each in await mailbox.search("", 10)}

    assert len(found) == 2
    assert found[alone.id].labels == ("Work", "UNREAD")
    assert "Pay nothing" in (await mailbox.get(alone.id)).body
    anew = opened(server, relay, tmp_path / "other")
    for each in found:
        assert (await anew.get(each)).body == (await mailbox.get(each)).body
    await anew.close()


@requirement("imap:twins")
async def test_where_the_first_has_gone_its_id_opens_no_other_and_the_second_is_found(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, tmp_path: Path
) -> None:
    one, other = twins()
    server.deliver(one, at=EARLIER)
    server.deliver(other)
    ids = {each.snippet: each.id for each in await mailbox.search("", 10)}
    first, second = ids["Pay nothing before we speak."], ids["Pay 9,000 to XX12 today."]
    with server.client() as client:
        client.select_folder("INBOX")
        client.delete_messages([1])
        client.expunge([1])

    with pytest.raises(NotFound):
        await mailbox.get(first)
    anew = opened(server, relay, tmp_path / "other")
    for box in (mailbox, anew):
        assert (await box.get(second)).summary.id == second
    await anew.close()


def carried(number: int, body: str) -> bytes:
    """A mail as the server of the person's account took it, that long whatever is in it."""
    way = f"Received: from out by mx.example.com id {number:05};\r\n\tTue, 10 Feb 2026 09:30:{number:02} +0000"
    return f"{way}\r\n".encode() + letter(
        body=f"{body:60}|", message_id="<one@example.org>"
    )


@requirement("imap:twins")
async def test_mails_that_claim_to_be_one_and_are_as_long_are_told_apart_by_their_way(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, tmp_path: Path
) -> None:
    mails = [
        carried(1, "Pay nothing."),
        carried(2, "Pay 9,000 to XX12."),
        carried(3, "Pay 9,000 to YY34."),
    ]
    assert len({len(each) for each in mails}) == 1
    server.deliver(mails[0], at=EARLIER)
    server.deliver(mails[0], "Work", at=EARLIER)
    (first,) = await mailbox.search("", 10)
    cursor = await mailbox.position()
    for number, each in enumerate(mails[1:], 1):
        server.deliver(each, at=EARLIER + timedelta(hours=number))

    for box in (mailbox, opened(server, relay, tmp_path / "other")):
        arrived = await box.find_arrived(cursor)
        assert arrived is not None
        said = {
            each.id: (await box.get(each.id)).body.split(".")[0].strip()
            for each in await box.search("", 10)
        }
        assert said.pop(first.id) == "Pay nothing"
        assert said == dict(
            zip(arrived.ids, ("Pay 9,000 to XX12", "Pay 9,000 to YY34"), strict=True)
        )
        assert (await box.get(first.id)).summary.labels == ("INBOX", "UNREAD", "Work")
        if box is not mailbox:
            await box.close()
    with server.client() as client:
        client.select_folder("INBOX")
        client.delete_messages([1])
        client.expunge([1])
    anew = opened(server, relay, tmp_path / "anew")
    for name, words in said.items():
        assert words in (await anew.get(name)).body
    await anew.close()


@requirement("imap:twins")
async def test_what_comes_back_from_ones_own_sending_is_one_mail_with_it(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    mail = letter(message_id="<one@example.org>")
    server.deliver(mail, "Sent Items", ("\\Seen",))
    server.deliver(b"Received: from here\n" + mail)

    (found,) = await mailbox.search("", 10)

    assert {*found.labels} >= {"INBOX", "SENT"}


async def test_a_mail_without_a_message_id_is_read_and_labelled_as_well(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(subject="Bare"))
    (bare,) = await mailbox.search("", 10)

    await mailbox.add_label(bare.id, "AI_PROCESSED")
    full = await mailbox.get(bare.id)

    assert full.summary.labels == ("INBOX", "UNREAD", "AI_PROCESSED")
    assert [mail.id for mail in await mailbox.thread(bare.thread_id)] == [bare.id]


async def test_labels_are_keywords_in_any_script(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(message_id="<one@example.org>"))
    (mail,) = await mailbox.search("", 10)
    names = ["AI_PROCESSED", "To do", "重要", "R&D", "$MDNSent", 'quote " and (bracket)']

    for name in names:
        await mailbox.add_label(mail.id, name)
    for name in ("Junk", "$junk", "NonJunk"):
        for change in (
            mailbox.add_label(mail.id, name),
            mailbox.change([mail.id], Deed("label", name)),
        ):
            with pytest.raises(Denied, match="what is spam, the person says"):
                await change

    (labelled,) = await mailbox.search("", 10)
    assert sorted(labelled.labels) == sorted(["INBOX", "UNREAD", *names])
    for query in ("label:AI_PROCESSED", "label:to-do", "label:重要", 'label:"R&D"'):
        assert [each.id for each in await mailbox.search(query, 10)] == [mail.id], query
    assert await mailbox.search("label:other", 10) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"invoice", "lunch", "report"}),
        ("from:ann", {"invoice"}),
        ("subject:lunch", {"lunch"}),
        ("Größe", {"report"}),
        ('"total amount"', {"invoice"}),
        ("-from:ann", {"lunch", "report"}),
        ("from:ann OR subject:lunch", {"invoice", "lunch"}),
        ("(from:bob subject:lunch) OR Größe", {"lunch", "report"}),
        ("-(from:bob subject:lunch)", {"invoice", "report"}),
        ("is:unread", {"invoice", "lunch"}),
        ("is:read in:inbox", {"report"}),
        ("in:inbox", {"invoice", "report"}),
        ("in:spam", {"junk"}),
        ("in:anywhere", {"invoice", "lunch", "report", "junk"}),
        ("has:attachment", {"report"}),
        ("rfc822msgid:lunch@example.org", {"lunch"}),
        ("newer_than:1d", {"invoice", "lunch", "report"}),
        ("older_than:1h", set()),
        ("after:2020/01/01 before:2020/02/01", set()),
        ("label:food", {"lunch"}),
    ],
)
async def test_queries_find_what_they_mean(
    everyday: ImapMailbox, query: str, found: set[str]
) -> None:
    assert {mail.subject for mail in await everyday.search(query, 10)} == found


@pytest.fixture(scope="module")
def everyday_server() -> Iterator[Dovecot]:
    with Dovecot() as server:
        server.deliver(
            letter(
                subject="invoice",
                body="The total amount is 5.",
                message_id="<invoice@example.org>",
            )
        )
        bob = "Bob <bob@example.org>"
        server.deliver(
            letter(sender=bob, subject="lunch", message_id="<lunch@example.org>"), "Food"
        )
        server.deliver(
            letter(
                sender=bob, subject="report", body="Die Größe zählt.", attachment="a.pdf"
            ),
            "INBOX",
            ("\\Seen",),
        )
        server.deliver(letter(sender="eve@evil.example", subject="junk"), "Spam")
        yield server


@pytest.fixture
async def everyday(everyday_server: Dovecot, tmp_path: Path) -> AsyncIterator[ImapMailbox]:
    made = opened(everyday_server, Relay(everyday_server), tmp_path)
    yield made
    await made.close()


HOSTILE = [
    'x" DELETED "',
    "x\r\nA1 DELETE INBOX",
    "x) (DELETED",
    "{3}",
    "{3+}\r\nabc",
    "a\\",
    "%*",
    "x\x00y",
    "&AGE-",
    "~{5}",
]


@requirement("imap:no-injection")
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_nothing_that_is_asked_reaches_the_server_as_a_command(
    everyday: ImapMailbox, hostile: str
) -> None:
    (invoice,) = await everyday.search("subject:invoice", 1)
    quoted = hostile.replace('"', "'")

    for operator in ("", "from:", "to:", "subject:", "label:", "rfc822msgid:"):
        assert await everyday.search(f'{operator}"{quoted}"', 5) == []
    for name in (hostile, f"{invoice.id}{hostile}", f"{hostile}.1.1"):
        with pytest.raises(NotFound):
            await everyday.get(name)
        with pytest.raises(NotFound):
            await everyday.thread(name)
    assert [mail.id for mail in await everyday.search("subject:invoice", 5)] == [invoice.id]


@requirement("imap:no-injection")
@pytest.mark.parametrize("hostile", [*HOSTILE, "", "  ", "SENT", "../../etc", "x" * 2000])
async def test_a_hostile_label_is_a_label_or_an_error(
    server: Dovecot, mailbox: ImapMailbox, hostile: str
) -> None:
    server.deliver(letter(message_id="<one@example.org>"))
    (mail,) = await mailbox.search("", 10)

    for change in (mailbox.add_label, mailbox.move):
        with suppress(InvalidInput, Denied):
            await change(mail.id, hostile)
    (after,) = await mailbox.search("in:anywhere", 10)
    assert after.id == mail.id


async def test_threads_gather_what_answers_the_first_mail(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    answer = letter(
        subject="Re: Plan", message_id="<two@example.org>", references="<one@example.org>"
    )
    server.deliver(answer, "Work", at=DATE + timedelta(days=1))
    server.deliver(letter(subject="Plan", message_id="<one@example.org>"), at=DATE)
    server.deliver(letter(subject="Other", message_id="<three@example.org>"))
    (first,) = await mailbox.search("rfc822msgid:one@example.org", 10)
    reply = outgoing(subject="Re: Plan", in_reply_to="<one@example.org>")

    sent = await mailbox.send(await mailbox.prepare(reply), reply, unwritten)
    thread = await mailbox.thread(first.thread_id)

    assert sent.thread_id == first.thread_id
    assert [mail.subject for mail in thread] == ["Plan", "Re: Plan", "Re: Plan"]
    assert thread[-1].id == sent.message_id
    with pytest.raises(NotFound):
        await mailbox.thread("bm90aGluZw")


async def test_drafts_and_sent_mail_lie_where_the_server_says(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing(to="me@example.com")
    draft = await mailbox.create_draft(mail.raw, None)
    assert (await mailbox.get(draft.message_id)).summary.labels == ("DRAFT",)

    sent = await mailbox.send(await mailbox.prepare(mail), mail, unwritten)

    assert relay.delivered == [(("me@example.com",), mail.raw)]
    assert server.raws("Sent Items") == [mail.raw]
    assert server.raws("Drafts") == [mail.raw]
    assert (await mailbox.get(sent.message_id)).message_id == mail.message_id
    (own,) = await mailbox.search("in:inbox", 10)
    assert own.id == sent.message_id


async def test_lines_that_begin_with_a_dot_arrive_as_they_were(
    relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing(body=".\n..\n.dot\nend\n")

    await mailbox.send(await mailbox.prepare(mail), mail, unwritten)

    assert relay.delivered == [(("ann@example.org",), mail.raw)]


@requirement("imap:never-twice")
@pytest.mark.parametrize(
    "fault",
    [
        Say("MAIL", "451 later"),
        Say("RCPT", "550 no such person"),
        Say("DATA", "554 no"),
        Say("DOT", "554 it looks like spam"),
        Say("DOT", "452 the disk is full"),
        Cut("MAIL"),
        Cut("RCPT"),
        Cut("DATA"),
        Cut("TEXT"),
    ],
)
async def test_what_was_refused_or_cut_off_before_the_end_is_certainly_not_sent(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, fault: Any
) -> None:
    mail = outgoing(body="x" * 70 + "\n" + "many words\n" * 20_000)
    token = await mailbox.prepare(mail)
    relay.plan(fault)

    if fault == Cut("TEXT"):
        # Where the kernel took all of the text before the cut was seen, nobody can know.
        with pytest.raises(SendFailed):
            await mailbox.send(token, mail, unwritten)
    else:
        with pytest.raises(SendFailed) as failed:
            await mailbox.send(token, mail, unwritten)
        assert not isinstance(failed.value, OutcomeUnknown)
    assert relay.delivered == []
    assert server.raws("Sent Items") == []
    await mailbox.send(token, mail, unwritten)
    assert len(relay.delivered) == 1


@requirement("imap:never-twice")
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("kind", [Cut, Say])
async def test_an_answer_lost_after_the_last_dot_is_unknown_and_stays_so(
    relay: Relay, mailbox: ImapMailbox, kind: Any, accepted: bool
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    relay.plan(Cut("DOT", accepted) if kind is Cut else Say("DOT", "421 closing", accepted))

    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    assert isinstance(await mailbox.check(token, mail), Unclear)
    assert len(relay.delivered) == accepted


@requirement("imap:never-twice")
@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        partial(Torn, "DOT", "2"),
        partial(Torn, "DOT", "25"),
        partial(Torn, "DOT", "55"),
        partial(Torn, "DOT", "250-queued as\r\n"),
        partial(Say, "DOT", "OK: queued"),
        partial(Say, "DOT", "+250 OK"),
        partial(Say, "DOT", "354 go on"),
        partial(Say, "DOT", "999 what"),
        partial(Say, "DOT", "000 what"),
        partial(Say, "DOT", "45 what"),
        partial(Say, "DOT", "220 another server's greeting"),
        partial(Say, "DOT", "221 closing"),
        partial(Say, "DOT", "250-taken\r\n550 or not"),
        partial(Say, "DOT", "250-taken\r\n451 or not"),
        partial(Say, "DOT", "550-no\r\n250 or taken"),
        partial(Say, "DOT", "5500 what"),
        partial(Say, "DOT", "2500 what"),
        partial(Torn, "DOT", "550"),
        partial(Torn, "DOT", "451 as far as"),
    ],
)
async def test_an_answer_after_the_last_dot_that_is_none_leaves_it_unknown(
    relay: Relay, mailbox: ImapMailbox, fault: Callable[..., Any], accepted: bool
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    relay.plan(fault(accepted=accepted))

    with pytest.raises(OutcomeUnknown):
        await mailbox.send(token, mail, unwritten)
    assert isinstance(await mailbox.check(token, mail), Unclear)
    assert len(relay.delivered) == accepted


@requirement("imap:never-twice")
@pytest.mark.parametrize(
    "reply", ["200 taken", "251 taken", "252 taken", "250-taken\r\n250 as 7", "250"]
)
async def test_whatever_a_server_says_yes_with_it_has_the_mail(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox, reply: str
) -> None:
    mail = outgoing()
    relay.plan(Say("DOT", reply, accepted=True))

    assert isinstance(
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten), Sent
    )
    assert (len(relay.delivered), server.raws("Sent Items")) == (1, [mail.raw])


@requirement("imap:never-twice")
@pytest.mark.parametrize("reply", ["451 wait", "550 no", "250 taken", "354 go on", "2"])
async def test_what_a_server_says_before_the_last_dot_is_no_answer_to_it(
    relay: Relay, mailbox: ImapMailbox, reply: str
) -> None:
    """Taken for one, an early no sent the mail again that the server had taken, and an early yes hid a refusal."""
    mail = outgoing()
    token = await mailbox.prepare(mail)
    relay.plan(Early(reply))

    with pytest.raises(SendFailed) as failed:
        await mailbox.send(token, mail, unwritten)
    assert not isinstance(failed.value, OutcomeUnknown)
    assert relay.delivered == []
    await mailbox.send(token, mail, unwritten)
    assert len(relay.delivered) == 1


@requirement("imap:slow")
async def test_whoever_waits_no_more_for_a_slow_relay_is_held_up_by_nobody(
    relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    relay.plan(Slow())
    sending = asyncio.create_task(mailbox.send(token, mail, unwritten))
    await asyncio.to_thread(relay.is_slow.wait)

    sending.cancel()
    with fail_after(10), suppress(asyncio.CancelledError):
        await sending
    assert await asyncio.to_thread(relay.is_left.wait, 10)
    assert isinstance(await mailbox.check(token, mail), Unclear)
    assert len(relay.delivered) == 1


@requirement("imap:slow")
async def test_many_mails_that_a_slow_relay_keeps_leave_the_threads_of_the_desk_to_others(
    relay: Relay, mailbox: ImapMailbox
) -> None:
    relay.chance = Slow
    mails = [outgoing(action_id=f"act-{number}") for number in range(40)]
    tokens = [await mailbox.prepare(mail) for mail in mails]
    async with asyncio.TaskGroup() as sending:
        tasks = [
            sending.create_task(mailbox.send(token, mail, unwritten))
            for token, mail in zip(tokens, mails, strict=True)
        ]
        with fail_after(10):
            await to_thread.run_sync(relay.is_slow.wait)
            for _ in range(100):
                assert await asyncio.to_thread(os.getpid) == os.getpid()
        for each in tasks:
            each.cancel()


@requirement("imap:slow")
async def test_an_answer_that_never_ends_is_waited_for_no_longer_than_any_other(
    relay: Relay, mailbox: ImapMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "TIMEOUT", 2)
    mail = outgoing()
    relay.plan(Slow())

    with fail_after(20), pytest.raises(OutcomeUnknown):
        await mailbox.send(await mailbox.prepare(mail), mail, unwritten)


@requirement("imap:slow")
async def test_a_mail_with_large_files_has_the_time_that_a_slow_line_takes_for_them(
    relay: Relay, mailbox: ImapMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp, "TIMEOUT", 2)
    small, large = outgoing(), outgoing(body="word\n" * 100_000, action_id="act-2")
    relay.plan(Late(4), Late(4))

    with fail_after(20), pytest.raises(OutcomeUnknown):
        await mailbox.send(await mailbox.prepare(small), small, unwritten)
    await mailbox.send(await mailbox.prepare(large), large, unwritten)
    assert len(relay.delivered) == 2


@requirement("imap:never-twice")
async def test_a_mail_that_lies_in_sent_was_sent_and_is_not_filed_twice(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    server.deliver(mail.raw, "Sent Items")

    assert isinstance(await mailbox.check(token, mail), Sent)
    await mailbox.send(token, mail, unwritten)
    assert server.raws("Sent Items") == [mail.raw]
    assert isinstance(await mailbox.check(token, outgoing(action_id="act-2")), Unclear)


class Killed(BaseException):
    """The process, as far as the mailbox can tell."""


@requirement("imap:precise")
async def test_whoever_dies_before_the_last_dot_has_sent_nothing_and_says_so(
    relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)

    async def die(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        await mailbox.send(token, mail, die)
    assert await mailbox.check(token, mail) == NotSent(token)
    assert relay.delivered == []
    await mailbox.send(token, mail, unwritten)

    assert len(relay.delivered) == 1


@requirement("imap:precise")
async def test_who_knows_that_the_server_took_a_mail_files_it_for_the_one_who_died(
    server: Dovecot, relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing()
    kept: list[str] = []

    async def die_at_the_second(token: str) -> None:
        kept.append(token)
        if len(kept) == 2:
            raise Killed

    with pytest.raises(Killed):
        await mailbox.send(await mailbox.prepare(mail), mail, die_at_the_second)
    assert server.raws("Sent Items") == []
    first, second = kept

    assert isinstance(await mailbox.check(first, mail), Unclear)
    for _ in range(2):
        assert isinstance(await mailbox.check(second, mail), Sent)
    assert (len(relay.delivered), server.raws("Sent Items")) == (1, [mail.raw])


@requirement("imap:never-twice")
async def test_of_all_who_have_one_mail_in_hand_one_writes_the_last_dot(
    relay: Relay, mailbox: ImapMailbox
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)

    sends = [mailbox.send(token, mail, unwritten) for _ in range(6)]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)

    assert sorted(type(each).__name__ for each in outcomes) == ["Sent", *["UnderWay"] * 5]
    assert len(relay.delivered) == 1


@requirement("imap:never-twice")
async def test_a_permit_from_before_a_power_cut_and_a_token_without_one_prove_nothing(
    relay: Relay, mailbox: ImapMailbox, tmp_path: Path
) -> None:
    mail = outgoing()
    token = await mailbox.prepare(mail)
    (permit,) = (tmp_path / "permits").iterdir()
    permit.write_text("another start of the machine\n")

    for old in (token, mail.message_id, f"{mail.message_id} ../permits"):
        assert isinstance(await mailbox.check(old, mail), Unclear)
        with pytest.raises(UnderWay):
            await mailbox.send(old, mail, unwritten)

    assert relay.delivered == []


@requirement("imap:precise")
async def test_the_permits_of_the_dead_are_swept(
    server: Dovecot, relay: Relay, tmp_path: Path
) -> None:
    mailbox = opened(server, relay, tmp_path)
    await mailbox.prepare(outgoing())
    (left,) = (tmp_path / "permits").iterdir()
    os.utime(left, (0, 0))

    await mailbox.prepare(outgoing())
    await mailbox.close()

    assert len(list((tmp_path / "permits").iterdir())) == 1
    assert not left.exists()


async def test_a_sent_mail_counts_as_sent_even_when_it_cannot_be_filed(
    server: Dovecot, relay: Relay, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mail = outgoing()
    mailbox = opened(server, relay, tmp_path, DESKHAND_IMAP_URL="imap://user:x@127.0.0.1:9")

    sent = await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
    await mailbox.close()

    assert relay.delivered == [(("ann@example.org",), mail.raw)]
    assert sent.message_id
    assert (sent.remark or "").startswith(
        "It left, but no copy of it could be put into Sent: "
    )
    assert [
        record.message for record in caplog.records if record.name == "deskhand.imap"
    ] == ["sent_but_not_filed"]


@requirement("imap:kept")
async def test_the_connection_is_kept_and_a_dead_one_is_replaced(
    server: Dovecot, mailbox: ImapMailbox
) -> None:
    server.deliver(letter(message_id="<one@example.org>"))
    (mail,) = await mailbox.search("", 10)
    await mailbox.search("", 10)
    assert server.logins(expected=2) == 2  # ours, and the one that delivered

    server.disconnect_everyone()
    assert [each.id for each in await mailbox.search("", 10)] == [mail.id]
    server.disconnect_everyone()
    await mailbox.add_label(mail.id, "Again")
    assert server.logins(expected=4) == 4


async def test_a_wrong_password_and_a_missing_server_say_what_to_do(
    server: Dovecot, relay: Relay, tmp_path: Path
) -> None:
    wrong = f"imap://{server.user}:wrong@127.0.0.1:{server.port}"
    none = f"imap://{server.user}@127.0.0.1:{server.port}"
    nowhere = "imap://me%40example.com:x@127.0.0.1:9"
    for url, error in ((wrong, AuthRequired), (none, AuthRequired), (nowhere, Unavailable)):
        mailbox = opened(server, relay, tmp_path, DESKHAND_IMAP_URL=url)
        with pytest.raises(error) as refused:
            await mailbox.search("", 1)
        if error is AuthRequired:
            assert refused.value.hint == "run `deskhand mail login imap`"
        await mailbox.close()


@pytest.mark.parametrize(
    "url", ["imaps://host.example", "http://u@host", "imap://u@", "imaps://u@host:port"]
)
def test_a_url_that_is_no_account_is_an_error_of_the_configuration(
    url: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig):
        ImapMailbox(
            load({"DESKHAND_HOME": str(tmp_path), "DESKHAND_IMAP_URL": url}).settings
        )
    with pytest.raises(BadConfig):
        ImapMailbox(load({"DESKHAND_HOME": str(tmp_path)}).settings)


async def test_a_draft_needs_a_message_id(mailbox: ImapMailbox) -> None:
    with pytest.raises(InvalidInput):
        await mailbox.create_draft(letter(), None)


@requirement("imap:never-twice")
async def test_an_account_that_cannot_send_says_so_before_anything_begins(
    server: Dovecot, relay: Relay, tmp_path: Path
) -> None:
    no_password = f"imap://{server.user}@127.0.0.1:{server.port}"
    for variables, error in (
        ({"DESKHAND_SMTP_URL": "https://relay.example"}, BadConfig),
        (
            {"DESKHAND_SMTP_URL": "smtp://me@127.0.0.1", "DESKHAND_IMAP_URL": no_password},
            AuthRequired,
        ),
    ):
        mailbox = opened(server, relay, tmp_path, **variables)
        with pytest.raises(error):
            await mailbox.prepare(outgoing())
        await mailbox.close()


async def test_a_server_of_long_ago_does_as_well(tmp_path: Path) -> None:
    with Process(LONG_AGO) as process, Relay(Dovecot(process)) as relay:
        server = relay.server
        mailbox = opened(server, relay, tmp_path)
        server.deliver(
            letter(subject="Marked by somebody else"), flags=("\\Deleted",), at=DATE
        )
        for number in (2, 1, 3):
            raw = letter(
                subject=f"Grüße {number}",
                body=f"Über {number}",
                message_id=f"<{number}@example.org>",
            )
            server.deliver(raw, at=DATE + timedelta(days=number))

        found = await mailbox.search("Über after:2026/02/12", 10)
        await mailbox.move(found[0].id, "Clients/Ann")
        await mailbox.add_label(found[1].id, "To do")
        mail = outgoing()
        sent = await mailbox.send(await mailbox.prepare(mail), mail, unwritten)
        await mailbox.create_draft(mail.raw, None)
        everything = await mailbox.search("", 2)
        await mailbox.close()

        assert [(each.subject, each.snippet) for each in found] == [
            ("Grüße 3", "Über 3"),
            ("Grüße 2", "Über 2"),
        ]
        assert everything[0].id == sent.message_id
        assert everything[0].labels == ("DRAFT", "SENT")
        assert (everything[1].id, everything[1].labels) == (
            found[0].id,
            ("Clients/Ann", "UNREAD"),
        )
        assert server.raws("INBOX.Sent") == server.raws("INBOX.Drafts") == [mail.raw]
        assert any(b"Marked by somebody else" in raw for raw in server.raws("INBOX"))


async def test_what_a_server_cannot_do_is_refused_and_not_imitated(tmp_path: Path) -> None:
    with (
        Process(LONG_AGO.replace(" UIDPLUS", "")) as process,
        Relay(Dovecot(process)) as relay,
    ):
        mailbox = opened(relay.server, relay, tmp_path)
        relay.server.deliver(letter(message_id="<one@example.org>"))
        (mail,) = await mailbox.search("", 1)

        with pytest.raises(Denied, match="cannot move"):
            await mailbox.move(mail.id, "Done")
        assert (await mailbox.get(mail.id)).summary.labels == ("INBOX", "UNREAD")
        await mailbox.close()
        with relay.server.client() as client:
            assert [name for _, _, name in client.list_folders()] == ["INBOX"]


@requirement("imap:kept")
async def test_a_mailbox_that_is_closed_while_somebody_begins_to_wait_is_closed_at_once(
    server: Dovecot, relay: Relay, tmp_path: Path
) -> None:
    mailbox = opened(server, relay, tmp_path)
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: unheard.append(context)
    )
    waiting = asyncio.create_task(mailbox.wait("1:1", 60))
    await checkpoint()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    with fail_after(30):
        await mailbox.close()
    del waiting
    gc.collect()
    await checkpoint()

    assert unheard == []
