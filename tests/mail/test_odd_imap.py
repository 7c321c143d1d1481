"""What an IMAP server may answer, and hardly any does: it is read, or the server is named; nobody waits for ever."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from deskhand.config import load
from deskhand.errors import Denied, NotFound, ProviderDown
from deskhand.mail.imap import ImapMailbox
from tests.mail.odd_imap import OddImap
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(
    server: OddImap, folder: Path, host: str = "127.0.0.1"
) -> AsyncIterator[ImapMailbox]:
    url = f"imap://me:secret@{host}:{server.port}"
    given = {"DESKHAND_HOME": str(folder), "DESKHAND_IMAP_URL": url}
    mailbox = ImapMailbox(load(given).settings)
    with anyio.fail_after(20):
        yield mailbox
        await mailbox.close()


READABLE = {
    "no date": {"date": b"INTERNALDATE NIL"},
    "a date that is none": {"date": b'INTERNALDATE "30-Feb-2026 10:00:00 +0000"'},
    "a zone that is none": {"date": b'INTERNALDATE "16-Nov-2026 10:00:00 +9999"'},
    "a date behind the last": {"date": b'INTERNALDATE "31-Dec-9999 23:59:59 -1200"'},
    "no answer about dates": {"date": b""},
    "no flags": {"flags": b"FLAGS NIL"},
    "no answer about flags": {"flags": b""},
    "flags of any kind": {"flags": b'FLAGS (\\Seen &bad- 2026 [x] \xff "of words")'},
    "flags of half a character": {"flags": b"FLAGS (\\Seen &2AA- &2D3cAA-)"},
    "no opening": {"opening": b"BODY[]<0> NIL"},
    "results in parts": {"search": b"* SEARCH 3\r\n* SEARCH 8\r\n"},
    "a mail that has gone": {"search": b"* SEARCH 3 8 99\r\n"},
    "a folder with no name": {
        "list": b'* LIST () "/" INBOX\r\n* LIST () "/" "&bad"\r\n* LIST () "/" "\xff"\r\n'
    },
    "folders that cannot be read": {
        "list": b'* LIST () "/" INBOX\r\n* LIST () "/" a b\r\n* LIST () 5 c\r\n* LIST () "\xff" d\r\n'
        b'* LIST () "/"\r\n* LIST () "/" "\r\n* LIST () "/" (e f)\r\n* LIST () "/" ""\r\n* LIST 5 "/" g\r\n'
        b"* LIST " + b"(" * 5000 + b"\r\n"
    },
    "folders with extensions": {
        "list": b'* LIST () "/" INBOX ("CHILDINFO" ("SUBSCRIBED"))\r\n'
        b'* LIST (\\Noselect) "/" {1}\r\na ("OLDNAME" ({1}\r\nb))\r\n'
    },
    "a folder without flags": {"list": b'* LIST NIL "/" INBOX\r\n'},
    "a folder whose flags are none": {"list": b'* LIST (5 (a)) "/" INBOX\r\n'},
    "flags that cannot be set": {
        "examine": b"* 2 EXISTS\r\n* OK [PERMANENTFLAGS (NIL 5 (a))] ok\r\n"
        b"* OK [UIDVALIDITY 5] ok\r\n* OK [UIDNEXT 9] ok\r\n"
    },
    "folders of others": {
        "list": b'* LIST () "/" INBOX\r\n* LIST () "/" theirs\r\n',
        "closed": "theirs",
    },
    "a namespace with extensions": {
        "namespace": b'* NAMESPACE (("" "/")("#mh/" "/" "X-PARAM" ("A" "B"))) NIL NIL\r\n'
    },
    "small letters": {"small": True},
    "small letters and nothing": {
        "small": True,
        "date": b"INTERNALDATE NIL",
        "list": b"* LIST (\\HasNoChildren) NIL INBOX\r\n* LIST () NIL nil\r\n",
        "opening": b"BODY[]<0> NIL",
    },
    "news of a mail without its UID": {
        "search": b"* SEARCH 3 8\r\n* 3 FETCH (FLAGS (\\Deleted) MODSEQ (9))\r\n"
    },
    "signed in already": {"greeting": b"* PREAUTH as me\r\n", "login": b"* BYE no\r\n"},
    "signed in already in small letters": {
        "greeting": b"* PREAUTH as me\r\n",
        "login": b"* BYE no\r\n",
        "small": True,
    },
    "a line of two megabytes": {
        "capability": b"* CAPABILITY IMAP4rev1 SORT\r\n",
        "sort": b"* SORT 8 3" + b" 99" * 700_000 + b"\r\n",
    },
}


@requirement("mail:odd-imap")
@pytest.mark.parametrize("case", READABLE)
async def test_an_unusual_answer_hides_no_mail(case: str, tmp_path: Path) -> None:
    with OddImap(**READABLE[case]) as server:  # type: ignore[arg-type]
        async with opened(server, tmp_path) as mailbox:
            found = await mailbox.search("", 10)
            assert {mail.subject for mail in found} == {"Number 3", "Number 8"}
            assert (await mailbox.get(found[0].id)).summary.id == found[0].id
            arrived = await mailbox.find_arrived("5:2")

    assert arrived is not None
    assert {*arrived.ids} == {mail.id for mail in found}


@requirement("mail:odd-imap")
async def test_a_keyword_of_half_a_character_is_a_label_that_can_be_written(
    tmp_path: Path,
) -> None:
    with OddImap(flags=b"FLAGS (\\Seen &2AA- &2D3cAA-)") as server:
        async with opened(server, tmp_path) as mailbox:
            (found, *_) = await mailbox.search("", 10)

    assert found.labels == ("INBOX", "&2AA-", "\U0001f400")
    assert "".join(found.labels).encode()


@requirement("mail:odd-imap")
async def test_a_keyword_is_a_label_in_the_words_of_the_server(tmp_path: Path) -> None:
    with OddImap(flags=b"FLAGS (\\Seen NIL 5 (a) a&AAo-b)") as server:
        async with opened(server, tmp_path) as mailbox:
            (found, *_) = await mailbox.search("", 10)

    assert found.labels == ("INBOX", "NIL", "5", "a&AAo-b")


@requirement("mail:odd-imap")
@pytest.mark.parametrize("header", [b"", b"BODY[HEADER.FIELDS (FROM)] NIL"])
async def test_mails_of_which_the_server_has_no_header_are_none_and_nobody_waits(
    tmp_path: Path, header: bytes
) -> None:
    with OddImap(header=header) as server:
        async with opened(server, tmp_path) as mailbox:
            assert await mailbox.search("", 10) == []


@requirement("mail:odd-imap")
async def test_a_mail_that_goes_between_search_and_fetch_hides_no_other(
    tmp_path: Path,
) -> None:
    with OddImap(gone=3) as server:
        async with opened(server, tmp_path) as mailbox:
            assert [mail.subject for mail in await mailbox.search("", 10)] == ["Number 8"]


@requirement("mail:odd-imap")
async def test_a_mail_whose_text_has_gone_is_not_found(tmp_path: Path) -> None:
    with OddImap(whole=b"BODY[] NIL") as server:
        async with opened(server, tmp_path) as mailbox:
            (found, *_) = await mailbox.search("", 10)
            with pytest.raises(NotFound):
                await mailbox.get(found.id)


@requirement("mail:odd-imap")
@pytest.mark.parametrize(
    "answers",
    [
        {"search": b"* SEARCH three\r\n"},
        {"examine": b"* OK [UIDVALIDITY 5] ok\r\n"},
        {"examine": b"* 2 EXISTS\r\n* OK [UIDVALIDITY x] ok\r\n"},
        {"list": b'* LIST () "/"\r\n'},
        {"namespace": b"* NAMESPACE ((1 2)) NIL NIL\r\n"},
        {"flags": b"X " + b"(" * 5000 + b")" * 5000},
        {"flags": b"X {99999999999}\r\n"},
        {"flags": b"FLAGS (\\Seen"},
        {"greeting": b"* BYE too many connections\r\n"},
        {"uid": b""},
        {"uid": b"UID x"},
        {"flags": b"FLAGS 5"},
        {"flags": b"FLAGS a"},
        {"list": b"* LIST () 5 INBOX\r\n"},
        {"list": b'* LIST () "\xff" INBOX\r\n'},
        {"capability": b"* CAPABILITY IMAP4rev1 \xff\r\n"},
    ],
)
async def test_a_server_whose_answer_cannot_be_read_is_named(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    with OddImap(**answers) as server:  # type: ignore[arg-type]
        async with opened(server, tmp_path) as mailbox:
            with pytest.raises(ProviderDown, match=r"127\.0\.0\.1"):
                await mailbox.search("", 10)


@requirement("mail:odd-imap")
async def test_a_server_that_signs_in_before_anything_is_encrypted_is_refused(
    tmp_path: Path,
) -> None:
    with OddImap(greeting=b"* PREAUTH as me\r\n") as server:
        # Another machine, as far as its name tells.
        async with opened(server, tmp_path, host="127.1") as mailbox:
            with pytest.raises(Denied, match="PREAUTH") as refused:
                await mailbox.search("", 10)
    assert refused.value.details["reason"] == "no_encryption"


@requirement("mail:odd-imap")
async def test_what_a_server_tells_before_it_listens_ends_no_waiting(
    tmp_path: Path,
) -> None:
    telling = b"* OK still here\r\n* 2 EXISTS\r\n+ idling\r\n* 3 EXISTS\r\n"
    with OddImap(idle=telling) as server:
        async with opened(server, tmp_path) as mailbox:
            await mailbox.wait(await mailbox.position(), 0.1)
