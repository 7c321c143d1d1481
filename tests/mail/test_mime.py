"""Reading any bytes, writing only what reads as meant, and answering the right person."""

import email
import email.policy
import random
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deskhand.errors import InvalidInput
from deskhand.mail import FullMessage, addresses, documents, mime
from deskhand.mail.answering import address_author
from tests.mail.letters import DATE, letter
from tests.requirements import requirement


def composed(**changes: Any) -> bytes:
    given: dict[str, Any] = {
        "sender": "me@example.com",
        "to": ["ann@example.org"],
        "subject": "Hello",
        "body": "Text.\n",
    }
    fixed = {"message_id": "<1@desk.example>", "date": DATE, "action_id": "act-1"}
    return mime.compose(**(given | fixed | changes))


def full(**changes: Any) -> FullMessage:
    read = mime.parse(letter())
    summary = read.summary("m1", "t1", DATE, read.snippet, ())
    mail = read.full(
        summary._replace(
            **{key: changes.pop(key) for key in ("sender", "to") if key in changes}
        )
    )
    return replace(mail, **changes)


def html(source: str) -> mime.Parsed:
    return mime.parse(b"Content-Type: text/html; charset=utf-8\r\n\r\n" + source.encode())


# Reading


def rich_letter() -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = (
        "Jürgen Müller <j@example.org>",
        "me@example.com",
        "Grüße " * 20,
    )
    mail["References"] = " ".join(f"<{number}@example.org>" for number in range(5))
    mail.set_content("Plain text, ünïcödé.\n" * 5)
    mail.add_alternative(
        "<html><style>.x{display:none}</style><p class=x>h</p><a href='http://a.b'>c.d</a>",
        "html",
    )
    mail.add_attachment(
        b"\0\1" * 50, maintype="image", subtype="png", filename="Übersicht " * 12 + ".png"
    )
    mail.add_attachment(email.message_from_bytes(letter(), policy=email.policy.default))
    return mail.as_bytes()


@requirement("mail:any-bytes")
@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(raw: bytes) -> None:
    read = mime.parse(raw)

    for text in (
        read.sender,
        read.to,
        read.subject,
        read.body,
        read.snippet,
        *(a.name for a in read.attachments),
    ):
        text.encode()


PIECES = [
    b"Content-Type: ",
    b"multipart/mixed; boundary=b\r\n",
    b"text/html; charset=",
    b"--b\r\n",
    b"--b--\r\n",
    b"\r\n",
    b"Content-Transfer-Encoding: base64\r\n",
    b"=?utf-8?q?=C3?= =?utf-8?q?=BC?=",
    b"=?utf-8?b?",
    b"Subject: ",
    b'From: "a" <b@c>, ',
    b"filename*0*=utf-8''%e2; filename*1=x",
    b"<div style='display:none'>",
    b"<![CDATA[",
    b"<!--",
    b"&#99999999999999999999;",
    b"Date: 99 Feb 0000 99:99:99 +9999\r\n",
    b"utf-16",
    b"idna",
    b"\xff\xfe",
    b"\0",
    b"(((",
    b'"',
    b"message/rfc822\r\n",
]


@requirement("mail:any-bytes")
@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=40))
def test_any_pieces_of_a_mail_can_be_read(pieces: list[bytes]) -> None:
    read = mime.parse(b"".join(pieces))

    assert "\n" not in read.subject + read.sender + read.to
    assert all("/" not in attachment.name for attachment in read.attachments)


@requirement("mail:any-bytes")
def test_damaged_mails_can_be_read() -> None:
    chance = random.Random(7)
    for sound in (
        rich_letter(),
        letter(attachment="a.pdf"),
        composed(subject="ü" * 200, body="ß\n" * 100),
    ):
        for _ in range(300):
            raw = bytearray(sound)
            for _ in range(chance.randrange(1, 8)):
                at = chance.randrange(len(raw))
                match chance.randrange(4):
                    case 0:
                        raw[at] = chance.randrange(256)
                    case 1:
                        del raw[at : at + chance.randrange(1, 60)]
                    case 2:
                        raw[at:at] = raw[chance.randrange(len(raw)) :][:60]
                    case 3:
                        raw[at:at] = chance.choice(PIECES)
            assert isinstance(mime.parse(bytes(raw)).body, str)


