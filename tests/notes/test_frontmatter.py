"""One note's text: what is read from it, and that writing changes nothing else."""

import json
from functools import partial
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deskhand.errors import InvalidInput, Unreadable
from deskhand.notes import frontmatter as fm
from deskhand.notes.frontmatter import (
    merge,
    parse,
    properties,
    render,
    rewrite,
    split,
    value_texts,
)
from tests.requirements import requirement

BOM = "\ufeff"
often = settings(max_examples=200)


def exact(value: Any) -> str:
    """A form in which 1, 1.0, "1" and true differ."""
    return json.dumps(value, sort_keys=True)


def lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def value_of(source: str) -> Any:
    return parse(f"---\nkey: {source}\n---\n").frontmatter["key"]


def refusal(text: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        parse(text)
    return caught.value


# --- what hypothesis draws from ---

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        [
            "yes",
            "NO",
            "null",
            "~",
            "00123",
            "12:30",
            "18e4567890123456",
            "2026-02-30",
            "1.0",
            "[[Note]]",
            "---",
            "...",
            "=",
            "<<",
            "{",
            "]",
            "'",
            "|",
        ]
    ),
    st.sampled_from(
        ["", "- a", "a: b", "a #b", " x", "x ", "a\nb", "\x00", "\x85", "\u2028", BOM]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["title", "tags", "due date", "yes", "", "---", "größe", "k" * 1500]),
)
mappings = st.dictionaries(keys, values, max_size=5)
bodies = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(["---", "text", "", "# h", "a: 1", "--- ", "\r", BOM, "ü😀"]),
        max_size=6,
    ).map("\n".join),
    st.sampled_from(["", "\n", "---\na: 1\n---\nx", BOM + "---\n---\n", "---\r\n---\r\n"]),
)

SOURCES = [
    "",
    " ~",
    " plain text",
    "   spaced out",
    " 'it''s'",
    ' "double \\u00e9"',
    " 12",
    " 3.50",
    " 2026-02-30",
    " 18e4567890123456",
    " yes",
    " [a, 'b', 3]",
    " [a,\n  b]",
    " [[Some Note|alias]]",
    " [[[A]], [[B]]]",
    " {a: 1, b: [x]}",
    " plain over\n  two lines",
    " !!str 12",
    " &anchor text",
    " ünï 😀",
    "\n  - a\n  - b",
    "\n- a # first\n- 'b'",
    "\n  # about the list\n  - a\n\n  - b",
    "\n  sub: 1\n  other:\n    - deep\n    -",
    "\n  in the next line",
]
BLOCK_SCALARS = [
    " |\n  one\n  # not a comment\n\n  two",
    " >-\n  folded\n  text",
    " |2-\n   indented",
    " |",
]
sources = st.one_of(
    st.tuples(
        st.sampled_from(SOURCES), st.sampled_from(["", "  ", " # a comment", "  # ü: 'x"])
    ),
    st.tuples(st.sampled_from(BLOCK_SCALARS), st.just("")),
)
NAMES = ["title", "tags", "'quoted key'", '"due date"', "größe😀", "a b", "x", "00123"]
interludes = st.sampled_from(["", "\n", "# a line of its own\n", "\n# one\n\n# two\n"])


