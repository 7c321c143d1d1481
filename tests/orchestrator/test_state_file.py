"""Logs/orchestrator_state.json, which other watchers keep their own state in."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mail.letters import letter
from tests.orchestrator.office import Office
from tests.requirements import requirement


@pytest.fixture
def state(office: Office) -> Path:
    file = office.vault / "Logs" / "orchestrator_state.json"
    file.parent.mkdir()
    return file


def read(file: Path) -> Any:
    return json.loads(file.read_text())


@requirement("orchestrator:state-file")
def test_keys_of_others_stay_whatever_they_are_called(office: Office, state: Path) -> None:
    theirs = {
        "processed_ids": ["18d5"],
        "last_check": "theirs",
        "nested": {"a": [1, None]},
        "text": "\ud800 ü",
    }
    state.write_text(json.dumps(theirs))
    office.passes(2)
    found = read(state)
    assert {name: found[name] for name in theirs} == theirs
    assert (found["mailbox"], found["mail"]) == ("ok", "local")
    assert "processed_ids" not in office.status()["health"]

    found["processed_ids"].append("18d6")
    state.write_text(json.dumps(found))
    office.passes()
    assert read(state)["processed_ids"] == ["18d5", "18d6"]


@requirement("orchestrator:state-file")
def test_the_desks_own_keys_do_not_outlive_what_they_say(
    office: Office, state: Path
) -> None:
    former = {
        "last_check": "2026",
        "mail": "local",
        "cursor": "1",
        "model": "none",
        "mailbox": "ok",
        "vault": "gone",
    }
    state.write_text(json.dumps(former))
    office.passes()
    found = read(state)
    assert ("vault" in found, found["last_check"] != "2026") == (False, True)


@requirement("orchestrator:state-file")
@pytest.mark.parametrize(
    "data", [b"{half", b"[1, 2]", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}}', b"7" * 5000]
)
def test_what_is_no_state_is_put_aside_and_named(
    office: Office, state: Path, data: bytes
) -> None:
    state.write_bytes(data)
    office.passes(2)
    assert read(state)["mailbox"] == "ok"
    (aside,) = state.parent.glob("orchestrator_state.put-aside-*")
    assert aside.read_bytes() == data
    assert aside.name in office.status()["health"]["put_aside"]
    assert aside.name in (office.vault / "Dashboard.md").read_text().replace("\\", "")


@requirement("orchestrator:state-file")
def test_an_empty_file_is_simply_filled(office: Office, state: Path) -> None:
    state.touch()
    office.passes()
    assert [file.name for file in state.parent.glob("orchestrator_state*")] == [state.name]


@requirement("orchestrator:state-file")
def test_when_the_last_mail_came_stays_however_often_nothing_came_since(
    office: Office, state: Path
) -> None:
    office.receive(letter())
    office.passes()
    came = read(state)["last_mail"]
    office.passes(2)
    assert read(state)["last_mail"] == came


@requirement("orchestrator:state-file")
@pytest.mark.parametrize(
    "named", ['["a"]', '"\\ud800"', '{"\\ud800": 1}', "7", '{"a": []}']
)
def test_what_somebody_else_wrote_over_the_desks_own_keys_costs_no_crash(
    office: Office, state: Path, named: str
) -> None:
    own = '["not_triaged", "mailbox"]'
    state.write_text(
        f'{{"not_triaged": {named}, "mailbox": {named}, "written_by_deskhand": {own}}}'
    )
    assert isinstance(office.status()["not_triaged"], dict)
    office.passes()
    assert read(state)["mailbox"] == "ok"
