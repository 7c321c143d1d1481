"""Whom an answer to all goes to, on a hundred mails as they come."""

from datetime import UTC, datetime

import pytest

from deskhand.errors import InvalidInput
from deskhand.mail import FullMessage, mime
from deskhand.mail.answering import address_all
from tests.mail.threads import NOBODY, OWN, THREADS
from tests.requirements import requirement

pytestmark = requirement("mail:reply-all")


def received(fields: str) -> FullMessage:
    parsed = mime.parse(f"{fields}\n\nHello".encode())
    return parsed.full(parsed.summary("1", "1", datetime(2026, 11, 1, tzinfo=UTC), "", ()))


@pytest.mark.parametrize("name", THREADS)
def test_an_answer_to_all_goes_to_whom_a_person_would_send_it(name: str) -> None:
    fields, to, cc = THREADS[name]

    assert address_all(received(fields), OWN) == (to, cc)


@pytest.mark.parametrize("name", NOBODY)
def test_where_there_is_nobody_to_answer_it_is_said(name: str) -> None:
    with pytest.raises(InvalidInput, match="nobody whom one could answer"):
        address_all(received(NOBODY[name]), OWN)


@pytest.mark.parametrize(
    "own", ["me@müller.example", "ME@xn--mller-kva.example", "me+desk@MÜLLER.example"]
)
def test_oneself_is_known_however_ones_own_domain_is_written(own: str) -> None:
    fields = "From: ann@a.example\nTo: me@xn--mller-kva.example, Me <me@MÜLLER.example>, bob@b.example"

    assert address_all(received(fields), [own]) == ("ann@a.example", "bob@b.example")


def test_the_table_is_long_enough() -> None:
    assert len(THREADS) >= 100
