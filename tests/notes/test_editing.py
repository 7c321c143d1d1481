"""Small changes in notes, through an MCP client: what is outside an edit stays, byte for byte."""

import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from hashlib import sha256
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import DeskError
from deskhand.notes import editing, frontmatter
from deskhand.notes.editing import Edit
from deskhand.notes.outline import Outline, keep_outline, read_outline
from deskhand.servers.obsidian import obsidian_server
from tests.home import Home
from tests.notes.test_disk import in_child
from tests.notes.test_obsidian_server import ok, refused
from tests.requirements import requirement
from tests.warm import warm_python

pytestmark = pytest.mark.anyio

NOTE = """\
---
status: open  # for now
tags: [a, "b"]
people:
  - Ann # the boss
  - Bob
---
# Title

Intro.

## Log

- one
- two

### Details

deep

## Later
words ^w1

- item ^i1
  - child

Under
-----

end\
"""


def edited(text: str, *edits: dict[str, Any]) -> str:
    return editing.edit(text, [Edit.model_validate(each) for each in edits]).text


def insert(text: str, **place: Any) -> dict[str, Any]:
    return {"do": "insert", "text": text, **place}


def replace(text: str, **place: Any) -> dict[str, Any]:
    return {"do": "replace", "text": text, **place}


def delete(**place: Any) -> dict[str, Any]:
    return {"do": "delete", **place}


@requirement("notes:edits")
@pytest.mark.parametrize(
    ("note", "added", "made"),
    [
        ("# A\none\n# B\n", "---\nmore", "# A\none\n\n---\nmore\n# B\n"),
        ("# A\r\none\r\n# B\r\n", "===", "# A\r\none\r\n\r\n===\r\n# B\r\n"),
        ("# A\n> [!note]\n> x\n", "more", "# A\n> [!note]\n> x\n\nmore\n"),
        ("# A\n> x\n# B\n", "> y", "# A\n> x\n> y\n# B\n"),
        ("# A\n# B\n", "<div>", "# A\n<div>\n\n# B\n"),
        ("# A\n\n# B\n", "<div>", "# A\n<div>\n\n# B\n"),
        ("# A\n# B\n", "```\n# x\n```", "# A\n```\n# x\n```\n# B\n"),
        ("# A\n", "```\nopen", "# A\n```\nopen\n"),
        ("# A\n# B\n", "~~~\n```", None),
        ("# A\n\n# B\n\n%% x %%\n", "%%\nopen", None),
        ("# A\nB\n===\n", "$$\nopen", None),
        ("# A\n## B\n", "<!-- open", None),
    ],
)
def test_the_lines_around_an_inserted_text_stay_what_they_are(
    note: str, added: str, made: str | None
) -> None:
    if made is None:
        with pytest.raises(DeskError, match="does not close it"):
            edited(note, insert(added, heading="A"))
        return
    assert edited(note, insert(added, heading="A")) == made
    assert editing.append(note, added, "A", create=False).text == made


@requirement("notes:edits")
@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (insert("- three", heading="Log"), "- two\n", "- two\n- three\n"),
        (insert("x", heading="## log"), "- two\n", "- two\nx\n"),
        (insert("x", heading="Title > Details"), "deep\n", "deep\nx\n"),
        (replace("new", heading="Log"), "- one\n- two\n\n### Details\n\ndeep\n", "new\n"),
        (delete(heading="Log"), "## Log\n\n- one\n- two\n\n### Details\n\ndeep\n\n", ""),
        (insert("x", heading="Under"), "end", "end\nx"),
        (insert("x", heading="Later"), "  - child\n", "  - child\nx\n"),
        (replace("new", block="w1"), "words ^w1", "new ^w1"),
        (insert("new", block="^w1"), "words ^w1\n", "words ^w1\n\nnew\n"),
        (delete(block="w1"), "words ^w1\n", ""),
        (replace("new", block="i1"), "- item ^i1", "- new ^i1"),
        (insert("- next", block="i1"), "  - child\n", "  - child\n- next\n"),
        (delete(block="i1"), "- item ^i1\n  - child\n", ""),
        (replace("x", lines=[10, 10], expect="Intro."), "Intro.", "x"),
        (insert("x", lines="14-15", expect="- one\n- two"), "- two\n", "- two\nx\n"),
        (delete(lines=14, expect="- one"), "- one\n", ""),
        (
            {"key": "status", "do": "replace", "value": "done"},
            "open  # for now",
            "done  # for now",
        ),
        ({"key": "tags", "do": "insert", "value": "c"}, '"b"]', '"b", "c"]'),
        (
            {"key": "people", "do": "insert", "value": ["Cid"]},
            "  - Bob\n",
            "  - Bob\n  - Cid\n",
        ),
        (
            {"key": "due", "do": "insert", "value": "2026-11-30"},
            "  - Bob\n",
            '  - Bob\ndue: "2026-11-30"\n',
        ),
        ({"key": "status", "do": "delete"}, "status: open  # for now\n", ""),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_an_edit_changes_its_place_and_nothing_else(
    edit: dict[str, Any], old: str, new: str, newline: str, mark: str
) -> None:
    assert NOTE.count(old) == 1
    text = mark + NOTE.replace("\n", newline)

    assert edited(text, edit) == mark + NOTE.replace(old, new).replace("\n", newline)