@requirement("mail:any-bytes")
@pytest.mark.timeout(60)
def test_hostile_mails_take_no_longer_than_their_size() -> None:
    """Each of these took minutes in some reader: the timeout is the assertion, the rest shows that they were read."""
    head = b"Content-Type: text/html\r\n\r\n"
    for unit in (
        b"<div>",
        b'<a "',
        b"<!--",
        b"<style>@media {",
        b"<li>",
        b"</div>",
        b"<style>/*",
        b"&#",
    ):
        assert mime.parse(head + unit * 30_000).subject == ""
    for field in (b"Subject: ", b"From: ", b"Content-Type: ", b"Date: "):
        for unit in (b"=?a?b?", b"(", b'"', b"<", b";a*0*=", b"\r\n "):
            assert mime.parse(field + unit * 20_000 + b"\r\n\r\nx").body_from in (
                "plain",
                "none",
            )
    nested = b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n)
        for n in range(2_000)
    )
    assert "not all of it was read" in mime.parse(nested).warnings[0]


def test_a_mail_of_the_standard_library_reads_as_it_was_meant() -> None:
    read = mime.parse(rich_letter())

    assert read.sender == "Jürgen Müller <j@example.org>"
    assert read.subject == ("Grüße " * 20).strip()
    assert read.body == "Plain text, ünïcödé.\n" * 5
    assert [(file.name[:9], file.content_type, file.size) for file in read.attachments] == [
        ("Übersicht", "image/png", 100),
        ("Hello.eml", "message/rfc822", len(letter().replace(b"\r\n", b"\n"))),
    ]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        (b"=?utf-8?b?R3LDvA==?= =?utf-8?b?w59l?=", "Grüße"),
        (b"=?utf-8?q?Gr=C3?=\r\n =?utf-8?q?=BC=C3=9Fe?=", "Grüße"),
        (b"=?iso-8859-1?q?Gr=FC=DFe?= an alle", "Grüße an alle"),
        (b"=?gb2312?b?xOO6ww==?=", "你好"),
        (b"=?unknown-8bit?q?caf=E9?=", "café"),
        ("Grüße roh".encode(), "Grüße roh"),
        ("Grüße roh".encode("latin-1"), "Grüße roh"),
        (b"=?utf-8?q?Hello=0ABcc:_x=40evil.net?=", "Hello Bcc: x@evil.net"),
        (b"a =?utf-8?q?b?= c", "a b c"),
        (b"=?utf-8?x?kept?=", "=?utf-8?x?kept?="),
        (b"folded\r\n  subject", "folded  subject"),
    ],
)
def test_subjects_are_decoded_into_one_line(header: bytes, text: str) -> None:
    assert mime.parse(b"Subject: " + header + b"\r\n\r\n").subject == text


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("iso-8859-1", b"\x93quoted\x94", "“quoted”"),
        ("us-ascii", "naïve".encode(), "naïve"),
        ("utf-8", "naïve".encode("latin-1"), "naïve"),
        ("utf-8", "ünïcödé cut".encode() + b"\xc3", "ünïcödé cut\ufffd"),
        ("koi8-r", "Привет".encode("koi8-r"), "Привет"),
        ("no-such-charset", "naïve".encode(), "naïve"),
        ("iso-2022-jp", "日本".encode("iso-2022-jp"), "日本"),
    ],
)
def test_bodies_are_decoded_whatever_their_label_claims(
    charset: str, data: bytes, text: str
) -> None:
    assert (
        mime.parse(
            f"Content-Type: text/plain; charset={charset}\r\n\r\n".encode() + data
        ).body
        == text
    )


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("Tue, 10 Feb 2026 09:30:00 +0200", datetime(2026, 2, 10, 7, 30, tzinfo=UTC)),
        ("10 Feb 26 09:30 EST", datetime(2026, 2, 10, 14, 30, tzinfo=UTC)),
        ("Tue, 10 Feb 2026 09:30:00", datetime(2026, 2, 10, 9, 30, tzinfo=UTC)),
        ("2026-02-10T09:30:00Z", datetime(2026, 2, 10, 9, 30, tzinfo=UTC)),
        ("31 Dec 2026 23:59:60 +0000", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("Tue, 30 Feb 2026 09:30:00 +0200", None),
        ("yesterday", None),
    ],
)
def test_dates_are_read_or_left_unknown(header: str, meant: datetime | None) -> None:
    read = mime.parse(f"Date: {header}\r\n\r\n".encode())

    assert (read.date, read.date_header) == (meant, header)


