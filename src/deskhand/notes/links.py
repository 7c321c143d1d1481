"""Links and tags in the text of a note: what they are, which note they mean, and how they follow one that moved."""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from deskhand.notes import frontmatter

# Also in a list or a quote. A fence that nothing closes goes on to the end.
_FENCED = re.compile(
    r"(^[ \t>]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*(?P<fence>`{3,}+|~{3,}+).*?(?:^[ \t>]*(?P=fence)[^\n]*$|\Z))",
    re.MULTILINE | re.DOTALL,
)
_SPAN = re.compile(r"(?<!`)(`{1,9})(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HIDDEN = re.compile(r"%%.*?%%", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# What a tag cannot hold, as Obsidian has it.
TAG = re.compile(
    "(?:^|(?<=\\s))#([^\u2000-\u206f\u2e00-\u2e7f'!\"#$%&()*+,.:;<=>?@^`{|}~\\[\\]\\\\\\s]+)",
    re.MULTILINE,
)
_BETWEEN_TAGS = re.compile(r"[,\s]+")
_ENDINGS = "3gp avif base bmp canvas flac gif jpeg jpg m4a mkv mov mp3 mp4 ogg ogv opus pdf png svg wav webm webp"
ATTACHMENTS = frozenset(re.split(" ", _ENDINGS))
"""The endings of files that a note may link to and that are no notes."""
_WIKI = re.compile(r"\[\[(?P<target>[^\[\]|#^\n]+)(?P<rest>(?:[#^|][^\[\]\n]*)?)\]\]")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_MARKDOWN = re.compile(
    r"\]\([ \t]*(?P<target><[^<>\n]+>|(?:[^()\s<>\\]|\\.|\([^()\s<>]*\))++)"
    r"(?P<rest>(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?[ \t]*)\)"
)


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


def targets(properties: Mapping[str, Any], body: str) -> list[str]:
    """What the links of a note name, each once and as it is written: first those of its properties."""
    found: dict[str, None] = {}
    for value in frontmatter.value_texts(properties):
        if "[[" in value:
            found |= dict.fromkeys(each["target"] for each in _WIKI.finditer(value))
    if "[[" in body or "](" in body:
        text = _visible(body)
        places = [(each.start(), each["target"]) for each in _WIKI.finditer(text)]
        places += [
            (each.start(), _address(each["target"])) for each in _MARKDOWN.finditer(text)
        ]
        found |= dict.fromkeys(target for _, target in sorted(places))
    # In a table the bar of a wikilink has a backslash before it.
    return [
        target for each in found if (target := each.strip().removesuffix("\\").rstrip())
    ]


def tags(properties: Mapping[str, Any], body: str) -> list[str]:
    """The tags of a note without their #, as they are written first."""
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key.casefold() not in ("tags", "tag"):
            continue
        listed = (
            value
            if isinstance(value, list)
            else _BETWEEN_TAGS.split(value if isinstance(value, str) else "")
        )
        for each in listed:
            _add_tag(found, str(each).strip().removeprefix("#"))
    if "#" in body:
        for each in TAG.findall(_visible(body)):
            _add_tag(found, each)
    return list(found.values())


def _add_tag(found: dict[str, str], written: str) -> None:
    name = written.strip("/")
    # Of digits alone it is a number, such as that of an issue.
    if name and not name.isdigit() and not any(char.isspace() for char in name):
        found.setdefault(name_key(name), name)


def _visible(body: str) -> str:
    """The text without code and comments."""
    # One that nothing closes is none.
    last = body.rfind("-->") + 3
    if last > 2:
        body = _COMMENT.sub(" ", body[:last]) + body[last:]
    body = _HIDDEN.sub(" ", body)
    if "```" in body or "~~~" in body:
        body = _FENCED.sub("", body)
    if "`" in body:
        body = _SPAN.sub(" ", body)
    return body


def _address(written: str) -> str:
    """The file that a Markdown link names; nothing for one that leads out of the vault or stays in the note."""
    bare = written.strip("<>")
    if _SCHEME.match(bare) or bare.startswith("//"):
        return ""
    path = bare.partition("#")[0]
    return _ESCAPED.sub(r"\1", path if written.startswith("<") else unquote(path))


def name_key(name: str) -> str:
    """What is the same for two names that a link does not tell apart."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", name).casefold()


def link_key(target: str) -> str:
    """The bare name that a link ends in, by which the notes are found that it may mean."""
    return _path_key(target).rpartition("/")[2]


def is_attachment(target: str) -> bool:
    return ending(target) in ATTACHMENTS


def ending(path: str) -> str:
    """What stands behind the last dot of a name, in small letters; nothing where it has none."""
    return posixpath.splitext(path)[1][1:].lower()


def resolve(target: str, holder: str, namesakes: Iterable[str]) -> str | None:
    """Which of the notes of this name a link in the note `holder` means: the one beside it, the one at this path of the
    vault, else the one nearest to the top whose path ends so."""
    by_path = {_path_key(path): path for path in sorted(namesakes, reverse=True)}
    wanted = _path_key(target)
    near = posixpath.normpath(posixpath.join(posixpath.dirname(name_key(holder)), wanted))
    if wanted.startswith("/"):
        return by_path.get(wanted[1:])
    if wanted.startswith(("./", "../")):
        return by_path.get(near)
    ending = [path for path in by_path if path == wanted or path.endswith(f"/{wanted}")]
    ending.sort(key=lambda path: (path != near, path != wanted, path.count("/"), path))
    return by_path[ending[0]] if ending else None


def _path_key(path: str) -> str:
    return name_key(path).strip().removesuffix(".md")


def stem(path: str) -> str:
    return posixpath.basename(path)[: -len(".md")]


def same(one: str, other: str) -> bool:
    return name_key(one) == name_key(other)


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
    place = (
        f"<{new}{mark}{anchor}>" if bracketed else f"{quote(new, safe='/')}{mark}{anchor}"
    )
    return f"]({place}{found['rest']})"