@requirement("notes:edits")
@pytest.mark.parametrize(
    ("text", "edit", "new"),
    [
        ("\ufeff# A\na", insert("x", heading="A"), "\ufeff# A\na\nx"),
        ("\ufeffA\n===\na\n", insert("x", heading="A"), "\ufeffA\n===\na\nx\n"),
        (
            "## **Log** today\na\n",
            insert("x", heading="Log today"),
            "## **Log** today\na\nx\n",
        ),
        ("## [[Log]]: now\na\n", insert("x", heading="log now"), "## [[Log]]: now\na\nx\n"),
        ("## Log\n## **Log**\n", insert("x", heading="Log"), "## Log\nx\n## **Log**\n"),
        ("## Head ^h1\na\n", replace("New", block="h1"), "## New ^h1\na\n"),
        ("## Head ^h1\na\n", replace("# New", block="h1"), "# New ^h1\na\n"),
        ("text ^aB\n", replace("new", block="Ab"), "new ^aB\n"),
        ("one ^ab\n\ntwo ^AB\n", replace("new", block="AB"), "one ^ab\n\nnew ^AB\n"),
        ("a  \nb\t\nc\n", replace("x", lines=[1, 2], expect="a\nb"), "x\nc\n"),
        (
            "---\nStatus: a\n---\n",
            {"key": "status", "do": "replace", "value": "b"},
            "---\nStatus: b\n---\n",
        ),
        ("---\nStatus: a\n---\n", {"key": "status", "do": "delete"}, "---\n---\n"),
        (
            "---\na:\n- x\n- y\n---\n",
            {"key": "a", "do": "delete", "value": "y"},
            "---\na:\n- x\n---\n",
        ),
        ("---\na: x\n---\n", {"key": "a", "do": "delete", "value": "x"}, "---\n---\n"),
    ],
)
def test_a_place_is_found_as_obsidian_finds_it(
    text: str, edit: dict[str, Any], new: str
) -> None:
    assert edited(text, edit) == new


CALLOUT = "> [!note] A\n> > [!tip] B\n> > one\n> > two ^b1\n> end\n"
QUOTED_LIST = "> - [ ] one ^b1\n>   - below\n> - two\n"