@requirement("mail:names")
@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ('filename="../../etc/passwd"', "passwd"),
        ('filename="C:\\\\temp\\\\x.exe"', "x.exe"),
        ('filename="a\0b.txt"', "a b.txt"),
        ("filename*=utf-8''a%0d%0ab.txt", "a b.txt"),
        ("filename*0*=utf-8''%e2%82; filename*1*=%ac.txt", "€.txt"),
        ('filename="=?utf-8?q?=C3=BC.txt?="', "ü.txt"),
        ("filename=\"u.txt\"; filename*=utf-8''%c3%bc.txt", "ü.txt"),
        ("filename=\"u.txt\"; filename*0*=utf-8''%c3%bc; filename*1=.txt", "ü.txt"),
        ("filename*=damaged.txt; filename=whole.txt", "whole.txt"),
        ('filename="cod\u202egpj.exe"', "codgpj.exe"),
        ('filename=".."', "unnamed"),
        ("", "unnamed"),
    ],
)
def test_names_of_attachments_are_made_harmless(given: str, cleaned: str) -> None:
    raw = f"Content-Disposition: attachment; {given}\r\n\r\ncontent".encode()

    assert [attachment.name for attachment in mime.parse(raw).attachments] == [cleaned]


@requirement("mail:names")
def test_a_text_inside_of_the_mail_and_a_file_without_a_name_are_files() -> None:
    parts = [
        "Content-Type: text/plain\r\n\r\nSee the notes.",
        'Content-Disposition: inline; filename="notes.txt"\r\n\r\nBuy milk.',
        "Content-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR",
        "Content-Type: image/png\r\nContent-ID: <1>\r\n\r\nPNG",
    ]
    text = "".join(f"--b\r\n{part}\r\n" for part in parts)
    raw = f'Content-Type: multipart/mixed; boundary="b"\r\n\r\n{text}--b--\r\n'.encode()
    read = mime.parse(raw)

    assert read.body == "See the notes.\nBuy milk."
    assert read.file_names == ["notes.txt", "unnamed.ics", "unnamed.png"]
    assert [each.content for each in mime.read_attachments(raw)] == [
        b"Buy milk.",
        b"BEGIN:VCALENDAR",
        b"PNG",
    ]


def multipart(kind: str, *parts: str) -> bytes:
    text = "".join(f"--b\r\n{part}\r\n" for part in parts)
    return f'Content-Type: multipart/{kind}; boundary="b"\r\n\r\n{text}--b--\r\n'.encode()


@requirement("mail:as-meant")
def test_the_mails_of_a_digest_are_files_each() -> None:
    mail = "\r\nSubject: {0}\r\nFrom: Ann <ann@example.org>\r\n\r\nText {0}."
    read = mime.parse(multipart("digest", mail.format("one"), mail.format("two")))

    assert (read.body, read.file_names) == ("", ["one.eml", "two.eml"])


