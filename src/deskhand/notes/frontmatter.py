"""The text of one note: the YAML block at its top, and the body below.

Reading takes values and their places from the parser's events, so that writing can replace the bytes of one
value and leave the rest as the person wrote it. No dumper can do that.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from deskhand.errors import FieldProblem, InvalidInput, Unreadable, printable

MAX_BLOCK_BYTES = 64 * 1024
MAX_DEPTH = 32
NULL = "null"
"""What a filter calls a property that has no value."""

_BOM = "\ufeff"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"

_OPENING = re.compile(r"\ufeff?---\r?\n")
_CLOSING = re.compile(r"^---(?:\r?\n|\Z)", re.MULTILINE)
_COLON = re.compile(r"\s*:")
_HEADER_COMMENT = re.compile(r"[|>][^\s#]*([ \t]+#[^\r\n]*)")

_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
# Python neither reads nor prints an int of more digits, so no door could show one.
_TAGGED_INT = re.compile(r"[-+]?[0-9]{1,4300}")
_HUGE = 10**4300
_TAGGED_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WIKILINK = re.compile(r"\[\[(?!\s*\])[^\[\]{}\r\n]+\]\]")
_QUOTED_ITEM = re.compile(r"(?:^|[,:])\s*[\"']")

_NOT_YAML = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_NOT_RAW = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[^\W\d_](?:[\w ,.'()!?&+/@-]*[\w.')!?])?")
# Other programs read the note too, and YAML 1.1 takes all of these for something else than text.
_MISREAD = frozenset(
    ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"]
)
# libyaml gives up on `key:` after 1,024 characters; `? key` has no such limit.
_LONGEST_KEY = 1000

_canonical = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class Note:
    frontmatter: dict[str, Any]
    body: str
    warning: str | None = None


def split(text: str) -> tuple[str | None, str]:
    """The raw YAML block, or None where there is none, and the body."""
    _, block, _, body = _parts(text)
    return block, body


def body_start(text: str) -> int:
    """Where the body begins, without a copy of it."""
    opening = _OPENING.match(text)
    closing = opening and _CLOSING.search(text, opening.end())
    if closing:
        return closing.end()
    return int(text.startswith(_BOM))


def parse(text: str) -> Note:
    return _read(text)[0]


def render(frontmatter: Mapping[str, Any], body: str) -> str:
    """The text of a new note."""
    return _render(demand_writable(frontmatter), body, "\n")


def merge(text: str, changes: Mapping[str, Any]) -> str:
    """`text` with these keys set and every other byte as it was."""
    old, root = _read(text)
    return _rewrite(
        text, old, root, Note(old.frontmatter | demand_writable(changes), old.body)
    )


def rewrite(text: str, frontmatter: Mapping[str, Any], body: str) -> str:
    """`text` with exactly this frontmatter and body; what need not change keeps its bytes."""
    old, root = _read(text)
    wanted = Note(demand_writable(frontmatter), _body_as_filed(text, old.body, body))
    return _rewrite(text, old, root, wanted)


def alter(
    text: str, wanted: Mapping[str, Any], longer: Mapping[str, list[Any]] | None = None
) -> str | None:
    """`text` with exactly these properties and every other byte as it was; None where that cannot be.

    `longer` has what comes behind some of their lists, whose items stay as they are written.
    """
    old, root = _read(text)
    note = Note(demand_writable(wanted), old.body)
    if split(text)[0] is None:
        changed: str | None = _rewrite(text, old, root, note)
    else:
        changed = _spliced(text, old, root, note)
    return _extend(changed, longer) if changed and longer else changed


def _extend(text: str, longer: Mapping[str, list[Any]]) -> str | None:
    old, root = _read(text)
    lists = {key: [*old.frontmatter[key], *items] for key, items in longer.items()}
    wanted = old.frontmatter | demand_writable(lists)
    opening, block, closing, body = _parts(text)
    if root and block is not None:
        # From the end, so that the places of those before stay as they are.
        for name, node in reversed(root.entries):
            if name.value in longer:
                block = _with_items(block, node, longer[name.value], _newline(text))
        candidate = f"{opening}{block}{closing}{body}"
        if _reads_as(candidate, Note(wanted, old.body)):
            return candidate
    return alter(text, wanted)


def value_texts(frontmatter: Mapping[str, Any]) -> Iterator[str]:
    """Every leaf value as the text that search looks at; keys are not searched."""
    for value in frontmatter.values():
        yield from _leaf_texts(value)


def properties(frontmatter: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, text) for filters: one for each scalar at the top and for each item of a list at the top.

    Blanks around a text do not count, since a filter has none, and what is null is found by that word and by nothing.
    """
    for key, value in frontmatter.items():
        items = value if isinstance(value, list) else [value]
        for item in items:
            if not isinstance(item, list | dict):
                yield key.strip(), next(_leaf_texts(item), "").strip()
            if item is None:
                yield key.strip(), NULL


