"""The servers of an address: what its domain says in a file or in DNS becomes a proposal, and nothing more."""

import asyncio
import json
import os
import pty
import socketserver
import ssl
import struct
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.abroad import Reach
from deskhand.config import load
from deskhand.errors import DeskError, InvalidInput, NotFound, Unavailable
from deskhand.mail.autodiscovery import BYTES, PLACES, Autodiscovery, ProposedServers
from deskhand.mail.resolver import Resolver, read_resolver, system_resolver
from tests.requirements import requirement
from tests.setup.account import Account
from tests.web.person import served
from tests.web.proxy import write_certificates

pytestmark = [pytest.mark.anyio, requirement("accounts:discovered")]

ADDRESS = "ada@example.net"
SRV = 33


def pack_name(name: str) -> bytes:
    return (
        b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label)
        + b"\0"
    )


def service(host: str, port: int, priority: int = 0, weight: int = 0) -> tuple[int, bytes]:
    return SRV, struct.pack("!3H", priority, weight, port) + pack_name(host)


def address(number: str) -> tuple[int, bytes]:
    packed = ip_address(number).packed
    return {4: 1, 16: 28}[len(packed)], packed


class DnsDouble:
    """A DNS server on loopback: what it knows, and how it misbehaves."""

    def __init__(self) -> None:
        self.knows: dict[str, list[tuple[int, bytes]]] = {}
        self.manners = ""
        self.asked: list[str] = []

    def answer(self, query: bytes) -> list[bytes]:
        """The messages that answer a query by UDP; the last one is the answer by TCP."""
        end = query.index(b"\0", 12) + 5
        kind = int.from_bytes(query[end - 4 : end - 2])
        labels = query[12 : end - 5]
        name = ""
        while labels:
            name += f".{labels[1 : 1 + labels[0]].decode()}"
            labels = labels[1 + labels[0] :]
        self.asked.append(name[1:])
        fitting = [each for each in self.knows.get(name[1:], []) if each[0] == kind]
        records = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", code, 1, 60, len(said)) + said
            for code, said in fitting
        )
        count = len(fitting)
        flags = 0x8180 if name[1:] in self.knows else 0x8183
        match self.manners:
            case "broken":
                records = b"\x3f"
                count = 1
            case "loop":
                records = struct.pack("!BB", 0xC0, end) * 3
                count = 1
            case "busy":
                flags = 0x8182
        whole = (
            query[:2] + struct.pack("!5H", flags, 1, count, 0, 0) + query[12:end] + records
        )
        forged = whole.replace(b"\x04imap", b"\x04evil")
        match self.manners:
            case "cut short":
                return [
                    query[:2]
                    + struct.pack("!5H", flags | 0x0200, 1, 0, 0, 0)
                    + query[12:end],
                    whole,
                ]
            case "forged":
                other = bytes([query[0] ^ 1])
                return [
                    b"",
                    b"\0",
                    other + forged[1:],
                    forged[:12] + b"\4evil" + forged[17:],
                    query,
                    whole,
                ]
            case _:
                return [whole]


@pytest.fixture
def dns() -> Iterator[tuple[DnsDouble, int]]:
    double = DnsDouble()

    class Datagrams(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, door = self.request
            for message in double.answer(query):
                door.sendto(message, self.client_address)

    class Streams(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            message = double.answer(self.rfile.read(int.from_bytes(self.rfile.read(2))))[-1]
            self.wfile.write(struct.pack("!H", len(message)) + message)

    def open_both() -> tuple[socketserver.TCPServer, socketserver.UDPServer]:
        """On one port, which may be somebody else's for the second of them."""
        by_tcp = socketserver.TCPServer(("127.0.0.1", 0), Streams)
        try:
            return by_tcp, socketserver.UDPServer(by_tcp.server_address[:2], Datagrams)
        except OSError:
            by_tcp.server_close()
            return open_both()

    with ExitStack() as stack:
        both = open_both()
        port = int(both[0].server_address[1])
        for server in both:
            stack.enter_context(server)
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield double, port


def server(
    kind: str, host: str, port: object, encryption: str, user: str = "%EMAILADDRESS%"
) -> str:
    way = "incoming" if kind != "smtp" else "outgoing"
    return (
        f'<{way}Server type="{kind}"><hostname>{host}</hostname><port>{port}</port><socketType>{encryption}'
        f"</socketType><authentication>password-cleartext</authentication><username>{user}</username></{way}Server>"
    )


def autoconfig(*servers: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<clientConfig version="1.1"><emailProvider id="example.net">'
        f"<domain>example.net</domain><displayName>Example</displayName>{''.join(servers)}"
        "</emailProvider></clientConfig>"
    )


GOOD = autoconfig(
    server("pop3", "pop.example.net", 995, "SSL"),
    server("imap", "plain.example.net", 143, "plain"),
    server("imap", "imap.example.net", 143, "STARTTLS"),
    server("imap", "imap.example.net", 993, "SSL"),
    server("smtp", "mail.provider.example", 2465, "SSL", "%EMAILLOCALPART%"),
)
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "imap.example.net"><!ENTITY b "&a;&a;&a;">]>'
    + GOOD.partition("?>")[2].replace("imap.example.net", "&a;")
)