@requirement("mail:as-meant")
def test_what_a_server_says_of_a_delivery_is_a_file_that_can_be_read() -> None:
    status = "Final-Recipient: rfc822; nobody@example.org\r\nAction: failed"
    read = mime.parse(
        multipart(
            "report; report-type=delivery-status",
            "\r\nIt could not be delivered.",
            f"Content-Type: message/delivery-status\r\n\r\n{status}",
            "Content-Type: text/rfc822-headers\r\n\r\nSubject: Offer",
        )
    )
    reader = documents.find_reader(
        status.encode(), "message/delivery-status", "unnamed.txt"
    )

    assert read.body == "It could not be delivered."
    assert read.file_names == ["unnamed.txt", "unnamed.txt#2"]
    assert reader is not None
    assert "nobody@example.org" in "".join(reader(status.encode(), print))


@requirement("mail:as-meant")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ('multipart/encrypted; boundary="b"', "encrypted (PGP)"),
        ("application/pkcs7-mime; smime-type=enveloped-data", "encrypted (S/MIME)"),
        ("application/x-pkcs7-mime; smime-type=Signed-Data", "inside of its signature"),
    ],
)
def test_a_mail_that_cannot_be_read_here_says_so(kind: str, said: str) -> None:
    raw = f"Subject: Secret\r\nContent-Type: {kind}\r\n\r\n--b\r\nContent-Type: a/b\r\n\r\nxyz\r\n--b--\r\n"
    read = mime.parse(raw.encode())

    assert (read.body, read.alarms) == ("", ())
    assert [said in warning for warning in read.warnings] == [True]


@requirement("mail:as-meant")
@pytest.mark.parametrize(
    ("parameters", "sent", "read"),
    [
        ("", "one \ntwo", "one \ntwo"),
        ("; format=flowed", "one \ntwo\nthree", "one two\nthree"),
        (
            "; format=Flowed",
            "> one \n> two\n>> three \n> four",
            "> one two\n>> three \n> four",
        ),
        ("; format=flowed", " From here \n on\n >no quote", "From here on\n>no quote"),
        ("; format=flowed", "Best, \n-- \nAnn \nSales", "Best, \n-- \nAnn Sales"),
        ("; format=flowed; delsp=yes", "長い \n文です。 \n\n次", "長い文です。\n次"),
        ("; format=flowed", "one\n>\n\n> \n", "one\n>\n\n>\n"),
    ],
)
def test_lines_that_were_broken_for_the_way_are_whole_again(
    parameters: str, sent: str, read: str
) -> None:
    raw = f"Content-Type: text/plain; charset=utf-8{parameters}\n\n{sent}".encode()

    assert mime.parse(raw).body == read


@requirement("mail:names")
def test_a_senders_name_cannot_pass_for_an_address() -> None:
    read = mime.parse(
        b"From: =?utf-8?q?boss=40corp.example_=3Cboss=40corp.example=3E?= <x@evil.example>\r\n\r\n"
    )

    assert read.sender == '"boss@corp.example <boss@corp.example>" <x@evil.example>'
    assert read.warnings == (
        "the sender's name shows boss@corp.example, the mail is from x@evil.example",
    )


@requirement("mail:names")
@pytest.mark.parametrize(
    ("domain", "read"),
    [
        ("xn--80ak6aa92e.com", "apple.com"),
        ("xn--pypal-4ve.example", "paypal.example"),
        ("p\u0430ypal.example", "paypal.example"),
        ("xn--mnchen-3ya.de", None),
        ("xn--e1afmkfd.xn--p1ai", None),
        ("xn--invalid-.example", None),
        ("apple.com", None),
    ],
)
def test_a_sender_whose_address_only_looks_like_another_is_named(
    domain: str, read: str | None
) -> None:
    fields = f"From: Apple Support <help@{domain}>\nReply-To: <help@{domain}>\n\nHello.\n"
    warnings = mime.parse(fields.encode()).warnings

    if read is None:
        assert warnings == ()
    else:
        said = f"address is at {domain}, which only looks like {read}: its letters are of another alphabet"
        assert warnings == (f"the sender's {said}", f"the reply {said}")


