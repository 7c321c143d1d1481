"""Tokens: made once, kept as a digest, limited by scopes."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from deskhand import tokens
from deskhand.app import Desk
from deskhand.errors import Exists, InvalidInput
from tests.home import Home
from tests.requirements import requirement

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@requirement("tokens:kept")
def test_a_token_is_told_once_listed_without_its_secret_and_revoked_by_name(
    home: Home,
) -> None:
    made = home.command(
        "token",
        "create",
        "--name",
        "codex",
        "--scope",
        "mail:read",
        "--scope",
        "notes:write",
    )
    everything = json.loads(
        home.command("token", "create", "--name", "all", "--user", "ann", "--json").stdout
    )
    listed = home.command("token", "list")
    fields = [
        json.loads(line)
        for line in home.command("token", "list", "--json").stdout.splitlines()
    ]
    token = made.stdout.strip()

    assert made.returncode == 0, made.stderr
    assert made.stderr == "It is shown this once; keep it where its assistant finds it.\n"
    assert [
        (each["name"], each["user_id"], each["scopes"], each["used"]) for each in fields
    ] == [
        ("codex", None, ["mail:read", "notes:write"], None),
        (
            "all",
            "ann",
            ["mail:write", "notes:write", "tasks:write", "agents:write", "guard:write"],
            None,
        ),
    ]
    assert "codex  -  mail:read,notes:write" in listed.stdout
    assert "never used" in listed.stdout
    assert everything["scopes"] == fields[1]["scopes"]
    with sqlite3.connect(home.path / "desk.db") as database:
        dumped = "\n".join(database.iterdump())
    database.close()
    assert token not in listed.stdout + dumped
    assert everything["token"] not in listed.stdout + dumped
    assert home.command("token", "revoke", "codex").returncode == 0
    assert home.command("token", "revoke", "codex").returncode == 4


@requirement("tokens:kept")
def test_what_is_not_a_token_is_refused_with_what_would_do(home: Home) -> None:
    unknown = home.command("token", "create", "--name", "codex", "--scope", "approve:write")
    nameless = home.command("token", "create")
    twice = home.command("token", "create", "ann", "--user", "bob")

    assert [each.returncode for each in (unknown, nameless, twice)] == [2, 2, 2]
    assert "approve:write" in unknown.stderr
    assert all(scope in unknown.stderr for scope in tokens.SCOPES)
    assert "--name" in nameless.stderr
    for name in ("person", "Person", "Pers\u00f6n", "p\u0435rson"):
        posing = home.command("token", "create", "--name", name)
        assert (posing.returncode, posing.stdout) == (2, "")
        assert "Under the name person you write yourself." in posing.stderr
    assert home.command("token", "list").stdout == "There are no tokens.\n"


@requirement("tokens:kept")
def test_a_users_token_opens_the_tasks_alone(desk: Desk, home: Home) -> None:
    home.command("token", "create", "ann")
    (kept,) = desk.store.write_sync(tokens.list_tokens)

    assert (kept.name, kept.user_id, kept.scopes) == ("ann", "ann", ("tasks:write",))
    with pytest.raises(Exists):
        desk.store.write_sync(lambda tx: tokens.create(tx, "ann", NOON))
    with pytest.raises(InvalidInput):
        desk.store.write_sync(lambda tx: tokens.create(tx, "bob", NOON, user="line\nbreak"))


@requirement("tokens:kept")
async def test_that_a_token_was_used_is_noted_once_a_minute(desk: Desk) -> None:
    token = await desk.store.write(lambda tx: tokens.create(tx, "codex", NOON))

    async def used_after(seconds: int) -> datetime | None:
        shown = await tokens.authenticate(
            desk.store, token, NOON + timedelta(seconds=seconds)
        )
        assert shown is not None
        (kept,) = await desk.store.read(tokens.list_tokens)
        return kept.used

    assert await tokens.authenticate(desk.store, f"{token}x", NOON) is None
    assert [await used_after(seconds) for seconds in (5, 60, 70)] == [
        NOON + timedelta(seconds=seconds) for seconds in (5, 5, 70)
    ]


@requirement("tokens:scopes")
def test_writing_includes_reading_and_no_area_opens_another() -> None:
    assert tokens.opens(["mail:write"], "mail", writes=False)
    assert not tokens.opens(["mail:read"], "mail", writes=True)
    assert not tokens.opens(["mail:write"], "notes", writes=False)
    assert tokens.with_reading(["notes:write", "mail:read"]) == [
        "mail:read",
        "notes:read",
        "notes:write",
    ]
    assert tokens.check_scopes(["notes:write", "mail:read", "mail:read"]) == (
        "mail:read",
        "notes:write",
    )