class ConfigSite:
    """A web site at desk.example.net, to which a test says what lies there."""

    def __init__(self) -> None:
        self.response: Response | None = None
        self.asked: list[str] = []
        self.place = ""
        self.ended = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        self.asked.append(str(request.url))
        if self.response is None:
            await self.ended.wait()
        return self.response or Response()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[ConfigSite]:
    write_certificates(tmp_path)
    made = ConfigSite()
    app = Starlette(routes=[Route("/{path:path}", made.answer)])
    async with served(app, tls=tmp_path / "server.pem") as address:
        port = address.rpartition(":")[2]
        made.place = f"https://desk.{{domain}}:{port}/config.xml?emailaddress={{address}}"
        yield made
        made.ended.set()


def discovery(folder: Path, port: int, *places: str, **more: Any) -> Autodiscovery:
    """One that goes to this machine, too, and knows the authority of its certificates."""
    trust = ssl.create_default_context(cafile=folder / "ca.pem")
    resolver = Resolver((("127.0.0.1", port),), seconds=30)

    def may_reach(_: str) -> bool:
        return True

    def get_trust() -> ssl.SSLContext:
        return trust

    return Autodiscovery(
        resolver, Reach(may_reach, get_trust, resolver.find_addresses), places, **more
    )


def urls(found: ProposedServers) -> tuple[str, str | None]:
    if found.smtp is None:
        return found.imap.url, None
    return found.imap.url, found.smtp.url


async def test_a_file_says_which_servers_there_are_and_nothing_without_encryption_is_taken(
    site: ConfigSite, dns: tuple[DnsDouble, int], tmp_path: Path
) -> None:
    double, port = dns
    double.knows = {"desk.example.net": [address("127.0.0.1")]}
    finder = discovery(tmp_path, port, site.place)
    site.response = Response(GOOD, media_type="text/xml")

    found = await finder.propose("Ada+x@Example.NET")
    assert urls(found) == (
        "imaps://Ada%2Bx%40example.net@imap.example.net",
        "smtps://Ada%2Bx@mail.provider.example:2465",
    )
    assert "emailaddress=Ada%2Bx%40example.net" in site.asked[0]
    assert found.smtp is not None
    assert (found.imap.is_outside, found.smtp.is_outside) == (False, True)
    assert "config.xml" in found.imap.source
    assert str(found).count("outside the address's own domain") == 1

    refused = [
        GOOD.replace("imap.example.net", host)
        for host in (
            "localhost",
            "127.0.0.1",
            "[::1]",
            "2130706433",
            "0x7f.1",
            "x",
            "a_b.example",
            "a b.example",
            "a@b.c",
        )
    ]
    refused += [
        GOOD.replace("993", port).replace("143", port)
        for port in ("0", "65536", "-1", "٩٩٣", "")
    ]
    refused += [
        GOOD.replace("%EMAILADDRESS%", user)
        for user in ("a b", "a&#10;b", "a\u202eb", "a" * 400)
    ]
    refused += [
        autoconfig(server("imap", "imap.example.net", 143, how))
        for how in ("plain", "", "ssl?")
    ]
    refused += [
        BOMB,
        "",
        "<a>" * 20_000,
        "{}",
        GOOD[:-9],
        GOOD.replace("UTF-8", "no-such"),
        GOOD + " " * BYTES,
    ]
    answers = [Response(each) for each in refused]
    answers += [
        Response(GOOD, 404),
        RedirectResponse("https://desk.example.net/other"),
        Response(GOOD, headers={"Content-Encoding": "gzip"}),
    ]
    for site.response in answers:
        with pytest.raises(NotFound, match=r"no mail servers were found for example\.net"):
            await finder.propose(ADDRESS)

    site.response = Response(
        autoconfig(server("imap", "IMAP.Example.NET.", 143, "STARTTLS", ""))
    )
    found = await finder.propose(ADDRESS)
    assert urls(found) == ("imap://ada%40example.net@imap.example.net", None)
    assert "sends: none was found" in str(found)

    before = len(site.asked)
    walled = replace(
        finder,
        reach=Reach(
            trust=finder.reach.trust, find_addresses=finder.resolver.find_addresses
        ),
    )
    for others in ([], [address("93.184.215.14")], [address("2606:4700::1111")]):
        double.knows = {"desk.example.net": [address("127.0.0.1"), *others]}
        with pytest.raises(NotFound):
            await walled.propose(ADDRESS)
    assert len(site.asked) == before