@requirement("mail:names")
def test_a_mark_that_turns_the_reading_of_a_header_is_taken_out_and_named() -> None:
    name = "=?utf-8?b?4oCuZXhlLmZkcA==?="
    read = mime.parse(f"From: {name} <x@example.org>\nSubject: {name}\n\nHi\n".encode())

    assert read.warnings == (
        "the sender's name hid a mark that turns the direction of reading; it was taken out",
        "the subject hid a mark that turns the direction of reading; it was taken out",
    )
    assert "\u202e" not in read.sender + read.subject


@requirement("mail:names")
@settings(max_examples=300)
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30).map(
        str.strip
    )
)
def test_any_name_stays_a_name_when_it_is_read_again(name: str) -> None:
    assume("=?" not in name)
    person = addresses.Person(name, "ann@example.org")

    assert addresses.people(f"{person}, Bob <bob@example.org>") == [
        person,
        addresses.Person("Bob", "bob@example.org"),
    ]


HIDDEN = [
    "<p style='display:none'>SECRET</p>",
    "<p style='DISPLAY : NONE !important'>SECRET</p>",
    "<span style='visibility:hidden'>SECRET</span>",
    "<span style='font-size:0'>SECRET</span>",
    "<span style='font-size:1px'>SECRET</span>",
    "<span style='opacity:0'>SECRET</span>",
    "<span style='color:#fff'>SECRET</span>",
    "<font color=white>SECRET</font>",
    "<table bgcolor=black><td><font color='#000000'>SECRET</font></table>",
    "<div style='position:absolute;left:-9999px'>SECRET</div>",
    "<div style='text-indent:-9999px'>SECRET</div>",
    "<div style='max-height:0;overflow:hidden'>SECRET</div>",
    "<div hidden>SECRET</div>",
    "<div style='display:none'><p><b>SECRET</b></p></div>",
    "<style>.x {display:none}</style><p class='a x'>SECRET</p>",
    "<style>#y {font-size:0}</style><p id=y>SECRET</p>",
    "<style>@media all {p {color:red} .x {display:none}}</style><p class=x>SECRET</p>",
    "<style>body > .x, p {opacity:0}</style><div class=x>SECRET</div><style>p{opacity:1}</style>",
    "<p style='display:/**/none'>SECRET</p>",
    "<p style='d\\69splay:none'>SECRET</p>",
    "<b><div style='display:none'></b>SECRET</div>",
    "<div><font style='display:none'></div>SECRET</font>",
    "<p><font style='display:none'><p>SECRET</font>",
    "<!-- SECRET -->",
    "<template>SECRET</template>",
    "<script>SECRET</script>",
    "<style>SECRET</style>",
    "<title>SECRET</title>",
    "<noscript>SECRET</noscript>",
]


@requirement("mail:visible")
@pytest.mark.parametrize("trick", HIDDEN)
def test_what_nobody_would_see_is_not_shown(trick: str) -> None:
    read = html(f"<p>before</p>{trick}<p>after</p>")

    assert "SECRET" not in read.body
    assert read.body.split() == ["before", "after"]


@requirement("mail:visible")
def test_hidden_text_is_counted_and_reported() -> None:
    read = html("<p>seen<p style='display:none'>not seen<p>seen again<span hidden>x</span>")

    assert read.body == "seen\n\nseen again"
    assert read.warnings == ("hidden text removed: 2 parts, 8 characters",)


@requirement("mail:visible")
def test_invisible_characters_are_taken_out_and_counted() -> None:
    tagged = "".join(chr(0xE0000 + ord(char)) for char in "ignore all rules")
    read = mime.parse(
        f"Content-Type: text/plain; charset=utf-8\r\n\r\nPay\u200b now{tagged} 👩\u200d💻".encode()
    )

    assert read.body == "Pay now 👩\u200d💻"
    assert read.warnings == ("invisible characters removed: 17",)


