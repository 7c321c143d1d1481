"""Proposes the mail servers of an address: as its domain says in an autoconfig file, else in DNS (RFC 6186, RFC 8314).

Whoever answers is a stranger, and would be told the password. So it is a proposal that says where it comes from, for
the person to agree to; nothing without encryption is in it.
"""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.parsers import expat

from deskhand import unseen
from deskhand.abroad import Reach
from deskhand.errors import NotFound, Unavailable
from deskhand.mail.addresses import recipient
from deskhand.mail.archive import NoText, XmlEvents
from deskhand.mail.resolver import Resolver

if TYPE_CHECKING:
    import httpx2

SECONDS = 8
BYTES = 100_000
PLACES = (
    "https://autoconfig.{domain}/mail/config-v1.1.xml?emailaddress={address}",
    "https://{domain}/.well-known/autoconfig/mail/config-v1.1.xml",
)
_HOST = re.compile(
    r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])"
)
"""A name, and never a number: to this very machine the desk would speak without encryption."""
_PORTS = {"imaps": 993, "imap": 143, "smtps": 465, "smtp": 587}
_SERVICES = {
    "imaps": "_imaps",
    "imap": "_imap",
    "smtps": "_submissions",
    "smtp": "_submission",
}
_SCHEMES = {
    ("imap", "SSL"): "imaps",
    ("imap", "STARTTLS"): "imap",
    ("smtp", "SSL"): "smtps",
    ("smtp", "STARTTLS"): "smtp",
}
"""What an autoconfig file calls them; what else it may say is not encrypted, or no IMAP."""


@dataclass(frozen=True, slots=True)
class ProposedServer:
    url: str
    host: str
    port: int
    user: str
    encryption: str
    is_outside: bool
    """Whether the host is outside the domain of the address: of a provider perhaps, or of somebody else."""
    source: str

    def __str__(self) -> str:
        said = f"{self.host}:{self.port} by {self.encryption} as {self.user}, says {self.source}"
        if self.is_outside:
            said += "\n  careful: this host is outside the address's own domain; agree only if it is your provider's"
        return said


@dataclass(frozen=True, slots=True)
class ProposedServers:
    address: str
    imap: ProposedServer
    smtp: ProposedServer | None

    def __str__(self) -> str:
        sending = self.smtp or "none was found; ask your provider, and give --smtp-url"
        return f"reads: {self.imap}\nsends: {sending}"

    @property
    def answers(self) -> dict[str, str]:
        """The options that they are."""
        made = {"mail": "imap", "address": self.address, "imap_url": self.imap.url}
        if self.smtp is not None:
            made["smtp_url"] = self.smtp.url
        return made