@st.composite
def written_notes(draw: st.DrawFn) -> tuple[str, list[tuple[str, ...]], str]:
    """(bom, head pieces, tail): each piece is (interlude, key as typed, value as typed, rest of line)."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    pieces = [
        tuple(
            part.replace("\n", newline)
            for part in (draw(interludes), name, source, rest + "\n")
        )
        for name in names
        for source, rest in [draw(sources)]
    ]
    end = draw(interludes).replace("\n", newline) + "---"
    body = draw(bodies)
    tail = (
        end + draw(st.sampled_from(["", newline + body]))
        if body == ""
        else end + newline + body
    )
    return draw(st.sampled_from(["", BOM])) + "---" + newline, pieces, tail


def joined(opening: str, pieces: list[tuple[str, ...]], tail: str = "") -> str:
    return (
        opening
        + "".join(f"{before}{key}:{source}{rest}" for before, key, source, rest in pieces)
        + tail
    )


FRAGMENTS = [
    "a",
    "b",
    ": ",
    ":",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "'",
    '"',
    "|",
    ">-",
    " #",
    "1",
]
FRAGMENTS += [
    "&x ",
    "*x",
    "!!int ",
    "! ",
    "%",
    "\\",
    "\t",
    "\r",
    "\x85",
    "\u2028",
    BOM,
    "--- ",
    "...\n",
    "ü😀",
]
scribbles = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)

notes = st.one_of(
    written_notes().map(lambda note: joined(*note)),
    bodies,
    scribbles.map(lambda block: f"---\n{block}\n---\nbody"),
    scribbles.map(lambda block: f"---\na: 1\nb: {block}\nc: 2\n---\nbody"),
)


# --- the four promises ---


@requirement("notes:round-trip")
@often
@given(mappings, bodies)
def test_what_was_rendered_is_read_back(frontmatter: dict[str, Any], body: str) -> None:
    note = parse(render(frontmatter, body))
    assert exact(note.frontmatter) == exact(frontmatter)
    assert list(note.frontmatter) == list(frontmatter)
    assert note.body == body
    assert note.warning is None


@requirement("notes:bytes-kept")
@often
@given(written_notes().filter(lambda note: note[1]), st.data(), values)
def test_changing_one_key_leaves_every_other_byte_alone(
    note: Any, data: st.DataObject, value: Any
) -> None:
    opening, pieces, tail = note
    chosen = data.draw(st.integers(0, len(pieces) - 1))
    before, key, _, rest = pieces[chosen]
    text = joined(*note)
    name = list(parse(text).frontmatter)[chosen]
    head = joined(opening, pieces[:chosen]) + before + key + ":"
    end = rest + joined("", pieces[chosen + 1 :], tail)
    changed = merge(text, {name: value})
    assert changed.startswith(head)
    assert changed.endswith(end)
    assert len(changed) >= len(head) + len(end)
    assert exact(parse(changed).frontmatter) == exact(
        parse(text).frontmatter | {name: value}
    )


@requirement("notes:bytes-kept")
@often
@given(notes)
def test_rewriting_what_is_there_already_is_the_identity(text: str) -> None:
    try:
        note = parse(text)
    except Unreadable:
        return
    assert rewrite(text, note.frontmatter, note.body) == text
    assert merge(text, {}) == text


@often
@given(notes, mappings, bodies, st.data())
def test_a_rewritten_note_says_exactly_what_was_asked(
    text: str, added: dict[str, Any], body: str, data: st.DataObject
) -> None:
    try:
        old = parse(text).frontmatter
    except Unreadable:
        return
    kept = data.draw(st.sets(st.sampled_from(sorted(old)))) if old else set()
    wanted = {key: old[key] for key in kept} | added
    note = parse(rewrite(text, wanted, body))
    assert exact(note.frontmatter) == exact(wanted)
    assert lf(note.body) == lf(body)


@requirement("notes:bytes-kept")
@often
@given(written_notes().filter(lambda note: note[1]), st.data())
def test_a_removed_key_loses_its_own_lines_only(note: Any, data: st.DataObject) -> None:
    opening, pieces, tail = note
    chosen = data.draw(st.integers(0, len(pieces) - 1))
    text = joined(*note)
    old = parse(text)
    name = list(old.frontmatter)[chosen]
    wanted = {key: value for key, value in old.frontmatter.items() if key != name}
    rest = joined("", pieces[chosen + 1 :], tail)
    assert (
        rewrite(text, wanted, old.body)
        == joined(opening, pieces[:chosen]) + pieces[chosen][0] + rest
    )


# --- where the block is ---


@pytest.mark.parametrize(
    ("text", "block", "body"),
    [
        ("---\na: 1\n---\nbody\n", "a: 1\n", "body\n"),
        ("---\r\na: 1\r\n---\r\nbody\r\n", "a: 1\r\n", "body\r\n"),
        (BOM + "---\na: 1\n---\nbody", "a: 1\n", "body"),
        (BOM + "body", None, "body"),
        ("---\n---\n", "", ""),
        ("---\na: 1\n---", "a: 1\n", ""),
        ("---\na: 1\n---\n---\nb: 2\n---\n", "a: 1\n", "---\nb: 2\n---\n"),
        ("---\na: 1\n", None, "---\na: 1\n"),
        ("---", None, "---"),
        ("--- \na: 1\n---\n", None, "--- \na: 1\n---\n"),
        ("\n---\na: 1\n---\n", None, "\n---\na: 1\n---\n"),
        ("---\na: 1\n--- \nb: 2\n---\nx", "a: 1\n--- \nb: 2\n", "x"),
        ("---\na: 1\n----\n---\r", None, "---\na: 1\n----\n---\r"),
        ("", None, ""),
    ],
)
def test_the_block_lies_between_lines_that_are_exactly_three_dashes(
    text: str, block: str, body: str
) -> None:
    assert split(text) == (block, body)


@pytest.mark.parametrize("block", ["", "\n\n", "# only a comment\n", BOM])
def test_an_empty_block_is_no_properties_and_no_warning(block: str) -> None:
    note = parse(f"---\n{block}\n---\nbody")
    assert (note.frontmatter, note.body, note.warning) == ({}, "body", None)


@pytest.mark.parametrize(
    "block", ["- a\n- b\n", "just text\n", "[[Note]]\n", "null\n", "12\n"]
)
def test_a_block_that_is_not_a_mapping_is_body_and_a_warning(block: str) -> None:
    text = f"---\n{block}---\nbody"
    note = parse(BOM + text)
    assert (note.frontmatter, note.body) == ({}, text)
    assert "not a mapping" in str(note.warning)
    assert rewrite(BOM + text, {}, text) == BOM + text
    assert merge(BOM + text, {"a": 1}) == f"{BOM}---\na: 1\n---\n{text}"


# --- values ---


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    "source", ["ü: 1\n", "'😀😀': é\n# ü€😀\nb: 2\n", "a: '\u2028'\nb: \x85 x\n", BOM]
)
def test_marks_count_characters_with_either_loader(
    monkeypatch: pytest.MonkeyPatch, loader: str, source: str
) -> None:
    monkeypatch.setattr(fm, "_LOADER", getattr(yaml, loader))
    text = f"---\n{source}last: old # 😀\n---\nb"
    assert merge(text, {"last": "new"}) == f"---\n{source}last: new # 😀\n---\nb"


@requirement("notes:plain-values")
@pytest.mark.parametrize(
    "typed",
    [
        "yes",
        "No",
        "on",
        "True",
        "NULL",
        "00123",
        "12:30",
        "18e4567890123456",
        "2026-02-30",
        "2026-02-03",
        "2026-02-03T04:05:06Z",
        "1_000",
        "0x1F",
        "0o17",
        "+1",
        "1e3",
        ".5",
        "5.",
        ".inf",
        ".nan",
        "1234567890123456",
        "01.5e3",
        "=",
        "١٢",
    ],
)
def test_what_is_not_plainly_a_number_stays_the_text_that_was_typed(typed: str) -> None:
    assert value_of(typed) == typed


@requirement("notes:plain-values")
@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("true", True),
        ("false", False),
        ("", None),
        ("null", None),
        ("~", None),
        ("0", 0),
        ("-12", -12),
        ("123456789012345", 123456789012345),
        ("1.50", 1.5),
        ("-0.25", -0.25),
        ("9" * 400 + ".0", "9" * 400 + ".0"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("''", ""),
        ("|\n  12\n", "12\n"),
        (">-\n  true", "true"),
        ("!!str 12", "12"),
        ("!!str", ""),
        ('!!int "123456789012345678901234567890"', 123456789012345678901234567890),
        ("!!int '007'", 7),
        ("!!int twelve", "twelve"),
        ("!!int " + "9" * 5000, "9" * 5000),
        ("!!float 1e3", 1000.0),
        ("!!float 1", 1.0),
        ("!!float .inf", ".inf"),
        ("!!float 1e999", "1e999"),
        ("!!bool 'true'", True),
        ("!!bool yes", "yes"),
        ("!!null ''", None),
        ("!!null x", "x"),
        ("!!timestamp 2026-02-30", "2026-02-30"),
        ("!!binary aGk=", "aGk="),
        ("!own 12", "12"),
        ("!!python/object:os.system ls", "ls"),
        ("&anchor 5", 5),
        ("[1, a, ~]", [1, "a", None]),
        ("{a: {b: [c]}}", {"a": {"b": ["c"]}}),
    ],
)
def test_a_scalar_has_the_type_that_is_plain_to_see(typed: str, value: Any) -> None:
    assert exact(value_of(typed)) == exact(value)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("[[Some Note]]", "[[Some Note]]"),
        ("[[Note#heading|alias]]", "[[Note#heading|alias]]"),
        ("[[Smith, John: a life]]", "[[Smith, John: a life]]"),
        ("[[Bob's]]", "[[Bob's]]"),
        ("[[12]]", "[[12]]"),
        ("[[[A]], [[B]]]", ["[[A]]", "[[B]]"]),
        ("\n  - [[A]]\n  - x", ["[[A]]", "x"]),
        ("{up: [[A]]}", {"up": "[[A]]"}),
        ('"[[A]]"', "[[A]]"),
        ('[["A"]]', [["A"]]),
        ("[[a, 'b']]", [["a", "b"]]),
        ("[ [A]]", [["A"]]),
        ("[[A] ]", [["A"]]),
        ("[[]]", [[]]),
        ("[[ ]]", [[]]),
        ("[[a], [b]]", [["a"], ["b"]]),
        ("[[{a: 1}]]", [[{"a": 1}]]),
    ],
)
def test_an_unquoted_wikilink_is_its_text(typed: str, value: Any) -> None:
    assert value_of(typed) == value


def test_a_key_is_the_text_that_was_typed() -> None:
    text = "---\nyes: 1\n12: 2\nnull: 3\n'q': 4\n2026-01-01: 5\n<<: {a: 1}\n? \n: 6\n---\n"
    assert list(parse(text).frontmatter) == [
        "yes",
        "12",
        "null",
        "q",
        "2026-01-01",
        "<<",
        "",
    ]


# --- what is refused ---

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{key}: &{key} [*{before}, *{before}]\n"
    for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("block", "reason", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate_key", 4),
        ("a:\n  b: 1\n  b: 2\n", "duplicate_key", 4),
        ("a: {b: 1, 'b': 2}\n", "duplicate_key", 2),
        ("a: &x 1\nb: *x\n", "alias", 3),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "alias", 4),
        ("*x : 1\n", "alias", 2),
        ("[a, b]: 1\n", "complex_key", 2),
        ("a: 1\n? {b: c}\n: 2\n", "complex_key", 3),
        ("[[Note]]: 1\n", "complex_key", 2),
        ("a: 1\n--- \nb: 2\n", "two_documents", 3),
        ("a: 1\n...\n--- \nb: 2\n", "two_documents", 4),
        ("a: 1\nb: \x00\n", "nul", 3),
        ("a: 1\nb: '\x07'\n", "control_character", 3),
        ("a: 1\n\nb: \ud800\n", "control_character", 4),
        ("a: 1\nb: [c\n", "invalid_yaml", 4),
        ("a: 1\nb: c: d\n", "invalid_yaml", 3),
        ("a: [[A]], [[B]]\n", "invalid_yaml", 2),
        ("a: @x\n", "invalid_yaml", 2),
        ("\ta: 1\n", "invalid_yaml", 2),
        ("ü: 😀\r\nb: 'x\r\n", "invalid_yaml", 4),
        ("a: " + "x" * 65_536 + "\n", "too_large", 1),
        ("a: " + "é" * 32_768 + "\n", "too_large", 1),
        (LAUGHS, "alias", 3),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(
    block: str, reason: str, line: int
) -> None:
    error = refusal(f"---\n{block}---\nbody")
    assert (error.details["reason"], error.details["line"]) == (reason, line)
    assert f"line {line}" in error.message
    assert error.hint


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize("escape", ["\\ud800", "\\UFFFFFFFF"])
def test_an_escape_that_is_no_character_is_refused_with_either_loader(
    monkeypatch: pytest.MonkeyPatch, loader: str, escape: str
) -> None:
    monkeypatch.setattr(fm, "_LOADER", getattr(yaml, loader))
    assert refusal(f'---\na: "{escape}"\n---\n').details["reason"] == "invalid_yaml"


def test_what_could_not_be_read_is_never_overwritten() -> None:
    text = "---\na: 1\na: 2\n---\nbody"
    with pytest.raises(Unreadable):
        rewrite(text, {"a": 3}, "new")
    with pytest.raises(Unreadable):
        merge(text, {"b": 3})


@pytest.mark.timeout(2)
@pytest.mark.parametrize("unit", ["[", "- ", "{a: ", "? ", "a: [", "[[", "- ? "])
def test_a_depth_bomb_is_refused_quickly(unit: str) -> None:
    block = unit * (60_000 // len(unit))
    refusal(f"---\n{block}\n---\n")


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def test_thirty_two_levels_are_read_and_written_and_one_more_is_refused() -> None:
    text = render({"a": nested(31)}, "b")
    assert parse(text).frontmatter == {"a": nested(31)}
    with pytest.raises(InvalidInput, match="deep"):
        render({"a": nested(32)}, "b")
    assert (
        refusal("---\na: " + "[" * 32 + "'x'" + "]" * 32 + "\n---\n").details["reason"]
        == "too_deep"
    )


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="deep"):
        merge("body", {"a": loop})


# --- rendering ---


def test_a_new_note_looks_as_a_person_would_write_it() -> None:
    frontmatter = {
        "title": "Zażółć gęślą, (really)",
        "tags": ["work", "2026", "on"],
        "id": "18e4567890123456",
        "due": "2026-02-03",
        "time": "12:30",
        "answer": "yes",
        "nothing": None,
        "done": False,
        "count": 12,
        "big": 1234567890123456,
        "small": 1e-7,
        "large": 1e22,
        "up": "[[Note]]",
        "empty": [],
        "map": {"a": ["b", 1], "c": {}},
        "rows": [[1, 2], []],
        "due date": "a\tb\n\x00\x7f\x85\u2028" + BOM,
        "yes": "",
    }
    assert render(frontmatter, "# Body\n") == (
        "---\n"
        "title: Zażółć gęślą, (really)\n"
        'tags:\n  - work\n  - "2026"\n  - "on"\n'
        'id: "18e4567890123456"\n'
        'due: "2026-02-03"\n'
        'time: "12:30"\n'
        'answer: "yes"\n'
        "nothing: null\n"
        "done: false\n"
        "count: 12\n"
        'big: !!int "1234567890123456"\n'
        "small: 0.0000001\n"
        "large: 10000000000000000000000.0\n"
        'up: "[[Note]]"\n'
        "empty: []\n"
        'map: {"a": ["b", 1], "c": {}}\n'
        "rows: [ [1, 2], []]\n"
        'due date: "a\\tb\\n\\u0000\\u007f\\u0085\\u2028\\ufeff"\n'
        '"yes": ""\n'
        "---\n"
        "# Body\n"
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("---\nno end", "---\nno end"),
        ("---\na: 1\n---\n", "---\n---\n---\na: 1\n---\n"),
        (BOM + "x", "---\n---\n" + BOM + "x"),
    ],
)
def test_without_properties_only_a_body_that_would_mislead_gets_an_empty_block(
    body: str, text: str
) -> None:
    assert render({}, body) == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        (1,),
        {1: 2},
        {"a": [object()]},
        b"x",
        {1},
        "\ud800",
        ["\udfff"],
        [10**4300],
    ],
)
def test_what_a_note_cannot_hold_is_refused_by_its_key(value: Any) -> None:
    for write in (
        partial(render, {"the key": value}, ""),
        partial(merge, "---\na: 1\n---\n", {"the key": value}),
    ):
        with pytest.raises(InvalidInput, match="the key") as caught:
            write()
        assert caught.value.details["fields"][0]["field"] == "the key"
        assert not isinstance(caught.value, Unreadable)


@pytest.mark.parametrize("key", [1, None, "\ud800"])
def test_a_key_that_is_not_text_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput):
        render({key: 1}, "")


def test_a_block_that_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(InvalidInput, match="64 kB"):
        render({"a": "x" * 70_000}, "")
    with pytest.raises(InvalidInput, match="64 kB"):
        merge("---\na: 1\n---\n", {"b": "é" * 40_000})


def test_long_keys_and_values_are_read_back() -> None:
    frontmatter = {
        "k" * 3000: ["v" * 3000],
        "a": {"ü" * 3000: {"b" * 1100: 1}},
        "c" * 1100: None,
    }
    assert parse(render(frontmatter, "")).frontmatter == frontmatter


# --- rewriting ---

WRITTEN = """---
# about this note
title:   "Budget"   # keep me
due: 2026-02-30