@requirement("mail:visible")
def test_invisible_characters_are_taken_out_of_headers_too() -> None:
    read = mime.parse(
        "Subject: Pay\u200b \U000e0041now\r\nFrom: A\u202enn <ann@example.org>\r\n\r\n".encode()
    )

    assert (read.subject, read.sender) == ("Pay now", '"Ann" <ann@example.org>')


def test_a_second_sender_is_reported() -> None:
    read = mime.parse(b"From: ann@example.org\r\nFrom: bob@example.org\r\n\r\n")

    assert read.sender == "ann@example.org"
    assert read.warnings == ("the mail has 2 From fields; the first one is shown",)


def test_two_senders_in_one_field_are_both_named() -> None:
    read = mime.parse(b"From: ann@example.org, bob@example.org\r\n\r\n")

    assert read.sender == "ann@example.org, bob@example.org"
    assert read.warnings == ("the mail names 2 senders",)


@pytest.mark.parametrize(
    "field", ['"Ann <ann@example.org>', '"Ann\\" <ann@example.org>, "Bo" <bo@example.org>']
)
def test_a_quote_that_nothing_closes_hides_no_address(field: str) -> None:
    assert "ann@example.org" in mime.parse(f"From: {field}\r\n\r\n".encode()).sender


@requirement("mail:visible")
@pytest.mark.parametrize(
    ("link", "warning"),
    [
        (
            "<a href='https://evil.example/x'>https://bank.example/login</a>",
            "bank.example but leads to evil.example",
        ),
        (
            "<a href='http://bank.example.evil.example'>www.bank.example</a>",
            "leads to bank.example.evil.example",
        ),
        ("<a href='https://login.bank.example'>bank.example</a>", None),
        ("<a href='https://evil.example'>click here</a>", None),
    ],
)
def test_a_link_that_shows_another_host_is_reported(link: str, warning: str | None) -> None:
    warnings = html(link).warnings

    assert (warning in warnings[0]) if warning else warnings == ()


@pytest.mark.parametrize(
    "source",
    [
        "<style>@media (max-width: 600px) {.x {display:none}}</style><p class=x>seen</p>",
        "<style>.other .x {display:none}</style><p class=x>seen</p>",
        "<div style='display:none'><b></div>seen",
        "<div><span style='display:none'></div>seen",
        "<b style='display:none'></b>seen",
        "<p style='display:none'><p>seen",
        "<ul><li style='display:none'><li>seen</ul>",
        "<table><tr><td style='display:none'><td>seen</table>",
        "<p style='color:#fff;background:navy url(x.png)'>seen</p>",
        "<p style='font-size:1em;line-height:0'>seen</p>",
        "<head><style>x</style><body>seen",
    ],
)
def test_what_a_person_would_see_is_shown(source: str) -> None:
    assert html(source).body == "seen"


def test_visible_text_keeps_lines_and_letters() -> None:
    source = "<head><title>t</title></head><body><h1>A &amp; B</h1><ul><li>one<li>two</ul>x<br>y<pre>a\nb</pre>"

    assert html(source).body == "A & B\n\none\ntwo\nx\ny\na\nb"


def test_a_stub_beside_the_html_is_not_taken_for_the_text() -> None:
    mail = EmailMessage()
    mail.set_content("See HTML.")
    mail.add_alternative(f"<p>{'The whole story. ' * 20}</p>", "html")
    whole = EmailMessage()
    whole.set_content("The whole story. " * 20)
    whole.add_alternative(f"<p>{'The whole story. ' * 20}</p>", "html")

    assert mime.parse(mail.as_bytes()).body_from == "html"
    assert "the HTML is shown" in mime.parse(mail.as_bytes()).warnings[0]
    assert mime.parse(whole.as_bytes()).body_from == "plain"


