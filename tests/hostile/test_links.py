"""Where a link leads is read as Chromium reads it; where programs differ, each reading is named."""

import pytest

from deskhand.gate.risk import Facts, assess
from deskhand.mail import weblinks
from tests.hostile.spellings import SPELLINGS
from tests.requirements import requirement
from tests.web.browser import chromium, needs_chromium

HOSTS = "urls => urls.map(url => { try { return new URL(url).hostname || null } catch { return null } })"
IN_TEXT = [
    (address, host)
    for address, host in SPELLINGS.items()
    if host and address.lower().startswith(("http", "ftp", "ws")) and not {*address} & {*" \t\n"}
]


@requirement("hostile:links")
@pytest.mark.parametrize("address", SPELLINGS)
def test_an_address_leads_where_chromium_goes(address: str) -> None:
    target = weblinks.resolve(address)

    assert (target and target.host) == SPELLINGS[address]


@requirement("hostile:links")
@pytest.mark.parametrize(("address", "host"), IN_TEXT)
def test_a_card_names_the_host_of_every_link_in_its_text(address: str, host: str) -> None:
    found = assess(Facts("ann@example.org", "bob@example.org", "Hello", f"Please look: {address} Ann", known=True))

    assert any(host in reason for reason in found.reasons), found.reasons


@requirement("hostile:links")
@needs_chromium
async def test_the_table_of_spellings_is_chromiums() -> None:
    async with chromium() as browser:
        page = await browser.new_page()
        hosts = await page.evaluate(HOSTS, [*SPELLINGS])

    assert dict(zip(SPELLINGS, hosts, strict=True)) == SPELLINGS
