"""The index against a plain scan of all files, whatever happens to either."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from deskhand.errors import InvalidInput, Unavailable, Unreadable
from deskhand.notes import catalog, frontmatter
from deskhand.notes.catalog import TEXT_TABLES
from deskhand.notes.index import Index, NoteList
from tests.requirements import requirement

Open = Callable[..., Index]

WORDS = [
    *(
        "alpha",
        "Beta",
        "gamma",
        "delta",
        "echo",
        "the",
        "an",
        "of",
        "zq",
        "c#",
        "x",
        "1.50",
        "don't",
        "e-mail",
        "re:port",
    ),
    *(
        "straße",
        "STRASSE",
        "İstanbul",
        "東京",
        "東京駅の近く",
        "資料",
        "한국어",
        "café",
        "cafe\u0301",
        "naïve",
        "🎉",
        "👩\u200d💻",
    ),
    *(
        "[[Link]]",
        "#tag",
        "foo.bar",
        "_under_",
        "back\\slash",
        '"quoted"',
        "'single'",
        "ﬁne",
        "ǅungla",
        "nul\0nul",
        "\x01x",
    ),
]
FRONTS = (
    "",
    "---\n---\n",
    "---\nstatus: Done\ntags:\n  - alpha\n  - Straße\npriority: 3\n---\n",
    '---\r\nstatus: open\r\ntitle: "caf\\u00e9 au lait"\r\n---\r\n',
    "---\nratio: 100000000000000000000.5\nempty:\nyes: true\nlong: one two\n  three\n---\n",
    "---\nbroken: [unclosed alpha\n---\n",
    "---\n- a list\n- of beta\n---\n",
    "---\nnested: {deep: [資料, 'it''s']}\ndate: 2026-02-30\n---\n",
)


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def index_file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "notes.db"


@pytest.fixture
def open_index(vault: Path, index_file: Path) -> Iterator[Open]:
    opened: list[Index] = []

    def make(**options: object) -> Index:
        opened.append(Index(vault, index_file, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for index in opened:
        index.close()


def write(vault: Path, path: str, text: str | bytes, mtime: int | None = None) -> None:
    file = vault / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    if mtime is not None:
        os.utime(file, (mtime, mtime))


def fill(vault: Path, seed: int, count: int) -> random.Random:
    chance = random.Random(seed)
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randrange(1, 30))
        body = chance.choice((" ", "\n", "  ", "\r\n")).join(words)
        folder = chance.choice(("", "Inbox/", "Projects/Straße/", "日記/", "a/b/c/"))
        name = f"{folder}{chance.choice(WORDS[:6])} {number}{chance.choice(('.md', '.MD'))}"
        write(vault, name, chance.choice(FRONTS) + body, 1_700_000_000 + number)
    return chance


def fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def texts(vault: Path) -> dict[str, str]:
    """Each note's folded searchable text, read and put together the plain way."""
    found = {}
    for file in vault.rglob("*"):
        inside = file.relative_to(vault)
        if (
            file.suffix.lower() != ".md"
            or file.is_symlink()
            or any(part.startswith(".") for part in inside.parts)
        ):
            continue
        source = file.read_bytes().decode("utf-8", "replace")
        try:
            note = frontmatter.parse(source)
            values, body = [*frontmatter.value_texts(note.frontmatter)], note.body
        except Unreadable:
            block, body = frontmatter.split(source)
            values = [block or ""]
        found[inside.as_posix()] = "\n".join(map(fold, [inside.as_posix(), *values, body]))
    return found


def tiers(held: dict[str, str], query: str) -> tuple[set[str], set[str]]:
    whole = fold(query).strip()
    first = {path for path, text in held.items() if whole in text}
    return first, {
        path for path, text in held.items() if all(word in text for word in whole.split())
    } - first


def all_pages(ask: Callable[[str | None], NoteList]) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = ask(cursor)
        found += [hit.path for hit in page.notes]
        assert (page.total is None) == (page.next_cursor is None)
        assert page.total is None or page.total > len(found)
        if (cursor := page.next_cursor) is None:
            return found


def searched(index: Index, query: str, limit: int = 7) -> list[str]:
    return all_pages(lambda cursor: index.search(query, limit, cursor))