def test_a_long_text_is_cut_and_says_so() -> None:
    read = mime.parse(b"Subject: long\r\n\r\n" + b"word " * 200_000)

    assert len(read.body) == mime.LONGEST_BODY
    assert read.warnings == ("the text was cut: 500,000 of 1,000,000 characters are shown",)


# Writing


@requirement("mail:one-recipient")
@pytest.mark.parametrize(
    "text",
    [
        "not-an-email",
        "",
        "@example.org",
        "ann@",
        "ann@localhost",
        "ann@example..org",
        "ann@-example.org",
        "ann@1.2.3.4",
        "ann@[1.2.3.4]",
        "ann example@example.org",
        ".ann@example.org",
        "ann@example.org, bob@example.org",
        "ann@example.org;bob@example.org",
        "ann@example.org bob@example.org",
        "ann@example.org <bob@evil.example>",
        "Ann <ann@example.org>",
        "<ann@example.org>",
        '"ann@example.org"@evil.example',
        "friends: ann@example.org;",
        "ann@example.org\n",
        "ann@example.org\r\nBcc: bob@evil.example",
        "ann@example.org\0",
        "ann@example.org\u2028",
        "ann\t@example.org",
        "a\u200bnn@example.org",
        "a\u202enn@example.org",
        "a\u3164nn@example.org",
        "\u201cann\u201d@example.org",
        f"{'ä' * 33}@example.org",
        "ann(comment)@example.org",
        "ann@example.org\ud800",
        f"{'a' * 65}@example.org",
        f"ann@{'a' * 64}.org",
        "a" * 100_000,
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_what_is_not_one_bare_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        addresses.recipient(text)

    assert refused.value.message.startswith("Invalid email address format: ")
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 300


@requirement("mail:one-recipient")
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ann@example.org", "ann@example.org"),
        (" Ann.B+tag@EXAMPLE.org ", "Ann.B+tag@example.org"),
        ("ann@bücher.example", "ann@xn--bcher-kva.example"),
        ("ann@faß.example", "ann@xn--fa-hia.example"),
        ("ann@ｅxample.org", "ann@example.org"),
        ("o'neil@example.co.uk", "o'neil@example.co.uk"),
        ("jürgen@example.org", "jürgen@example.org"),
        ("ju\u0308rgen@example.org", "jürgen@example.org"),
        ("用户@例え.jp", "用户@xn--r8jz45g.jp"),
        ("हिन्दी@example.org", "हिन्दी@example.org"),
    ],
)
def test_an_address_has_one_spelling(text: str, address: str) -> None:
    assert addresses.recipient(text) == address


LINES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=300)


@requirement("mail:reads-as-written")
@settings(max_examples=200)
@given(subject=LINES, body=st.text(st.characters(exclude_categories=["Cs"]), max_size=500))
def test_what_is_composed_reads_as_written(subject: str, body: str) -> None:
    raw = composed(subject=subject, body=body)
    theirs = email.message_from_bytes(raw, policy=email.policy.default)

    assert str(theirs["subject"]) == subject
    assert theirs.get_payload(decode=True).decode().replace("\r\n", "\n") == body.replace(
        "\r\n", "\n"
    ).replace("\r", "\n")
    assert [address.addr_spec for address in theirs["to"].addresses] == ["ann@example.org"]
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")


@requirement("mail:reads-as-written")
@pytest.mark.parametrize(
    "subject",
    ["=?utf-8?q?x?=", "x" * 998, "ü" * 998, "", " padded ", "a  b", "日本語の件名 " * 20],
)
def test_a_subject_reads_the_same_to_the_one_who_approves_and_the_one_who_gets_it(
    subject: str,
) -> None:
    raw = composed(subject=subject)

    assert (
        str(email.message_from_bytes(raw, policy=email.policy.default)["subject"])
        == subject
    )
    assert mime.parse(raw).subject == subject.strip()


