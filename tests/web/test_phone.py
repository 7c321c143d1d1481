"""The desk on a phone: an app that keeps no content, told by push, paired by a code."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import httpx2
import pytest

from deskhand import audit, environment
from deskhand.gate.passwords import TRIES
from deskhand.web import phone, sessions, subscriptions
from deskhand.web.site import site
from tests.gate.safe_desk import PASSWORD
from tests.gate.test_proofs import Safe, opened
from tests.home import Home
from tests.requirements import requirement
from tests.resident.test_push import PushService
from tests.web.browser import (
    PHONE,
    SIZES,
    add_virtual_key,
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.camera import ZBAR, read_code
from tests.web.person import Person, served, signed_in

if TYPE_CHECKING:
    from playwright.async_api import Page, Worker

pytestmark = pytest.mark.anyio
ORIGIN = "https://desk.example.net"
COLOURS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
IN_TEST = [{"errorId": "in-incognito", "errorArguments": []}]
"""What keeps a browser from installing the page: nothing but that a test leaves no traces."""


class Phone:
    """A browser that somebody points at a code."""

    def __init__(self, address: str) -> None:
        self.http = httpx2.AsyncClient(base_url=address, timeout=60)

    async def opens(self, link: str) -> httpx2.Response:
        """Tap on what the code leads to, and then on its button."""
        path = link.removeprefix(ORIGIN)
        shown = await self.http.get(path)
        assert (shown.status_code, "Sign in on this device" in shown.text) == (200, True)
        return await self.http.post(path)


@asynccontextmanager
async def paired(home: Home, **more: str) -> AsyncIterator[tuple[Safe, Person, Phone]]:
    async with (
        opened(home, DESKHAND_ORIGIN=ORIGIN, **more) as safe,
        served(site(safe.desk)) as address,
        signed_in(safe.desk, address) as person,
    ):
        device = Phone(address)
        yield safe, person, device
        await device.http.aclose()


async def show_code(person: Person) -> str:
    page = (await person.sends("/phone/pair", {"password": PASSWORD}, at="/phone")).text
    assert 'class="code"' in page
    assert "style=" not in page
    (link,) = re.findall(rf"<code>({ORIGIN}/pair/[\w-]+)</code>", page)
    return str(link)


@requirement("phone:pairing")
async def test_a_code_signs_one_browser_in_once_and_for_a_few_minutes(home: Home) -> None:
    async with paired(home) as (safe, person, device):
        link = await show_code(person)
        secret = link.rpartition("/")[2]
        for _ in range(3):  # whoever looks ahead uses nothing up
            await device.http.get(link.removeprefix(ORIGIN))
        assert (await device.http.get(f"/enter/{secret}")).status_code == 401
        elsewhere = {"Origin": "https://evil.example"}
        assert (
            await device.http.post(link.removeprefix(ORIGIN), headers=elsewhere)
        ).status_code == 403
        entered = await device.opens(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/phone")
        assert (await device.http.get("/")).status_code == 200
        assert "by pairing" in (await person.reads("/checkup")).text

        another = Phone(str(device.http.base_url))
        assert (await another.opens(link)).status_code == 401
        late = await show_code(person)
        safe.clock.pass_by(minutes=5)
        assert (await another.opens(late)).status_code == 401
        ordinary = await safe.desk.store.write(sessions.invite, safe.desk.now())
        assert (await another.opens(f"/pair/{ordinary}")).status_code == 401
        ended = await show_code(person)
        await safe.desk.store.write(sessions.end_all)
        assert (await another.opens(ended)).status_code == 401
        assert (await another.http.get("/")).status_code == 303
        await another.http.aclose()
        record = [entry for _, entry in await safe.desk.store.read(audit.entries)]
        assert [each.action_type for each in record].count("make_pairing_code") == 3
        assert [each.result for each in record if each.action_type == "sign_in"].count(
            "rejected"
        ) == 5
        assert secret not in repr(record)


@requirement("phone:pairing")
async def test_guessing_codes_ends_soon_where_somebody_guesses_and_a_guess_is_refused_like_any_other(
    home: Home,
) -> None:
    async with paired(home) as (safe, person, device):
        link = await show_code(person)
        wrong = [
            (await device.opens(f"/pair/{'x' * 32}{number}")).status_code
            for number in range(TRIES + 2)
        ]
        assert wrong == [401] * TRIES + [429] * 2
        assert (await device.opens(link)).status_code == 429
        safe.clock.pass_by(minutes=16)
        assert (await device.opens(await show_code(person))).status_code == 303


@requirement("phone:looks")
@pytest.mark.parametrize(
    ("proof", "guarded"), [("passkey", False), ("page", True), ("page", False)]
)
async def test_a_paired_browser_may_look_and_answers_only_where_a_session_is_enough(
    home: Home, proof: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with paired(home, DESKHAND_PROOF=proof) as (safe, person, device):
        if guarded:
            monkeypatch.setattr(environment, "GUARDED_HOME", str(safe.desk.settings.home))
        card = await safe.ask()
        await device.opens(await show_code(person))
        one = f"/approvals/{card.id}"
        assert card.subject in (await device.http.get(one)).text
        paired_person = Person(device.http)
        refused = await paired_person.sends(
            f"{one}/approve", {"digest": card.digest}, at=one
        )
        may_answer = proof == "page" and not guarded
        assert (refused.status_code == 303) is may_answer
        assert await safe.settle() == int(may_answer)
        if may_answer:
            return
        for path, fields in (
            ("/phone/pair", {}),
            (f"{one}/follow-up", {"when": "3d", "digest": card.digest}),
            ("/follow-ups/cancel", {"request": card.id}),
            ("/decide/first", {"mailbox": "local", "answer": "all"}),
            *(
                (f"/decide/{each}", {"mail": "x", "text": "I agree"})
                for each in ("hand", "reply", "later", "back")
            ),
        ):
            for typed in ({}, {"password": "a wrong one"}):
                answer = await paired_person.sends(path, fields | typed, at=one)
                assert answer.status_code in (403, 422, 429), path
                assert 'class="code"' not in answer.text
        safe.clock.pass_by(minutes=16)
        key = await paired_person.sends("/passkeys/codes", at="/passkeys")
        assert key.status_code == 403  # nor does it make itself more than it is
        typed = {"digest": card.digest, "password": PASSWORD}
        assert (
            await paired_person.sends(f"{one}/approve", typed, at=one)
        ).status_code == 303
        assert await safe.settle() == 1


@requirement("phone:pairing")
async def test_a_desk_without_an_address_of_its_own_says_what_to_do(home: Home) -> None:
    async with (
        opened(home) as safe,
        served(site(safe.desk)) as address,
        signed_in(safe.desk, address) as person,
    ):
        assert "cannot reach this desk" in (await person.reads("/phone")).text
        answer = await person.sends("/phone/pair", {"password": PASSWORD}, at="/phone")
        assert (answer.status_code, "inbox.origin" in answer.text) == (422, True)


# In a browser.


async def find_worker(page: "Page") -> "Worker":
    """The service worker that serves the page."""
    await page.evaluate("navigator.serviceWorker.ready")
    (worker,) = page.context.service_workers
    return worker


async def push(page: "Page", message: str) -> dict[str, str]:
    """What a push service would deliver, into the real service worker; what the browser shows for it.

    Who asks the worker for its notifications before they are on display lets Chromium forget them.
    """
    devtools = await page.context.new_cdp_session(page)
    ready = anyio.Event()
    displayed = anyio.Event()
    found: dict[str, Any] = {}
    shown: dict[str, str] = {}

    def take(told: dict[str, Any]) -> None:
        for each in told["registrations"]:
            found.update(each)
            ready.set()

    def see(told: dict[str, Any]) -> None:
        event = told["backgroundServiceEvent"]
        if event["eventName"] == "Notification displayed":
            shown.update({each["key"]: each["value"] for each in event["eventMetadata"]})
            shown["Tag"] = event["instanceId"]
            displayed.set()

    devtools.on("ServiceWorker.workerRegistrationUpdated", take)
    devtools.on("BackgroundService.backgroundServiceEventReceived", see)
    notifications = {"service": "notifications"}
    await devtools.send("BackgroundService.startObserving", notifications)
    recording = notifications | {"shouldRecord": True}
    await devtools.send("BackgroundService.setRecording", recording)
    await devtools.send("ServiceWorker.enable")
    with anyio.fail_after(60):
        await ready.wait()
        origin = await page.evaluate("location.origin")
        given = {"origin": origin, "registrationId": found["registrationId"]}
        await devtools.send("ServiceWorker.deliverPushMessage", given | {"data": message})
        await displayed.wait()
    await devtools.detach()
    return shown


REPLACED = """async () => {
  const [name, ...old] = await caches.keys();
  return name?.includes("99.0.0") && !old.length;
}"""
KEPT = """async () => {
  const kept = [];
  for (const name of await caches.keys()) {
    const cache = await caches.open(name);
    for (const { url } of await cache.keys()) {
      kept.push([name, new URL(url).pathname, await (await cache.match(url)).text()]);
    }
  }
  return kept;
}"""
CLICK = """async () => {
  const [notification] = await self.registration.getNotifications();
  return new Promise((opened) => {
    self.clients.openWindow = async (address) => opened(address);
    self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
  });
}"""
"""Without a screen nothing is shown that could be tapped: the worker is told of the tap, and says what it opens."""
CHANGE = """async ([oldSubscription, newSubscription]) => {
  const changed = new ExtendableEvent("pushsubscriptionchange");
  const ended = new Promise((go) => { changed.waitUntil = (work) => go(work); });
  self.dispatchEvent(Object.assign(changed, { oldSubscription, newSubscription }));
  await ended;
  return (await self.registration.getNotifications()).map(({ title }) => title);
}"""
"""What a push service far away would do: the browser has another address now."""
LAST_WORD = "This device is told nothing more"


@requirement("push:proven")
async def test_a_stolen_cookie_neither_adds_nor_silences_a_browser(home: Home) -> None:
    service = PushService(address="https://127.0.0.1:1")
    given = {"subscription": json.dumps(service.subscription("phone"))}
    proven = {"password": PASSWORD}
    async with paired(home, DESKHAND_PUSH_NETWORKS="127.0.0.1") as (safe, person, device):
        store = safe.desk.store
        await device.opens(await show_code(person))
        told = await person.sends("/phone/subscribe", given | proven, at="/phone")
        assert told.status_code == 303
        (kept,) = await store.read(subscriptions.list_subscriptions)
        thief = Person(device.http)
        ways = {
            "/phone/subscribe": {"subscription": json.dumps(service.subscription("thief"))},
            "/phone/end": {"name": kept.name},
        }
        for way, fields in ways.items():
            for more in ({}, {"assertion": "{}"}, {"password": "a guess"}):
                refused = await thief.sends(way, fields | more, at="/phone")
                assert refused.status_code in (403, 422), way
                assert (refused.status_code, 'role="alert"' in refused.text) != (422, False)
            safe.clock.pass_by(minutes=16)
        assert await store.read(subscriptions.list_subscriptions) == [kept]
        assert (await person.reads("/phone")).status_code == 200
        ended = await person.sends("/phone/end", {"name": kept.name} | proven, at="/phone")
        assert ended.status_code == 303
        said = (await person.reads("/timeline")).text
        assert all(each in said for each in ("begin_notifications", "end_notifications"))


@requirement("push:renewed")
async def test_only_who_knows_the_old_address_and_secret_gives_a_new_one(
    home: Home,
) -> None:
    service = PushService(address="https://127.0.0.1:1")
    before, after = service.subscription("before"), service.subscription("after")
    proven = {"password": PASSWORD, "subscription": json.dumps(before)}
    async with paired(home, DESKHAND_PUSH_NETWORKS="127.0.0.1") as (safe, person, device):
        await person.sends("/phone/subscribe", proven, at="/phone")

        async def renew(old: Any, new: Any, **headers: str) -> int:
            fields = {"before": json.dumps(old), "subscription": json.dumps(new)}
            answer = await device.http.post("/phone/renew", data=fields, headers=headers)
            return answer.status_code

        guessed = before | {"keys": before["keys"] | {"auth": "A" * 22}}
        private = after | {"endpoint": "https://169.254.169.254/x"}
        assert await renew(guessed, after) == 403
        assert await renew(service.subscription("unknown"), private) == 403
        assert await renew(before, after, Origin="https://evil.example") == 403
        assert await renew(before, after, **{"Sec-Fetch-Site": "same-site"}) == 403
        for wrong in (private, {}, None, after | {"keys": {}}):
            assert await renew(before, wrong) == 422, wrong
        (kept,) = await safe.desk.store.read(subscriptions.list_subscriptions)
        assert kept.endpoint == before["endpoint"]

        assert await renew(before, after) == 204
        assert await renew(before, service.subscription("again")) == 403
        (kept,) = await safe.desk.store.read(subscriptions.list_subscriptions)
        assert kept.endpoint == after["endpoint"]
        assert "renew_notifications" in (await person.reads("/timeline")).text
        await person.sends("/leave")  # it is still this session's
        assert await safe.desk.store.read(subscriptions.list_subscriptions) == []


@needs_chromium
@needs_axe
@requirement("phone:app")
@requirement("push:encrypted")
@requirement("phone:camera")
async def test_the_app_can_be_installed_keeps_no_content_and_shows_a_count(
    home: Home, tmp_path: Path
) -> None:
    async with (
        opened(home, DESKHAND_ORIGIN=ORIGIN) as safe,
        AsyncExitStack() as running,
        chromium() as browser,
    ):
        card = await safe.ask(subject="A private subject")
        app = site(safe.desk)
        found = await running.enter_async_context(served(app))
        address = found.replace("127.0.0.1", "localhost")
        # What cannot be reached at the end is complained about.
        async with quiet_page(browser, address, size=PHONE, says=("net::ERR",)) as page:
            await page.context.grant_permissions(["notifications"], origin=address)
            await sign_in(page, safe.desk)
            worker = await find_worker(page)
            devtools = await page.context.new_cdp_session(page)
            manifest = await devtools.send("Page.getAppManifest")
            assert (manifest["errors"], "standalone" in manifest["data"]) == ([], True)
            assert (await devtools.send("Page.getInstallabilityErrors"))[
                "installabilityErrors"
            ] == IN_TEST
            for path in ("/mail", "/notes", "/timeline", "/", f"/requests/{card.id}"):
                await page.goto(path)
                assert await page.evaluate("Boolean(navigator.serviceWorker.controller)")

            given = {"waiting": 3, "down": 1, "title": "A private subject"}
            told = {
                "Title": "3 things wait, 1 part does not run",
                "Body": "Open your desk.",
                "Tag": "waiting",
            }
            assert await push(page, json.dumps(given)) == told
            assert await worker.evaluate(CHANGE, [{}, None]) == [LAST_WORD]
            kept = await page.evaluate(KEPT)
            assert sorted(path for _, path, _ in kept) == sorted(phone.SHELL)
            assert [
                path for _, path, text in kept if "private" in text or "form_token" in text
            ] == []

            for path in ("/phone", "/pair/x", phone.OFFLINE):
                await page.goto(path)
                assert await judged(page) == []
            await page.goto("/phone")
            await page.fill("form[action='/phone/pair'] [name=password]", PASSWORD)
            await page.click("text=Show a code")
            await page.wait_for_selector("svg.code")
            assert await judged(page) == []
            if ZBAR:
                await look_at_code(page, tmp_path / "code.png")

            await page.goto("/")
            app.state.stopping.set()
            await running.aclose()
            await page.goto(f"/requests/{card.id}")
            assert await page.inner_text("h1") == "Your desk cannot be reached"
            assert "private" not in await page.content()


@needs_chromium
@needs_axe
@requirement("phone:app")
@requirement("push:encrypted")
@requirement("phone:camera")
async def test_a_newer_desk_replaces_what_the_app_keeps(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phone, "_read_worker", phone._read_worker.__wrapped__)
    async with (
        opened(home, DESKHAND_ORIGIN=ORIGIN) as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
        quiet_page(browser, found.replace("127.0.0.1", "localhost"), size=PHONE) as page,
    ):
        await sign_in(page, safe.desk)
        await find_worker(page)
        monkeypatch.setattr(phone, "__version__", "99.0.0")
        await page.evaluate(
            "navigator.serviceWorker.getRegistration().then((each) => each.update())"
        )
        await page.wait_for_function(REPLACED)


async def look_at_code(page: "Page", picture: Path) -> None:
    """With a camera, in each of the page's colours and sizes."""
    link = await page.inner_text("[aria-label='The code'] code")
    for scheme in COLOURS:
        await page.emulate_media(color_scheme=scheme)
        for width, height in SIZES:
            await page.set_viewport_size({"width": width, "height": height})
            await page.locator("svg.code").scroll_into_view_if_needed()
            await page.screenshot(path=picture)
            assert read_code(picture) == link, (scheme, width)