async def test_a_silent_or_unknown_host_is_not_waited_for_and_dns_still_counts(
    site: ConfigSite, dns: tuple[DnsDouble, int], tmp_path: Path
) -> None:
    double, port = dns
    double.knows = {
        "desk.example.net": [address("127.0.0.1")],
        "_imaps._tcp.example.net": [service("i.example.net", 993)],
    }
    finder = discovery(tmp_path, port, site.place, seconds=0.2)
    assert urls(await finder.propose(ADDRESS)) == (
        "imaps://ada%40example.net@i.example.net",
        None,
    )

    site.response = Response(GOOD)
    stranger = Autodiscovery(
        finder.resolver,
        Reach(finder.reach.may_reach, find_addresses=finder.reach.find_addresses),
        finder.places,
    )
    assert urls(await stranger.propose(ADDRESS))[0].endswith("@i.example.net")


@pytest.mark.parametrize("manners", ["", "cut short", "forged"])
async def test_dns_says_which_servers_there_are_the_encrypted_and_the_first_ones_before_others(
    dns: tuple[DnsDouble, int], manners: str
) -> None:
    double, port = dns
    double.manners = manners
    double.knows = {
        "_imap._tcp.example.net": [service("imap.example.net", 143)],
        "_imaps._tcp.example.net": [
            service("last.example.net", 993, 9),
            service("light.example.net", 993, 1, 1),
            service("imap.example.net", 1993, 1, 7),
            service(".", 0),
        ],
        "_submission._tcp.example.net": [service("out.provider.example", 587)],
        "_submissions._tcp.example.net": [service(".", 0)],
    }
    resolver = Resolver((("127.0.0.1", port),), seconds=30)
    found = await Autodiscovery(resolver, Reach(), ()).propose(ADDRESS)
    assert urls(found) == (
        "imaps://ada%40example.net@imap.example.net:1993",
        "smtp://ada%40example.net@out.provider.example",
    )
    assert "_imaps._tcp.example.net" in found.imap.source


@pytest.mark.parametrize(
    ("manners", "error"),
    [("", NotFound), ("broken", Unavailable), ("loop", Unavailable), ("busy", Unavailable)],
)
async def test_an_answer_that_is_none_ends_in_a_sentence_with_what_to_type(
    dns: tuple[DnsDouble, int], manners: str, error: type[DeskError]
) -> None:
    double, port = dns
    double.manners = manners
    resolver = Resolver((("127.0.0.1", port),), seconds=30)
    with pytest.raises(error) as refused:
        await Autodiscovery(resolver, Reach(), ()).propose(ADDRESS)
    assert "--imap-url imaps://USER@HOST --smtp-url smtps://USER@HOST" in str(
        refused.value.hint
    )