def _leaf_texts(value: Any) -> Iterator[str]:
    match value:
        case None:
            return
        case str():
            yield value
        case dict():
            yield from value_texts(value)
        case list():
            for item in value:
                yield from _leaf_texts(item)
        case _:
            yield _literal(value)


# The parts of a note.


def _parts(text: str) -> tuple[str, str | None, str, str]:
    """BOM and opening line, block, closing line, body; joined they are `text`."""
    if opening := _OPENING.match(text):
        start = opening.end()
        if closing := _CLOSING.search(text, start):
            return (
                opening[0],
                text[start : closing.start()],
                closing[0],
                text[closing.end() :],
            )
    body = text.removeprefix(_BOM)
    return text.removesuffix(body), None, "", body


def _is_crlf(text: str) -> bool:
    return text.count("\n") == text.count("\r\n") > 0


def _body_as_filed(text: str, old: str, new: str) -> str:
    if old.replace("\r\n", "\n") == new.replace("\r\n", "\n"):
        return old
    if "\r" not in new and _is_crlf(text):
        return new.replace("\n", "\r\n")
    return new


def _same(one: Any, other: Any) -> bool:
    """Equal with their types: 1, 1.0 and True are three values."""
    return _canonical(one) == _canonical(other)


def _says(note: Note, wanted: Note) -> bool:
    return note.body == wanted.body and _same(note.frontmatter, wanted.frontmatter)


def _reads_as(text: str, wanted: Note) -> bool:
    try:
        note = parse(text)
    except Unreadable:
        return False
    return note.warning is None and _says(note, wanted)


# Reading.


@dataclass(slots=True)
class _Node:
    """A value and where it stands in the block."""

    value: Any
    start: int
    end: int = 0
    """Of a list or mapping that is still being read: where its last item ends."""
    flow: bool = False
    block_scalar: bool = False
    entries: list[tuple["_Node", "_Node"]] = field(default_factory=list)
    key: "_Node | None" = None
    """The key whose value comes next."""

    def wants_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None


def _read(text: str) -> tuple[Note, _Node | None]:
    block, body = split(text)
    if block is None:
        return Note({}, body), None
    root = _load(block)
    if root is None or root.start == root.end:
        return Note({}, body), None
    if not isinstance(root.value, dict):
        warning = "The block between the --- lines is not a mapping; it is taken as part of the body."
        return Note({}, text.removeprefix(_BOM), warning), None
    return Note(root.value, body), root


def _load(block: str) -> _Node | None:
    _refuse_unfit(block)
    # The C parser drops a BOM here and then miscounts; a line end in its place keeps every offset.
    source = re.sub(rf"\A{_BOM}+", lambda boms: "\n" * len(boms[0]), block)
    root: _Node | None = None
    stack: list[_Node] = []
    event: Any
    try:
        # Events instead of a loaded document: no recursion, and every value with its place.
        for event in yaml.parse(source, Loader=_LOADER):
            start = event.start_mark.index
            if isinstance(event, yaml.AliasEvent):
                raise _unreadable(block, start, "alias", "an alias (*name)")
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _unreadable(block, start, "two_documents", "a second document")
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append(_begin_collection(block, event, stack))
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                node = stack.pop()
                _end_collection(block, event, node)
            elif isinstance(event, yaml.ScalarEvent):
                node = _scalar(block, event, as_key=bool(stack) and stack[-1].wants_key())
            else:
                continue
            if stack:
                _add(block, stack[-1], node)
            else:
                root = node
    # ValueError and OverflowError: the Python parser on an escape beyond Unicode.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or "invalid YAML"
        raise _unreadable(
            block, getattr(mark, "index", 0), "invalid_yaml", problem
        ) from error
    return root


