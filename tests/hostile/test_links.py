"""Where a link leads is read as Chromium reads it; where programs differ, each reading is named."""

from email.message import EmailMessage

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.oddities import Facts
from deskhand.gate.risk import assess
from deskhand.mail import html, mime, weblinks
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.desk import desk_server
from deskhand.web.site import site
from tests.gate.site import Clock
from tests.hostile.spellings import SPELLINGS
from tests.orchestrator.office import Office
from tests.requirements import requirement
from tests.web.browser import chromium, needs_chromium
from tests.web.person import served, signed_in

HOSTS = "urls => urls.map(url => { try { return new URL(url).hostname || null } catch { return null } })"
IN_TEXT = [
    (address, host)
    for address, host in SPELLINGS.items()
    if host
    and address.lower().startswith(("http", "ftp", "ws"))
    and not {*address} & {*" \t\n"}
]


@requirement("hostile:links")
@pytest.mark.parametrize("address", SPELLINGS)
def test_an_address_leads_where_chromium_goes(address: str) -> None:
    target = weblinks.resolve(address)

    assert (target and target.host) == SPELLINGS[address]


@requirement("hostile:links")
@pytest.mark.parametrize(("address", "host"), IN_TEXT)
def test_a_card_names_the_host_of_every_link_in_its_text(address: str, host: str) -> None:
    found = assess(
        Facts(
            "ann@example.org", ("bob@example.org",), "Hello", f"Please look: {address} Ann"
        )
    )

    assert any(host in reason for reason in found.reasons), found.reasons


@requirement("hostile:links")
@needs_chromium
async def test_the_table_of_spellings_is_chromiums() -> None:
    async with chromium() as browser:
        page = await browser.new_page()
        hosts = await page.evaluate(HOSTS, [*SPELLINGS])

    assert dict(zip(SPELLINGS, hosts, strict=True)) == SPELLINGS


MISLEADING = (
    "<a href='https://evil.example/'>https://bank.example/</a>",
    "<a href='//evil.example/'>https://bank.example/</a>",
    "<a href='https:/evil.example/'>bank.example</a>",
    "<a href='https:evil.example'>bank.example</a>",
    "<a href='https:\\\\evil.example'>bank.example</a>",
    "<a href='https:///evil.example'>bank.example</a>",
    "<a href=' https://evil.example'>bank.example</a>",
    "<a href='ht&#9;tps://evil.example'>bank.example</a>",
    "<a href='https&colon;//evil.example'>bank.example</a>",
    "<a href='https://evil.example.'>bank.example</a>",
    "<a href='https://evil.example'>bank.example.</a>",
    "<a href='https://evil.example'>Sign in at bank.example now</a>",
    "<a href='https://evil.example'>Sign in: https://bank.example/login</a>",
    "<a href='https://evil.example'>www.bank.example</a>",
    "<a href='https://evil.example'>ban<b>k.exam</b>ple</a>",
    "<a href='https://evil.example'>bank.exam<!-- -->ple</a>",
    "<a href='https://evil.example'>BANK.EXAMPLE</a>",
    "<a href='https://bank.example.evil.example'>bank.example</a>",
    "<a href='https://bank.example@evil.example'>our site</a>",
    "<a href='https://bank.example&#64;evil.example'>bank.example</a>",
    "<a href='https://evil.example\\@bank.example'>bank.example</a>",
    "<a href='https://evil.example?bank.example'>bank.example</a>",
    "<a href='HTTPS://EVIL.EXAMPLE#bank.example'>bank.example</a>",
    "<a href='https://%65vil.example'>bank.example</a>",
    "<base href='https://evil.example/'><a href='/login'>bank.example</a>",
    "<base href='https://evil.example/'><a href='https:login'>bank.example</a>",
    "<form action='https://evil.example/'>bank.example<input></form>",
    "<form action='//evil.example/'><button>bank.example</button></form>",
    "<form><button formaction='https://evil.example/'>bank.example</button></form>",
    "<img src=x usemap='#m'><map name=m><area href='https://evil.example' alt='bank.example'></map>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>bank.example",
    "<META HTTP-EQUIV=Refresh CONTENT=\" 5 , URL = '//evil.example' \">bank.example",
    "<meta http-equiv=refresh content='0 https:/evil.example'>bank.example",
    "<a href='https://bank.example&#x1fae9;.evil.example/'>bank.example</a>",
    "<a href='//bank.example&#x1fae9;.evil.example/'>bank.example</a>",
    "<a href='https://bank.example^.evil.example/'>bank.example</a>",
    "<form action='https://bank.example^.evil.example/'><button>Pay</button></form>",
    "<meta http-equiv=refresh content='0 https://bank.example^.evil.example'>bank.example",
    "<base href='https://bank.example^.evil.example/'><a href='/login'>bank.example</a>",
)