@requirement("notes:edits")
@pytest.mark.parametrize(
    ("text", "edit", "new"),
    [
        (
            CALLOUT,
            replace("new", block="b1"),
            "> [!note] A\n> > [!tip] B\n> > new ^b1\n> end\n",
        ),
        (CALLOUT, delete(block="b1"), "> [!note] A\n> > [!tip] B\n> end\n"),
        (
            CALLOUT,
            insert("x\ny", block="b1"),
            CALLOUT.replace("^b1\n", "^b1\n> >\n> > x\n> > y\n> >\n"),
        ),
        ("> one ^b1\n", replace("x\n\ny", block="b1"), "> x\n>\n> y ^b1\n"),
        ("> one ^b1\r\n", replace("> x", block="b1"), "> x ^b1\r\n"),
        ("> one ^b1", insert("> x", block="b1"), "> one ^b1\n>\n> x"),
        ("> a\n>\n> one\n>\n> ^b1\n", replace("x", block="b1"), "> a\n>\n> x\n>\n> ^b1\n"),
        ("> a\n> one\n> ^b1\n> b\n", delete(block="b1"), "> b\n"),
        ("> [!note]\n> ^b1\n", replace("x", block="b1"), "> [!note]\n> x ^b1\n"),
        (QUOTED_LIST, replace("x", block="b1"), QUOTED_LIST.replace("one", "x")),
        (
            QUOTED_LIST,
            replace("- [x] x", block="b1"),
            QUOTED_LIST.replace("[ ] one", "[x] x"),
        ),
        (
            QUOTED_LIST,
            insert("- x", block="b1"),
            QUOTED_LIST.replace("> - two", "> - x\n> - two"),
        ),
        (QUOTED_LIST, delete(block="b1"), "> - two\n"),
    ],
)
def test_a_block_in_a_quote_or_a_callout_stays_in_it_and_leaves_the_rest_of_it_alone(
    text: str, edit: dict[str, Any], new: str
) -> None:
    assert edited(text, edit) == new


@requirement("notes:edits")
@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("---\na: [x]\n---\n", {"key": "a", "do": "delete", "value": "y"}),
        ("---\na: x\n---\n", {"key": "a", "do": "delete", "value": "y"}),
        ("---\nA: x\na: y\n---\n", {"key": "Á", "do": "delete"}),
        ("## **L**\n## _L_\n## *L*\n", insert("x", heading="L")),
        ("one ^ab\n\ntwo ^aB\n", replace("new", block="AB")),
        ("a\n", insert("x", heading="***")),
    ],
)
def test_what_may_mean_two_things_or_none_is_refused(
    text: str, edit: dict[str, Any]
) -> None:
    with pytest.raises(DeskError):
        edited(text, edit)


@requirement("notes:edits")
def test_nothing_is_added_to_what_another_edit_takes_away() -> None:
    note = "# A\n\none\n\n## B\n\ntwo ^b1\n"
    for removal in (delete(heading="A"), delete(heading="B"), replace("new", heading="A")):
        for place in ({"heading": "B"}, {"block": "b1"}):
            with pytest.raises(DeskError, match="same place"):
                edited(note, insert("x", **place), removal)
    assert (
        edited(note, insert("x", heading="A"), delete(heading="B")) == "# A\n\none\nx\n\n"
    )


@requirement("notes:edits")
def test_corners_of_places() -> None:
    with pytest.raises(DeskError, match="as far as line 3"):
        edited("---\na: 1\n---", insert("x", lines=3, expect="---"))
    assert edited("---\na: 1\n---", {"key": "a", "do": "delete"}) == "---\n---"
    assert edited("", insert("x", lines=1, expect="")) == "x\n"
    assert edited("# A ^h\n", insert("x", heading="a", block="", key="")) == "# A ^h\n\nx\n"
    assert edited("p ^b\n\n# A\n", insert("x", block="#^b")) == "p ^b\n\nx\n\n# A\n"
    assert (
        edited("x\n# A\na\nB\n===\n", delete(lines=[2, 3], expect="# A\na"))
        == "x\nB\n===\n"
    )
    assert edited("x\n# A\na\n\nB\n===\n", delete(heading="A")) == "x\n\nB\n===\n"
    assert edited("# A\nB\n===\n", insert("x", heading="A")) == "# A\nx\n\nB\n===\n"
    assert edited("```\ncode ^b\n```\n\n^b\n", replace("x", block="b")) == "x\n\n^b\n"
    assert (
        edited("---\n{a: 1}\n---\n", {"key": "a", "do": "replace", "value": 1})
        == "---\n{a: 1}\n---\n"
    )
    with pytest.raises(DeskError, match="does not close it"):
        edited("p ^b\n\n# A\n", replace("```\nopen", block="b"))
    assert (
        edited("Cafe\u0301\nx\n", replace("Tea", lines=1, expect="Caf\u00e9")) == "Tea\nx\n"
    )
    assert (
        edited("---\ntags:\n---\n", {"key": "tags", "do": "insert", "value": ["a"]})
        == "---\ntags:\n  - a\n---\n"
    )
    with pytest.raises(DeskError, match="cannot be changed alone"):
        edited("---\n{a: 1}\n---\n", {"key": "a", "do": "replace", "value": 2})
    with pytest.raises(DeskError, match="would become properties"):
        edited("---\na: 1\n", insert("---", lines=2, expect="a: 1"))


