"""Bytes to text, whatever their label claims. Never raises."""

import codecs
import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,39}")
# Mail means the superset more often than what the label says.
_SUPERSETS = {
    **dict.fromkeys(("iso8859-1", "latin-1", "ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
}
# Not charsets of text, and slow or surprising on hostile input.
_REFUSED = frozenset(
    {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7"}
)


def decode(data: bytes, label: str | None) -> str:
    """The text of `data`: UTF-8 where it is that, else what the label says, else Windows-1252."""
    codec = _codec(label)
    if codec is None or codec in ("utf-8", "cp1252"):
        return _guess(data, declared=codec)
    try:
        return without_surrogates(data.decode(codec, "replace"))
    except (UnicodeError, LookupError):
        return _guess(data, declared=None)


def without_surrogates(text: str) -> str:
    """The text without half characters, which no encoder takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _codec(label: str | None) -> str | None:
    label = (label or "").strip("\"' ")
    if not _NAME.fullmatch(label):
        return None
    try:
        name = codecs.lookup(label).name
    except LookupError:
        return None
    if name in _REFUSED:
        return None
    return _SUPERSETS.get(name, name)


def _guess(data: bytes, declared: str | None) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if declared == "utf-8":
        text = data.decode("utf-8", "replace")
        broken = text.count("\ufffd")
        # One cut character is damage; more broken than whole ones mean that the label is wrong.
        if broken <= sum(1 for char in text if char > "\x7f") - broken:
            return text
    return data.decode("cp1252", "replace")