@requirement("hostile:links")
@pytest.mark.parametrize("source", MISLEADING)
def test_a_link_that_misleads_is_reported_with_where_it_leads(source: str) -> None:
    mail = mime.parse(f"Content-Type: text/html\n\n<p>Dear Ann</p>{source}".encode())

    assert any("evil.example" in warning for warning in mail.warnings), (
        mail.body,
        mail.warnings,
    )


@requirement("hostile:links")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "<a href='https://shop.example/x'>Buy</a> now",
            "Buy <https://shop.example/x> now",
        ),
        (
            "<a href='https://shop.example/'>https://shop.example</a>",
            "https://shop.example",
        ),
        ("<a href='mailto:bo@example.org'>bo@example.org</a>", "bo@example.org"),
        ("<a href='mailto:bo@example.org'>write</a>", "write <mailto:bo@example.org>"),
        ("<a href='javascript:alert(1)'>x</a>", "x <javascript:>"),
        ("<a href='#top'>up</a>", "up"),
        ("<a href='https://a^b/'>go</a>", "go <https://a^b/>"),
        ("<a href='evil.example/x'>go</a>", "go <evil.example/x>"),
        ("<a href='https://shop.example/a'><img src=x></a>", "<https://shop.example/a>"),
        (
            "<map><area href='https://shop.example/a' alt=Buy></map>",
            "<https://shop.example/a>",
        ),
        ("<meta http-equiv=refresh content=30>Hello", "Hello"),
        (
            "<base href='https://shop.example/'><a href='/login'>sign in</a>",
            "sign in <https://shop.example/(/login)>",
        ),
        (
            "<a href='https://example.org/report.pdf'>report.pdf</a>",
            "report.pdf <https://example.org/report.pdf>",
        ),
    ],
)
def test_the_address_of_each_link_stands_behind_its_words(source: str, text: str) -> None:
    mail = mime.parse(f"Content-Type: text/html\n\n{source}".encode())

    assert (mail.body, mail.warnings) == (text, ())


@requirement("hostile:links")
def test_an_address_in_a_plain_mail_that_misleads_is_reported() -> None:
    mail = mime.parse(
        b"Subject: x\n\nSee https://bank.example@evil.example/ and https://bank.example/."
    )

    assert mail.warnings == (
        "an address shows another name before its host, it leads to evil.example: https://bank.example@evil.example/",
    )


@requirement("hostile:links")
@pytest.mark.anyio
async def test_a_mail_and_a_card_are_read_whatever_address_is_in_them(
    office: Office,
) -> None:
    text = "\n".join(SPELLINGS)
    mail = EmailMessage()
    mail["From"] = "ann@example.org"
    mail.set_content(text)
    mail.add_alternative("".join(f'<a href="{each}">x</a>' for each in SPELLINGS), "html")
    desk = Desk(load(office.home.environment).settings, Clock())
    assert isinstance(desk.mailbox, LocalMailbox)
    async with (
        served(site(desk)) as address,
        signed_in(desk, address) as person,
        Client(desk_server(desk)) as assistant,
    ):
        await desk.mailbox.receive([Incoming(mail.as_bytes(), seen=False)])
        (kept,) = await desk.mailbox.search("", 5)
        read = await assistant.call_tool("get_email", {"message_id": kept.id})
        letter = {"to": "ann@example.org", "subject": "Hello", "body": text}
        await assistant.call_tool("send_email", letter)
        (card,), _ = await desk.waiting.cards()
        page = await person.reads(f"/approvals/{card.id}")
    await desk.close_mailbox()
    desk.close()

    assert (read.is_error, page.status_code) == (False, 200)
    assert "evil.example" in page.text