@needs_chromium
@requirement("phone:taps")
async def test_from_push_to_approved_are_two_taps_with_a_passkey_and_a_swipe_answers_nothing(
    home: Home,
) -> None:
    async with (
        opened(home) as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
    ):
        address = found.replace("127.0.0.1", "localhost")
        async with quiet_page(browser, address, size=PHONE) as page:
            await page.context.grant_permissions(["notifications"], origin=address)
            await sign_in(page, safe.desk)
            worker = await find_worker(page)
            card = await safe.ask()
            shown = await push(page, json.dumps({"waiting": 1, "down": 0}))
            assert shown["Title"] == "1 thing waits"
            # Only now: a worker that is told by the developer tools takes the virtual key out of their hands.
            await add_virtual_key(page)
            await page.goto("/passkeys")
            await page.fill("#name", "my phone")
            await page.fill("form[data-makes-key] [name=password]", PASSWORD)
            await page.click("text=Add a passkey")
            await page.wait_for_selector("ul.codes")

            taps = 1
            await page.goto(await worker.evaluate(CLICK))
            assert page.url == f"{address}/requests/{card.id}"
            taps += 1
            button = page.get_by_role("button", name="Approve", exact=True)
            place = await button.bounding_box()
            assert place is not None
            assert (
                place["y"] + place["height"] <= PHONE[1]
            )  # seen without a scroll, and as large as a thumb
            assert place["height"] >= 44
            await button.click()
            await page.wait_for_selector("#card[data-state=held], .card [role=alert]")
            assert await page.locator("[role=alert]").all_inner_texts() == []
            assert (taps, (await safe.card(card)).state) == (2, "held")
            assert await safe.answers() == [("held", "passkey")]

            # After a night: whoever comes by the notification is asked for the passkey without a tap.
            await page.goto("about:blank")
            safe.clock.pass_by(hours=13)
            morning = await safe.ask(subject="In the morning")
            taps = 1
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(f"{address}/notified")
            await page.wait_for_url(f"{address}/requests/{morning.id}")
            assert asked.count(f"{address}/enter/challenge") == 1
            taps += 1
            await page.get_by_role("button", name="Approve", exact=True).click()
            await page.wait_for_selector("#card[data-state=held], .card [role=alert]")
            assert (taps, (await safe.card(morning)).state) == (2, "held")

            another = await safe.ask(subject="Another one")
            await swipe(await page.context.new_page(), f"/requests/{another.id}")
            assert (await safe.card(another)).state == "waiting"