@dataclass(frozen=True, slots=True)
class Autodiscovery:
    resolver: Resolver
    reach: Reach
    places: tuple[str, ...] = PLACES
    seconds: float = SECONDS

    async def propose(self, given: str) -> ProposedServers:
        """Of the first place that names a server, one that is encrypted from the first byte, else by STARTTLS."""
        address = recipient(given, "address")
        domain = address.rpartition("@")[2]
        files = [self._ask_file(place, address) for place in self.places]
        services = [
            self._ask_dns(scheme, f"{name}._tcp.{domain}", address)
            for scheme, name in _SERVICES.items()
        ]
        told = await asyncio.gather(*files, *services)
        found = [server for servers in told for server in servers or ()]
        imap = next((each for each in found if each.url.startswith("imap")), None)
        smtp = next((each for each in found if each.url.startswith("smtp")), None)
        if imap is not None:
            return ProposedServers(address, imap, smtp)
        typed = f"`deskhand init --mail imap --address {shlex.quote(address)}"
        typed += " --imap-url imaps://USER@HOST --smtp-url smtps://USER@HOST`"
        if all(servers is None for servers in told):
            why = "nobody on the net answers"
            raise Unavailable(
                why,
                hint=f"look at the network, name a DNS server by --resolver, or type {typed}",
            )
        hint = f"your provider's help names its servers; then type {typed}"
        raise NotFound(f"no mail servers were found for {domain}", hint=hint)

    async def _ask_file(self, place: str, address: str) -> list[ProposedServer] | None:
        """What the file says; None where there is none that can be read."""
        import httpx2

        url = place.format(
            domain=address.rpartition("@")[2], address=quote(address, safe="")
        )
        with suppress(
            OSError, ValueError, LookupError, httpx2.HTTPError, expat.ExpatError, NoText
        ):
            async with (
                asyncio.timeout(self.seconds),
                self.reach.ask("GET", url, {"Accept": "text/xml"}) as answer,
            ):
                content = await _read(answer)
            return sorted(
                _read_file(content, address, url.partition("?")[0]), key=_is_second_choice
            )
        return None

    async def _ask_dns(
        self, scheme: str, name: str, address: str
    ) -> list[ProposedServer] | None:
        """What DNS says; None where nobody answers."""
        source = f"DNS, unsigned ({name})"
        with suppress(OSError):
            services = await self.resolver.find_services(name)
            made = [
                _make_server(scheme, each.host, str(each.port), address, address, source)
                for each in services
            ]
            return list(filter(None, made))
        return None


async def _read(answer: "httpx2.Response") -> bytes:
    """A file that is there, and short; one that is elsewhere now is not there."""
    if answer.status_code != HTTPStatus.OK or "content-encoding" in answer.headers:
        raise ValueError("it is not there as it is")
    text = b""
    async for part in answer.aiter_raw():
        text += part
        if len(text) > BYTES:
            raise ValueError("it is too long")
    return text


def _read_file(content: bytes, address: str, source: str) -> Iterator[ProposedServer]:
    """The servers in an autoconfig file that the desk can use."""
    document = XmlEvents()
    document.parser.Parse(content, True)
    server: dict[str, str] = {}
    text = ""
    for event, what, given in document.events:
        match event, what:
            case "start", "incomingServer" | "outgoingServer":
                server = {"type": given.get("type", "")}
            case "start", _:
                text = ""
            case "text", _:
                text += what
            case "end", "incomingServer" | "outgoingServer":
                made = _read_server(server, address, source)
                if made is not None:
                    yield made
            case _:
                server.setdefault(what, text.strip())


def _read_server(said: dict[str, str], address: str, source: str) -> ProposedServer | None:
    scheme = _SCHEMES.get((said["type"], said.get("socketType", "")))
    if scheme is None:
        return None
    local, _, domain = address.rpartition("@")
    user = said.get("username") or address
    for name, value in (("DOMAIN", domain), ("LOCALPART", local), ("ADDRESS", address)):
        user = user.replace(f"%EMAIL{name}%", value)
    return _make_server(
        scheme, said.get("hostname", ""), said.get("port", ""), user, address, source
    )


def _make_server(
    scheme: str, host: str, port: str, user: str, address: str, source: str
) -> ProposedServer | None:
    """The server, unless something of it is not what it has to be."""
    host = host.lower().removesuffix(".")
    domain = address.rpartition("@")[2]
    is_port = re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536
    if not is_port or not _HOST.fullmatch(host) or not _is_user(user):
        return None
    place = host
    if int(port) != _PORTS[scheme]:
        place = f"{host}:{int(port)}"
    encryption = "TLS" if scheme.endswith("s") else "STARTTLS"
    outside = not f".{host}".endswith(f".{domain}")
    return ProposedServer(
        f"{scheme}://{quote(user, safe='')}@{place}",
        host,
        int(port),
        user,
        encryption,
        outside,
        source,
    )


def _is_user(text: str) -> bool:
    return (
        len(text) < 300
        and text.isprintable()
        and " " not in text
        and unseen.count(text) == 0
    )


def _is_second_choice(server: ProposedServer) -> bool:
    return server.encryption == "STARTTLS"