def check_against_scan(held: dict[str, str], index: Index, query: str) -> None:
    first, second = tiers(held, query)
    found = searched(index, query)
    assert len(found) == len(set(found)), query
    assert set(found[: len(first)]) == first, query
    assert set(found[len(first) :]) == second, query


def some_query(chance: random.Random, held: list[str]) -> str:
    text = chance.choice(held)
    match chance.randrange(4):
        case 0:
            start = chance.randrange(len(text))
            return text[start : start + chance.randrange(1, 9)].strip() or "x"
        case 1:
            return " ".join(chance.choices(WORDS, k=chance.randrange(1, 4)))
        case 2:
            words = text.split()
            start = chance.randrange(len(words))
            return " ".join(words[start : start + chance.randrange(2, 5)])
        case _:
            return chance.choice(WORDS).upper()


def eventually(holds: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
    return False


def watching(index: Index) -> bool:
    return index.search("x", 1, None).as_of is not None


# What is found


@requirement("index:equals-scan")
@pytest.mark.parametrize("seed", range(4))
def test_search_finds_what_a_scan_of_all_files_finds(
    vault: Path, open_index: Open, seed: int
) -> None:
    chance = fill(vault, seed, 120)
    index = open_index()
    index.build()
    held = texts(vault)
    for _ in range(40):
        check_against_scan(held, index, some_query(chance, [*held.values()]))


@requirement("index:equals-scan")
def test_a_large_build_leaves_tables_of_one_piece_that_answer_the_same(
    vault: Path, index_file: Path, open_index: Open
) -> None:
    chance = fill(vault, 21, 1200)
    index = open_index(batch=50)
    index.build()
    with sqlite3.connect(f"file:{index_file}?mode=ro", uri=True) as db:
        pieces = [
            db.execute(f"SELECT count(DISTINCT segid) FROM {table}_idx").fetchone()[0]
            for table in TEXT_TABLES
        ]
    held = texts(vault)
    for _ in range(20):
        check_against_scan(held, index, some_query(chance, [*held.values()]))
    assert pieces == [1, 1, 1]


@requirement("index:equals-scan")
@pytest.mark.parametrize("filed", [0, 1])
def test_an_index_that_is_not_complete_answers_the_same(
    vault: Path, open_index: Open, filed: int
) -> None:
    chance = fill(vault, 11, 150)
    if filed:
        open_index().build()
        for number, path in enumerate(sorted(texts(vault))[:80]):
            write(
                vault,
                path,
                f"changed {number} gamma 東京 alpha Beta",
                1_700_001_000 + number,
            )
    index = open_index(background=False)
    held = texts(vault)
    for _ in range(25):
        check_against_scan(held, index, some_query(chance, [*held.values()]))
    listed = all_pages(lambda cursor: index.list("", ("status", "DONE"), 9, cursor))
    assert listed == sorted(
        path for path in texts(vault) if "status: Done" in (vault / path).read_text("utf-8")
    )


@requirement("index:equals-scan")
def test_answers_are_right_while_the_index_is_being_built(
    vault: Path, open_index: Open
) -> None:
    fill(vault, 12, 300)
    index = open_index(batch=3)
    for query in ("alpha", "東京", "beta gamma", "zq"):
        check_against_scan(texts(vault), index, query)


def test_the_whole_query_comes_before_its_words_and_new_before_old(
    vault: Path, open_index: Open
) -> None:
    write(vault, "old phrase.md", "we met a red fox", 1_700_000_001)
    write(vault, "new words.md", "the fox was red", 1_700_000_004)
    write(vault, "new phrase.md", "a Red Fox again", 1_700_000_003)
    write(vault, "old words.md", "foxes are reddish", 1_700_000_002)
    found = searched(open_index(), " red fox ")
    assert found == ["new phrase.md", "old phrase.md", "new words.md", "old words.md"]


def test_what_was_changed_last_comes_first(vault: Path, open_index: Open) -> None:
    for number in range(5):
        write(vault, f"{number}.md", "same", 1_700_000_000 + number)
    index = open_index()
    assert searched(index, "same") == ["4.md", "3.md", "2.md", "1.md", "0.md"]
    write(vault, "1.md", "same again")
    assert searched(index, "same") == ["1.md", "4.md", "3.md", "2.md", "0.md"]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("cafe\u0301", "Café.md"),
        ("CAFÉ", "Café.md"),
        ("京", "jp.md"),
        ("の近", "jp.md"),
        ("zq", "short.md"),
        ("c#", "short.md"),
        ("strasse", "de.md"),
        ("needle", "latin1.md"),
        ("one two", "front.md"),
        ("1.5", "front.md"),
        ("two\r\nthree", "crlf.md"),
        ("after the nul", "nul.md"),
    ],
)
def test_every_script_length_and_encoding_is_found(
    vault: Path, open_index: Open, query: str, path: str
) -> None:
    write(vault, unicodedata.normalize("NFD", "Café.md"), "name only")
    write(vault, "jp.md", "会議は東京駅の近くで")
    write(vault, "short.md", "azqb c#")
    write(vault, "de.md", "Die Straße")
    write(vault, "latin1.md", b"caf\xe9 needle")
    write(vault, "front.md", "---\ntitle: one\n  two\nratio: 1.50\n---\n")
    write(vault, "crlf.md", "two\r\nthree")
    write(vault, "nul.md", "before\0after the nul")
    found = [unicodedata.normalize("NFC", hit) for hit in searched(open_index(), query)]
    assert found == [path]