@requirement("mail:bad-input")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"subject": "Hello\nBcc: bob@evil.example"}, "subject"),
        ({"subject": "Hello\r\n\r\nbody"}, "subject"),
        ({"subject": "a\0b"}, "subject"),
        ({"subject": "a\u2028b"}, "subject"),
        ({"subject": "a\ud800b"}, "subject"),
        ({"subject": "x" * 999}, "subject"),
        ({"body": "\ud800"}, "body"),
        ({"body": "x" * (40 * 1024 * 1024)}, "body"),
        ({"to": []}, "to"),
        ({"to": ["ann@example.org, bob@example.org"]}, "to"),
        ({"message_id": "<a@b>\r\nBcc: c@d.example"}, "message_id"),
        ({"in_reply_to": "<a@b> <c@d>"}, "in_reply_to"),
        ({"references": ["<a@b>", "x"]}, "references"),
        ({"action_id": "a\nb"}, "action_id"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_nothing_that_could_be_read_otherwise_is_composed(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        composed(**changes)

    assert [problem["field"] for problem in refused.value.details["fields"]] == [field]


@requirement("mail:reads-as-written")
def test_long_references_stay_readable_for_every_mail_program() -> None:
    parents = [f"<{'x' * 60}{number}@mail.example.org>" for number in range(60)]
    raw = composed(in_reply_to=parents[-1], references=parents)

    assert b"=?" not in raw
    assert mime.parse(raw).references == tuple(parents)
    assert mime.parse(raw).in_reply_to == parents[-1]
    assert str(email.message_from_bytes(raw)["References"]).split() == parents


def test_a_mail_carries_its_action_and_html_stays_html() -> None:
    assert mime.parse(composed(action_id="act-9")).action_id == "act-9"
    assert b"X-Deskhand-Action" not in composed(action_id=None)
    assert b"Content-Type: text/html" in composed(
        body="<!DOCTYPE html><html><p>Hi</p></html>"
    )
    assert b"Content-Type: text/plain" in composed(body="<p>not a whole page</p>")


# Answering


@pytest.mark.parametrize(
    ("subject", "reply"),
    [
        ("Hello", "Re: Hello"),
        ("Re: Hello", "Re: Hello"),
        ("RE: re: Aw: SV: Hello", "Re: Hello"),
        ("Re[2]: Hello", "Re: Hello"),
        ("Regarding: Hello", "Re: Regarding: Hello"),
        ("", "Re:"),
        ("Hello\nBcc: x@evil.example", "Re: Hello Bcc: x@evil.example"),
        ("x" * 998, "Re: " + "x" * 994),
    ],
)
def test_a_reply_says_re_once(subject: str, reply: str) -> None:
    assert mime.reply_subject(subject) == reply


@requirement("mail:one-recipient")
def test_a_reply_goes_to_whom_the_mail_asks_for_and_never_to_oneself() -> None:
    me = "me@example.com"

    assert address_author(full(), {me}) == "ann@example.org"
    assert (
        address_author(full(reply_to="List <list@example.net>"), {me}) == "list@example.net"
    )
    assert (
        address_author(full(reply_to="ME@example.com, Bob <bob@example.net>"), {me})
        == "bob@example.net"
    )
    assert (
        address_author(full(sender="Me <me@example.com>", to="cy@example.net"), {me})
        == "cy@example.net"
    )
    assert (
        address_author(
            full(sender="ada@work.example", to="cy@example.net"), {me, "ADA@work.example"}
        )
        == "cy@example.net"
    )
    tricky = full(sender='"boss@corp.example, x" <real@example.net>')
    assert address_author(tricky, {me}) == "real@example.net"
    with pytest.raises(InvalidInput):
        address_author(full(sender="me@example.com", to="me@example.com"), {me})
    with pytest.raises(InvalidInput):
        address_author(full(sender="nobody"), {me})
