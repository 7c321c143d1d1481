"""`deskhand passkey`: the person's passkeys, as far as a terminal can see to them; they are made on the page."""

import argparse
import asyncio
from typing import Any

from deskhand.cli.command import command, group, opened_desk, tell


def add_to(commands: Any) -> None:
    passkey = group(
        commands,
        "passkey",
        "the passkeys that sign you in and sign your answers; made on the page",
    )
    command(
        passkey,
        "list",
        _list,
        "each passkey: its name, for which host, when it was used",
        json=True,
    )
    revoke = command(
        passkey, "revoke", _revoke, "let nothing count any more that this passkey signs"
    )
    revoke.add_argument("name", help="the name of the passkey")
    command(
        passkey, "codes", _codes, "new recovery codes, shown once; they end the old ones"
    )


def _list(options: argparse.Namespace) -> None:
    from deskhand import clock
    from deskhand.gate import passkeys

    with opened_desk() as desk:
        kept = desk.store.write_sync(passkeys.list_keys, desk.policy.seal)
    for key in kept:
        used = key.used and clock.iso(key.used)
        facts = {
            "name": key.name,
            "host": key.host,
            "credential": key.id,
            "made": clock.iso(key.created),
            "used": used,
        }
        tell(
            options,
            facts,
            f"{key.name}  for {key.host}, made {facts['made']}, used {used or 'never'}",
        )
    if not kept and not options.json:
        print("There are no passkeys; you make one on the page.")


def _revoke(options: argparse.Namespace) -> None:
    from deskhand.gate import passkeys

    with opened_desk() as desk:
        key = desk.store.write_sync(
            passkeys.revoke, desk.policy.seal, options.name, desk.now()
        )
        asyncio.run(
            desk.record("person", "revoke_passkey", key.name, {"credential": key.id})
        )
    print(f"{key.name} is revoked; nothing that it signs counts any more.")


def _codes(options: argparse.Namespace) -> None:
    from deskhand.gate import passkeys

    del options
    with opened_desk() as desk:
        codes = desk.store.write_sync(passkeys.replace_codes, desk.policy.seal, desk.now())
        asyncio.run(
            desk.record("person", "make_recovery_codes", "terminal", {"codes": len(codes)})
        )
    print("\n".join(codes))
