"""What a file is that would be attached: its type by its name, and what is odd about it by its bytes. Pure."""

import io
import mimetypes
import re
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from deskhand import unseen

LOOKED_AT = 1_000_000
"""Characters of a text in which secrets are looked for."""
MOST_MEMBERS = 5000
UNKNOWN = "application/octet-stream"

_RUNNING = """
    apk app appimage appx bat bash bin cmd com command cpl deb desktop dll dmg elf exe gadget hta img inf ins iso jar js
    jse ksh lnk msc msi msp mst pif pkg pl ps1 psm1 py pyw rb reg rpm run scf scr sct sh shb sys url vb vbe vbs vhd
    vhdx wasm workflow ws wsc wsf wsh xll zsh
"""
_SCRIPTED = "htm html mht mhtml shtml svg svgz swf xht xhtml xml xsl xslt"
_MACROS = "docm dotm pptm potm ppsm ppam sldm xlam xlsb xlsm xltm"
_PLAIN = "bib cfg conf csv env ics ini json log md rst tex toml tsv txt vcf yaml yml"
_PROGRAMS = frozenset(_RUNNING.split())
_ACTIVE = frozenset(_SCRIPTED.split())
_WITH_MACROS = frozenset(_MACROS.split())
_TEXTS = frozenset(_PLAIN.split())
_KEYS = re.compile(
    r"(?i)(?:^|[._-])(?:id_(?:rsa|dsa|ecdsa|ed25519)|credentials?|secrets?|passwords?|htpasswd|netrc)\b|\.(?:"
    r"env|jks|kdbx?|keystore|ovpn|p12|pem|pfx|ppk)$"
)
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a Linux program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xce\xfa\xed\xfe", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\x00asm", "a program"),
    (b"L\x00\x00\x00\x01\x14\x02\x00", "a Windows shortcut"),
    (b"#!", "a script"),
    (b"%PDF-", "a PDF"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"MSCF", "a CAB archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file"),
    (b"{\\rtf", "an RTF text"),
)
_NAMED: dict[str, str] = {
    "pdf": "a PDF",
    "png": "a PNG picture",
    **dict.fromkeys(("jpg", "jpeg"), "a JPEG picture"),
    "gif": "a GIF picture",
    **dict.fromkeys(("zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", *_WITH_MACROS), "a ZIP archive"),
    **dict.fromkeys(("doc", "xls", "ppt", "msg"), "an old Office file"),
    "rar": "a RAR archive",
    "7z": "a 7z archive",
    **dict.fromkeys(("gz", "tgz"), "a gzip archive"),
    "rtf": "an RTF text",
}
_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_TYPES = {
    "docx": f"{_OPEN_XML}.wordprocessingml.document",
    "xlsx": f"{_OPEN_XML}.spreadsheetml.sheet",
    "pptx": f"{_OPEN_XML}.presentationml.presentation",
    "odt": "application/vnd.oasis.opendocument.text",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "md": "text/markdown",
    "ics": "text/calendar",
    "webp": "image/webp",
}
"""What older tables lack."""
_RUNS = ("a Windows program", "a Linux program", "a macOS program", "a program", "a Windows shortcut", "a script")
_SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File",
    "a key of a cloud": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}\b|\"private_key_id\"",
    "an access token": r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|sk-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}|npm_\w{30,}|[sr]k_live_\w{16,})",
    "a password": r"(?i)\b(?:password|passwd|pwd|passwort|secret|api[_-]?key|access[_-]?token|auth[_-]?token)\b"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;<>{}$]{6,}|\b[a-z][a-z+]{2,12}://[^\s/:@]{1,64}:[^\s/@]{3,64}@",
}


class Findings(NamedTuple):
    content_type: str
    alarming: tuple[str, ...]
    odd: tuple[str, ...]


