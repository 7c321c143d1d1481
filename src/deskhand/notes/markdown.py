"""Strangers' words in a note that the desk writes: they are read there, and nothing in them is obeyed."""

import re

from deskhand.unseen import spell_out_line

# What begins or ends something in Markdown, in Obsidian or in one of its plugins: code, comments, embeds, templates.
# Within a word `_` is nothing but itself.
_MARKS = re.compile(
    r"([\\`*\[\]<>|%$~=#!{}^&]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.)", re.IGNORECASE
)

_CODE = re.compile(r"(`deskhand [\w -]+`|`[a-z_]+`)")


def escape(text: str) -> str:
    """The text as one line of Markdown that shows exactly these characters."""
    return _MARKS.sub(r"\\\1", spell_out_line(text))


def escape_sentence(text: str) -> str:
    """One of the desk's own sentences, with strangers' words in it: the names of commands
    and properties stay code."""
    pieces = _CODE.split(text)
    pieces[::2] = map(escape, pieces[::2])
    return "".join(pieces)
