"""Who comes in, and who does not."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from person import served, signed_in
from requirements import requirement

from deskhand.app import Desk
from deskhand.config import load
from deskhand.web import sessions
from deskhand.web.site import site


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    vault = tmp_path / "vault"
    vault.mkdir()
    made = Desk(load({"DESKHAND_HOME": str(tmp_path / "home"), "VAULT_PATH": str(vault)}).settings)
    yield made
    made.close()


@requirement("entry:link")
async def test_a_link_from_the_terminal_lets_one_browser_in_once(desk: Desk) -> None:
    link = await desk.store.write(lambda tx: sessions.invite(tx, desk.now()))
    async with served(site(desk)) as address, httpx2.AsyncClient(base_url=address) as http:
        first = await http.get(f"/enter/{link}")
        second = await http.get(f"/enter/{link}")
    cookie = first.headers["set-cookie"].lower()
    assert first.status_code == 303
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert second.status_code == 401
    assert "was used before" in second.text


@requirement("entry:forms")
async def test_a_form_of_no_session_or_a_foreign_page_has_no_effect(desk: Desk) -> None:
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        without = await person.http.post("/leave", data={})
        foreign = await person.http.post("/leave", data={}, headers={"Origin": "http://evil.example"})
        by_get = await person.http.get("/leave")
        elsewhere = await person.http.get("/", headers={"Host": "evil.example"})
    assert [each.status_code for each in (without, foreign, by_get, elsewhere)] == [403, 403, 405, 421]
