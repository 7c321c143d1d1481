"""Strangers' words in a note that the desk writes: they are read there, and nothing in them is obeyed."""

import re

from deskhand.unseen import spell_out_line

# What begins or ends something in Markdown, in Obsidian or in one of its plugins: code, comments, embeds, templates.
# Within a word `_` is nothing but itself.
_MARKS = re.compile(r"([\\`*\[\]<>|%$~=#!{}^&]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def escape(text: str) -> str:
    """The text as one line of Markdown that shows exactly these characters."""
    return _MARKS.sub(r"\\\1", spell_out_line(text))