async def swipe(page: "Page", address: str) -> None:
    """A finger goes over the card, each way; in a new window, where there is nothing to go back to."""
    await page.goto(address)
    devtools = await page.context.new_cdp_session(page)
    for begin, end in ((350, 20), (20, 350)):
        points = [
            [{"x": begin, "y": 600}],
            [{"x": (begin + end) // 2, "y": 600}],
            [{"x": end, "y": 600}],
            [],
        ]
        for kind, touched in zip(
            ("touchStart", "touchMove", "touchMove", "touchEnd"), points, strict=True
        ):
            await devtools.send(
                "Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched}
            )
    await page.close()


@needs_chromium
@requirement("push:listed")
async def test_a_browser_asks_to_be_told_and_sees_that_it_is(home: Home) -> None:
    """The push service is the one thing that is played here: a real one is somebody else's, far away."""
    service = PushService(address="https://127.0.0.1:1")
    given = json.dumps(service.subscription("phone"))
    play = f"""
        const given = {{ ...{given}, options: {{}}, toJSON: () => ({given}) }};
        PushManager.prototype.subscribe = async ({{ applicationServerKey }}) => {{
            if (applicationServerKey.length !== 65) throw new Error("no key");
            sessionStorage.setItem("subscribed", "yes");
            return given;
        }};
        PushManager.prototype.getSubscription = async () => (sessionStorage.getItem("subscribed") ? given : null);
    """
    more = {"DESKHAND_PUSH_NETWORKS": "127.0.0.1", "DESKHAND_QUIET": "22:00-07:00"}
    async with (
        opened(home, **more) as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
    ):
        address = found.replace("127.0.0.1", "localhost")
        async with quiet_page(browser, address, size=PHONE) as page:
            await page.context.grant_permissions(["notifications"], origin=address)
            await page.add_init_script(play)
            await sign_in(page, safe.desk)
            await page.goto("/phone")
            assert "From 22:00 to 07:00 there is none." in await page.inner_text(
                "#subscribe"
            )
            await page.fill("#subscribe [name=password]", PASSWORD)
            await page.click("text=Tell me on this device")
            await page.wait_for_selector(".badge.own:visible")
            assert not await page.is_visible("text=Tell me on this device")
            # With a passkey the password is asked for no more, and what was signed is the very address.
            await add_virtual_key(page)
            await page.goto("/passkeys")
            await page.fill("#name", "my phone")
            await page.fill("form[data-makes-key] [name=password]", PASSWORD)
            await page.click("text=Add a passkey")
            await page.wait_for_selector("ul.codes")
            for _ in range(2):
                await page.goto("/phone")
                await page.wait_for_selector(".badge.own:visible")
                await page.click("text=End")
                await page.wait_for_selector("text=No browser is told yet.")
                await page.evaluate("sessionStorage.clear()")
                await page.goto("/phone")
                await page.click("text=Tell me on this device")
                await page.wait_for_selector(".badge.own:visible")
            await page.click("text=End")
            await page.wait_for_selector("text=No browser is told yet.")
        async with quiet_page(browser, address, size=PHONE, javascript=False) as page:
            await sign_in(page, safe.desk)
            await page.goto("/phone")
            assert not await page.is_visible("text=Tell me on this device")
            assert await page.is_visible("#subscribe noscript p")