def inspect(name: str, content: bytes) -> Findings:
    """What is known about a file before anybody opens it. Each finding is a phrase that follows its name."""
    extension = name.lower().rpartition(".")[2]
    kind = _kind_of(content)
    alarming: list[str] = []
    odd: list[str] = []
    if extension in _PROGRAMS or kind in _RUNS:
        alarming.append(f"is {kind if kind in _RUNS else f'of a kind that runs (.{extension})'}")
    elif extension in _ACTIVE:
        odd.append(f"is of a kind that may run scripts when it is opened (.{extension})")
    alarming += _misnamed(extension, kind, content)
    if kind == "a ZIP archive":
        found = _read_archive(extension, content)
        alarming += found.alarming
        odd += found.odd
    elif kind is not None and kind.endswith("archive"):
        odd.append(f"is {kind}, and what is in it was not looked at")
    if kind == "an old Office file" and b"_\0V\0B\0A\0" in content:
        alarming.append("holds macros")
    if kind == "a PDF" and re.search(rb"/(?:JavaScript|JS|Launch|EmbeddedFiles?|OpenAction)\b", content):
        odd.append("holds scripts, files or actions inside of the PDF")
    alarming += [f"has {each} in its name" for each in unseen.describe(name)]
    if _KEYS.search(name):
        alarming.append("is named as one that holds secrets")
    if kind is None and not _is_binary(content):
        alarming += _find_secrets(content)
    return Findings(_type_of(name, kind), tuple(alarming), tuple(odd))


def picture_type(content: bytes) -> str | None:
    """The type of a picture that a browser may show; None for everything else."""
    types = {"a PNG picture": "image/png", "a JPEG picture": "image/jpeg", "a GIF picture": "image/gif"}
    return types.get(_kind_of(content) or "")


def is_text(content: bytes) -> bool:
    return _kind_of(content) in (None, "a script") and not _is_binary(content)


def _type_of(name: str, kind: str | None) -> str:
    """By the name alone, as the recipient's program will do it; a mail in a file is a file."""
    known = mimetypes.MimeTypes()
    for extension, kind_named in _TYPES.items():
        known.add_type(kind_named, f".{extension}")
    guessed, packed = known.guess_type(name)
    if packed or guessed is None or guessed.startswith(("message/", "multipart/")):
        return UNKNOWN
    return UNKNOWN if kind in _RUNS else guessed


def _kind_of(content: bytes) -> str | None:
    if content[257:262] == b"ustar":
        return "a tar archive"
    if content[0x8001:0x8006] == b"CD001":
        return "a disk archive"
    return next((kind for start, kind in _STARTS if content.startswith(start)), None)


def _is_binary(content: bytes) -> bool:
    return b"\0" in content[:LOOKED_AT]


def _misnamed(extension: str, kind: str | None, content: bytes) -> Iterator[str]:
    named = _NAMED.get(extension)
    if named is not None and content and kind != named:
        yield f"is named .{extension}, but its bytes are {kind or 'of another kind'}"
    elif extension in _TEXTS and (kind not in (None, "a script", "an RTF text") or _is_binary(content)):
        yield f"is named .{extension}, but its bytes are {kind or 'no text'}"


def _read_archive(extension: str, content: bytes) -> Findings:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()[:MOST_MEMBERS]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError, UnicodeError):
        return Findings("", ("is an archive that cannot be read",), ())
    names = [member.filename.lower() for member in members]
    alarming: list[str] = []
    if any(name.endswith(("vbaproject.bin", "vbadata.xml")) or name.startswith("basic/") for name in names):
        alarming.append("holds macros")
    elif extension in _WITH_MACROS:
        alarming.append(f"is of a kind that holds macros (.{extension})")
    if any(member.flag_bits & 1 for member in members):
        alarming.append("is an archive with a password")
    if programs := [name for name in names if name.rpartition(".")[2] in _PROGRAMS - {"bin"}]:
        alarming.append(f"is an archive that holds what runs: {unseen.strip(programs[0])[0][-80:]}")
    if any(name in ("[content_types].xml", "mimetype") for name in names):
        return Findings("", tuple(alarming), ())
    return Findings("", tuple(alarming), (f"is an archive of {len(names):,} files",))


def _find_secrets(content: bytes) -> Iterator[str]:
    text = content[:LOOKED_AT].decode("utf-8", "replace")
    for what, pattern in _SECRETS.items():
        if re.search(pattern, text):
            yield f"holds what looks like {what}"
    for problem in unseen.describe(text):
        yield f"holds {problem}"
