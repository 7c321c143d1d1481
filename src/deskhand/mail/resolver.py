"""Asks a DNS server. The system's own lookup finds addresses alone, while a domain names its mail servers by SRV, and
nobody can end it when it takes too long."""

import asyncio
import re
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from deskhand.errors import InvalidInput

T = TypeVar("T")
Server = tuple[str, int]
_A = 1
_AAAA = 28
_SRV = 33
_INTERNET = 1
_RECURSE = 0x0100
_CUT_SHORT = 0x02
_NO_SUCH_NAME = 3
_MOST_LABELS = 128
_BAD_ANSWERS = (OSError, EOFError, ValueError, IndexError, struct.error)


class ServiceRecord(NamedTuple):
    """Where a service is, the best of several first when they are sorted."""

    priority: int
    minus_weight: int
    port: int
    host: str


@dataclass(frozen=True, slots=True)
class Resolver:
    servers: tuple[Server, ...]
    seconds: float = 2
    """How long one server is waited for; two are asked, and each twice, because a datagram may be lost."""

    async def find_addresses(self, host: str, _port: int) -> list[str]:
        old = await self._ask(host, _A, _read_address_4)
        return old + await self._ask(host, _AAAA, _read_address_6)

    async def find_services(self, name: str) -> list[ServiceRecord]:
        return sorted(await self._ask(name, _SRV, _read_service))

    async def _ask(self, name: str, kind: int, read: Callable[[bytes, int], T]) -> list[T]:
        query = (
            secrets.token_bytes(2)
            + struct.pack("!5H", _RECURSE, 1, 0, 0, 0)
            + _write_question(name, kind)
        )
        for server in self.servers[:2] * 2:
            with suppress(*_BAD_ANSWERS):
                async with asyncio.timeout(self.seconds):
                    answer = await _exchange(server, query)
                return [read(answer, at) for at in _find_records(answer, kind)]
        raise OSError("no DNS server answers")


def system_resolver(file: Path = Path("/etc/resolv.conf")) -> Resolver:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return Resolver(
        tuple(
            (found, 53) for found in re.findall(r"^nameserver\s+(\S+)", text, re.MULTILINE)
        )
    )


def read_resolver(text: str) -> Resolver:
    """The one that the person names: ADDRESS or ADDRESS:PORT, one of IPv6 in brackets."""
    try:
        parts = urlsplit(f"//{text}")
        address = ip_address(parts.hostname or "")
        return Resolver(((str(address), parts.port or 53),))
    except ValueError as error:
        raise InvalidInput(
            f"{text} is no DNS server", hint="write its number, such as 9.9.9.9 or [::1]:53"
        ) from error


async def _exchange(server: Server, query: bytes) -> bytes:
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    loop = asyncio.get_running_loop()
    answer = b""
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        await loop.sock_connect(asking, server)
        await loop.sock_sendall(asking, query)
        while not _is_answer(answer, query):  # another one is late, or forged
            answer = await loop.sock_recv(asking, 65535)
    if answer[2] & _CUT_SHORT:
        answer = await _exchange_by_tcp(server, query)
    if answer[3] & 15 not in (0, _NO_SUCH_NAME):
        raise ValueError("the DNS server failed")
    return answer


async def _exchange_by_tcp(server: Server, query: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*server)
    try:
        writer.write(struct.pack("!H", len(query)) + query)
        size = await reader.readexactly(2)
        answer = await reader.readexactly(int.from_bytes(size))
    finally:
        writer.close()
    if not _is_answer(answer, query):
        raise ValueError("an answer to another question")
    return answer


def _is_answer(message: bytes, query: bytes) -> bool:
    """Whether it has the number of the query and repeats its question."""
    is_one = len(message) >= len(query) and message[2] >= 128
    return (
        is_one
        and message[:2] == query[:2]
        and message[12 : len(query)].lower() == query[12:].lower()
    )


def _write_question(name: str, kind: int) -> bytes:
    labels = name.encode("ascii").split(b".")
    return b"".join(bytes([len(label)]) + label for label in labels) + struct.pack(
        "!xHH", kind, _INTERNET
    )


def _find_records(message: bytes, kind: int) -> Iterator[int]:
    """Where what each record of this kind says begins."""
    _, at = _read_name(message, 12)
    at += 4
    for _ in range(int.from_bytes(message[6:8])):
        _, at = _read_name(message, at)
        found, _, _, size = struct.unpack_from("!HHIH", message, at)
        at += 10
        if found == kind:
            yield at
        at += size


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    """A name, and where the next thing begins. A name may go on elsewhere, even where it
    has been: hence the limit."""
    labels: list[str] = []
    following = 0
    for _ in range(_MOST_LABELS):
        size = message[at]
        if size == 0:
            return ".".join(labels), following or at + 1
        if size >= 0xC0:
            following = following or at + 2
            at = (size & 0x3F) << 8 | message[at + 1]
            continue
        labels.append(message[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    raise ValueError("a name without an end")


def _read_address_4(message: bytes, at: int) -> str:
    return str(ip_address(message[at : at + 4]))


def _read_address_6(message: bytes, at: int) -> str:
    return str(ip_address(message[at : at + 16]))


def _read_service(message: bytes, at: int) -> ServiceRecord:
    priority, weight, port = struct.unpack_from("!3H", message, at)
    host, _ = _read_name(message, at + 6)
    return ServiceRecord(priority, -weight, port, host)