@requirement("notes:edits")
@pytest.mark.parametrize(
    "text",
    [
        "```\n# A\n```\n",
        "~~~~ md\n# A\n~~~\n# A\n~~~~\n",
        "- ```\n  # A\n  ```\n",
        "<!-- hidden\n# A\n-->\n",
        "%%\n# A\n%%\n",
        "<div>\n# A\n</div>\n",
        "---\na: |\n  x\n# A\n---\n",
        "    # A\n",
        "> # A\n",
        "#A\n",
        "- a\n\n  # A\n",
        "- A\n---\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    assert read_outline(text).headings == []
    assert [
        (each.level, each.text) for each in read_outline(f"{text}\n# A #\n").headings
    ] == [(1, "A")]


LINES = st.sampled_from(
    [
        *(
            "# A",
            "## B ##",
            "#tag",
            "  # C",
            "    # code",
            "Text",
            "more text",
            "===",
            "---",
            "```",
            "````",
            "~~~",
            "",
        ),
        *(
            "- item",
            "  - sub",
            "1. one",
            "  cont",
            "- ```",
            "  ```",
            "  # in",
            "<!-- c",
            "-->",
            "<div>",
            "> quote",
        ),
    ]
)


@requirement("notes:edits")
@settings(max_examples=60, derandomize=True)
@given(st.lists(LINES, min_size=1, max_size=4).map("\n\n".join))
def test_headings_are_those_of_commonmark(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(text)
    wanted = [
        (int(each.tag[1]), each.map[0] + 1)
        for each in tokens
        if each.type == "heading_open" and not each.level and each.map
    ]
    outline = read_outline(text)

    assert (
        outline.body
        or [(each.level, outline.line_of(each.start)) for each in outline.headings]
        == wanted
    )


PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "# A",
                "## B",
                "## B",
                "S",
                "===",
                "---",
                "```",
                "text",
                "- i ^x1",
                "  - j",
                "p ^x2",
                "^x3",
                "| a |",
                "",
            ),
            *("\ttab", "  ", "> q", "<!-- c", "-->", "# A", "über 東京", "%%"),
        ]
    ),
    max_size=14,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def notes(draw: st.DrawFn) -> str:
    head = draw(
        st.sampled_from(
            [
                "",
                "\ufeff",
                "---\nk: v # c\nl: [1, 2]\n---\n",
                "---\r\nk: 'v'\r\n---\r\n",
                "---\n",
            ]
        )
    )
    body = "".join(line + draw(ENDS) for line in draw(PIECES))
    return head + body + draw(st.sampled_from(["", "last", "last ^x4"]))


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, str]:
    """A note, and the same one after a change in one place."""
    text = draw(notes())
    start = draw(st.integers(0, len(text)))
    end = draw(
        st.integers(start, min(len(text), start + draw(st.sampled_from([0, 3, 40]))))
    )
    new = "".join(line + draw(ENDS) for line in draw(PIECES.map(lambda lines: lines[:3])))
    return text, text[:start] + draw(st.sampled_from([new, new[:-1], "%", "-"])) + text[
        end:
    ]


@requirement("notes:edits")
@settings(max_examples=300)
@given(changes())
def test_what_is_known_of_a_note_before_its_change_is_right_after_it(
    change: tuple[str, str],
) -> None:
    text, made = change
    keep_outline(text).read_headings()
    keep_outline(made)

    outline = read_outline(made)
    afresh = Outline(made, outline.flat, outline.body)
    assert (outline.headings, outline.hidden) == (afresh.headings, afresh.hidden)


@requirement("notes:edits")
def test_of_a_changed_note_only_the_part_that_was_changed_is_read_anew() -> None:
    parts = [f"# Part {number}\n\n```\n# none\n```\ntext\n" for number in range(1000)]
    before = read_outline("".join(parts))
    assert len(before.headings) == 1000
    parts[500] += "# More\n"
    after = Outline("".join(parts), "".join(parts), 0)

    after.follow(before)

    assert not after.is_read
    assert len(after.headings) == 1001
    assert all(
        mine is yours
        for mine, yours in zip(after.headings[:500], before.headings, strict=False)
    )