def _refuse_unfit(block: str) -> None:
    if wrong := _NOT_YAML.search(block):
        reason = "nul" if wrong[0] == "\0" else "control_character"
        raise _unreadable(
            block, wrong.start(), reason, f"the character U+{ord(wrong[0]):04X}"
        )
    if len(block) > MAX_BLOCK_BYTES or len(block.encode()) > MAX_BLOCK_BYTES:
        raise Unreadable(
            "The properties cannot be read: the block that begins in line 1 is larger than 64 kB.",
            hint="Move what is long into the body of the note.",
            reason="too_large",
            line=1,
        )


def _unreadable(block: str, index: int, reason: str, what: str) -> Unreadable:
    line = 2 + block.count("\n", 0, index)
    return Unreadable(
        f"The properties cannot be read: {what} in line {line}.",
        hint="Correct that line between the --- lines of the note and try again; the note was left as it is.",
        reason=reason,
        line=line,
    )


def _begin_collection(block: str, event: Any, stack: list[_Node]) -> _Node:
    start = event.start_mark.index
    if stack and stack[-1].wants_key():
        raise _unreadable(block, start, "complex_key", "a list or mapping as a key")
    if len(stack) == MAX_DEPTH:
        raise _unreadable(block, start, "too_deep", f"more than {MAX_DEPTH} levels")
    value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
    return _Node(value, start, flow=bool(event.flow_style))


def _end_collection(block: str, event: Any, node: _Node) -> None:
    if not node.flow:
        return  # the parser ends a block at the next token, behind comments that are not part of it
    node.end = event.end_mark.index
    source = block[node.start : node.end]
    if isinstance(node.value, list) and _is_wikilink(source):
        node.value = source
        node.flow = False


def _is_wikilink(source: str) -> bool:
    return _WIKILINK.fullmatch(source) is not None and not _QUOTED_ITEM.search(source[2:-2])


def _add(block: str, parent: _Node, node: _Node) -> None:
    parent.end = node.end
    if isinstance(parent.value, list):
        parent.value.append(node.value)
    elif parent.key is None:
        if node.value in parent.value:
            what = f"the key {printable(node.value, 60)!r} for the second time"
            raise _unreadable(block, node.start, "duplicate_key", what)
        parent.key = node
    else:
        parent.value[parent.key.value] = node.value
        parent.entries.append((parent.key, node))
        parent.key = None


def _scalar(block: str, event: Any, *, as_key: bool) -> _Node:
    start, end = event.start_mark.index, event.end_mark.index
    # The Python parser lets the escape of a lone surrogate through; no door could send it.
    if _SURROGATE.search(event.value):
        raise _unreadable(
            block, start, "invalid_yaml", "half a character (a lone surrogate)"
        )
    is_block = event.style in ("|", ">")
    if is_block:
        end = start + len(block[start:end].rstrip())
    value = event.value if as_key else _scalar_value(event)
    return _Node(value, start, end, block_scalar=is_block)


def _scalar_value(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.tag is not None:
        return _tagged_value(event.tag, text)
    if event.style:
        return text
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "null", "~"):
        return None
    if _INT.fullmatch(text):
        return int(text)
    return _finite(text) if _DECIMAL.fullmatch(text) else text


def _tagged_value(tag: str, text: str) -> Any:
    match tag.removeprefix(_TAG):
        case "int" if _TAGGED_INT.fullmatch(text):
            return int(text)
        case "float" if _TAGGED_FLOAT.fullmatch(text):
            return _finite(text)
        case "bool" if text in ("true", "false"):
            return text == "true"
        case "null" if text in ("", "null", "~"):
            return None
    return text


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