def test_the_dns_server_is_this_system_s_or_the_one_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\nnameserver\tfe80::1%eth0\n"
    )
    assert system_resolver(file).servers == (("192.0.2.1", 53), ("fe80::1%eth0", 53))
    assert system_resolver(tmp_path / "none").servers == ()
    assert read_resolver("[::1]:5353").servers == (("::1", 5353),)
    for wrong in ("dns.example", "1.2.3.4:99999", "", "["):
        with pytest.raises(InvalidInput, match="is no DNS server"):
            read_resolver(wrong)


@pytest.fixture
def account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Account:
    for name in [each for each in os.environ if each.startswith("DESKHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DESKHAND_HOME", str(tmp_path / "desk"))
    return Account(tmp_path, tmp_path / "desk", tmp_path / "vault", capsys)


def test_the_command_proposes_and_only_the_person_s_word_sets_it(
    account: Account, dns: tuple[DnsDouble, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    double, port = dns
    place = ["--resolver", f"127.0.0.1:{port}"]
    double.knows = {
        "autoconfig.example.net": [address("127.0.0.1")],
        "example.net": [address("93.184.215.14"), address("::ffff:10.0.0.1")],
        "_imaps._tcp.example.net": [service("imap.example.net", 993)],
        "_submissions._tcp.example.net": [service("smtp.provider.example", 465)],
    }
    found = account.deskhand("mail", "discover", ADDRESS, "--json", *place)
    assert found.json["imap"]["url"] == "imaps://ada%40example.net@imap.example.net"
    assert found.json["smtp"] | {"source": ""} == {
        "url": "smtps://ada%40example.net@smtp.provider.example",
        "host": "smtp.provider.example",
        "port": 465,
        "user": ADDRESS,
        "encryption": "TLS",
        "is_outside": True,
        "source": "",
    }
    said = account.deskhand("mail", "discover", ADDRESS, *place)
    assert "smtp.provider.example:465 by TLS as ada@example.net, says DNS" in said.out
    assert "--accept-discovered" in said.out
    assert not account.home.exists()

    # Yes to everything is no yes to strangers, and asks none.
    double.asked.clear()
    account.deskhand("init", "--address", ADDRESS, "--yes", *place)
    assert (load().settings.imap_url, load().settings.mail, double.asked) == (
        None,
        "local",
        [],
    )
    lone = account.deskhand("init", "--accept-discovered", "--yes", *place)
    assert (lone.code, "goes with --address" in lone.err) == (2, True)
    nothing = account.deskhand(
        "init", "--address", "ada@example.org", "--accept-discovered", "--yes", *place
    )
    assert (
        nothing.code != 0,
        "No mail servers were found for example.org" in nothing.err,
    ) == (True, True)

    def answer(*lines: str) -> None:
        ours, theirs = pty.openpty()
        os.write(ours, "".join(f"{line}\n" for line in lines).encode())
        with os.fdopen(theirs) as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", terminal)
            done = account.deskhand("init", *place)
        os.close(ours)
        assert done.code == 0, done.err

    # No vault, IMAP, the address; look: yes, use: no; no servers by hand, user, time zone; do not write.
    answer("", "imap", ADDRESS, "y", "n", "", "", "", "", "n")
    assert load().settings.imap_url is None
    answer("", "imap", ADDRESS, "y", "y", "", "", "y")
    accepted = load().settings
    assert accepted.imap_url is not None
    assert accepted.imap_url.get_secret_value() == found.json["imap"]["url"]

    # The explicit word takes what is found, but never over what the person typed.
    mine = "smtps://me@smtp.example.net"
    words = [
        "--address",
        "bea@example.net",
        "--accept-discovered",
        "--smtp-url",
        mine,
        "--yes",
        "--json",
    ]
    done = account.deskhand("init", "--account", "work", *words, *place)
    assert done.code == 0, done.err
    assert json.loads(done.out)["changed"] == {"mail.accounts": "work"}
    work = load().settings.find_account("work")
    assert work.imap_url is not None
    assert work.smtp_url is not None
    assert work.imap_url.get_secret_value() == "imaps://bea%40example.net@imap.example.net"
    assert work.smtp_url.get_secret_value() == mine


def test_what_is_asked_is_asked_over_tls_alone() -> None:
    assert [place[:8] for place in PLACES] == ["https://"] * 2
