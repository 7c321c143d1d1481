"""`deskhand mail discover`: which servers an address has, as a proposal."""

import argparse
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import command, plain, tell

if TYPE_CHECKING:
    from deskhand.mail.autodiscovery import ProposedServers


def add_to(mail: Any) -> None:
    text = "look for the mail servers of an address; nothing is set"
    made = command(mail, "discover", _discover, text, json=True)
    made.add_argument("address", help="a mail address; its domain is asked")
    add_resolver_to(made)


def add_resolver_to(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--resolver", help="the DNS server to ask, such as 9.9.9.9 (default: this system's)"
    )


def propose(address: str, options: argparse.Namespace) -> "ProposedServers":
    import asyncio

    from deskhand.abroad import Reach
    from deskhand.mail.autodiscovery import Autodiscovery
    from deskhand.mail.resolver import read_resolver, system_resolver

    resolver = system_resolver()
    if options.resolver is not None:
        resolver = read_resolver(options.resolver)
    reach = Reach(find_addresses=resolver.find_addresses)
    return asyncio.run(Autodiscovery(resolver, reach).propose(address))


def describe(found: "ProposedServers") -> str:
    return plain(f"found for {found.address}, and not tried yet:\n{found}")


def _discover(options: argparse.Namespace) -> None:
    found = propose(options.address, options)
    use = f"to use them: deskhand init --address {shlex.quote(found.address)} --accept-discovered"
    tell(options, asdict(found), f"{describe(found)}\n{use}")