# Writing.


def _render(frontmatter: dict[str, Any], body: str, newline: str) -> str:
    if not frontmatter and not body.startswith(_BOM) and split(body)[0] is None:
        return body
    block = "".join(_entry(key, value, newline) for key, value in frontmatter.items())
    if len(block.encode()) > MAX_BLOCK_BYTES:
        raise InvalidInput(
            "The properties are larger than 64 kB.",
            hint="Put what is long into the body of the note.",
        )
    return f"---{newline}{block}---{newline}{body}"


def _entry(key: str, value: Any, newline: str, indent: str = "") -> str:
    name = _text(key)
    if len(name) > _LONGEST_KEY:
        name = f"? {name}{newline}{indent}"
    opening = f"{indent}{name}:"
    if _is_items(value):
        return opening + _items(value, newline + indent + "  ") + newline
    return f"{opening} {inline(value)}{newline}"


def _is_items(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and not any(isinstance(item, list | dict) for item in value)
    )


def _items(value: list[Any], line_start: str) -> str:
    return "".join(f"{line_start}- {inline(item)}" for item in value)


def inline(value: Any) -> str:
    """A value as it is written behind its key."""
    return _text(value) if isinstance(value, str) else _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return "{" + ", ".join(_flow_pair(key, item) for key, item in value.items()) + "}"
    if isinstance(value, list):
        items = ", ".join(map(_flow, value))
        # `[[1]]` would be read as a wikilink.
        return f"[ {items}]" if items.startswith("[") else f"[{items}]"
    if type(value) is int and abs(value) >= 10**15:
        return f'!!int "{value}"'
    return _literal(value)


def _flow_pair(key: str, value: Any) -> str:
    name = _quote(key)
    if len(name) > _LONGEST_KEY:
        name = f"? {name} "
    return f"{name}: {_flow(value)}"


def _literal(value: float | bool | None) -> str:
    if isinstance(value, float):
        digits = format(Decimal(repr(value)), "f")
        return digits if "." in digits else f"{digits}.0"
    return json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _MISREAD:
        return text
    return _quote(text)


def _quote(text: str) -> str:
    return _NOT_RAW.sub(
        lambda char: f"\\u{ord(char[0]):04x}", json.dumps(text, ensure_ascii=False)
    )


