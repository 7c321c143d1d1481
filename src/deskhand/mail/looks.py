"""What a style does to text, as far as it matters whether a person can see it. Pure.

A value is understood, or it is named as a doubt: whoever reads the text learns that a person may not have seen it.
"""

import colorsys
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

Colour = tuple[float, float, float, float]
"""Red, green and blue up to 255, and how opaque it is, up to 1."""
Value = float | str | tuple["Value", ...] | None
"""None is what was not understood."""

SMALLEST = 4.0
"""Pixels of a letter below which nobody reads it."""
_HIDDEN_CONTRAST = 1.1
_FAINT_CONTRAST = 1.35
_FAR = 200
_VERY_FAR = 700
_NEAR = 30


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_UNITS = {
    "": 1,
    "px": 1,
    "pt": 4 / 3,
    "pc": 16,
    "in": 96,
    "cm": 37.8,
    "mm": 3.78,
    "q": 0.94,
    "rem": 16,
    "vw": 12.8,
}
_UNITS |= {"vh": 7.2, "vmin": 7.2, "vmax": 12.8}
_OF_LETTERS = {"em": 1.0, "ex": 0.5, "ch": 0.5, "lh": 1.2}
_NUMBER = re.compile(
    r"([+-]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(?:e[+-]?\d{1,2})?)\s*([a-z]*|%)"
)
_SIZES = {
    "xx-small": 9,
    "x-small": 10,
    "small": 13,
    "medium": 16,
    "large": 18,
    "x-large": 24,
    "xx-large": 32,
}
_SIZES |= {"xxx-large": 48}
_COLOURS = _pairs(
    "black 000000 silver c0c0c0 gray 808080 grey 808080 white ffffff maroon 800000 red ff0000 purple 800080 "
    "fuchsia ff00ff magenta ff00ff green 008000 lime 00ff00 olive 808000 yellow ffff00 navy 000080 blue 0000ff "
    "teal 008080 aqua 00ffff cyan 00ffff orange ffa500 pink ffc0cb brown a52a2a gold ffd700 beige f5f5dc ivory "
    "fffff0 snow fffafa azure f0ffff lightgray d3d3d3 lightgrey d3d3d3 darkgray a9a9a9 darkgrey a9a9a9 dimgray "
    "696969 dimgrey 696969 whitesmoke f5f5f5 gainsboro dcdcdc ghostwhite f8f8ff floralwhite fffaf0 lavender "
    "e6e6fa tomato ff6347 crimson dc143c indigo 4b0082 darkblue 00008b darkgreen 006400 darkred 8b0000 lightblue "
    "add8e6 skyblue 87ceeb steelblue 4682b4 royalblue 4169e1 slategray 708090 slategrey 708090 coral ff7f50 "
    "salmon fa8072 khaki f0e68c"
)
_HEX = re.compile(r"#([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_FUNCTION = re.compile(r"(rgb|hsl)a?\(([^()]{1,100})\)")
_COLOUR_IN = re.compile(r"#[0-9a-f]{3,8}\b|(?:rgb|hsl)a?\([^()]*\)|[a-z]+")
_GRADIENT_WORDS = _names(
    "linear radial conic repeating gradient to top left right bottom at center circle ellipse closest farthest side "
    "corner deg px turn rad from in"
)
_SAME = _names("inherit initial unset revert revert-layer")
_DISPLAYS = _names(
    "block inline inline-block table inline-table table-row table-cell table-row-group table-header-group flow-root "
    "table-footer-group table-caption list-item flex inline-flex grid inline-grid contents none"
)
# These move, paint or name, and hide no text by themselves, unless a number in them is out of all proportion.
_HARMLESS = _names(
    "box-sizing caption-side clear cursor direction empty-cells float font-family font-style font-weight font-variant "
    "font-display font-smoothing hyphens image-rendering line-break min-width object-fit object-position "
    "orphans osx-font-smoothing overflow-wrap pointer-events quotes resize size-adjust src table-layout tab-size "
    "tap-highlight-color text-align text-align-last text-rendering text-size-adjust text-transform text-shadow "
    "text-underline-position transition unicode-range user-select vertical-align widows word-break word-wrap z-index "
    "order flex gap row-gap column-gap appearance aspect-ratio interpolation-mode text-decoration-line will-change "
    "text-decoration-color text-decoration-style touch-action speak counter-reset counter-increment scroll-behavior "
    "text-decoration-skip-ink overscroll-behavior text-wrap font-kerning"
)
_HARMLESS_STARTS = (
    *(
        "border",
        "padding",
        "outline",
        "list-style",
        "page-break",
        "break-",
        "align-",
        "justify-",
        "flex-",
        "place-",
    ),
    *("font-variant-", "background-", "transition-", "scroll-", "text-emphasis"),
)
_FOREIGN = ("-moz-", "-ms-", "-o-", "mso-", "--", "-premailer-", "panose", "page")
_HUGE = re.compile(
    r"(?<![#\w.-])-?(?:\d{4,}|[3-9]\d\d|\d{3}(?=v[wh]|r?em))(?!\s*ms)(?:\.\d+)?\s*(?!%)(?:px|pt|em|rem|vw|vh|cm|in|\b)"
)
_ON_TEXT = re.compile(r"outline-offset:[^+\d.]|border-image(?:-slice)?:.*\bfill\b")
"""An outline that is drawn inside, and a border's picture that fills what it is around."""
_SHAPELESS = re.compile(
    r"scale(?:3d|x|y)?\(\s*0*\.?0*\s*[,)]|rect\([0\s,px]*\)|inset\(\s*(?:50|100)%|circle\(\s*0"
)
_SHAPES = _names(
    "transform translate rotate scale filter clip clip-path mask mask-image mask-size mask-position backdrop-filter "
    "perspective animation animation-name mix-blend-mode offset-path text-security shape-outside line-clamp "
    "text-overflow columns column-count column-width writing-mode unicode-bidi text-stroke contain"
)
_NOTHING = _names("none auto normal visible 0 isolate clip") | _SAME
_COVERING = _names(
    "position margin inset transform translate rotate scale offset-path -webkit-transform"
)
_LENGTHS = _names(
    "font-size line-height text-indent letter-spacing word-spacing width height max-width max-height min-height "
    "margin-left margin-right margin-top margin-bottom left right top bottom"
)


class Declaration(NamedTuple):
    name: str
    value: Value
    important: bool
    text: str
    """As it was written, where it was not understood."""


# Reading a value.


def read_declaration(text: str) -> Iterable[Declaration]:
    """What `name: value` says that may matter; the text has neither comments nor escapes and is in lower case."""
    name, colon, value = text.partition(":")
    value, bang, important = value.partition("!")
    if not colon:
        return ()
    return _read(
        name.strip(),
        value.strip()[:500],
        important=bool(bang) and important.strip() == "important",
    )


def _read(name: str, value: str, *, important: bool) -> Iterable[Declaration]:
    bare = name.removeprefix("-webkit-")
    if name.startswith(_FOREIGN) and name != "mso-hide":
        return
    reader = _READERS.get(bare)
    if reader is not None:
        for part, meant in reader(value).items():
            yield Declaration(part, meant, important, f"{name}: {value}"[:60])
    elif bare in _SHAPES:
        yield Declaration(bare, _shape(bare, value), important, f"{name}: {value}"[:60])
    elif bare in _HARMLESS or bare.startswith(_HARMLESS_STARTS):
        lies_on_text = _ON_TEXT.search(f"{bare}:{value}")
        if lies_on_text or (bare != "z-index" and _HUGE.search(value)):
            yield Declaration(bare, None, important, f"{name}: {value}"[:60])
    elif re.fullmatch(r"[a-z-]{2,40}", bare):
        yield Declaration(bare, None, important, f"{name}: {value}"[:60])


def _shape(name: str, value: str) -> Value:
    if _SHAPELESS.search(value) or (
        name == "scale" and re.match(r"0*\.?0*(?:\s|%|$)", value)
    ):
        return "nothing left"
    return "none" if value in _NOTHING else None


def _word(name: str, allowed: Iterable[str], value: str) -> Mapping[str, Value]:
    known = value in allowed or value in _SAME
    return {name: value if known else None}


def _amount(name: str, value: str) -> Mapping[str, Value]:
    """A share of one, as a number or in per cent."""
    found = _NUMBER.fullmatch(value)
    if value in _SAME:
        return {name: 1.0}
    if found is None or found[2] not in ("", "%"):
        return {name: None}
    return {name: float(found[1]) / (100 if found[2] else 1)}


def _length(value: str) -> Value:
    """(number, unit), a word, or None."""
    if found := _NUMBER.fullmatch(value):
        number = float(found[1])
        if not number:
            return (0.0, "px")
        known = found[2] in _UNITS or found[2] in _OF_LETTERS or found[2] == "%"
        return (number, found[2]) if known else None
    if (
        value in _SAME
        or value in _SIZES
        or re.fullmatch(
            r"(?:auto|normal|none|smaller|larger|(?:min|max|fit)-content)", value
        )
    ):
        return value
    return None


def _one_length(name: str, value: str) -> Mapping[str, Value]:
    return {name: _length(value)}


def _sides(name: str, value: str) -> Mapping[str, Value]:
    """The smallest and the largest of up to four lengths."""
    parts = [_length(each) for each in value.split()[:4]]
    return {f"{name}-{number}": part for number, part in enumerate(parts)}


def _font(value: str) -> Mapping[str, Value]:
    for part in value.split():
        size, slash, line = part.partition("/")
        meant = _length(size)
        if isinstance(meant, tuple) or size in _SIZES or size in ("smaller", "larger"):
            found: dict[str, Value] = {"font-size": meant}
            if isinstance(meant, tuple) and re.fullmatch(r"[1-9]00", size):
                continue  # the weight
            if slash:
                found["line-height"] = _length(line)
            return found
    return {
        "font-size": "initial" if value in ("caption", "icon", "menu", *_SAME) else None
    }


def _background(value: str) -> Mapping[str, Value]:
    if "(" not in value.replace("rgb", "").replace("hsl", "") or (
        "url" not in value and "gradient" not in value
    ):
        for part in (value, *re.split(r"\s+(?![^(]*\))", value)):
            if (meant := read_colour(part)) is not None:
                return {"background-color": meant, "background-image": "none"}
        return {
            "background-color": "transparent",
            "background-image": "none" if value in _NOTHING else None,
        }
    return {"background-color": _last_colour(value), "background-image": _picture(value)}


def _last_colour(value: str) -> Value:
    outside = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", "()", value)
    found = [read_colour(part) for part in outside.split()]
    return next((each for each in found if each is not None), "transparent")


def _picture(value: str) -> Value:
    """none, the colours of a gradient, or a picture that was not seen."""
    if value in _NOTHING:
        return "none"
    if "gradient(" not in value or "url(" in value:
        return "a picture"
    inside = value[value.index("gradient(") :]
    found: list[Value] = []
    for part in _COLOUR_IN.findall(inside):
        colour = read_colour(part)
        if colour is not None:
            found.append(colour)
        elif part not in _GRADIENT_WORDS:
            return "a picture"
    return tuple(found) if found else "a picture"


def _background_image(value: str) -> Mapping[str, Value]:
    return {"background-image": _picture(value)}


def _colour_of(name: str, value: str) -> Mapping[str, Value]:
    return {name: value if value in ("currentcolor", *_SAME) else read_colour(value)}


def _white_space(value: str) -> Mapping[str, Value]:
    return {"white-space": value}


def _overflow(value: str) -> Mapping[str, Value]:
    shown = all(each in ("visible", *_SAME) for each in value.split())
    return {"overflow": "visible" if shown else "cut"}


def _text_decoration(value: str) -> Mapping[str, Value]:
    return (
        {}
        if not re.search(r"\d(?![^(]*\))", re.sub(r"#[0-9a-f]+", "", value))
        else {"text-decoration": None}
    )


def _box_shadow(value: str) -> Mapping[str, Value]:
    return {"box-shadow": None if "inset" in value else "none"}


@lru_cache(maxsize=5000)
def read_colour(value: str) -> Colour | None:
    """A colour as it is written in a style or an attribute; None where it is not known."""
    value = value.strip()
    if value == "transparent":
        return (0, 0, 0, 0)
    value = f"#{_COLOURS[value]}" if value in _COLOURS else value
    if found := _HEX.fullmatch(value):
        digits = found[1] if len(found[1]) > 4 else "".join(digit * 2 for digit in found[1])
        red, green, blue, alpha = (
            int((digits + "ff")[at : at + 2], 16) for at in (0, 2, 4, 6)
        )
        return (red, green, blue, alpha / 255)
    if found := _FUNCTION.fullmatch(value):
        return _from_numbers(found[1], re.split(r"[\s,/]+", found[2].strip()))
    return None


def _from_numbers(kind: str, parts: list[str]) -> Colour | None:
    numbers = [_NUMBER.fullmatch("0" if part == "none" else part) for part in parts]
    if len(parts) not in (3, 4) or None in numbers:
        return None
    first, second, third, *rest = (
        (float(found[1]), found[2]) for found in numbers if found
    )
    alpha = rest[0][0] / (100 if rest[0][1] else 1) if rest else 1.0
    if kind == "rgb":
        scaled = [number * (2.55 if unit else 1) for number, unit in (first, second, third)]
        red, green, blue = (min(max(number, 0), 255) for number in scaled)
        return (red, green, blue, min(max(alpha, 0), 1))
    if first[1] not in ("", "deg"):
        return None
    red, green, blue = colorsys.hls_to_rgb(
        first[0] % 360 / 360, min(third[0] / 100, 1), min(second[0] / 100, 1)
    )
    return (red * 255, green * 255, blue * 255, min(max(alpha, 0), 1))


_READERS: dict[str, Callable[[str], Mapping[str, Value]]] = {
    "display": partial(_word, "display", _DISPLAYS),
    "visibility": partial(_word, "visibility", ("visible", "hidden", "collapse")),
    "content-visibility": partial(
        _word, "content-visibility", ("visible", "auto", "hidden")
    ),
    "mso-hide": partial(_word, "mso-hide", ("all", "none")),
    "position": partial(_word, "position", ("static", "relative", "absolute", "fixed")),
    "opacity": partial(_amount, "opacity"),
    "zoom": partial(_amount, "zoom"),
    "color": partial(_colour_of, "color"),
    "text-fill-color": partial(_colour_of, "color"),
    "background-color": partial(_colour_of, "background-color"),
    "background-image": _background_image,
    "background": _background,
    "font": _font,
    "white-space": _white_space,
    "overflow": _overflow,
    "overflow-x": _overflow,
    "overflow-y": _overflow,
    "text-decoration": _text_decoration,
    "box-shadow": _box_shadow,
    "margin": partial(_sides, "margin"),
    "inset": partial(_sides, "inset"),
    **{name: partial(_one_length, name) for name in _LENGTHS},
}


# What it does to a text.


@dataclass(frozen=True, slots=True)
class Look:
    """How the text of an element looks."""

    colour: Colour = (0, 0, 0, 1)
    backgrounds: tuple[Colour, ...] = ((255, 255, 255, 1),)
    """One, or those of a gradient."""
    letter: float = 16
    line: float = 20
    indent: float = 0
    spacing: float = 0
    opacity: float = 1
    visible: bool = True
    gone: bool = False
    """Whatever stands inside: nothing of it can be seen."""
    keeps_space: bool = False
    doubts: frozenset[str] = frozenset()
    """What of its styles was not understood, as it is written."""

    @property
    def is_hidden(self) -> bool:
        return (
            self.gone
            or not self.visible
            or self.letter < SMALLEST
            or self.opacity < 0.1
            or not -_FAR / 2 < self.indent < 2 * _VERY_FAR
            or max(map(self._contrast, self.backgrounds)) < _HIDDEN_CONTRAST
        )

    @property
    def all_doubts(self) -> frozenset[str]:
        """Why a person may not see a text that is not surely hidden."""
        more = []
        if min(map(self._contrast, self.backgrounds)) < _FAINT_CONTRAST:
            more.append("a colour like the background's")
        if self.opacity < 0.4:
            more.append(f"opacity: {self.opacity:.2g}")
        if self.letter < 6:
            more.append(f"font-size: {self.letter:.2g}px")
        if not SMALLEST <= self.line < _VERY_FAR:
            more.append(f"line-height: {self.line:.0f}px")
        if self.spacing < -self.letter / 4:
            more.append("letter-spacing")
        return self.doubts.union(more) if more else self.doubts

    def _contrast(self, background: Colour) -> float:
        return _contrast(self.colour, self.opacity, background)


@lru_cache(maxsize=2000)
def _contrast(colour: Colour, opacity: float, background: Colour) -> float:
    text = _over((*colour[:3], colour[3] * opacity), background)
    light, dark = sorted((_luminance(text), _luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Iterable[float]) -> float:
    red, green, blue, *_ = (_linear(part / 255) for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def apply(look: Look, declarations: Iterable[Declaration]) -> Look:
    """How an element in one that looks so looks with these declarations, the weightiest last."""
    style: dict[str, Value] = {}
    doubts: dict[str, str] = {}
    for each in declarations:
        # What a browser does not understand either changes nothing; what it does, may hide.
        if each.value is None:
            doubts[each.name] = each.text
        else:
            style[each.name] = each.value
            doubts.pop(each.name, None)
    return _look(look, style, doubts)


def covering(doubts: frozenset[str]) -> list[str]:
    """Those by which an element may lie on text that is not its own."""
    return [
        each
        for each in doubts
        if each.partition(":")[0] in _COVERING or each.startswith("a margin")
    ]


def doubt(look: Look, doubts: frozenset[str]) -> Look:
    """The same with more that was not understood."""
    if doubts <= look.doubts:
        return look
    return replace(look, doubts=look.doubts | doubts)


@lru_cache(maxsize=2000)
def _look_again(
    look: Look, style: tuple[tuple[str, Value], ...], doubts: tuple[str, ...]
) -> Look:
    return _compute(look, dict(style), {text: text for text in doubts})


def _look(look: Look, style: dict[str, Value], doubts: dict[str, str]) -> Look:
    if not style and not doubts:
        return look
    return _look_again(look, tuple(style.items()), tuple(doubts.values()))


def _compute(parent: Look, style: dict[str, Value], doubts: dict[str, str]) -> Look:
    letter = _letter(style.get("font-size"), parent.letter)

    def pixels(name: str, otherwise: float | None = None) -> float | None:
        return _pixels(style.get(name), letter, otherwise)

    colour = _colour(style.get("color"), parent.colour)
    line = style.get("line-height")
    height = letter * 1.2 if "font-size" in style else parent.line
    if isinstance(line, tuple) and line[1] == "":
        height = float(line[0]) * letter  # type: ignore[arg-type]
    elif isinstance(line, tuple) and line[1] == "%":
        height = float(line[0]) * letter / 100  # type: ignore[arg-type]
    elif isinstance(line, tuple):
        height = _pixels(line, letter, letter) or 0
    made = replace(
        parent,
        colour=colour,
        letter=letter,
        line=height,
        indent=pixels("text-indent", parent.indent) or 0,
        spacing=pixels("letter-spacing", parent.spacing) or 0,
        opacity=parent.opacity * _number(style.get("opacity")),
        visible=_visible(style.get("visibility"), parent.visible),
        keeps_space=_keeps_space(style.get("white-space"), before=parent.keeps_space),
    )
    more = [*doubts.values()]
    gone = _is_gone(style, pixels, more, height)
    backgrounds = _backgrounds(style, made, more)
    return replace(
        made,
        gone=parent.gone or gone,
        backgrounds=backgrounds,
        doubts=parent.doubts.union(more),
    )


def _is_gone(
    style: dict[str, Value],
    pixels: Callable[..., float | None],
    doubts: list[str],
    line: float,
) -> bool:
    if (
        style.get("display") == "none"
        or style.get("content-visibility") == "hidden"
        or style.get("mso-hide") == "all"
    ):
        return True
    if "nothing left" in style.values() or _number(style.get("zoom")) < 0.2:
        return True
    if style.get("overflow") == "cut" and _is_cut_away(style, pixels, doubts, line):
        return True
    margins = [pixels(name) for name in style if name.startswith("margin")]
    offsets = [
        pixels(name)
        for name in style
        if name.startswith(("left", "right", "top", "bottom", "inset"))
    ]
    if style.get("position") in (None, "static", *_SAME):
        offsets = []
    elif style["position"] != "relative" or any(
        offset and abs(offset) > _NEAR for offset in offsets
    ):
        doubts.append(f"position: {style['position']}")
    moves = [move for move in (*margins, *offsets) if move is not None]
    if (pixels("height") or pixels("min-height") or 0) > 2 * _VERY_FAR or (
        pixels("width") or 0
    ) > 4 * _VERY_FAR:
        doubts.append("a margin, a width or a height out of proportion")
    if any(move < -_NEAR or move > _VERY_FAR for move in moves):
        doubts.append("a margin or an offset out of proportion")
    # A margin behind it moves what follows, not the element.
    before = [
        pixels(name) for name in ("margin-left", "margin-top", "margin-0", "margin-3")
    ]
    return any(move is not None and move <= -_FAR for move in (*before, *offsets)) or any(
        offset and offset > 4 * _VERY_FAR for offset in offsets
    )


def _is_cut_away(
    style: dict[str, Value],
    pixels: Callable[..., float | None],
    doubts: list[str],
    line: float,
) -> bool:
    """Whether a box that shows nothing beyond its edges has no room for a letter."""
    sizes = [pixels(name) for name in ("width", "height", "max-width", "max-height")]
    if any(size is not None and size < SMALLEST for size in sizes) or line < 1:
        return True
    narrow = any(size is not None and size < _FAR for size in sizes)
    if (
        narrow
        or any(size is not None for size in (sizes[1], sizes[3]))
        or style.get("white-space") == "nowrap"
    ):
        doubts.append("overflow: hidden in a box of a fixed size")
    return False


def _letter(value: Value, parent: float) -> float:
    match value:
        case None | "inherit" | "unset" | "revert" | "revert-layer":
            return parent
        case "smaller":
            return parent / 1.2
        case "larger":
            return parent * 1.2
        case (float() as number, "%"):
            return max(number, 0) * parent / 100
        case tuple():
            return max(_pixels(value, parent, parent) or 0, 0)
        case _:
            return float(_SIZES.get(str(value), 16))


def _pixels(value: Value, letter: float, otherwise: float | None) -> float | None:
    match value:
        case (float() as number, "%"):
            return number * 12.8
        case (float() as number, str() as unit):
            return number * (_UNITS.get(unit) or _OF_LETTERS.get(unit, 1) * letter)
        case "initial" | "normal" | "auto" | "none":
            return 0 if otherwise is not None else None
        case _:
            return otherwise


def _colour(value: Value, parent: Colour) -> Colour:
    if isinstance(value, tuple):
        return value  # type: ignore[return-value]
    return (0, 0, 0, 1) if value == "initial" else parent


def _number(value: Value) -> float:
    return value if isinstance(value, float) else 1.0


def _visible(value: Value, parent: bool) -> bool:
    if value in ("hidden", "collapse"):
        return False
    return value in ("visible", "initial") or parent


def _keeps_space(value: Value, *, before: bool) -> bool:
    if value is None or value in _SAME:
        return before
    return str(value).startswith(("pre", "break-spaces"))


def _backgrounds(
    style: dict[str, Value], look: Look, doubts: list[str]
) -> tuple[Colour, ...]:
    below = look.backgrounds
    match style.get("background-color"):
        case "currentcolor":
            below = (_over(look.colour, below[0]),)
        case tuple() as colour:
            below = tuple(dict.fromkeys(_over(colour, each) for each in below))
        case _:
            pass
    match style.get("background-image"):
        case "a picture":
            doubts.append("text on a picture")
        case tuple() as colours:
            below = tuple(_over(colour, below[0]) for colour in colours)
        case _:
            pass
    return below


def _over(colour: Colour, below: Colour) -> Colour:
    if colour[3] == 1:
        return colour
    red, green, blue = (
        colour[3] * mine + (1 - colour[3]) * its
        for mine, its in zip(colour[:3], below, strict=False)
    )
    return (red, green, blue, 1)
