"""A mail as its sender meant it: its own HTML in a frame that can do nothing and loads nothing.

Three walls that know nothing of each other: nh3 lets formatting through and no script, form or address to load from;
the frame's sandbox runs nothing and opens nothing; its policy fetches from nowhere. What was not loaded is counted.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import nh3

POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'self'; sandbox"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-DNS-Prefetch-Control": "off",
    "Referrer-Policy": "no-referrer",
}
LARGEST_PICTURE = 3_000_000
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TAG_NAMES = (
    "a abbr address article aside b bdi bdo blockquote body br caption center cite code col colgroup dd del details dfn"
    " div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark nav ol p pre q"
    " rp rt ruby s samp section small span strike strong style sub summary sup table tbody td tfoot th thead time tr tt"
    " u ul var wbr"
)
_LOOK_NAMES = (
    "align alt bgcolor border cellpadding cellspacing class color cols colspan dir face height hspace id lang nowrap"
    " rowspan rules size span start style summary title type valign vspace width"
)
_TAGS = frozenset(_TAG_NAMES.split())
_LOOKS = frozenset(_LOOK_NAMES.split())
_SOURCES = {
    "a": frozenset({"href"}),
    "img": frozenset({"src"}),
    "body": frozenset({"background"}),
}


@dataclass(slots=True)
class Sheet:
    """The document for the frame, and how many pictures of it would have had to be fetched."""

    document: str
    blocked: int


def make_sheet(source: str, pictures: Mapping[str, tuple[str, bytes]]) -> Sheet:
    blocked = 0

    def place(tag: str, name: str, value: str) -> str | None:
        nonlocal blocked
        if name not in ("src", "background"):
            return value
        address = value.strip()
        kind, _, content = address.partition(",")
        if (
            name == "src"
            and kind.lower().split(";")[0].removeprefix("data:") in _PICTURES
            and content
        ):
            return address
        if address.lower().startswith("cid:") and (
            found := _embed(pictures.get(address[4:]))
        ):
            return found
        blocked += tag in ("img", "body")
        return None

    attributes = {tag: set(_LOOKS | _SOURCES.get(tag, frozenset())) for tag in _TAGS}
    clean = nh3.clean(
        source,
        tags=set(_TAGS),
        clean_content_tags={"script", "title", "noscript", "template", "svg", "math"},
        attributes=attributes,
        attribute_filter=place,
        url_schemes={"http", "https", "mailto", "data", "cid"},
    )
    blocked += clean.lower().count("url(")
    head = '<!doctype html><html><head><meta charset="utf-8"><base target="_blank"></head><body>'
    return Sheet(f"{head}{clean}</body></html>", blocked)


def _embed(found: tuple[str, bytes] | None) -> str | None:
    if found is None or found[0] not in _PICTURES or len(found[1]) > LARGEST_PICTURE:
        return None
    return f"data:{found[0]};base64,{base64.b64encode(found[1]).decode()}"