def test_keys_are_not_searched_but_an_unreadable_block_is(
    vault: Path, open_index: Open
) -> None:
    write(vault, "a.md", "---\nsecretkey: value\n---\nbody")
    write(vault, "b.md", "---\nsecretkey: [broken\n---\nbody")
    assert searched(open_index(), "secretkey") == ["b.md"]


def test_links_hard_links_and_dot_names_are_never_shown(
    vault: Path, tmp_path: Path, open_index: Open
) -> None:
    outside = tmp_path / "outside"
    write(outside, "secret.md", "needle")
    write(vault, "shown.md", "needle")
    write(vault, ".obsidian/secret.md", "needle")
    write(vault, "folder/.hidden.md", "needle")
    write(vault, "not a note.txt", "needle")
    (vault / "linked.md").symlink_to(outside / "secret.md")
    (vault / "folder link").symlink_to(outside)
    (vault / "hard.md").hardlink_to(outside / "secret.md")
    os.mkfifo(vault / "pipe.md")
    index = open_index()
    assert searched(index, "needle") == ["shown.md"]
    assert [hit.path for hit in index.list("", None, 50, None).notes] == ["shown.md"]


def test_a_folder_swapped_for_a_link_after_indexing_shows_nothing(
    vault: Path, tmp_path: Path, open_index: Open
) -> None:
    write(vault, "folder/a.md", "needle")
    index = open_index(scan_budget=0)
    assert eventually(lambda: watching(index))
    (vault / "folder").rename(tmp_path / "moved")
    (vault / "folder").symlink_to(tmp_path / "moved")
    assert searched(index, "needle") == []


# What is shown


def test_the_snippet_is_the_surroundings_of_the_match_in_the_original_text(
    vault: Path, open_index: Open
) -> None:
    write(
        vault,
        "a.md",
        f"---\nt: x\n---\n{'before ' * 20}\n\n  The  NEEDLE\there {'after ' * 20}",
    )
    (hit,) = open_index().search("needle", 5, None).notes
    assert hit.snippet is not None
    assert "before The NEEDLE here after" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 140


@pytest.mark.parametrize(
    ("query", "snippet"),
    [
        ("holiday", "Holiday plans.md"),
        ("waiting", "Waiting for Ann"),
        ("NEEDLE", "ßßßß ﬁ e\u0301 Needle İ"),
        ("listed", "--- - listed ---"),
    ],
)
def test_the_snippet_is_the_name_or_value_when_only_that_matches(
    vault: Path, open_index: Open, query: str, snippet: str
) -> None:
    write(vault, "Holiday plans.md", "x")
    write(vault, "b.md", "---\nstatus: Waiting for Ann\n---\nx")
    write(vault, "c.md", "ßßßß ﬁ e\u0301\nNeedle İ")
    write(vault, "d.md", "---\n- listed\n---\n")
    (hit,) = open_index().search(query, 5, None).notes
    assert hit.snippet == snippet