def _alike(one: str, other: str) -> int:
    """How many characters the two have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next(
        (at for at, (mine, yours) in enumerate(pairs) if mine != yours),
        min(len(one), len(other)),
    )


@requirement("notes:edits")
@settings(max_examples=80)
@given(
    notes(),
    st.sampled_from(
        [
            *({"heading": name} for name in ("A", "B", "A > B", "S")),
            *({"block": f"x{n}"} for n in range(1, 5)),
        ]
    ),
    st.sampled_from(["new", "- new\n- lines", "new\n"]),
)
def test_what_is_inserted_is_the_only_change(
    text: str, place: dict[str, Any], new: str
) -> None:
    try:
        made = edited(text, insert(new, **place))
    except DeskError:
        return
    before = _alike(text, made)
    after = _alike(text[before:][::-1], made[before:][::-1])

    assert before + after == len(text)
    added = made[before : len(made) - after]
    assert (
        len(added.replace("\r", "").replace("\n", "")) <= len(new.replace("\n", "")) + 4
    )  # the item's indentation


@requirement("notes:edits")
@settings(max_examples=80)
@given(st.data(), notes(), st.sampled_from(["insert", "replace", "delete"]))
def test_lines_change_as_they_are_named_and_no_others(
    data: st.DataObject, text: str, do: str
) -> None:
    lines = [*re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)]
    head = len(re.findall(r"\r\n|\r|\n", text[: frontmatter.body_start(text)]))
    if len(lines) == head:
        return
    first = data.draw(st.integers(head + 1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    expect = "".join(lines[first - 1 : last])
    try:
        made = edited(
            text, {"do": do, "text": "NEW\nLINES", "lines": [first, last], "expect": expect}
        )
    except DeskError as error:
        assert "would become properties" in error.message  # noqa: PT017
        return
    kept = "".join(lines[: last if do == "insert" else first - 1])
    rest = "".join(lines[last:])
    new = made[len(kept) : len(made) - len(rest)]

    assert made.startswith(kept)
    assert made.endswith(rest)
    assert new.strip("\r\n").replace("\r\n", "\n").replace("\r", "\n") == (
        "" if do == "delete" else "NEW\nLINES"
    )
    assert not rest or do == "delete" or new.endswith(("\n", "\r"))


KEY_EDITS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "key": st.sampled_from(["k", "L", "l", "other key", "new"]),
                "do": st.sampled_from(["insert", "replace", "delete"]),
                "value": st.sampled_from([None, "v", "a", 3, ["b"], ["a", "c"]]),
            }
        )
    ),
    min_size=1,
    max_size=6,
)


@requirement("notes:edits")
@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["k", "l", "other key"]),
        st.sampled_from(["v", "a", 2, None, ["a", "b"], []]),
    ),
    KEY_EDITS,
)
def test_many_keys_change_as_one_after_the_other_would(
    properties: dict[str, Any], edits: list[dict[str, Any]]
) -> None:
    text = frontmatter.render(properties, "body\n") if properties else "body\n"
    try:
        made = edited(text, *edits)
    except DeskError as error:
        number = error.details["edit"]
        for each in edits[:number]:
            text = edited(text, each)
        with pytest.raises(DeskError, match=re.escape(error.message)):
            edited(text, edits[number])
        return

    for each in edits:
        text = edited(text, each)
    assert frontmatter.parse(made).frontmatter == frontmatter.parse(text).frontmatter
    assert made.endswith("body\n")


@requirement("notes:edits")
def test_a_list_that_grows_twice_keeps_what_is_written_in_it() -> None:
    longer = [
        {"key": key, "do": "insert", "value": value}
        for key, value in (("people", "Cid"), ("tags", "c"), ("people", ["Dan", "Eve"]))
    ]
    made = edited(NOTE, *longer)
    assert '"b", "c"]\n' in made
    assert "- Ann # the boss\n  - Bob\n  - Cid\n  - Dan\n  - Eve\n" in made


@requirement("notes:edits")
def test_the_edit_is_named_whose_key_cannot_be_changed_alone() -> None:
    text = "---\n? a\n# why\n: 1\nb: 2\n---\n"
    edits = [{"key": key, "do": "replace", "value": 3} for key in ("b", "a", "b")]
    with pytest.raises(DeskError, match="cannot be changed alone") as refused:
        edited(text, *edits)
    assert refused.value.details["edit"] == 1


@requirement("hostile:linear")
def test_a_hundred_keys_cost_about_as_much_as_one() -> None:
    """Each read all properties three times, and kept others out of the folder for half a minute."""
    text = frontmatter.render({f"k{number}": number for number in range(2000)}, "")
    edits = [{"key": f"k{number}", "do": "replace", "value": 9} for number in range(100)]

    def cpu_of(given: list[dict[str, Any]]) -> float:
        start = time.process_time()
        edited(text, *given)
        return time.process_time() - start

    assert cpu_of(edits) < 10 * min(cpu_of(edits[:1]) for _ in range(3))


@requirement("notes:edits")
@settings(max_examples=60)
@given(
    st.data(),
    st.dictionaries(
        st.sampled_from(["k", "l", "other key", "é"]),
        st.sampled_from(["v", "1", 2, None, ["a", "b"]]),
    ),
    notes().map(lambda text: text[frontmatter.body_start(text) :].removeprefix("---\n")),
    st.sampled_from(["v2", 3, True, None, ["x"], {"a": 1}]),
)
def test_a_key_changes_alone(
    data: st.DataObject, properties: dict[str, Any], body: str, value: Any
) -> None:
    properties["last"] = "z"
    text = frontmatter.render(properties, body).replace("last:", "# a comment\nlast:")
    key = data.draw(st.sampled_from(sorted(properties)))

    made = edited(text, {"key": key, "do": "replace", "value": value})

    assert frontmatter.parse(made).frontmatter == properties | {key: value}
    assert "\n# a comment\n" in made
    assert made.endswith(text[frontmatter.body_start(text) :])
    untouched = [
        line
        for line in text[: frontmatter.body_start(text)].split("\n")
        if line.startswith('"é"')
    ]
    assert key == "é" or all(line in made for line in untouched)


@requirement("notes:edits")
async def test_edits_are_made_all_or_none(notes: Client, home: Home) -> None:
    (home.vault / "a.md").write_text(NOTE)

    missing = await refused(
        notes,
        "edit_note",
        path="a.md",
        edits=[insert("x", heading="Log"), delete(heading="Nowhere")],
    )
    overlap = await refused(
        notes,
        "edit_note",
        path="a.md",
        edits=[delete(heading="Log"), replace("x", heading="Details")],
    )
    shape = await refused(
        notes, "edit_note", path="a.md", edits=[insert("x", heading="Log", block="w1")]
    )
    wrong = await refused(
        notes, "edit_note", path="a.md", edits=[replace("x", lines=[9, 9], expect="Intro.")]
    )

    assert (missing["error"], missing["details"]["edit"]) == ("not_found", 1)
    assert overlap["error"] == "parse_error"
    assert shape["details"]["fields"][0]["field"] == "edits.0"
    assert (wrong["details"]["reason"], wrong["details"]["lines"]) == ("changed", [10, 10])
    assert (home.vault / "a.md").read_text() == NOTE

    both = [
        insert("- three", heading="Log"),
        {"key": "status", "do": "replace", "value": "done"},
    ]
    made = await ok(notes, "edit_note", path="a.md", edits=json.dumps(both))
    assert made == {"path": "a.md", "etag": made["etag"], "lines": ["16"]}
    assert (await ok(notes, "read_note", path="a.md"))["etag"] == made["etag"]


@requirement("notes:edits")
async def test_a_heading_that_is_there_twice_is_refused_with_its_lines(
    notes: Client, home: Home
) -> None:
    text = "# One\n## Tasks\na\n# Two\n## Tasks\nb\n## Tasks\nc\n"
    (home.vault / "a.md").write_text(text)

    error = await refused(notes, "append_note", path="a.md", text="x", heading="Tasks")
    again = await refused(
        notes, "append_note", path="a.md", text="x", heading="Two > Tasks"
    )
    await ok(notes, "append_note", path="a.md", text="x", heading="One > Tasks")

    assert (error["details"]["reason"], error["details"]["lines"]) == (
        "ambiguous",
        [2, 5, 7],
    )
    assert again["details"]["lines"] == [5, 7]
    assert (home.vault / "a.md").read_text() == text.replace("a\n", "a\nx\n")


@requirement("notes:edits")
async def test_the_walls_of_a_write_stand_around_every_edit(
    notes: Client, home: Home
) -> None:
    (home.vault / "Approved").mkdir()
    (home.vault / "Approved" / "a.md").write_text("# A\n")
    (home.vault / "outside.md").symlink_to("/etc/hostname")
    (home.vault / "latin.md").write_bytes(b"caf\xe9\n")
    await ok(notes, "append_note", path="n.md", text="one", create=True)
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("append_note", {"path": "Approved/a.md", "text": "x"}, "protected"),
        (
            "append_note",
            {"path": "approved/new.md", "text": "x", "create": True},
            "protected",
        ),
        (
            "edit_note",
            {"path": "Approved/a.md", "edits": [insert("x", heading="A")]},
            "protected",
        ),
        ("create_from_template", {"template": "n.md", "path": "Drafts/x.md"}, "protected"),
        ("create_from_template", {"template": "n.md", "path": "N.md"}, "exists"),
        ("create_from_template", {"template": "../n.md", "path": "x.md"}, "outside"),
        ("append_note", {"path": "../x.md", "text": "x", "create": True}, "outside"),
        ("append_note", {"path": "outside.md", "text": "x"}, "symlink"),
        ("append_note", {"path": "latin.md", "text": "x"}, "encoding"),
        ("append_note", {"path": "n.md", "text": "x" * (17 << 20)}, "too_large"),
        (
            "edit_note",
            {
                "path": "n.md",
                "edits": [insert("x", lines=1, expect="one")],
                "if_match": "0" * 32,
            },
            "changed",
        ),
    ]
    for tool, arguments, reason in calls:
        assert (await refused(notes, tool, **arguments))["details"]["reason"] == reason, (
            arguments
        )
    missing = await refused(notes, "append_note", path="none.md", text="x")

    assert missing["error"] == "not_found"
    assert (home.vault / "Approved" / "a.md").read_text() == "# A\n"
    assert (home.vault / "n.md").read_text() == "one\n"
    assert sorted(path.name for path in home.vault.iterdir()) == [
        "Approved",
        "latin.md",
        "n.md",
        "outside.md",
    ]
    lines = [json.loads(line) for line in home.command("log", "--json").stdout.splitlines()]
    assert len(lines) == len(calls) + 2
    assert {line["result"] for line in lines} == {"success", "rejected"}


@requirement("notes:edits")
async def test_an_edited_note_is_known_as_a_tools(
    notes: Client, home: Home, desk: Desk
) -> None:
    """What a tool had a hand in never passes for the person's own approval."""
    from deskhand.gate import authorship

    (home.vault / "a.md").write_text("---\nsubject: Hi\n---\nHello\n")
    await ok(
        notes,
        "edit_note",
        path="a.md",
        edits=[{"key": "to", "do": "insert", "value": "ann@example.org"}],
    )

    properties = desk.vault.read("a.md").frontmatter
    assert desk.store.write_sync(lambda tx: authorship.is_a_tools_yes(tx, properties))