tags:
  - a   # first
  # between
  - 'b' # last
# after the tags
up: [[Home]]
list: [x, "y"] # inline
empty:    # nothing yet
text: | # head
  one

  two

# the end
---
body
---
more
"""


@pytest.mark.parametrize(
    ("changes", "old", "new"),
    [
        ({"title": "Plan"}, '"Budget"   #', "Plan   #"),
        ({"title": "1"}, '"Budget"   #', '"1"   #'),
        ({"title": None}, '"Budget"   #', "null   #"),
        ({"title": ["a", "b"]}, '"Budget"   #', '["a", "b"]   #'),
        ({"due": ["a", "b"]}, "due: 2026-02-30\n", "due:\n  - a\n  - b\n"),
        ({"due": {"a": 1}}, "2026-02-30", '{"a": 1}'),
        ({"tags": "one"}, "\n  - a   # first\n  # between\n  - 'b' # last", " one # last"),
        (
            {"tags": ["a", "c", "d"]},
            "a   # first\n  # between\n  - 'b' #",
            "a\n  - c\n  - d #",
        ),
        ({"tags": []}, "\n  - a   # first\n  # between\n  - 'b' # last", " [] # last"),
        ({"up": "[[Away]]"}, "[[Home]]", '"[[Away]]"'),
        ({"list": ["z"]}, '[x, "y"]', '["z"]'),
        ({"empty": 1}, "empty:    #", "empty: 1    #"),
        ({"text": "short"}, "| # head\n  one\n\n  two\n", "short # head\n"),
        ({"new": 1, "more": ["a"]}, "# the end\n", "# the end\nnew: 1\nmore:\n  - a\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", BOM])
def test_only_the_bytes_of_the_value_change(
    changes: dict[str, Any], old: Any, new: Any, newline: str, bom: str
) -> None:
    assert WRITTEN.count(old) == 1
    text = bom + WRITTEN.replace("\n", newline)
    expected = bom + WRITTEN.replace(old, new).replace("\n", newline)
    note = parse(text)
    assert merge(text, changes) == expected
    assert rewrite(text, note.frontmatter | changes, note.body) == expected
    assert exact(parse(expected).frontmatter) == exact(note.frontmatter | changes)


def test_a_comment_above_a_list_stays_when_the_list_becomes_a_scalar() -> None:
    text = "---\ntags: # mine\n  # more\n- a\n- b\nx: 1\n---\n"
    assert merge(text, {"tags": "c"}) == "---\ntags: c # mine\n  # more\nx: 1\n---\n"


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (1, True, False),
        (1, 1.0, False),
        (0, False, False),
        ("1", 1, False),
        (1.5, 1.5, True),
    ],
)
def test_values_are_compared_with_their_type(old: Any, new: Any, same: bool) -> None:
    text = render({"a": old}, "")
    assert (merge(text, {"a": new}) == text) is same
    assert exact(parse(merge(text, {"a": new})).frontmatter) == exact({"a": new})


def test_the_order_of_the_keys_asked_for_does_not_matter() -> None:
    text = "---\nb: 1\na: {y: 1, x: 2}\n---\n"
    assert rewrite(text, {"a": {"x": 2, "y": 1}, "b": 1}, "") == text


def test_an_indented_block_gets_new_keys_at_its_own_indentation() -> None:
    assert merge("---\n  a: 1\n---\n", {"b": ["x"]}) == "---\n  a: 1\n  b:\n    - x\n---\n"


def test_removing_every_key_leaves_comments_and_an_empty_block() -> None:
    assert rewrite("---\n# c\na: 1\n---\nb", {}, "b") == "---\n# c\n---\nb"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{a: 1, c: 2}\n", "a: 2\nc: 2\nb: x\n"),
        ("a: 1\nc: 2\n...\n", "a: 2\nc: 2\nb: x\n"),
        ("? a\n? c\n", "a: 2\nc: null\nb: x\n"),
    ],
)
def test_odd_yaml_is_written_anew(block: str, expected: str) -> None:
    old = parse(f"---\n{block}---\nbody")
    assert rewrite(
        f"{BOM}---\n{block}---\nbody", old.frontmatter | {"a": 2, "b": "x"}, "body"
    ) == (f"{BOM}---\n{expected}---\nbody")


def test_odd_yaml_stays_when_only_the_body_changes() -> None:
    assert rewrite("---\n{a: 1}\n---\nold", {"a": 1}, "new") == "---\n{a: 1}\n---\nnew"


def test_a_note_without_a_block_gets_one_in_its_own_line_ends() -> None:
    assert merge("one\r\ntwo\r\n", {"a": 1}) == "---\r\na: 1\r\n---\r\none\r\ntwo\r\n"
    assert merge(BOM + "one\ntwo\r\n", {"a": 1}) == BOM + "---\na: 1\n---\none\ntwo\r\n"
    assert merge("", {"a": 1}) == "---\na: 1\n---\n"


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        (
            "---\r\na: 1\r\n---\r\nold\r\n",
            "new\nlines\n",
            "---\r\na: 1\r\n---\r\nnew\r\nlines\r\n",
        ),
        ("old\r\n", "new\n", "new\r\n"),
        ("---\na: 1\n---\r\nold\r\n", "new\n", "---\na: 1\n---\r\nnew\n"),
        ("---\na: 1\n---\none\r\ntwo\n", "one\ntwo\r\n", "---\na: 1\n---\none\r\ntwo\n"),
        ("---\na: 1\n---", "new", "---\na: 1\n---\nnew"),
        ("---\r\na: 1\r\n---", "new\n", "---\r\na: 1\r\n---\r\nnew\r\n"),
        (BOM + "old", "new", BOM + "new"),
        ("old", "---\nb: 1\n---\n", "---\n---\n---\nb: 1\n---\n"),
        ("---\n- a\n---\nold", "---\n- a\n---\nnew", "---\n---\n---\n- a\n---\nnew"),
    ],
)
def test_a_new_body_is_written_in_the_files_line_ends(
    text: str, body: str, expected: str
) -> None:
    assert rewrite(text, parse(text).frontmatter, body) == expected


def test_merge_leaves_the_body_alone_whatever_it_holds() -> None:
    body = "a\r\nb\nc\rd\x00\n---\n" + BOM
    assert merge("---\r\na: 1\r\n---\n" + body, {"a": 2}) == "---\r\na: 2\r\n---\n" + body


# --- search and filters ---


def test_search_sees_every_leaf_and_no_key() -> None:
    frontmatter = {
        "title": "Budget",
        "done": True,
        "off": False,
        "none": None,
        "n": 12,
        "f": 1e22,
        "tags": ["a", ["b", {"c": "d"}], None],
        "map": {"k": {"deep": 0.5}},
    }
    assert list(value_texts(frontmatter)) == (
        ["Budget", "true", "false", "12", "10000000000000000000000.0", "a", "b", "d", "0.5"]
    )


def test_filters_see_one_pair_per_scalar_and_per_item() -> None:
    frontmatter = {
        "a": "x",
        "b": ["y", 1, True, None, ["no"], {"n": 1}],
        "c": None,
        "d": {"e": 1},
        "f": [],
        "g": " wide ",
    }
    assert list(properties(frontmatter)) == [
        ("a", "x"),
        ("b", "y"),
        ("b", "1"),
        ("b", "true"),
        ("b", ""),
        ("b", "null"),
        ("c", ""),
        ("c", "null"),
        ("g", "wide"),
    ]