@requirement("notes:long-query")
@pytest.mark.parametrize("query", [" ".join(map(str, range(201))), "x" * 10_001])
def test_a_query_without_an_end_is_refused_and_costs_no_index(
    vault: Path, open_index: Open, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    index = open_index()
    (vault / "a.md").write_text(" ".join(map(str, range(200))))
    with pytest.raises(InvalidInput, match="too long"):
        index.search(query, 10, None)

    most = " ".join(map(str, range(200)))
    assert [note.path for note in index.search(most, 10, None).notes] == ["a.md"]
    assert "made anew" not in caplog.text


def test_an_empty_question_or_a_foreign_cursor_is_refused(
    vault: Path, open_index: Open
) -> None:
    for number in range(5):
        write(vault, f"{number}.md", "same other")
    index = open_index()
    cursor = index.search("same", 2, None).next_cursor
    with pytest.raises(InvalidInput):
        index.search("  ", 5, None)
    with pytest.raises(InvalidInput):
        index.search("\ud800", 5, None)
    with pytest.raises(InvalidInput):
        index.search("same", 0, None)
    for bad in ("", "x", "WzFd", "bnVsbA==", "é", cursor):
        with pytest.raises(InvalidInput) as refused:
            index.search("other", 2, bad)
        assert refused.value.details["fields"][0]["field"] == "cursor"
        with pytest.raises(InvalidInput):
            index.list("", None, 2, bad)


# Lists


def test_a_list_is_ordered_recursive_and_continues_without_holes(
    vault: Path, open_index: Open
) -> None:
    fill(vault, 5, 100)
    write(vault, "a/b.md", "next to the folder")
    write(vault, "a/b/c0.md", "in it")
    write(vault, "a/b-c/d.md", "beside it")
    index = open_index()
    every = sorted(texts(vault))
    assert all_pages(lambda cursor: index.list("", None, 9, cursor)) == every
    for folder in ("a/b", "a/b/", "Projects/Straße", "日記", "nowhere"):
        listed = all_pages(partial(index.list, folder, None, 9))
        assert listed == [
            path for path in every if path.startswith(folder.rstrip("/") + "/")
        ]


def test_a_filter_compares_values_and_items_regardless_of_case(
    vault: Path, open_index: Open
) -> None:
    write(vault, "a.md", "---\nStatus: Done\ntags: [Red, STRASSE]\n---\n")
    write(vault, "b/b.md", "---\nstatus: done\npriority: 1\nempty:\n---\n")
    write(vault, "c.md", "---\nstatus: done-ish\n---\nstatus: done")
    index = open_index()

    def listed(key: str, value: str, folder: str = "") -> list[str]:
        return [hit.path for hit in index.list(folder, (key, value), 50, None).notes]

    assert listed("status", "DONE") == ["a.md", "b/b.md"]
    assert listed("tags", "straße") == ["a.md"]
    assert listed("priority", "1") == ["b/b.md"]
    assert listed("empty", "") == ["b/b.md"]
    assert listed("status", "done", "b") == ["b/b.md"]
    write(vault, "a.md", "---\nstatus: open\n---\n")
    assert listed("status", "done") == ["b/b.md"]
    assert listed("tags", "red") == []


# Freshness


@pytest.fixture(params=["scan", "watch"])
def fresh_index(request: pytest.FixtureRequest, vault: Path, open_index: Open) -> Index:
    """An index that scans for every question, or one that relies on the watch."""
    write(vault, "kept/first.md", "first")
    index = open_index(scan_budget=60 if request.param == "scan" else 0)
    if request.param == "watch":
        assert eventually(lambda: watching(index))
    return index


def finds(index: Index, query: str, *paths: str) -> bool:
    return eventually(lambda: sorted(searched(index, query)) == sorted(paths), 5)


@requirement("index:fresh")
def test_what_another_program_does_is_seen(vault: Path, fresh_index: Index) -> None:
    write(vault, "new.md", "needle")
    assert finds(fresh_index, "needle", "new.md")
    write(vault, "new.md", "changed")
    assert finds(fresh_index, "needle")
    write(vault, "deep/er/one.md", "needle")
    write(vault, "deep/er/two.md", "needle")
    assert finds(fresh_index, "needle", "deep/er/one.md", "deep/er/two.md")
    (vault / "deep").rename(vault / "moved")
    assert finds(fresh_index, "needle", "moved/er/one.md", "moved/er/two.md")
    (vault / "moved/er/one.md").rename(vault / "kept/one.md")
    assert finds(fresh_index, "needle", "kept/one.md", "moved/er/two.md")
    (vault / "kept/one.md").unlink()
    assert finds(fresh_index, "needle", "moved/er/two.md")


@requirement("index:fresh")
def test_what_was_touched_is_seen_at_the_next_question(
    vault: Path, fresh_index: Index
) -> None:
    write(vault, "new.md", "needle")
    fresh_index.touch("new.md")
    assert searched(fresh_index, "needle") == ["new.md"]
    write(vault, "new.md", "noodle")
    fresh_index.touch("new.md")
    assert searched(fresh_index, "noodle") == ["new.md"]
    (vault / "new.md").rename(vault / "kept/new.md")
    fresh_index.touch("new.md", "kept/new.md")
    assert searched(fresh_index, "noodle") == ["kept/new.md"]
    (vault / "kept").rename(vault / "renamed")
    fresh_index.touch("kept", "renamed")
    assert searched(fresh_index, "noodle") == ["renamed/new.md"]
    (vault / "renamed/new.md").unlink()
    fresh_index.touch("renamed/new.md")
    assert searched(fresh_index, "noodle") == []
    assert [hit.path for hit in fresh_index.list("", None, 5, None).notes] == [
        "renamed/first.md"
    ]


@requirement("index:quiet")
def test_a_small_vault_is_scanned_again_after_a_change_and_only_then(
    vault: Path, open_index: Open
) -> None:
    write(vault, "kept/first.md", "first")
    # Later than the files, so that none of them is looked at again for its youth.
    index = open_index(now=lambda: time.time() + 60, background=False, scan_budget=60)

    def changes() -> Iterator[tuple[str, ...]]:
        write(vault, "new.md", "needle")
        yield ("new.md",)
        with (vault / "kept/first.md").open("a") as note:
            note.write(" needle")
        yield "kept/first.md", "new.md"
        write(vault, "deep/er/one.md", "needle")
        yield "deep/er/one.md", "kept/first.md", "new.md"
        (vault / "deep").rename(vault / "moved")
        yield "kept/first.md", "moved/er/one.md", "new.md"
        write(vault, "moved/er/one.md", "changed")
        yield "kept/first.md", "new.md"
        (vault / "new.md").unlink()
        (vault / "kept").rename(vault / ".kept")
        yield ()
        (vault / "kept").symlink_to(vault / ".kept")
        yield ()
        write(vault, "moved/er/deeper/two.md", "needle")
        yield ("moved/er/deeper/two.md",)

    for paths in changes():
        assert sorted(searched(index, "needle")) == [*paths]
        last = index._upkeep._last
        assert sorted(searched(index, "needle")) == [*paths]
        if last and last.queued:
            assert index._upkeep._last is last


def test_only_an_answer_that_relied_on_the_watch_says_how_old_its_scan_is(
    vault: Path, open_index: Open
) -> None:
    write(vault, "a.md", "a")
    assert open_index().search("a", 5, None).as_of is None
    index = open_index(now=lambda: 1_800_000_000.0, scan_budget=0)
    assert eventually(lambda: watching(index))
    as_of = index.search("a", 5, None).as_of
    assert as_of is not None
    assert as_of.timestamp() == 1_800_000_000.0


def test_a_change_that_left_no_trace_in_the_times_is_seen_while_it_is_fresh(
    vault: Path, open_index: Open
) -> None:
    write(vault, "a.md", "needle")
    index = open_index(now=lambda: (vault / "a.md").stat().st_ctime + 0.02)
    assert searched(index, "needle") == ["a.md"]
    with index._upkeep._catalog.connection() as db:
        # As if the file had been indexed just before a write within the same tick of the clock.
        db.execute("UPDATE note SET digest = x'00' WHERE racy")
        db.execute("UPDATE text SET folded = 'older'")
    assert searched(index, "needle") == ["a.md"]


@requirement("index:quiet")
def test_a_note_is_looked_at_again_as_long_as_the_clock_of_its_file_system_needs() -> None:
    changed = 1_800_000_000_123_456_789
    later = [seconds + changed / 1e9 for seconds in (-5, 0, 0.02, 0.2, 1.9, 2.1)]

    def young(changed_ns: int, *, finely: bool) -> list[bool]:
        return [catalog.is_racy(changed_ns, now, finely=finely) for now in later]

    whole_second = changed - 123_456_789
    assert young(changed, finely=True) == [True, True, True, False, False, False]
    assert young(changed, finely=False) == [True, True, True, True, True, False]
    assert young(whole_second, finely=True) == [True, True, True, True, False, False]


@requirement("index:quiet")
def test_a_vault_that_was_just_filled_is_read_once(vault: Path, open_index: Open) -> None:
    for number in range(20):
        write(vault, f"{number}.md", "needle")
    # Half a second after the last one was written.
    index = open_index(now=lambda: (vault / "19.md").stat().st_ctime + 0.5)
    assert len(searched(index, "needle")) == 20
    last = index._upkeep._last
    assert len(searched(index, "needle")) == 20
    if last and last.queued:
        assert index._upkeep._last is last


def test_a_vault_that_is_gone_is_said_and_found_again(
    vault: Path, tmp_path: Path, open_index: Open
) -> None:
    write(vault, "a.md", "needle")
    index = open_index(scan_budget=0)
    assert eventually(lambda: watching(index))
    vault.rename(tmp_path / "away")
    with pytest.raises(Unavailable):
        index.search("needle", 5, None)
    write(vault, "b.md", "needle")
    assert searched(index, "needle") == ["b.md"]
    assert eventually(lambda: watching(index))
    write(vault, "c.md", "needle")
    assert finds(index, "needle", "b.md", "c.md")


# The index file


@requirement("index:disposable")
@pytest.mark.parametrize("budget", [0, 60])
def test_a_deleted_index_is_made_anew_while_running(
    vault: Path, index_file: Path, open_index: Open, budget: int
) -> None:
    fill(vault, 6, 40)
    index = open_index(scan_budget=budget)
    assert watching(index) or budget or eventually(lambda: watching(index))
    for file in (*index_file.parent.iterdir(),):
        file.unlink()
    check_against_scan(texts(vault), index, "alpha")
    index_file.unlink()
    check_against_scan(texts(vault), index, "beta")


def overwrite(file: Path, start: int, stop: int | None = None) -> None:
    data = bytearray(file.read_bytes())
    stop = len(data) if stop is None else stop
    data[start:stop] = b"\xa5" * (stop - start)
    file.write_bytes(data)


@requirement("index:disposable")
@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"this is no database" * 100),
        lambda file: overwrite(file, 0, 100),
        lambda file: overwrite(file, 4096),
        lambda file: os.truncate(file, 5000),
        lambda file: file.write_bytes(b""),
    ],
    ids=["text", "header", "pages", "cut", "empty"],
)
def test_a_damaged_index_is_made_anew(
    vault: Path, index_file: Path, open_index: Open, damage: Callable[[Path], object]
) -> None:
    fill(vault, 7, 40)
    index = open_index()
    index.build()
    index.close()
    damage(index_file)
    again = open_index()
    for query in ("alpha", "東京", "beta gamma"):
        check_against_scan(texts(vault), again, query)
    listed = all_pages(lambda cursor: again.list("", None, 50, cursor))
    assert listed == sorted(texts(vault))