@requirement("notes:small")
async def test_a_line_for_a_large_note_travels_alone(notes: Client, home: Home) -> None:
    body = "".join(
        f"## Part {number}\n\n{'words of a long note ' * 45}\n\n" for number in range(100)
    )
    (home.vault / "a.md").write_text(f"---\nstatus: open\n---\n{body}")
    edits = [
        insert("- one", heading="Part 50"),
        {"key": "status", "do": "replace", "value": "done"},
    ]

    for tool, more in (
        ("append_note", {"text": "one", "heading": "Part 7"}),
        ("edit_note", {"edits": edits}),
    ):
        arguments = {"path": "a.md", **more}
        answer = (await notes.call_tool(tool, arguments)).model_dump_json()
        assert len(json.dumps(arguments)) + len(answer) < 2000
    wrong = await notes.call_tool(
        "edit_note", {"path": "a.md", "edits": [delete(lines=9, expect="no")]}
    )
    assert len(wrong.model_dump_json()) < 2000
    assert len((home.vault / "a.md").read_bytes()) > 95_000


@requirement("notes:atomic")
@requirement("notes:edits")
def test_a_kill_leaves_a_note_with_all_of_an_edit_or_none(home: Home, scale: int) -> None:
    note = home.vault / "a.md"
    note.write_text("---\nn: -1\n---\n# Log\n\nlast -1\n\n# End\n")

    def edit_for_ever(start: int, ready: int) -> None:
        async def calls() -> None:
            async with Client(
                obsidian_server(Desk(load(home.environment).settings))
            ) as client:
                for turn in range(start, 10**9):
                    key = {"key": "n", "do": "replace", "value": turn}
                    edits = [replace(f"last {turn}", heading="Log"), key]
                    assert not (
                        await client.call_tool(
                            "edit_note", {"path": "a.md", "edits": edits}
                        )
                    ).is_error
                    os.write(ready, b"!")

        anyio.run(calls)

    chance = random.Random(3)
    for seed in range(6 * scale):
        told, ready = os.pipe()
        child = in_child(lambda seed=seed, ready=ready: edit_for_ever(seed * 10**6, ready))
        os.close(ready)
        assert os.read(told, 1)
        # The kill must fall anywhere in the work; the pause is what is being varied, not waited for.
        threading.Event().wait(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)

        found = frontmatter.parse(note.read_text())
        assert found.body == f"# Log\n\nlast {found.frontmatter['n']}\n\n# End\n"
        assert found.frontmatter["n"] >= seed * 10**6


