from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Home
from hypothesis import given
from hypothesis import strategies as st
from requirements import requirement

from deskhand import audit
from deskhand.store import Store, Transaction, open_store


def entry(**changes: object) -> audit.Entry:
    fields = {
        "timestamp": "2026-11-15T09:00:00.000Z",
        "correlation_id": "c",
        "actor": "obsidian_mcp",
        "action_type": "write_note",
        "target": "Inbox/a.md",
        "result": "success",
    }
    return audit.Entry.model_validate(fields | changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'desk.db'}")
    for number in range(5):
        store.run(lambda tx, number=number: audit.append(tx, entry(correlation_id=str(number))))
    yield store
    store.close()


def verified_after(store: Store, *statements: str) -> audit.Verified | audit.Broken:
    def tamper(tx: Transaction) -> None:
        for statement in statements:
            tx.execute(statement)

    store.run(tamper)
    return store.run(audit.verify)


@requirement("audit:chained")
def test_an_untouched_record_is_whole(store: Store) -> None:
    assert store.run(audit.verify) == audit.Verified(5)


@requirement("audit:chained")
@pytest.mark.parametrize(
    ("statements", "line"),
    [
        (["UPDATE audit SET entry = replace(entry, 'success', 'error') WHERE seq = 3"], 3),
        (["DELETE FROM audit WHERE seq = 2"], 2),
        (["DELETE FROM audit WHERE seq = 5"], 5),
        (["DELETE FROM audit WHERE seq = 1", "UPDATE audit SET seq = seq - 1"], 1),
        (["INSERT INTO audit (seq, entry, hash) SELECT 6, entry, hash FROM audit WHERE seq = 5"], 6),
        (["UPDATE audit SET hash = 'x' WHERE seq = 4"], 4),
        (["UPDATE audit_head SET hash = 'x'"], 5),
        (["DELETE FROM audit_head"], 6),
    ],
    ids=["changed", "removed", "cut off", "renumbered", "inserted", "rehashed", "other head", "no head"],
)
def test_the_first_line_that_is_not_as_written_is_named(store: Store, statements: list[str], line: int) -> None:
    result = verified_after(store, *statements)

    assert isinstance(result, audit.Broken)
    assert result.seq == line


def test_the_newest_entries_come_first_and_can_be_paged(store: Store) -> None:
    newest = store.run(lambda tx: audit.entries(tx, limit=2))
    older = store.run(lambda tx: audit.entries(tx, before=newest[-1][0], limit=10))

    assert [seq for seq, _ in newest + older] == [5, 4, 3, 2, 1]


WORDS = st.text("abcdefghij.xyz-", min_size=1, max_size=20).filter(lambda text: text.strip(".-"))


@requirement("audit:redacted")
@given(
    local=st.text("abcdefghijklmnopqrstuvwxyz0123456789.+-_", min_size=2, max_size=30),
    domain=st.from_regex(r"[a-z]{1,10}\.(com|org)", fullmatch=True),
    before=st.sampled_from(["", "to ", "<", "mail:", '"A B" <', "(", "[", "a@b.org, "]),
    secret=st.text(min_size=8, max_size=40).filter(lambda text: len(set(text)) > 5),
)
def test_no_address_body_or_secret_survives_redaction(local: str, domain: str, before: str, secret: str) -> None:
    address = f"{local}@{domain}"
    event = {
        "to": f"{before}{address}",
        "list": [address],
        "nested": {"text": f"x {address} y", "body": secret, "Token": secret, "password": secret},
        "body": secret,
        "subject": "s" * 80,
    }

    kept = audit.redact(event)

    assert address not in repr(kept)
    assert f"{local[0]}***@{domain}" in repr(kept)
    assert secret not in [value for value in kept.values() if isinstance(value, str)]
    assert set(kept["nested"]) == {"text"}
    assert kept["subject"] == "s" * 50


def test_the_command_line_shows_and_proves_the_record(home: Home) -> None:
    store = open_store(f"sqlite:///{home.path / 'desk.db'}")
    store.run(lambda tx: audit.append(tx, entry(target="john.doe@example.com")))
    shown = home.command("log")
    whole = home.command("log", "--verify")
    store.run(lambda tx: tx.execute("UPDATE audit SET entry = replace(entry, 'j', 'k')"))
    broken = home.command("log", "--verify", "--json")
    store.close()

    assert "write_note  j***@example.com  success" in shown.stdout
    assert (whole.returncode, whole.stdout) == (0, "whole: 1 entries\n")
    assert broken.returncode == 1
    assert '"first_bad_line": 1' in broken.stdout