REACHING = (
    "<img srcset='a.png 1x, //evil.example/x.png 2x'>",
    "<link rel=preload as=image imagesrcset=//evil.example/x>",
    "<link rel=icon href=//evil.example/x>",
    "<a href='#' ping='//bank.example/ //evil.example/x'>a</a>",
    "<p style='background:url(//evil.example/x)'>a",
    "<p style='background:u\\72l(\"ht&#9;tps:\\2f/evil.example\")'>a",
    "<p style='background:image-set(&quot; //evil.example/x&quot; 1x)'>a",
    "<style>p{background:url( //evil.example/x)}</style><p>a",
    "<style>@import '//evil.example/x';</style>a",
    "<svg><rect fill='url(//evil.example/x#a)'/></svg>",
    "<iframe srcdoc='&lt;img src=//evil.example/x&gt;'></iframe>",
    "<iframe srcdoc='<style>@import &quot;//evil.example/x&quot;</style>'></iframe>",
    "<iframe srcdoc='<iframe srcdoc=\"<img src=//evil.example/>\">'></iframe>",
    "<img lowsrc=//evil.example/x>",
    "<a href='mailto:?to=eve%40evil.example'>write</a>",
    "<a href='mailto:ann@bank.example?subject=x&CC=eve@evil.example'>write</a>",
    "<a href='mailto:ann@bank.example?b%63c=eve@evil.example'>write</a>",
    "<form action='mailto:eve@evil.example'><button>Go</button></form>",
)


@requirement("hostile:links")
@pytest.mark.parametrize("source", REACHING)
def test_a_card_names_whatever_its_html_reaches(source: str) -> None:
    found = assess(
        Facts("ann@example.org", ("bob@example.org",), "Hello", "Hi", html=source)
    )

    named = [reason for reason in found.reasons if reason.startswith("Links lead to: ")]
    assert "evil.example" in "".join(named), found.reasons


@requirement("hostile:links")
@pytest.mark.parametrize(
    "source",
    [
        "<html xmlns='http://www.w3.org/1999/xhtml'><p style='grid-template-rows:1fr'>a",
        "<p style='background:url(data:image/png;base64,AA//evil.example/x)'>a",
        "<img srcset='a.png 1x,b.png 2x' alt='a//b (c//d)'>",
        "<style>/* // notes */ @media screen{p{color:red}}</style>a",
        "<a href='mailto:?subject=x'>share</a>",
    ],
)
def test_what_reaches_nothing_is_not_named(source: str) -> None:
    assert html.visible(source).hosts == ()


@requirement("hostile:links")
def test_pages_within_pages_are_read_to_a_depth_and_the_others_named() -> None:
    nested = "<iframe/srcdoc=" * 5000 + "//evil.example/"

    assert html.visible(nested).hosts == ("a page within a page that was not read",)


@requirement("hostile:links")
def test_a_card_says_that_hosts_of_its_html_were_not_looked_at() -> None:
    source = "".join(f"<img src='//{number}.example/'>" for number in range(1000))
    found = assess(
        Facts("ann@example.org", ("bob@example.org",), "Hello", "Hi", html=source)
    )

    assert found.level == "high"
    assert any("the others were not looked at" in each for each in found.reasons)


@requirement("hostile:links")
def test_a_link_that_writes_to_others_too_is_reported() -> None:
    link = "<a href='mailto:ann@bank.example?cc=eve@evil.example'>ann@bank.example</a>"
    mail = mime.parse(f"Content-Type: text/html\n\n{link}".encode())

    assert mail.warnings == (
        "a link shows ann@bank.example but leads to ann@bank.example, eve@evil.example",
    )