@requirement("notes:no-lost-edit")
def test_two_servers_and_an_editor_that_append_lose_no_line(home: Home, scale: int) -> None:
    note = home.vault / "a.md"
    note.write_text("# Log\n\n# End\n")
    each = 30 * scale

    def append_lines(name: str) -> None:
        async def calls() -> None:
            async with Client(
                obsidian_server(Desk(load(home.environment).settings))
            ) as client:
                for number in range(each):
                    line = {"path": "a.md", "text": f"{name} {number}", "heading": "Log"}
                    while (result := await client.call_tool("append_note", line)).is_error:
                        assert (
                            json.loads(result.content[0].text)["details"]["reason"]
                            == "changed"
                        )

        anyio.run(calls)
        os._exit(0)

    children = [in_child(lambda name=name: append_lines(name)) for name in ("one", "two")]
    for number in range(each):
        with note.open("a") as editor:
            editor.write(f"editor {number}\n")
            editor.flush()
            os.sched_yield()
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]

    everything = [
        line for path in home.vault.glob("*.md") for line in path.read_text().splitlines()
    ]
    wanted = {
        f"{name} {number}" for name in ("one", "two", "editor") for number in range(each)
    }
    assert wanted <= set(everything)


@requirement("notes:edits")
def test_a_note_is_appended_to_from_the_command_line(home: Home) -> None:
    (home.vault / "a.md").write_bytes(b"# Log\r\n- one\r\n\r\n# End")

    told = home.command("notes", "append", "a.md", "- two", "--heading", "Log", "--json")
    piped = subprocess.run(
        [warm_python(), "-m", "deskhand", "notes", "append", "new/b.md", "-", "--create"],
        input=b"from a pipe\n",
        env=home.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    wrong = home.command("notes", "append", "Approved/a.md", "x", "--create")

    assert json.loads(told.stdout) == {
        "path": "a.md",
        "etag": sha256((home.vault / "a.md").read_bytes()).hexdigest()[:32],
        "lines": ["3"],
    }
    assert (home.vault / "a.md").read_bytes() == b"# Log\r\n- one\r\n- two\r\n\r\n# End"
    assert (piped.returncode, (home.vault / "new/b.md").read_text()) == (0, "from a pipe\n")
    assert wrong.returncode == 5
    for missing in (("c.md", "x"), ("a.md", "x", "--heading", "Nowhere")):
        refused = home.command("notes", "append", *missing)
        assert refused.returncode == 4
        assert "\n  --create makes it; " in refused.stderr
    assert home.command("notes", "search", "nowhere").stderr == "No note matches.\n"
    recorded = [
        json.loads(line) for line in home.command("log", "--json").stdout.splitlines()
    ]
    assert [(line["actor"], line["target"]) for line in recorded] == [
        ("person", "a.md"),
        ("person", "new/b.md"),
    ]
