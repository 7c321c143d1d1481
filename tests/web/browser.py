"""A real Chromium for the page: it notes every console message and every request, and asks axe-core."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pytest

from deskhand.app import Desk
from deskhand.web import sessions

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

AXE = Path(__file__).parents[2] / ".judges" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium")
WIDE, PHONE = (1280, 900), (390, 844)
SIZES = (WIDE, PHONE)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
needs_axe = pytest.mark.skipif(
    not AXE.is_file(),
    reason="the judges (axe-core) are not installed; `run.py test` does it",
)


@asynccontextmanager
async def chromium(*more: str) -> "AsyncIterator[Browser]":
    from playwright.async_api import async_playwright

    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", *more]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=flags
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def quiet_page(
    browser: "Browser",
    address: str,
    *,
    size: tuple[int, int] = WIDE,
    scheme: Literal["light", "dark"] = "light",
    javascript: bool = True,
    says: tuple[str, ...] = (),
) -> "AsyncIterator[Page]":
    """A tab in which nothing but `says` may appear on the console, and from which nothing goes elsewhere."""
    messages: list[str] = []
    strangers: list[str] = []
    context = await browser.new_context(
        base_url=address,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=javascript,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on(
        "request",
        lambda request: (
            strangers.append(request.url) if not _is_own(request.url, address) else None
        ),
    )
    yield page
    await context.close()
    unexpected = [each for each in messages if not any(known in each for known in says)]
    assert not unexpected, unexpected
    assert strangers == []


async def sign_in(page: "Page", desk: Desk) -> None:
    link = await desk.store.write(lambda tx: sessions.invite(tx, desk.now()))
    await page.goto(f"/enter/{link}")


async def add_virtual_key(page: "Page") -> None:
    """An authenticator that says yes for the person."""
    devices = await page.context.new_cdp_session(page)
    await devices.send("WebAuthn.enable")
    kind = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
    }
    await devices.send(
        "WebAuthn.addVirtualAuthenticator",
        {"options": kind | {"isUserVerified": True, "automaticPresenceSimulation": True}},
    )


async def judged(page: "Page") -> list[str]:
    """What axe-core holds against the page, wide and narrow, light and dark, and whether it is too wide."""
    found: list[str] = []
    for width, height in SIZES:
        await page.set_viewport_size({"width": width, "height": height})
        # Of all rules this one alone looks at colours.
        schemes: dict[Literal["light", "dark"], dict[str, Any]] = {
            "light": {},
            "dark": {"runOnly": ["color-contrast"]},
        }
        for scheme, rules in schemes.items():
            await page.emulate_media(color_scheme=scheme)
            where = f"{urlsplit(page.url).path} at {width}, {scheme}"
            found += [f"{where}: {each}" for each in await violations(page, **rules)]
        if over := await measure_excess(page):
            found.append(f"{urlsplit(page.url).path} is {over} pixels too wide at {width}")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    return found


async def measure_excess(page: "Page") -> int:
    """By how many pixels the page is wider than its window."""
    # What is seen to be there need not have its style sheet yet.
    await page.wait_for_load_state()
    over = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return int(over)


async def violations(page: "Page", **rules: Any) -> list[str]:
    """What axe-core, or these of its rules alone, hold against the page as it stands."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    told = await page.evaluate("rules => axe.run(rules).then(JSON.stringify)", rules)
    found: dict[str, Any] = json.loads(told)
    assert found["passes"], "axe-core looked at nothing"
    seen = [(each, node) for each in found["violations"] for node in each["nodes"]]
    # A text in the colour of its ground is to axe-core a thing that it cannot judge.
    unclear = [(each, node) for each in found["incomplete"] for node in each["nodes"]]
    seen += [(each, node) for each, node in unclear if "equalRatio" in json.dumps(node)]
    return [f"{each['id']}: {node['html'][:200]}" for each, node in seen]


def _is_own(url: str, address: str) -> bool:
    return urlsplit(url).scheme in ("data", "about") or url.startswith(f"{address}/")
