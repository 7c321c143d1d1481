"""Web push: what a push service gets, who may be sent to, and when nobody is told anything."""

import json
from asyncio import Queue, get_running_loop
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.clock import is_within, local
from deskhand.config import load
from deskhand.errors import BadConfig
from deskhand.resident import notify, push
from deskhand.resident.notify import Deliver, Known, Pace, Reception, tell_all
from deskhand.web import subscriptions
from deskhand.web.site import site
from deskhand.web.subscriptions import Subscription
from deskhand.web.webpush import decode, encrypt, public_point
from tests.gate.site import Clock
from tests.home import Home
from tests.judges.node import MODULES, needs, node
from tests.requirements import requirement
from tests.resident.test_notify import propose
from tests.web.person import Person, served, signed_in
from tests.web.proxy import write_certificates

pytestmark = pytest.mark.anyio
PACE = Pace(gather=0.01, quiet=0.05, glance=0.05, rest=0.1)
EAGER = Pace(gather=0, quiet=0.1, glance=0.01, rest=0.01)
"""What is left alone is left alone for its own sake."""
JUDGE = Path(__file__).parents[1] / "judges" / "push.mjs"


def text_of(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class PushService:
    """What a browser's maker runs: it takes messages at the addresses that it gave to browsers."""

    statuses: dict[str, int] = field(default_factory=dict)
    pauses: dict[str, str] = field(default_factory=dict)
    """Who is told when to come back."""
    heard: dict[str, list[float]] = field(default_factory=dict)
    """When something came for each."""
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    auth: str = text_of(b"sixteen secrets!")
    address: str = ""
    messages: Queue[tuple[str, Mapping[str, str], bytes]] = field(default_factory=Queue)

    async def take(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.heard.setdefault(name, []).append(get_running_loop().time())
        self.messages.put_nowait((name, request.headers, await request.body()))
        headers = {"Location": f"{self.address}/elsewhere"}
        if name in self.pauses:
            headers["Retry-After"] = self.pauses[name]
        return Response(status_code=self.statuses.get(name, 201), headers=headers)

    def pauses_before(self, name: str) -> list[float]:
        """How long it was left alone, each time."""
        return [later - earlier for earlier, later in pairwise(self.heard[name])]

    async def next(self) -> tuple[str, Mapping[str, str], bytes]:
        with anyio.fail_after(60):
            return await self.messages.get()

    def subscription(self, name: str) -> dict[str, Any]:
        keys = {"p256dh": text_of(public_point(self.key)), "auth": self.auth}
        return {"endpoint": f"{self.address}/{name}", "expirationTime": None, "keys": keys}


@asynccontextmanager
async def at_the_service(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PushService]:
    write_certificates(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    service = PushService()
    app = Starlette(routes=[Route("/{name}", service.take, methods=["POST"])])
    async with served(app, tls=folder / "server.pem") as address:
        service.address = address.replace("http://127.0.0.1", "https://localhost")
        yield service


@asynccontextmanager
async def at_desk(home: Home, **more: str) -> AsyncIterator[tuple[Desk, Person]]:
    own = {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_PUSH_NETWORKS": "127.0.0.0/8 ::1",
    }
    desk = Desk(load(home.environment | own | more).settings)
    try:
        async with served(site(desk)) as address, signed_in(desk, address) as person:
            yield desk, person
    finally:
        desk.close()


async def subscribe(person: Person, given: Any) -> tuple[int, str]:
    answer = await person.sends(
        "/phone/subscribe", {"subscription": json.dumps(given)}, at="/phone"
    )
    return answer.status_code, answer.text


@needs(MODULES / "http_ece" / "package.json")
@requirement("push:encrypted")
async def test_a_push_message_is_a_count_that_a_foreign_browser_reads_and_a_foreign_service_knows_as_ours(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        at_the_service(tmp_path, monkeypatch) as service,
        at_desk(home, DESKHAND_ORIGIN="https://desk.example.net") as (desk, person),
    ):
        assert (await subscribe(person, service.subscription("phone")))[0] == 303
        for number in range(3):
            await propose(desk, number)
        async with anyio.create_task_group() as group:
            group.start_soon(push.run, desk, PACE)
            _, headers, body = await service.next()
            group.cancel_scope.cancel()
        page = (await person.reads("/phone")).text

    assert (headers["content-encoding"], headers["topic"], headers["ttl"]) == (
        "aes128gcm",
        "waiting",
        "86400",
    )
    assert b"private" not in body
    private = service.key.private_numbers().private_value.to_bytes(32)
    given = {"body": text_of(body), "privateKey": text_of(private), "auth": service.auth}
    given |= {"authorization": headers["authorization"], "audience": service.address}
    told = node(JUDGE, MODULES / "x", json.dumps(given), environment=home.environment)
    assert told.returncode == 0, told.stderr
    read = json.loads(told.stdout)
    assert json.loads(read["text"]) == {"waiting": 3, "down": 0}
    assert f'data-server-key="{read["key"]}"' in page
    assert read["claims"]["sub"] == "https://desk.example.net"
    assert 0 < read["claims"]["exp"] - datetime.now(UTC).timestamp() < 24 * 3600
    assert (desk.settings.home / "push.key").stat().st_mode & 0o777 == 0o600


@requirement("push:encrypted")
def test_the_example_of_the_standard_is_encrypted_as_it_says() -> None:
    own = int.from_bytes(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
    point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    to = Subscription(
        "https://example.net/x", point, "BTBZMqHH6r4Tts7J_aSIgg", "", datetime.now(UTC)
    )
    key = ec.derive_private_key(own, ec.SECP256R1())
    made = encrypt(
        b"When I grow up, I want to be a watermelon",
        to,
        key,
        decode("DGv6ra1nlYgDCS1FRnbzlw"),
    )

    assert text_of(made) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
        "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@requirement("push:gone")
async def test_a_gone_browser_is_dropped_a_failing_one_tried_again_and_the_others_are_told(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        at_the_service(tmp_path, monkeypatch) as service,
        at_desk(home) as (desk, person),
    ):
        service.statuses |= {"gone": 410, "unknown": 404, "busy": 503, "moved": 307}
        for name in ("gone", "unknown", "busy", "moved", "fine"):
            assert (await subscribe(person, service.subscription(name)))[0] == 303
        await propose(desk, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(push.run, desk, PACE)
            assert {(await service.next())[0] for _ in range(5)} == {
                "gone",
                "unknown",
                "busy",
                "moved",
                "fine",
            }
            for failing in ({"busy", "moved"}, {"busy", "moved"}):
                while failing:
                    name, _, _ = await service.next()
                    assert name in (
                        "busy",
                        "moved",
                    )  # and nobody was followed to another place
                    failing.discard(name)
                service.statuses.clear()
            group.cancel_scope.cancel()
        kept = await desk.store.read(subscriptions.list_subscriptions)

        assert {each.endpoint.rpartition("/")[2] for each in kept} == {
            "busy",
            "moved",
            "fine",
        }
        assert (await person.reads("/timeline")).text.count("end_notifications") >= 2


@requirement("push:gone")
async def test_a_service_that_refuses_or_fails_loses_no_browser_and_is_asked_less_and_less(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"large": 413, "busy": 429, "broken": 500}
    async with (
        at_the_service(tmp_path, monkeypatch) as service,
        at_desk(home) as (desk, person),
    ):
        service.statuses |= failing
        for name in (*failing, "fine"):
            assert (await subscribe(person, service.subscription(name)))[0] == 303
        await propose(desk, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(push.run, desk, EAGER)
            while min(len(service.heard.get(name, ())) for name in failing) < 5:
                await service.next()
            group.cancel_scope.cancel()
        kept = await desk.store.read(subscriptions.list_subscriptions)
        assert desk.parts.down == []
    for name in failing:
        for number, pause in enumerate(service.pauses_before(name)):
            assert pause >= EAGER.quiet * 2**number
    assert len(service.heard["fine"]) == 1
    assert len(kept) == 4


@requirement("push:gone")
async def test_a_service_is_left_alone_for_as_long_as_it_asks_and_no_longer_than_an_end(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "seconds": "1",
        "endless": "9" * 400,
        "year": "Wed, 21 Oct 2099 07:28:00 GMT",
        "past": "Wed, 21 Oct 2015 07:28:00 GMT",
        "words": "soon",
        "negative": "-5",
    }
    pace = replace(EAGER, longest=1.5)
    async with (
        at_the_service(tmp_path, monkeypatch) as service,
        at_desk(home) as (desk, person),
    ):
        service.pauses |= asked
        service.statuses |= dict.fromkeys(asked, 429)
        for name in asked:
            assert (await subscribe(person, service.subscription(name)))[0] == 303
        await propose(desk, 1)
        async with anyio.create_task_group() as group:
            group.start_soon(push.run, desk, pace)
            while min(len(service.heard.get(name, ())) for name in asked) < 2:
                await service.next()
            group.cancel_scope.cancel()
    first = {name: service.pauses_before(name)[0] for name in asked}
    assert first["seconds"] >= 1
    assert min(first["endless"], first["year"]) >= pace.longest
    for name in ("past", "words", "negative"):
        assert len(service.heard[name]) > len(service.heard["endless"])


@requirement("push:proven")
async def test_a_browser_that_is_silenced_hears_that_it_is(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        at_the_service(tmp_path, monkeypatch) as service,
        at_desk(home) as (desk, person),
        anyio.create_task_group() as group,
    ):
        for name in ("phone", "tablet"):
            await subscribe(person, service.subscription(name))
        await propose(desk, 1)
        group.start_soon(push.run, desk, PACE)
        assert {(await service.next())[0] for _ in range(2)} == {"phone", "tablet"}
        one, _ = await desk.store.read(subscriptions.list_subscriptions)
        await person.sends("/phone/end", {"name": one.name}, at="/phone")
        first = await service.next()
        await person.sends("/leave")  # whichever way it ends
        second = await service.next()
        group.cancel_scope.cancel()
    assert [name for name, *_ in (first, second)] == ["phone", "tablet"]
    for _, _, body in (first, second):
        assert json.loads(decrypt(body, service)) == {"ended": 1}


def decrypt(body: bytes, service: PushService) -> bytes:
    """As the browser does, written from the standard once more."""
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), body[21:86])
    secret = b"WebPush: info\0" + public_point(service.key) + body[21:86]
    shared = HKDF(SHA256(), 32, decode(service.auth), secret).derive(
        service.key.exchange(ec.ECDH(), theirs)
    )
    key = HKDF(SHA256(), 16, body[:16], b"Content-Encoding: aes128gcm\0").derive(shared)
    nonce = HKDF(SHA256(), 12, body[:16], b"Content-Encoding: nonce\0").derive(shared)
    return AESGCM(key).decrypt(nonce, body[86:], None)[:-1]


@requirement("push:places")
@pytest.mark.parametrize("networks", ["", "10.0.0.0/8"])
async def test_a_browser_cannot_send_the_desk_to_this_machine_or_its_neighbours(
    home: Home, networks: str
) -> None:
    service = PushService(address="https://localhost:1")
    keys = service.subscription("x")["keys"]
    places = [
        "https://localhost/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://192.168.0.1:8443/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://0/x",
        "https://2130706433/x",
        "http://1.1.1.1/x",
        "https://me@1.1.1.1/x",
        "https://1.1.1.1:99999/x",
        "https://1.1.1.1:0/x",
        "https://1.1.1.1/../x",
        "https://1.1.1.1/x#y",
        "file:///etc/passwd",
        "https://" + "a" * 70 + ".example/x",
        "",
    ]
    wrong: list[Any] = [{"endpoint": each, "keys": keys} for each in places]
    fine = "https://1.1.1.1/x"
    wrong += [
        None,
        [],
        {},
        "x",
        7,
        {"endpoint": fine},
        {"endpoint": fine, "keys": []},
        {"endpoint": 7, "keys": keys},
    ]
    wrong += [
        {"endpoint": fine, "keys": keys | {name: "AAAA"}} for name in ("auth", "p256dh")
    ]
    wrong += [{"endpoint": fine, "keys": keys | {"p256dh": text_of(b"\x04" + bytes(64))}}]
    wrong += [{"endpoint": f"https://1.1.1.1/{'x' * 3000}", "keys": keys}]
    async with at_desk(home, DESKHAND_PUSH_NETWORKS=networks) as (desk, person):
        answers = [await subscribe(person, each) for each in wrong]
        assert [
            given
            for given, (status, _) in zip(wrong, answers, strict=True)
            if status != 422
        ] == []
        assert await desk.store.read(subscriptions.list_subscriptions) == []
        assert (await subscribe(person, {"endpoint": fine, "keys": keys}))[0] == 303
        assert (
            await person.http.post("/phone/subscribe", data={"subscription": "{}"})
        ).status_code == 403


@requirement("push:listed")
async def test_browsers_that_are_told_are_listed_and_end_one_by_one_and_with_their_session(
    home: Home,
) -> None:
    service = PushService(address="https://127.0.0.1:1")
    async with at_desk(home) as (desk, person):
        person.http.headers["User-Agent"] = "Mozilla/5.0 (iPhone) Safari/605"
        for name in ("one", "two", "two"):
            assert (await subscribe(person, service.subscription(name)))[0] == 303
        listed = (await person.reads("/phone")).text
        assert listed.count("Safari on an iPhone</bdi>") == 2
        one, _ = await desk.store.read(subscriptions.list_subscriptions)
        assert one.endpoint not in listed
        assert one.secret not in listed
        await person.sends("/phone/end", {"name": one.name}, at="/phone")
        (two,) = await desk.store.read(subscriptions.list_subscriptions)
        assert two.endpoint.endswith("/two")
        for number in range(subscriptions.MOST - 1):
            assert (await subscribe(person, service.subscription(f"more-{number}")))[
                0
            ] == 303
        assert (
            "browsers are told already"
            in (await subscribe(person, service.subscription("another")))[1]
        )

        async with signed_in(desk, str(person.http.base_url)) as other:
            await subscribe(other, service.subscription("two"))
            await other.sends("/leave")
        assert (
            len(await desk.store.read(subscriptions.list_subscriptions))
            == subscriptions.MOST - 1
        )
        await person.sends("/leave")
        assert await desk.store.read(subscriptions.list_subscriptions) == []
        assert (await subscribe(person, service.subscription("one")))[
            0
        ] == 303  # to the sign-in
        assert await desk.store.read(subscriptions.list_subscriptions) == []


@requirement("notify:quiet")
async def test_in_quiet_hours_and_of_what_is_snoozed_nobody_is_told(home: Home) -> None:
    clock = Clock()
    clock.time = datetime(2026, 3, 28, 21, 0, tzinfo=UTC)
    more = {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_QUIET": "22:00-7:00",
        "DESKHAND_TIMEZONE": "Europe/Berlin",
    }
    desk = Desk(load(home.environment | more).settings, clock)
    told: Queue[int] = Queue()
    looks = 0
    looked = anyio.Event()

    async def deliver(found: Known) -> Reception:
        told.put_nowait(len(found.waiting))
        return Reception(is_taken=True)

    async def list_receivers() -> Mapping[str, Deliver]:
        nonlocal looks
        looks += 1
        if looks > 3:
            looked.set()
        return {"somebody": deliver}

    async def look_a_few_times() -> None:
        nonlocal looks, looked
        looks = 0
        looked = anyio.Event()
        with anyio.fail_after(60):
            await looked.wait()

    try:
        await propose(desk, 1)
        await propose(desk, 2)
        async with anyio.create_task_group() as group:
            group.start_soon(tell_all, desk, notify.PART, list_receivers, PACE)
            await look_a_few_times()
            assert told.empty()
            clock.time = datetime(
                2026, 3, 29, 5, 0, tzinfo=UTC
            )  # seven in summer, which began this night
            with anyio.fail_after(60):
                assert await told.get() == 2
            (card, _), _ = await desk.waiting.cards()
            await desk.answers.snooze(
                card.id, datetime(2026, 3, 29, 9, 0, tzinfo=UTC), "person", "page"
            )
            await look_a_few_times()
            assert told.empty()
            clock.time = datetime(2026, 3, 29, 9, 1, tzinfo=UTC)
            with anyio.fail_after(60):
                assert await told.get() == 2
            group.cancel_scope.cancel()
    finally:
        desk.close()


@requirement("notify:quiet")
def test_quiet_hours_follow_the_clock_on_the_wall_when_an_hour_is_left_out_or_comes_twice() -> (
    None
):
    def quiet_at(text: str, hours: str) -> bool:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return is_within(local(at, "Europe/Berlin"), hours)

    # In March two o'clock is left out; in October it comes twice, and both are quiet.
    march = [
        quiet_at(f"2026-03-29T0{each}", "02:00-03:30") for each in ("0:59", "1:00", "1:30")
    ]
    october = [
        quiet_at(f"2026-10-25T0{each}", "02:00-03:00") for each in ("0:00", "1:30", "2:00")
    ]
    assert (march, october) == ([False, True, False], [True, True, False])


@requirement("notify:quiet")
def test_hours_may_go_over_midnight_and_are_checked(home: Home) -> None:
    def read(text: str) -> str | None:
        return load(home.environment | {"DESKHAND_QUIET": text}).settings.quiet

    night, noon = "22:00-07:00", "12:00-13:00"
    times = ("21:59", "22:00", "06:59", "07:00", "12:00", "12:59", "13:00")
    moments = [datetime.fromisoformat(f"2026-01-01T{each}") for each in times]
    assert [is_within(at, night) for at in moments] == [
        False,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert [is_within(at, noon) for at in moments] == [
        False,
        False,
        False,
        False,
        True,
        True,
        False,
    ]
    assert (read("22:00 - 7:00"), read("00:00-23:59")) == (night, "00:00-23:59")
    for wrong in (
        "22-7",
        "22:00",
        "24:00-07:00",
        "22:00-22:00",
        "22:60-07:00",
        "at night",
        "",
    ):
        with pytest.raises(BadConfig, match="configuration"):
            read(wrong)
