"""Search by meaning: what it finds beside words, what it sends and keeps, and what it says where it cannot."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.notes.meaning import BATCH, PATIENCE, Meaning
from deskhand.servers.obsidian import obsidian_server
from tests.home import Home
from tests.notes.embeddings import EmbeddingStub, questions, write_notes
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
def stub() -> Iterator[EmbeddingStub]:
    with EmbeddingStub() as running:
        yield running


async def ask(client: Client, **arguments: Any) -> Any:
    result = await client.call_tool("search_notes", arguments)
    if result.is_error:
        return json.loads(result.content[0].text)
    return result.structured_content


def paths(page: dict[str, Any]) -> list[str]:
    return [note["path"] for note in page["notes"]]


@requirement("notes:meaning")
async def test_meaning_finds_what_words_do_not_and_says_why(
    home: Home, stub: EmbeddingStub
) -> None:
    write_notes(home.vault)
    desk = Desk(load(home.environment | stub.environment).settings)
    found: dict[str, int] = {"words": 0, "meaning": 0, "both": 0}
    async with Client(obsidian_server(desk)) as client:
        for question, wanted in questions():
            for by in found:
                found[by] += len(
                    wanted & {*paths(await ask(client, query=question, by=by, limit=10))}
                )
        both = await ask(client, query="sofa", by="both", limit=3)
        plain = await ask(client, query="sofa", limit=3)
    desk.close()

    assert found["words"] == 0
    assert found["meaning"] == found["both"] == 150
    assert both["notes"][0]["why"].startswith("words, meaning 0.")
    assert "why" not in plain["notes"][0]
    assert stub.keys == {"Bearer sk-test"}


@requirement("notes:meaning")
async def test_only_what_changed_is_sent_again_and_never_the_desks_own_folders(
    home: Home, stub: EmbeddingStub
) -> None:
    for path, text in (
        ("a.md", "sofa"),
        ("b.md", "engine"),
        ("Needs_Action/mail.md", "couch secret"),
    ):
        (home.vault / path).parent.mkdir(exist_ok=True)
        (home.vault / path).write_text(text)
    desk = Desk(load(home.environment | stub.environment).settings)
    async with Client(obsidian_server(desk)) as client:
        first = await ask(client, query="couch", by="meaning")
        sent = len(stub.texts)
        await ask(client, query="couch", by="meaning")
        (home.vault / "b.md").write_text("a couch")
        (home.vault / "a.md").unlink()
        third = await ask(client, query="couch", by="meaning")
    kept = list((home.path / "cache").glob("*.vectors.db"))
    desk.close()

    assert paths(first) == ["a.md"]
    assert paths(third) == ["b.md"]
    assert (sent, len(stub.texts)) == (3, 6)
    assert not any("secret" in text for text in stub.texts)
    assert [file.stat().st_mode & 0o777 for file in kept] == [0o600]
    assert not list(home.vault.rglob("*.db"))


@requirement("notes:meaning")
def test_a_slow_model_gets_as_many_notes_as_one_question_may_wait_for(
    tmp_path: Path,
) -> None:
    for number in range(3 * BATCH):
        (tmp_path / f"{number}.md").write_text("sofa")
    times = count(0, PATIENCE / 2)  # as if each look at the clock came so much later

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    def now() -> float:
        return next(times)

    meaning = Meaning(tmp_path, tmp_path / "vectors.db", "slow", embed, now=now)
    found = [meaning.search("couch", 100) for _ in range(3)]
    assert [(len(notes), left) for notes, left in found] == [
        (BATCH, 2 * BATCH),
        (2 * BATCH, BATCH),
        (3 * BATCH, 0),
    ]


@requirement("notes:meaning")
async def test_what_cannot_be_is_refused_with_what_to_do(
    home: Home, stub: EmbeddingStub
) -> None:
    (home.vault / "a.md").write_text("sofa")
    plain = Desk(load(home.environment).settings)
    async with Client(obsidian_server(plain)) as client:
        refused = await ask(client, query="sofa", by="meaning")
        words = await ask(client, query="sofa", by="words")
    plain.close()
    desk = Desk(load(home.environment | stub.environment).settings)
    async with Client(obsidian_server(desk)) as client:
        answers = []
        for status, body in (
            (500, None),
            (401, None),
            (200, b"{}"),
            (200, b"[]"),
            (200, b'{"data": []}'),
            (200, None),
        ):
            stub.status, stub.answer = status, body
            answers.append(await ask(client, query="sofa", by="both"))
        damaged = next((home.path / "cache").glob("*.vectors.db"))
        damaged.write_bytes(b"damaged" * 1000)
        answers += [await ask(client, query="sofa", by="meaning") for _ in range(2)]
        paged = await ask(client, query="sofa", by="both", cursor="x")
    desk.close()

    assert "notes.embedding_url" in json.dumps(refused)
    assert paths(words) == ["a.md"]
    assert [("error" in answer) for answer in answers] == [
        True,
        True,
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    assert paged["error"] == "parse_error"
