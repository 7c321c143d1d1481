"""Style sheets: which of their rules hold for an element, surely or perhaps, on a screen of some kind. Never raises.

What was not understood (a selector, a condition, a sheet from elsewhere) is never taken for nothing: it counts as
perhaps, or it is named.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from deskhand.mail.looks import Declaration, read_declaration

LONGEST_SHEET = 300_000
MOST_RULES = 5_000
MOST_STEPS = 60_000
"""How often a part of a selector is compared with an element, for one mail on one screen."""
_DEEPEST = 60
_UNSURE = "?"
_LAYER = "? layer"
"""Conditions of which nobody here can say whether they hold."""
_NAME = r"(?:[\w-]|[^\x00-\x7f]|\\.)++"
_TOKEN = re.compile(
    r"/\*.*?(?:\*/|\Z)|<!--|-->|\"(?:[^\"\\\n]|\\.)*+[\"\n]?|'(?:[^'\\\n]|\\.)*+['\n]?|url\(\s*+[^\"'\s()][^)]*+\)?"
    r"|\\.|[{}()\[\];]|[^/<\"'\\{}()\[\];uU-]++|.",
    re.DOTALL | re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\([0-9a-fA-F]{1,6})[ \t\r\n\f]?|\\([^\n])", re.DOTALL)
_PART = re.compile(
    rf"(?P<combinator>\s*+[>+~]\s*+|\s++)|\*|(?P<tag>{_NAME})|\#(?P<id>{_NAME})|\.(?P<cls>{_NAME})"
    rf"|\[\s*+(?P<attribute>{_NAME})\s*+(?:(?P<sign>[~|^$*]?=)\s*+(?P<value>\"[^\"]*\"|'[^']*'|[^\]\s]*)[^\]]*)?\]"
    r"|(?P<pseudo>::?-?[\w-]++)(?P<argument>\((?:[^()]|\([^()]*\))*+\))?"
)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
# A person who only reads the mail is not in these states; the others are no text of the mail's.
_NEVER = frozenset(
    ("hover", "active", "focus", "focus-within", "focus-visible", "visited", "target")
)
_NEVER |= {
    "before",
    "after",
    "marker",
    "selection",
    "placeholder",
    "backdrop",
    "file-selector-button",
}
_FEATURE = re.compile(
    r"(?:-webkit-)?(min-|max-)?(?:device-)?(width|height)\s*:\s*([\d.]+)(px|em|rem)?"
)
_RANGE = re.compile(
    r"(?:([\d.]+)(px|em|rem)?\s*(<=?|>=?)\s*)?(width|height)(?:\s*(<=?|>=?|=)\s*([\d.]+)(px|em|rem)?)?"
)


class Verdict(IntEnum):
    NO = 0
    PERHAPS = 1
    YES = 2


class Screen(NamedTuple):
    name: str
    width: int
    height: int
    dark: bool


USUAL = Screen("", 1280, 720, dark=False)
OTHERS = (
    Screen("on a narrow screen", 390, 844, dark=False),
    Screen("in a narrow window", 800, 600, dark=False),
    Screen("on a wide screen", 1920, 1080, dark=False),
    Screen("in dark mode", 1280, 720, dark=True),
)


class Styled(Protocol):
    """An element, as far as selectors look at it."""

    tag: str
    attributes: Mapping[str, str]
    place: int
    """How many elements stand before it in the same one."""

    @property
    def around(self) -> "Styled | None": ...


class Compound(NamedTuple):
    """What one element must be: `p.note[lang]`."""

    tag: str
    ids: tuple[str, ...]
    classes: tuple[str, ...]
    attributes: tuple[tuple[str, str, str], ...]
    states: tuple[str, ...]


class StyleRule(NamedTuple):
    parts: tuple[tuple[str, Compound], ...]
    """From right to left, each with the sign between it and the one to its right."""
    weight: tuple[int, int, int]
    declarations: tuple[Declaration, ...]
    conditions: tuple[str, ...]
    """Media queries; `?` is one that was not understood."""
    text: str


@dataclass(slots=True)
class _Level:
    selectors: list[str] | None
    conditions: tuple[str, ...]
    skipped: bool = False
    declarations: list[str] = field(default_factory=list)


class Match(NamedTuple):
    rule: StyleRule
    verdict: Verdict
    order: int


class Sheets:
    """All sheets of one mail."""

    def __init__(self) -> None:
        self.rules: list[StyleRule] = []
        self.doubts: list[str] = []
        self._size = 0

    def add(self, css: str, media: str = "") -> None:
        self._size += len(css)
        if self._size > LONGEST_SHEET or len(self.rules) > MOST_RULES:
            self.doubts.append("more style sheets than were read")
            return
        _SheetParser(self, (media.lower(),) if media.strip() else ()).parse(css)

    def on(self, screen: Screen) -> "Cascade":
        return Cascade([(rule, _holds(rule.conditions, screen)) for rule in self.rules])

    def differs(self, screen: Screen) -> bool:
        return any(
            _holds(rule.conditions, screen) != _holds(rule.conditions, USUAL)
            for rule in self.rules
        )


class Cascade:
    """The rules that hold on one screen, found by what the element is that they are about."""

    def __init__(self, rules: Sequence[tuple[StyleRule, Verdict]]) -> None:
        self._by_key: dict[str, list[Match]] = {}
        self._steps = 0
        self.exhausted = False
        for order, (rule, verdict) in enumerate(rules):
            if verdict:
                self._by_key.setdefault(_key(rule.parts[0][1]), []).append(
                    Match(rule, verdict, order)
                )

    def matches(self, element: Styled) -> list[Match]:
        """The rules for the element, the weightiest last."""
        if not self._by_key or self.exhausted:
            return []
        names = element.attributes.get("class", "").split()[:50]
        keys = [
            "*",
            element.tag,
            *(f".{name.lower()}" for name in names),
            f"#{element.attributes.get('id', '').lower()}",
        ]
        found = [
            match for key in dict.fromkeys(keys) for match in self._of_key(key, element)
        ]
        if len(found) > 1:
            found.sort(key=_order)
        return found

    def _of_key(self, key: str, element: Styled) -> Iterator[Match]:
        for match in self._by_key.get(key, ()):
            verdict = min(match.verdict, self._match(match.rule.parts, 0, element))
            if self.exhausted:
                return
            if verdict == match.verdict:
                yield match
            elif verdict:
                yield match._replace(verdict=verdict)

    def _match(
        self, parts: tuple[tuple[str, Compound], ...], at: int, element: Styled | None
    ) -> Verdict:
        self._steps += 1
        if element is None or self.exhausted or self._steps > MOST_STEPS:
            self.exhausted = self.exhausted or self._steps > MOST_STEPS
            return Verdict.NO
        own = _fits(parts[at][1], element)
        if not own or at + 1 == len(parts):
            return own
        match parts[at + 1][0]:
            case ">":
                return min(own, self._match(parts, at + 1, element.around))
            case " ":
                return min(own, self._match_ancestors(parts, at + 1, element.around))
            case _:
                return Verdict.PERHAPS

    def _match_ancestors(
        self, parts: tuple[tuple[str, Compound], ...], at: int, element: Styled | None
    ) -> Verdict:
        best = Verdict.NO
        for _ in range(_DEEPEST):
            if element is None or best == Verdict.YES:
                return best
            best = max(best, self._match(parts, at, element))
            element = element.around
        return Verdict.PERHAPS


def _order(match: Match) -> tuple[tuple[int, int, int], int]:
    return match.rule.weight, match.order


def _key(compound: Compound) -> str:
    if compound.ids:
        return f"#{compound.ids[0].lower()}"
    if compound.classes:
        return f".{compound.classes[0].lower()}"
    return compound.tag or "*"


def _fits(compound: Compound, element: Styled) -> Verdict:
    if compound.tag and compound.tag != element.tag:
        return Verdict.NO
    if not any(compound[1:]):
        return Verdict.YES
    verdict = Verdict.YES
    given = element.attributes
    classes = given.get("class", "").split()
    pairs = [
        *((name, [given.get("id", "")]) for name in compound.ids),
        *((name, classes) for name in compound.classes),
    ]
    for name, names in pairs:
        if name in names:
            continue
        if name.lower() not in map(str.lower, names):
            return Verdict.NO
        verdict = Verdict.PERHAPS  # in a mail without a doctype case does not matter
    for name, sign, value in compound.attributes:
        verdict = min(verdict, _has(given, name, sign, value))
    for state in compound.states:
        verdict = min(verdict, _is_in(state, element))
    return verdict


def _has(given: Mapping[str, str], name: str, sign: str, value: str) -> Verdict:
    if name not in given:
        return Verdict.NO
    found = given[name].lower()
    value = value.lower()
    held = {
        "": True,
        "=": found == value,
        "~=": value in found.split(),
        "|=": found == value or found.startswith(f"{value}-"),
        "^=": bool(value) and found.startswith(value),
        "$=": bool(value) and found.endswith(value),
        "*=": bool(value) and value in found,
    }
    return Verdict.YES if held[sign] else Verdict.NO


def _is_in(state: str, element: Styled) -> Verdict:
    match state:
        case "first-child":
            held = element.place == 0
        case "root":
            held = element.tag == "html"
        case "link" | "any-link":
            held = element.tag == "a" and "href" in element.attributes
        case _:
            return (
                Verdict.NO if state in _NEVER or state.startswith("-") else Verdict.PERHAPS
            )
    return Verdict.YES if held else Verdict.NO


# Reading a sheet.


class _SheetParser:
    def __init__(self, sheets: Sheets, conditions: tuple[str, ...]) -> None:
        self.sheets = sheets
        self.levels = [_Level(None, conditions)]

    def parse(self, css: str) -> None:
        astray = False
        for sign, text in _pieces(css):
            level = self.levels[-1]
            # A brace that closes nothing spoils the rule behind it.
            if astray and sign == "{":
                level = _Level(None, (), skipped=True)
            astray = sign == "}" and len(self.levels) == 1
            if sign == "{":
                self.levels.append(self._opened(level, text))
                continue
            if level.selectors is not None and text:
                level.declarations.append(text)
            elif text.lower().startswith("@import") and not level.skipped:
                self.sheets.doubts.append(
                    f"a style sheet from elsewhere: {text[7:].strip()[:80]}"
                )
            if sign == "}" and len(self.levels) > 1:
                self._close()
        while len(self.levels) > 1:
            self._close()

    def _opened(self, level: _Level, prelude: str) -> _Level:
        if level.skipped or len(self.levels) > _DEEPEST:
            return _Level(None, (), skipped=True)
        if not prelude.startswith("@"):
            return _Level(_nested(level.selectors, prelude), level.conditions)
        name, _, rest = prelude[1:].lower().partition(" ")
        name, paren, _ = name.partition("(")
        rest = f"({prelude[1:].lower().partition('(')[2]}" if paren else rest
        match name:
            case "media":
                return _Level(level.selectors, (*level.conditions, rest.strip()))
            case "supports" | "layer" | "container" | "scope":
                unsure = _LAYER if name == "layer" else _UNSURE
                return _Level(level.selectors, (*level.conditions, unsure))
            case "font-face":
                return _Level(["@font-face"], level.conditions)
            case _:
                return _Level(None, (), skipped=True)

    def _close(self) -> None:
        level = self.levels.pop()
        if level.skipped or not level.declarations or level.selectors is None:
            return
        if level.selectors == ["@font-face"]:
            if any(
                text.lower().startswith("src") and "data:" in text.lower()
                for text in level.declarations
            ):
                self.sheets.doubts.append("a font of its own")
            return
        found = tuple(
            each
            for text in level.declarations
            for each in read_declaration(unescape(text).lower())
        )
        if any(
            each.name == "position" and each.value in ("absolute", "fixed")
            for each in found
        ):
            made = [
                selector[:60]
                for selector in level.selectors
                if re.search(r":(?:before|after)", selector.lower())
            ]
            self.sheets.doubts += [f"the rule {selector}" for selector in made]
        # Nothing outside a layer outweighs what is important in it.
        if _LAYER in level.conditions and any(each.important for each in found):
            self.sheets.doubts.append(f"the layered rule {level.selectors[0][:60]}")
        for selector in level.selectors if found else ():
            parts, weight = _read_selector(selector)
            self.sheets.rules.append(
                StyleRule(parts, weight, found, level.conditions, selector[:60])
            )


def _nested(outer: list[str] | None, prelude: str) -> list[str]:
    selectors = [each.strip() for each in _split(prelude)[:100] if each.strip()]
    if not outer:
        return selectors
    inside = [each if "&" in each else f"& {each}" for each in selectors]
    return [each.replace("&", around)[:500] for each in inside for around in outer[:20]][
        :100
    ]


def _split(prelude: str) -> list[str]:
    """By its commas, but for those in brackets."""
    if "(" not in prelude and "[" not in prelude:
        return prelude.split(",")
    pieces: list[str] = [""]
    depth = 0
    for char in prelude[:5000]:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += char
    return pieces


@lru_cache(maxsize=2000)
def _read_selector(
    text: str,
) -> tuple[tuple[tuple[str, Compound], ...], tuple[int, int, int]]:
    found: list[tuple[str, dict[str, list[str]], list[tuple[str, str, str]]]] = [
        ("", {}, [])
    ]
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or (
            part["combinator"]
            and not part["combinator"].strip()
            and part.end() == len(text)
        ):
            unread = Compound("", (), (), (), ("not understood",))
            return (("", unread),), (0, 0, 0)
        at = part.end()
        if part["combinator"]:
            found.append((part["combinator"].strip() or " ", {}, []))
        elif part["attribute"]:
            value = (part["value"] or "").strip("\"'")
            found[-1][2].append(
                (unescape(part["attribute"]).lower(), part["sign"] or "", value)
            )
        else:
            kind = next(
                (name for name in ("tag", "id", "cls", "pseudo") if part[name]), "any"
            )
            found[-1][1].setdefault(kind, []).append(
                unescape(part[kind] if kind != "any" else "*")
            )
    parts = tuple(
        (sign, _compound(names, attributes)) for sign, names, attributes in reversed(found)
    )
    # Each sign stands between a part and the one to its right, which comes before it here.
    signs = ["", *(sign for sign, _ in parts[:-1])]
    compounds = [compound for _, compound in parts]
    ids, names, tags = (sum(counts) for counts in zip(*map(_weigh, compounds), strict=True))
    return tuple(zip(signs, compounds, strict=True)), (ids, names, tags)


def _compound(
    names: dict[str, list[str]], attributes: list[tuple[str, str, str]]
) -> Compound:
    states = [name.lstrip(":").lower() for name in names.get("pseudo", [])]
    tag = names.get("tag", [""])[0].lower()
    return Compound(
        tag,
        tuple(names.get("id", [])),
        tuple(names.get("cls", [])),
        tuple(attributes),
        tuple(states),
    )


def _weigh(compound: Compound) -> tuple[int, int, int]:
    others = len(compound.classes) + len(compound.attributes) + len(compound.states)
    return len(compound.ids), others, int(bool(compound.tag))


@lru_cache(maxsize=5000)
def read_style(style: str) -> tuple[Declaration, ...]:
    """What a style attribute says."""
    if not re.search(r"[\\\"'(/{\[]", style):
        texts = style.lower().split(";")
    else:
        texts = [
            unescape(text).lower() for sign, text in _pieces(style[:20_000]) if sign != "{"
        ]
    return tuple(each for text in texts for each in read_declaration(text))


def _pieces(css: str) -> Iterator[tuple[str, str]]:
    """The text up to each sign that counts, with the sign: `;`, `{`, `}`, and nothing at the end."""
    kept: list[str] = []
    closers: list[str] = []
    for found in _TOKEN.finditer(css):
        token = found[0]
        if token.startswith("/*") or token in ("<!--", "-->"):
            kept.append(" ")
        elif closers:
            kept.append(token)
            if token in _CLOSERS:
                closers.append(_CLOSERS[token])
            elif token == closers[-1]:
                closers.pop()
        elif token in (";", "{", "}"):
            yield token, "".join(kept).strip()
            kept.clear()
        else:
            kept.append(token)
            if token in _CLOSERS:
                closers.append(_CLOSERS[token])
    yield "", "".join(kept).strip()


def unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def meant(found: re.Match[str]) -> str:
        if found[2]:
            return found[2]
        number = int(found[1], 16)
        return chr(number) if 0 < number < 0xD800 else "\ufffd"

    return _ESCAPE.sub(meant, text)


# Screens.


def _holds(conditions: tuple[str, ...], screen: Screen) -> Verdict:
    return min((_holds_one(each, screen) for each in conditions), default=Verdict.YES)


@lru_cache(maxsize=1000)
def _holds_one(queries: str, screen: Screen) -> Verdict:
    if (
        queries in (_UNSURE, _LAYER)
        or len(queries) > 1000
        or re.search(r"\([^()]*\(", queries)
    ):
        return Verdict.PERHAPS
    return max(_holds_query(query.strip(), screen) for query in queries.split(","))


def _holds_query(query: str, screen: Screen) -> Verdict:
    verdict = Verdict.YES
    words = re.findall(r"\([^()]*\)|[\w-]+", query)
    for word in words:
        if word.startswith("("):
            verdict = min(verdict, _has_feature(word[1:-1].strip(), screen))
        elif word == "or":
            verdict = Verdict.PERHAPS
        elif word not in ("and", "not", "only", "all", "screen"):
            verdict = Verdict.NO
    if "not" in words:
        return Verdict(2 - verdict)
    return verdict


def _has_feature(feature: str, screen: Screen) -> Verdict:
    sizes = {"width": screen.width, "height": screen.height}
    if found := _FEATURE.fullmatch(feature):
        limit = _pixels(found[3], found[4])
        size = sizes[found[2]]
        held = (
            size >= limit
            if found[1] == "min-"
            else size <= limit
            if found[1] == "max-"
            else size == limit
        )
        return Verdict.YES if held else Verdict.NO
    if found := _RANGE.fullmatch(feature):
        size = sizes[found[4]]
        held = _compares(_pixels(found[1], found[2]), found[3], size) and _compares(
            size, found[5], _pixels(found[6], found[7])
        )
        return Verdict.YES if held else Verdict.NO
    known = {
        "prefers-color-scheme: dark": screen.dark,
        "prefers-color-scheme: light": not screen.dark,
        "orientation: portrait": screen.width < screen.height,
        "orientation: landscape": screen.width >= screen.height,
        "prefers-reduced-motion: reduce": False,
        "hover: hover": True,
        "hover": True,
        "color": True,
    }
    held_or_not = known.get(re.sub(r"\s*:\s*", ": ", feature))
    if held_or_not is None:
        return Verdict.PERHAPS
    return Verdict.YES if held_or_not else Verdict.NO


def _pixels(number: str | None, unit: str | None) -> float:
    try:
        return float(number or 0) * (16 if unit in ("em", "rem") else 1)
    except ValueError:
        return 0


def _compares(one: float, sign: str | None, other: float) -> bool:
    match sign:
        case None:
            return True
        case "<" | "<=":
            return one <= other
        case ">" | ">=":
            return one >= other
        case _:
            return one == other