def test_an_index_that_cannot_be_written_is_an_error_and_not_a_short_answer(
    vault: Path, index_file: Path
) -> None:
    write(vault, "a.md", "needle")
    index_file.parent.write_text("a file where the folder should be")
    index = Index(vault, index_file)
    with pytest.raises(Unavailable):
        index.search("needle", 5, None)
    index.close()


@requirement("index:disposable")
def test_an_index_of_another_version_is_made_anew(vault: Path, open_index: Open) -> None:
    write(vault, "a.md", "needle")
    index = open_index()
    index.build()
    with index._upkeep._catalog.connection() as db:
        db.execute("PRAGMA user_version = 999")
    index.close()
    assert searched(open_index(), "needle") == ["a.md"]


def test_dead_versions_are_swept_out(
    vault: Path, open_index: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskhand.notes.upkeep.DEAD_ALLOWED", 5)
    write(vault, "a.md", "needle")
    write(vault, "b.md", "needle")
    index = open_index()
    for number in range(20):
        write(vault, "a.md", f"version {number}")
        assert searched(index, f"version {number}") == ["a.md"]
    with index._upkeep._catalog.connection() as db:
        assert db.execute("SELECT versions FROM state").fetchone()[0] < 12
    assert searched(index, "needle") == ["b.md"]


# Several at once


def at_once(*work: Callable[[], object]) -> None:
    """Run all of it in threads that start together; the first failure is raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(len(work))

    def run(part: Callable[[], object]) -> None:
        gate.wait()
        try:
            part()
        except BaseException as exc:  # noqa: BLE001 - carried into the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(part,)) for part in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_two_indexes_may_share_a_file_from_the_first_moment(
    vault: Path, open_index: Open
) -> None:
    fill(vault, 8, 200)
    one, two = open_index(batch=7), open_index(batch=7)
    at_once(
        *(
            lambda index=index, query=query: check_against_scan(texts(vault), index, query)
            for index in (one, two)
            for query in ("alpha", "東京")
        )
    )
    one.build()
    write(vault, "new.md", "needle")
    at_once(lambda: one.search("needle", 5, None), lambda: two.search("needle", 5, None))
    assert searched(one, "needle") == searched(two, "needle") == ["new.md"]


@requirement("index:fresh")
def test_many_threads_may_ask_and_write_at_once(vault: Path, open_index: Open) -> None:
    fill(vault, 9, 60)
    index = open_index()

    def writer(name: str) -> None:
        for number in range(10):
            write(vault, f"{name}.md", f"{name} version{number}")
            index.touch(f"{name}.md")
            assert searched(index, f"{name} version{number}") == [f"{name}.md"]

    at_once(*(lambda name=name: writer(name) for name in ("anna", "bert", "cleo", "dora")))


KILLED = """
import os, sys
from pathlib import Path
from deskhand.notes.index import Index
index = Index(Path(sys.argv[1]), Path(sys.argv[2]), batch=10)
index.build(lambda done, _total: os.kill(os.getpid(), 9) if done >= 50 else None)
"""


@requirement("index:disposable")
def test_a_build_that_was_killed_is_continued(
    vault: Path, index_file: Path, open_index: Open
) -> None:
    fill(vault, 10, 150)
    dead = subprocess.run([sys.executable, "-c", KILLED, vault, index_file], check=False)
    assert dead.returncode == -9
    index = open_index()
    check_against_scan(texts(vault), index, "alpha")
    reports: list[tuple[int, int]] = []
    index.build(lambda done, total: reports.append((done, total)))
    check_against_scan(texts(vault), index, "beta gamma")
    assert all(done <= total <= 150 for done, total in reports)


def test_the_index_is_for_its_owner_only(
    vault: Path, index_file: Path, open_index: Open
) -> None:
    write(vault, "a.md", "needle")
    open_index().build()
    assert all(
        file.stat().st_mode & 0o077 == 0
        for file in (index_file.parent, *index_file.parent.iterdir())
    )


def test_a_word_too_long_to_be_one_is_found_by_any_part_of_it(
    vault: Path, open_index: Open
) -> None:
    chance = random.Random(4)
    word = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=500))
    write(vault, "long.md", f"see https://example.org/{word}?x=1 for more")
    index = open_index()
    index.build()
    for start in range(0, 460, 7):
        for length in (1, 2, 3, 31, 33, 40, 90):
            assert searched(index, word[start : start + length]) == ["long.md"]


@requirement("index:fresh")
def test_deep_folders_and_a_file_of_a_terabyte_hide_no_note(
    vault: Path, open_index: Open
) -> None:
    (vault / "note.md").write_text("alpha\n")
    (vault / "huge.md").touch()
    os.truncate(vault / "huge.md", 1 << 40)
    outer = os.open(vault, os.O_RDONLY)
    for _ in range(1200):
        for name in ("a", "b"):
            os.mkdir(name, dir_fd=outer)
        inner = os.open("b", os.O_RDONLY, dir_fd=outer)
        os.close(outer)
        outer = inner
    os.close(outer)
    index = open_index()
    assert all_pages(lambda cursor: index.list("", None, 50, cursor)) == [
        "huge.md",
        "note.md",
    ]
    check_against_scan({"note.md": "alpha\n", "huge.md": ""}, index, "alpha")
    subprocess.run(["rm", "-r", vault / "b"], check=True)  # too deep for shutil.rmtree
