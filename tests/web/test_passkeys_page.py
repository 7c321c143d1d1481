"""Passkeys on the page: made, used to sign in and to answer, and what a stolen cookie cannot do."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from deskhand import tokens
from deskhand.gate import passkeys, passwords, webauthn
from deskhand.gate.forgery import Genuine, check_answers
from deskhand.gate.outcomes import NotApproved
from deskhand.gate.question import Question
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.store import Transaction
from deskhand.web import sessions, subscriptions
from deskhand.web.site import site
from deskhand.web.subscriptions import Subscription
from tests.gate.authenticator import Authenticator
from tests.gate.safe_desk import PASSWORD
from tests.gate.site import HELLO
from tests.gate.test_proofs import Safe, opened
from tests.home import Home
from tests.requirements import requirement
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
from tests.web.person import Person, served

pytestmark = pytest.mark.anyio


class Owner:
    """A person at the page with an authenticator, and no JavaScript but what this does in its place."""

    def __init__(self, http: httpx2.AsyncClient, safe: Safe, address: str) -> None:
        self.http = http
        self.safe = safe
        self.person = Person(http)
        self.device = Authenticator(address)

    async def asks(self, path: str, **fields: str) -> dict[str, Any]:
        told = await self.person.sends(path, fields, at="/passkeys")
        assert told.status_code == 200, told.text
        return dict(told.json())

    async def makes_key(self, name: str = "my phone", **fields: str) -> httpx2.Response:
        asked = await self.asks("/passkeys/new")
        key = json.dumps(self.device.make(asked["nonce"], asked["options"]["challenge"]))
        return await self.person.sends(
            "/passkeys/add", {"name": name, "key": key} | fields, at="/passkeys"
        )

    async def sends_signed(self, path: str, **fields: str) -> httpx2.Response:
        asked = await self.asks("/passkeys/challenge", **{"for": path} | fields)
        allowed = [each["id"] for each in asked["options"]["allowCredentials"]]
        assert webauthn.encode(self.device.id) in allowed
        signed = self.device.sign(asked["nonce"], asked["options"]["challenge"])
        return await self.person.sends(
            path, fields | {"assertion": json.dumps(signed)}, at="/passkeys"
        )

    async def signs_in(self, **client: Any) -> httpx2.Response:
        asked = (await self.http.post("/enter/challenge")).json()
        assert asked["options"]["allowCredentials"] == []
        signed = self.device.sign(asked["nonce"], asked["options"]["challenge"], **client)
        return await self.http.post(
            "/enter/passkey", data={"assertion": json.dumps(signed)}
        )

    async def starred(self) -> int:
        return len(await self.safe.desk.mailbox.search("is:starred", 10))

    async def is_in(self) -> bool:
        return (await self.http.get("/enter")).status_code == 303


@asynccontextmanager
async def at_the_page(safe: Safe) -> AsyncIterator[Owner]:
    async with served(site(safe.desk)) as found:
        address = found.replace("127.0.0.1", "localhost")
        async with httpx2.AsyncClient(base_url=address, timeout=60) as http:
            yield Owner(http, safe, address)


async def by_link(owner: Owner) -> None:
    owner.http.cookies.clear()
    link = await owner.safe.desk.store.write(
        lambda tx: sessions.invite(tx, owner.safe.desk.now())
    )
    assert (await owner.http.get(f"/enter/{link}")).status_code == 303


@requirement("passkey:page")
@requirement("passkey:codes")
async def test_a_passkey_is_made_with_a_proof_signs_in_and_answers(home: Home) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert (
            await owner.makes_key()
        ).status_code == 403  # there is a password, and a cookie does not say it
        assert (await owner.makes_key(password="a wrong password")).status_code == 403
        made = await owner.makes_key(password=PASSWORD)
        codes = re.findall(r"<li>([0-9a-f-]{23})</li>", made.text)
        assert (made.status_code, len(codes)) == (200, passkeys.CODES)
        listed = (await owner.http.get("/passkeys")).text
        assert not any(code in listed for code in codes)

        owner.http.cookies.clear()
        assert "Sign in with a passkey" in (await owner.http.get("/enter")).text
        assert (await owner.signs_in(origin="http://localhost:1")).status_code == 401
        assert (
            await owner.http.post("/enter/passkey", data={"assertion": "{}"})
        ).status_code == 401
        elsewhere = {"Origin": "http://evil.example"}
        assert (
            await owner.http.post("/enter/challenge", headers=elsewhere)
        ).status_code == 403
        assert not await owner.is_in()
        assert (await owner.signs_in()).status_code == 303
        assert await owner.is_in()

        assert (
            await owner.person.sends("/passkeys/challenge", {"for": "/leave"})
        ).status_code == 422
        card = await safe.ask()
        one = f"/approvals/{card.id}"
        assert (
            await owner.sends_signed(f"{one}/approve", digest=card.digest)
        ).status_code == 303
        assert (
            await owner.sends_signed(f"{one}/undo", digest=card.digest)
        ).status_code == 303
        text = {"to": HELLO["to"], "subject": "Mine", "body": "At\r\nnine.\r\n"}
        assert (
            await owner.sends_signed(f"{one}/edit", digest=card.digest, **text)
        ).status_code == 303
        assert await safe.settle() == 1
        assert await safe.desk.store.read(check_answers, safe.desk.policy) == Genuine(4)

        assert (
            await owner.person.sends("/passkeys/revoke", {"name": "my phone"})
        ).status_code == 403
        assert (await owner.person.sends("/passkeys/codes")).status_code == 403
        assert (await owner.sends_signed("/passkeys/codes")).status_code == 200
        assert (
            await owner.sends_signed("/passkeys/revoke", name="my phone")
        ).status_code == 303
        assert (await owner.signs_in()).status_code == 401


@requirement("passkey:forms")
async def test_a_signature_for_one_change_of_the_passkeys_makes_no_other(
    home: Home,
) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        await owner.makes_key(password=PASSWORD)
        keys = []
        for _ in range(2):
            asked = await owner.asks("/passkeys/new")
            device = Authenticator(owner.device.origin)
            made = device.make(asked["nonce"], asked["options"]["challenge"])
            keys.append(json.dumps(made))
        second, stolen = keys
        added = {"name": "my laptop", "key": second}
        assert (await owner.sends_signed("/passkeys/add", **added)).status_code == 303

        wanted = {"name": "a key", "key": stolen}
        changes: list[tuple[str, dict[str, str]]] = [
            ("/passkeys/revoke", {"name": "my laptop"}),
            ("/passkeys/revoke", {"name": "my phone"}),
            ("/passkeys/codes", {}),
            ("/passkeys/elsewhere", {}),
            ("/passkeys/add", wanted),
            ("/passkeys/add", wanted | {"name": "my phone, new"}),
            ("/passkeys/add", wanted | {"key": second}),
        ]
        for signed_for in changes:
            path, fields = signed_for
            asked = await owner.asks("/passkeys/challenge", **{"for": path} | fields)
            signed = owner.device.sign(asked["nonce"], asked["options"]["challenge"])
            given = {"assertion": json.dumps(signed)}
            for other in changes:
                if other == signed_for:
                    continue
                told = await owner.person.sends(other[0], other[1] | given, at="/passkeys")
                assert told.status_code == 403, (signed_for, other)
        kept = await safe.desk.store.read(passkeys.list_keys, safe.desk.policy.seal)
        assert {key.name for key in kept} == {"my phone", "my laptop"}


@requirement("passkey:forms")
async def test_a_passkey_proves_what_is_done_with_mails_and_who_is_connected(
    home: Home,
) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert (await owner.makes_key(password=PASSWORD)).status_code == 200
        raw = [
            f"From: a@example.org\nSubject: {n}\nMessage-ID: <{n}@x>\n\nHi.\n".encode()
            for n in range(2)
        ]
        mailbox = safe.desk.mailbox
        assert isinstance(mailbox, LocalMailbox)
        await mailbox.receive([Incoming(each, seen=True) for each in raw])
        first, second = [mail.id for mail in await mailbox.search("in:inbox", 2)]
        star = {"do": "star", "mail": first}
        refused = await owner.person.sends("/mail/change", star, at="/passkeys")
        assert (refused.status_code, await owner.starred()) == (422, 0)
        asked = await owner.asks("/passkeys/challenge", **{"for": "/mail/change"} | star)
        signed = json.dumps(
            owner.device.sign(asked["nonce"], asked["options"]["challenge"])
        )
        for other in (
            {"mail": second},
            {"do": "archive"},
            {"all": "1", "q": "in:inbox", "sure": "1"},
        ):
            told = await owner.person.sends(
                "/mail/change", star | other | {"assertion": signed}, at="/passkeys"
            )
            assert (told.status_code, await owner.starred()) == (422, 0), other
        assert (await owner.sends_signed("/mail/change", **star)).status_code == 303
        assert await owner.starred() == 1
        assert (await owner.person.sends("/mail/undo", at="/passkeys")).status_code == 403
        assert (await owner.sends_signed("/mail/undo")).status_code == 303
        assert await owner.starred() == 0

        (waiting,) = [await safe.ask()]
        follow = f"/approvals/{waiting.id}/follow-up"
        asked = await owner.asks("/passkeys/challenge", **{"for": follow, "when": "3d"})
        signed = json.dumps(
            owner.device.sign(asked["nonce"], asked["options"]["challenge"])
        )
        for path, when in ((follow, "4d"), ("/follow-ups/cancel", "3d")):
            told = await owner.person.sends(
                path, {"when": when, "assertion": signed}, at="/passkeys"
            )
            assert told.status_code == 403
        assert (await owner.sends_signed(follow, when="3d")).status_code == 303
        assert (
            await owner.sends_signed("/follow-ups/cancel", request=waiting.id)
        ).status_code == 303

        about = {"client_name": "Claude", "redirect_uris": ["https://claude.ai/back"]}
        client = (await owner.http.post("/oauth/register", json=about)).json()["client_id"]
        asks = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": "https://claude.ai/back",
        }
        asks |= {
            "code_challenge": "a" * 43,
            "code_challenge_method": "S256",
            "scope": "mail:write",
            "answer": "allow",
        }
        chosen = await owner.asks(
            "/passkeys/challenge",
            **{"for": "/oauth/authorize", "allow": "mail:read"} | asks,
        )
        signed = json.dumps(
            owner.device.sign(chosen["nonce"], chosen["options"]["challenge"])
        )
        more = asks | {"allow": "mail:write", "assertion": signed}
        assert (
            await owner.person.sends("/oauth/authorize", more, at="/passkeys")
        ).status_code == 422
        sent = await owner.sends_signed("/oauth/authorize", **asks | {"allow": "mail:read"})
        assert (sent.status_code, "code=" in sent.headers["location"]) == (303, True)
        no = await owner.person.sends(
            "/oauth/authorize", asks | {"answer": "deny"}, at="/passkeys"
        )
        assert (no.status_code, "access_denied" in no.headers["location"]) == (303, True)


@requirement("passkey:forms")
async def test_words_to_an_agent_and_a_rule_need_a_proof_for_just_what_they_say(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert (await owner.makes_key(password=PASSWORD)).status_code == 200
        room = safe.desk.room(None)
        room.register("scout", "2026-11-15T09:00:00Z")
        rules = home.path / "rules.toml"
        before = rules.exists() and rules.read_text()
        words = {"to": "scout", "text": "Go on,\r\nplease."}
        rule = {"by": "sender", "sender": "a@example.org"}
        others = {"text": "Stop."}, {"sender": "b@example.org"}
        for path, form, other in zip(
            ("/agents/send", "/decide/rule"), (words, rule), others, strict=True
        ):
            asked = await owner.asks("/passkeys/challenge", **{"for": path} | form)
            signed = owner.device.sign(asked["nonce"], asked["options"]["challenge"])
            meant_else = form | other | {"assertion": json.dumps(signed)}
            for given in (form, form | {"password": "a guess"}, meant_else):
                told = await owner.person.sends(path, given, at="/passkeys")
                assert (told.status_code, 'role="alert"' in told.text) == (422, True)
        kept = await owner.person.sends("/agents/send", words, at="/passkeys")
        assert "Go on,\nplease.</textarea>" in kept.text
        assert (room.messages("scout"), rules.exists() and rules.read_text()) == (
            [],
            before,
        )

        assert (await owner.sends_signed("/agents/send", **words)).status_code == 303
        assert (await owner.sends_signed("/decide/rule", **rule)).status_code == 303
        assert [each.text for each in room.messages("scout")] == ["Go on,\nplease."]
        assert 'sender = "a@example.org"' in rules.read_text()
        typed = await owner.person.sends("/agents/send", words | {"password": PASSWORD})
        assert typed.status_code == 303


@requirement("passkey:page")
async def test_another_programs_page_on_this_machine_signs_nothing(home: Home) -> None:
    """To an authenticator all ports of localhost are one site, and a Host header may name any of them."""
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert (await owner.makes_key(password=PASSWORD)).status_code == 200
        card = await safe.ask()
        path = f"/approvals/{card.id}/approve"
        asked = await owner.asks(
            "/passkeys/challenge", **{"for": path, "digest": card.digest}
        )
        signed = owner.device.sign(
            asked["nonce"], asked["options"]["challenge"], origin="http://localhost:9999"
        )
        form = {"digest": card.digest, "assertion": json.dumps(signed)}
        page = (await owner.http.get("/passkeys")).text
        form["form_token"] = re.findall(r'name="form_token" value="(\w+)"', page)[0]
        (cookie,) = owner.http.cookies.jar
        told = {"Host": "localhost:9999", "Cookie": f"deskhand-9999={cookie.value}"}
        refused = await owner.http.post(path, data=form, headers=told)
        assert (refused.status_code, "another page" in refused.text) == (409, True)
        assert await safe.settle() == 0


@requirement("passkey:page")
@requirement("passkey:codes")
async def test_the_first_passkey_needs_a_fresh_link_and_a_lost_one_a_code(
    home: Home,
) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await safe.desk.store.write(passwords.remove)
        await by_link(owner)
        safe.clock.pass_by(minutes=16)
        assert (await owner.makes_key()).status_code == 403
        await by_link(owner)
        codes = re.findall(r"<li>([0-9a-f-]{23})</li>", (await owner.makes_key()).text)
        assert (await owner.makes_key("another")).status_code == 403

        owner.http.cookies.clear()
        owner.device = Authenticator(owner.device.origin)
        assert (
            await owner.http.post("/enter/code", data={"code": "wrong"})
        ).status_code == 401
        for known in (303, 401):
            owner.http.cookies.clear()
            assert (
                await owner.http.post("/enter/code", data={"code": codes[0]})
            ).status_code == known
        assert (
            await owner.http.post("/enter/code", data={"code": codes[1]})
        ).status_code == 303
        assert (await owner.makes_key("new phone")).status_code == 303
        listed = unescape((await owner.http.get("/passkeys")).text)
        assert ("new phone" in listed, "my phone" in listed) == (True, True)
        assert (await owner.makes_key("new phone")).status_code == 422


@requirement("passkey:page")
async def test_on_127_0_0_1_the_page_leads_to_the_name_of_this_machine(home: Home) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        owner.http.base_url = owner.device.origin.replace("localhost", "127.0.0.1")
        await by_link(owner)
        assert (await owner.person.sends("/passkeys/elsewhere")).status_code == 403
        told = await owner.person.sends("/passkeys/elsewhere", {"password": PASSWORD})
        (link,) = re.findall(r'href="(http://localhost:\d+/enter/[^"]+)"', told.text)
        assert (await owner.http.get(link)).status_code == 303
        assert (await owner.http.get(f"{owner.device.origin}/passkeys")).status_code == 200
        owner.http.cookies.clear()
        by_number = str(owner.http.base_url)
        assert owner.device.origin not in (await owner.http.get(f"{by_number}/enter")).text
        owner.http.base_url = owner.device.origin
        await by_link(owner)
        await owner.makes_key(password=PASSWORD)
        assert (
            f"{owner.device.origin}/enter"
            in (await owner.http.get(f"{by_number}/enter")).text
        )


NOTHING = "Nothing can be answered"


@requirement("passkey:elsewhere")
async def test_where_no_passkey_signs_and_there_is_no_password_the_page_says_what_to_do(
    home: Home,
) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert NOTHING not in (await owner.http.get("/")).text  # there is a password
        await safe.desk.store.write(passwords.remove)
        assert f"{NOTHING} yet" in (await owner.http.get("/")).text
        await by_link(owner)
        assert (await owner.makes_key()).status_code == 200
        assert NOTHING not in (await owner.http.get("/")).text

        # The desk has another name now, for which no authenticator has made a key.
        owner.http.base_url = owner.device.origin.replace("localhost", "127.0.0.1")
        await by_link(owner)
        told = (await owner.http.get("/")).text
        assert f"{NOTHING} at this address: your passkeys are for localhost" in told
        banner = told.partition('<aside class="unproven"')[2].partition("</aside>")[0]
        assert f'Go on at <a href="{owner.device.origin}">' in banner
        assert "add a passkey" not in banner  # browsers make none for a number
        number = owner.device.origin.replace("http://localhost", "[::1]")
        told = (await owner.http.get("/", headers={"Host": number})).text
        assert "add a passkey</a> for localhost" in told
        owner.http.cookies.clear()
        entry = await owner.http.get("/enter", headers={"Host": "[::1]"})
        assert "passkeys are for another address" in entry.text
        assert "localhost" not in entry.text.partition("<main")[2]


@requirement("passkey:elsewhere")
async def test_health_says_by_what_an_answer_is_proven(home: Home) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:

        async def told() -> str:
            page = (await owner.http.get("/checkup")).text.partition("<main")[2]
            (found,) = re.findall(
                "answers with ([a-z ]+);|(each answer needs a passkey or a password)", page
            )
            return "".join(found)

        await by_link(owner)
        await owner.makes_key(password=PASSWORD)
        assert await told() == "a passkey or your password"
        await safe.desk.store.write(passwords.remove)
        assert await told() == "a passkey"
        key = safe.desk.policy.seal
        await safe.desk.store.write(passkeys.revoke, key, "my phone", safe.desk.now())
        assert await told() == "each answer needs a passkey or a password"


@requirement("passkey:commands")
async def test_the_terminal_lists_and_revokes_passkeys_and_makes_codes(home: Home) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        await owner.makes_key(password=PASSWORD)
        (listed,) = map(
            json.loads, home.command("passkey", "list", "--json").stdout.splitlines()
        )
        assert (listed["name"], listed["host"], listed["credential"]) == (
            "my phone",
            "localhost",
            webauthn.encode(owner.device.id),
        )
        codes = home.command("passkey", "codes").stdout.split()
        assert len(codes) == passkeys.CODES
        assert home.command("passkey", "revoke", "nobody's").returncode == 4
        assert home.command("passkey", "revoke", "my phone").returncode == 0
        assert home.command("passkey", "list").stdout == (
            "There are no passkeys; you make one on the page.\n"
        )
        owner.http.cookies.clear()
        assert (await owner.signs_in()).status_code == 401
        assert (
            await owner.http.post("/enter/code", data={"code": codes[0]})
        ).status_code == 303


@requirement("proof:throttled")
@requirement("entry:sessions")
async def test_a_fresh_link_brings_no_new_guesses_and_each_session_is_listed_and_ended(
    home: Home,
) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        card = await safe.ask()
        path = f"/approvals/{card.id}/approve"
        found = []
        for _ in range(2):
            await by_link(owner)
            for _ in range(passwords.TRIES):
                told = await owner.person.sends(
                    path, {"digest": card.digest, "password": "a wrong guess"}
                )
                found.append(told.status_code)
        assert found == [409] * passwords.TRIES + [429] * passwords.TRIES
        phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605 Version/19.0 Safari/604.1"
        async with httpx2.AsyncClient(
            base_url=owner.device.origin, headers={"User-Agent": phone}, timeout=60
        ) as other:
            assert (
                await other.post("/enter", data={"password": PASSWORD})
            ).status_code == 303
            # Who proved the password has guesses of their own.
            typed = {"digest": card.digest, "password": PASSWORD}
            assert (await Person(other).sends(path, typed)).status_code == 303
            listed = (await owner.http.get("/checkup")).text
            row = re.findall(
                r"<bdi>Safari on an iPhone</bdi>, signed in <time [^>]*>[^<]*</time> by password from <bdi>([^<]*)",
                listed,
            )
            assert row == ["127.0.0.1"]
            name = re.findall(
                r'an iPhone.*?name="session" value="(\w+)"', listed, re.DOTALL
            )[0]
            await owner.person.sends("/checkup/sessions/end", {"session": name})
            assert (await other.get("/enter")).status_code == 200
            assert await owner.is_in()


@needs_chromium
@needs_axe
@requirement("passkey:browser")
async def test_a_browser_makes_a_passkey_signs_in_and_answers_with_it(home: Home) -> None:
    async with (
        opened(home, DESKHAND_HOLD_SECONDS="600") as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
        quiet_page(browser, found.replace("127.0.0.1", "localhost"), size=PHONE) as page,
    ):
        await add_virtual_key(page)
        await sign_in(page, safe.desk)
        await page.goto("/passkeys")
        await page.get_by_label("Its name").fill("this browser")
        await page.get_by_label("Your password").first.fill(PASSWORD)
        await page.get_by_role("button", name="Add a passkey").click()
        await page.get_by_text("Your recovery codes").wait_for()
        assert await judged(page) == []
        await page.goto("/passkeys")
        await page.get_by_role("button", name="Make new codes").click()
        await page.get_by_text("Your recovery codes").wait_for()
        now = safe.desk.now()
        await safe.desk.store.write(tokens.create, "Claude", now)
        phone = Subscription("https://push.example.net/x", "", "", "Firefox/1 Android", now)
        await safe.desk.store.write(subscriptions.add, phone, "a session")
        await sign_in(await browser.new_page(base_url=page.url), safe.desk)
        for path in ("/checkup", "/phone", "/passkeys"):
            await page.goto(path)
            assert await judged(page) == []

        await page.goto("about:blank")  # an open page goes to the sign-in by itself
        await page.context.clear_cookies()
        await page.goto("/enter")
        assert await judged(page) == []
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await page.get_by_role("button", name="Sign out").wait_for()

        first = await safe.ask()
        await page.goto(f"/approvals/{first.id}")
        assert not await page.get_by_label("Your password").first.is_visible()
        await page.get_by_role("button", name="Approve", exact=True).click()
        await page.locator(".held").get_by_role("button", name="Undo").click()
        await page.locator("#card[data-state=waiting]").wait_for()
        await page.get_by_role("link", name="Edit and approve").click()
        await page.get_by_label("Text").fill("At nine, with cake.\n")
        await page.get_by_role("button", name="Approve as edited").click()
        await page.locator("#card").get_by_role("button", name="Undo").wait_for()
        safe.clock.pass_by(seconds=700)
        assert await safe.settle() == 1

        cards = [await safe.ask(subject=f"Number {number}") for number in range(2)]
        await page.goto("/approvals/batch?" + "&".join(f"card={card.id}" for card in cards))
        assert await judged(page) == []
        await page.get_by_role("button", name="Approve the ticked ones").click()
        await page.wait_for_url("**/?done=batch")
        safe.clock.pass_by(seconds=700)
        assert await safe.settle() == 3

        def proofs(tx: Transaction) -> set[str]:
            return {str(proof) for (proof,) in tx.all("SELECT DISTINCT proof FROM answers")}

        assert await safe.desk.store.read(proofs) == {"passkey"}
        told = home.command("log", "--verify", "--json", DESKHAND_ADDRESS="me@example.com")
        assert json.loads(told.stdout)["signatures"] == 6


@needs_chromium
@requirement("passkey:page")
async def test_what_is_being_signed_is_sent_although_the_page_is_drawn_anew(
    home: Home,
) -> None:
    from playwright.async_api import Route, expect

    asked, signed = anyio.Event(), anyio.Event()

    async def be_slow(route: Route) -> None:
        asked.set()
        await signed.wait()
        await route.continue_()

    async with (
        opened(home, DESKHAND_HOLD_SECONDS="600") as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
        quiet_page(browser, found.replace("127.0.0.1", "localhost")) as page,
    ):
        await add_virtual_key(page)
        await sign_in(page, safe.desk)
        await page.goto("/passkeys")
        await page.get_by_label("Its name").fill("this browser")
        await page.get_by_label("Your password").first.fill(PASSWORD)
        await page.get_by_role("button", name="Add a passkey").click()
        await page.get_by_text("Your recovery codes").wait_for()
        card = await safe.ask()
        await page.goto(f"/approvals/{card.id}")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await page.locator(".held").wait_for()
        await page.goto("/snoozed")
        undo = page.locator(".toast").get_by_role("button", name="Undo")
        await undo.wait_for()
        await expect(page.locator("#count")).to_be_hidden()
        await page.route("**/passkeys/challenge", be_slow)
        await undo.click()
        await asked.wait()
        await safe.ask(subject="Another")
        await expect(page.locator("#count")).to_be_visible()
        signed.set()
        await page.locator("#card[data-state=waiting]").wait_for()


@needs_chromium
@requirement("passkey:page")
async def test_where_a_password_is_typed_the_answers_stand_in_a_row_below_it(
    home: Home,
) -> None:
    async with (
        opened(home) as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
    ):
        card = await safe.ask()
        for size in SIZES:
            async with quiet_page(browser, found, size=size) as page:
                await sign_in(page, safe.desk)
                await page.goto(f"/approvals/{card.id}")
                answers = page.locator("#card > .answers")
                typed = await answers.get_by_label("Your password").first.bounding_box()
                boxes = [
                    await answers.get_by_text(name, exact=True).first.bounding_box()
                    for name in ("Approve", "Edit and approve", "Reject", "Snooze")
                ]
                tops = [round(box["y"]) for box in boxes if box is not None]
                assert typed is not None
                assert tops[0] - (typed["y"] + typed["height"]) >= 4
                assert tops[0] == tops[1] == tops[2] or size == PHONE
                assert tops[0] == tops[3] or size == PHONE
                assert await answers.evaluate("each => each.scrollWidth") <= size[0]


@requirement("passkey:words")
async def test_how_long_a_card_is_put_off_is_signed_with_it(home: Home) -> None:
    async with opened(home) as safe, at_the_page(safe) as owner:
        await by_link(owner)
        assert (await owner.makes_key(password=PASSWORD)).status_code == 200
        card = await safe.ask()
        address = f"/approvals/{card.id}/snooze"
        hour = {"until": "hour", "digest": card.digest}
        for chosen, other in (
            (hour, {"until": "week"}),
            (hour, {"until": "when", "when": "300d"}),
            ({"until": "when", "when": "2d"} | hour, {"when": "3d", "until": "when"}),
            ({**hour, "until": "when", "when": "tomorrow"}, {"until": "tomorrow"}),
        ):
            asked = await owner.asks("/passkeys/challenge", **{"for": address} | chosen)
            signed = owner.device.sign(asked["nonce"], asked["options"]["challenge"])
            given = chosen | other | {"assertion": json.dumps(signed)}
            told = await owner.person.sends(address, given, at="/passkeys")
            assert (told.status_code, (await safe.card(card)).state) == (409, "waiting")
        assert (await owner.sends_signed(address, **hour)).status_code == 303
        asleep = await safe.card(card)
        assert (asleep.state, asleep.until) == (
            "snoozed",
            safe.clock.time + timedelta(hours=1),
        )
        assert await safe.desk.store.read(check_answers, safe.desk.policy) == Genuine(1)


@needs_chromium
@requirement("passkey:words")
async def test_in_a_browser_words_are_signed_with_their_answer(home: Home) -> None:
    async with (
        opened(home) as safe,
        served(site(safe.desk)) as found,
        chromium() as browser,
        quiet_page(browser, found.replace("127.0.0.1", "localhost"), size=PHONE) as page,
    ):
        await add_virtual_key(page)
        await sign_in(page, safe.desk)
        await page.goto("/passkeys")
        await page.get_by_label("Its name").fill("this browser")
        await page.get_by_label("Your password").first.fill(PASSWORD)
        await page.get_by_role("button", name="Add a passkey").click()
        await page.get_by_text("Your recovery codes").wait_for()

        no, otherwise = [await safe.ask(subject=f"Not {number}") for number in range(2)]
        await page.goto(f"/approvals/{no.id}")
        await page.locator("summary", has_text="Reject").click()
        await page.get_by_label("Reason").fill("not today ")
        await page.locator("form[action*=reject] button").click()
        await page.locator(".toast").wait_for()
        await page.goto(f"/approvals/{otherwise.id}")
        await page.locator("summary", has_text="Ask for changes").click()
        await page.get_by_label("What to do instead").fill("in French,\nand shorter\n")
        await page.get_by_role("button", name="Send back").click()
        await page.locator(".toast").wait_for()
        asked = Question(text="Tea or coffee?", choices=("tea", "coffee"), asker="me")
        outcome = await safe.desk.gate.propose(asked, "desk_mcp")
        assert isinstance(outcome, NotApproved)
        await page.goto(f"/approvals/{outcome.waits}")
        await page.get_by_role("button", name="coffee").click()
        await page.get_by_text("coffee").first.wait_for()

        def words(tx: Transaction) -> list[str]:
            found = tx.all("SELECT words FROM answers WHERE words IS NOT NULL ORDER BY at")
            return [each for (each,) in found]

        assert [each.split() for each in await safe.desk.store.read(words)] == [
            ["not", "today"],
            ["in", "French,", "and", "shorter"],
            ["in", "French,", "and", "shorter"],
            ["coffee"],
        ]
        told = home.command("log", "--verify", "--json", DESKHAND_ADDRESS="me@example.com")
        assert json.loads(told.stdout)["signatures"] == 4