def demand_writable(frontmatter: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in frontmatter.items():
        if not _is_key(key):
            raise _refusal(key, "a key must be text")
        _demand_value(key, value, 1)
    return dict(frontmatter)


def _is_key(key: object) -> bool:
    return type(key) is str and not _SURROGATE.search(key)


def _demand_value(key: str, value: Any, depth: int) -> None:
    """Raises where `value`, somewhere under the top-level `key`, could not be read back."""
    if problem := _problem(value, depth):
        raise _refusal(key, problem)
    if type(value) is dict:
        if not all(map(_is_key, value)):
            raise _refusal(key, "a key in it is not text")
        value = list(value.values())
    if type(value) is list:
        for item in value:
            _demand_value(key, item, depth + 1)


def _problem(value: Any, depth: int) -> str | None:
    kind = type(value)
    if kind not in (str, int, float, bool, list, dict, type(None)):
        return f"a note cannot hold a {kind.__name__}"
    if kind in (list, dict) and depth == MAX_DEPTH:
        return f"it is nested too deep (more than {MAX_DEPTH} levels)"
    if kind is str and _SURROGATE.search(value):
        return "the text has half a character (a lone surrogate)"
    if kind is float and not math.isfinite(value):
        return "the number is not finite"
    if kind is int and abs(value) >= _HUGE:
        return "the number has more than 4,300 digits"
    return None


def _refusal(key: object, what: str) -> InvalidInput:
    name = printable(key)
    return InvalidInput(
        f"The property {name!r} cannot be written: {what}.",
        hint="Use text, numbers, true, false, null, and lists and mappings of these.",
        fields=[FieldProblem(name, what)],
    )


# Writing into what is there.


def _rewrite(text: str, old: Note, root: _Node | None, wanted: Note) -> str:
    spliced = _spliced(text, old, root, wanted)
    if spliced is not None:
        return spliced
    bom = text.removesuffix(text.removeprefix(_BOM))
    return bom + _render(wanted.frontmatter, wanted.body, _newline(text))


def _newline(text: str) -> str:
    opening, block, _, _ = _parts(text)
    is_crlf = opening.endswith("\r\n") or (block is None and _is_crlf(text))
    return "\r\n" if is_crlf else "\n"


def _spliced(text: str, old: Note, root: _Node | None, wanted: Note) -> str | None:
    """What `_rewrite` gives, where no other byte has to change for it; else None."""
    if _says(old, wanted):
        return text
    opening, block, closing, _ = _parts(text)
    if block is None or old.warning is not None:
        return None
    spliced = _splice(block, root, wanted.frontmatter, _newline(text))
    if wanted.body and not closing.endswith("\n"):
        closing += _newline(text)
    candidate = f"{opening}{spliced}{closing}{wanted.body}"
    if spliced is None or not _reads_as(candidate, wanted):
        return None
    return candidate


def _splice(
    block: str, root: _Node | None, wanted: dict[str, Any], newline: str
) -> str | None:
    """`block` with `wanted` in it, or None where its form does not allow that."""
    entries = root.entries if root else []
    edits: list[tuple[int, int, str] | None] = []
    for key, node in entries:
        if key.value not in wanted:
            edits.append((_line_start(block, key.start), _line_end(block, node.end), ""))
        elif not _same(node.value, wanted[key.value]):
            edits.append(_edit(block, key, node, wanted[key.value], newline))
    indent = ""
    if root:
        indent = block[_line_start(block, root.start) : root.start]
    if not indent.isspace():
        indent = ""
    there = {key.value for key, _ in entries}
    added = "".join(
        _entry(key, value, newline, indent)
        for key, value in wanted.items()
        if key not in there
    )
    if root and root.flow and (edits or added):
        return None
    for edit in reversed(edits):
        if edit is None:
            return None
        start, end, new = edit
        block = block[:start] + new + block[end:]
    return block + added


def _with_items(block: str, node: _Node, items: list[Any], newline: str) -> str:
    if node.flow:
        inner = block[: node.end - 1].rstrip(" \t")
        comma = ", " if node.value else ""
        return inner + comma + ", ".join(map(_flow, items)) + block[len(inner) :]
    indent = block[_line_start(block, node.start) : node.start]
    end = _line_end(block, node.end)
    return (
        block[:end]
        + "".join(f"{indent}- {inline(item)}{newline}" for item in items)
        + block[end:]
    )


def _edit(
    block: str, key: _Node, node: _Node, value: Any, newline: str
) -> tuple[int, int, str] | None:
    """Start, end and new bytes for the value of one key. Comments beside and above it stay."""
    colon = _COLON.match(block, key.end)
    if colon is None:
        return None
    gap = block[colon.end() : node.start]
    comment = ""
    if node.block_scalar and (
        header := _HEADER_COMMENT.search(block[node.start : node.end])
    ):
        comment = header[1]
    if _is_items(value) and not node.flow:
        indent = block[_line_start(block, node.start) : node.start]
        if isinstance(node.value, list) and not indent.strip():
            return node.start, node.end, _items(value, newline + indent).lstrip()
        if not (
            gap.strip() or comment or "#" in block[node.end : _line_end(block, node.end)]
        ):
            indent = block[_line_start(block, key.start) : key.start]
            return colon.end(), node.end, _items(value, newline + indent + "  ")
    if "\n" in gap:
        return colon.end(), node.end, f" {inline(value)}{gap.rstrip()}"
    return colon.end(), node.end, (gap or " ") + inline(value) + comment


def _line_start(block: str, index: int) -> int:
    return block.rfind("\n", 0, index) + 1


def _line_end(block: str, index: int) -> int:
    """The index behind the line's newline."""
    return block.find("\n", index) + 1 or len(block)
