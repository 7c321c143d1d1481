"""Links to a note that moved, rewritten in the form in which they were written."""

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, unquote

# A fence that nothing closes goes on to the end.
_FENCED = re.compile(r"(^(?P<fence>`{3,}+|~{3,}+).*?(?:^(?P=fence)[^\n]*$|\Z))", re.MULTILINE | re.DOTALL)
_WIKI = re.compile(r"\[\[(?P<target>[^\[\]|#^\n]+)(?P<rest>(?:[#^|][^\[\]\n]*)?)\]\]")
_MARKDOWN = re.compile(r"\]\((?P<target><[^<>\n]+>|[^()\s<>]+)(?P<rest>(?:\s+\"[^\"\n]*\")?)\)")


@dataclass(frozen=True, slots=True)
class Move:
    """A note's way from `old` to `new`, and whether its bare name was and is its alone."""

    old: str
    new: str
    old_name_is_unique: bool
    new_name_is_unique: bool


def relink(text: str, holder: str, move: Move) -> str:
    """The text of the note `holder` with its links to the moved note following it; code is left alone."""
    parts = _FENCED.split(text)
    # A split by two groups gives text, fenced block, fence, text, …
    for at in range(0, len(parts), 3):
        parts[at] = _WIKI.sub(partial(_wiki, move=move), parts[at])
        parts[at] = _MARKDOWN.sub(partial(_markdown, holder=holder, move=move), parts[at])
    return "".join(part for at, part in enumerate(parts) if at % 3 != 2)


def wikilinks(text: str) -> list[str]:
    """What the wikilinks of a note's text name, as they are written."""
    return [found["target"].strip() for found in _WIKI.finditer(_FENCED.sub("", text))]


def stem(path: str) -> str:
    return posixpath.basename(path)[: -len(".md")]


def same(one: str, other: str) -> bool:
    return unicodedata.normalize("NFC", one).casefold() == unicodedata.normalize("NFC", other).casefold()


def _wiki(found: re.Match[str], move: Move) -> str:
    target = found["target"].strip()
    bare = re.sub(r"\.md\Z", "", target, flags=re.IGNORECASE)
    ending = target[len(bare) :]
    new = move.new[: -len(".md")]
    if "/" in bare:
        is_meant = same(bare.removeprefix("/") + ".md", move.old)
    else:
        is_meant = same(bare, stem(move.old)) and move.old_name_is_unique
        if move.new_name_is_unique:
            new = stem(move.new)
    if not is_meant or same(new, bare):
        return found[0]
    return f"[[{new}{ending}{found['rest']}]]"


def _markdown(found: re.Match[str], holder: str, move: Move) -> str:
    written = found["target"]
    bracketed = written.startswith("<")
    path, mark, anchor = written.strip("<>").partition("#")
    target = path if bracketed else unquote(path)
    folder = posixpath.dirname(holder) or "."
    if "://" in target or not target:
        return found[0]
    if target.startswith("/") and same(target[1:], move.old):
        new = f"/{move.new}"
    elif same(posixpath.normpath(posixpath.join(folder, target)), move.old):
        new = posixpath.relpath(move.new, folder)
    elif same(target, move.old):
        new = move.new
    else:
        return found[0]
    place = f"<{new}{mark}{anchor}>" if bracketed else f"{quote(new, safe='/')}{mark}{anchor}"
    return f"]({place}{found['rest']})"
