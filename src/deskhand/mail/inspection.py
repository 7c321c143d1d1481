"""What a file is that would be attached: its type by its name, and what is odd about it by its bytes. Pure."""

import codecs
import mimetypes
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from deskhand import unseen
from deskhand.mail.members import DAMAGES, OPENED, Budget, PackedFile, TooMuch, read_members
from deskhand.mail.mime import read_attachments

LOOKED_AT = 2_000_000
"""Characters of a text in which secrets are looked for."""
MOST_UNPACKED = 40_000_000
MOST_MEMBERS = 5000
DEEPEST = 3
"""Archives in archives that are opened."""
UNKNOWN = "application/octet-stream"

_RUNNING = """
    accde ade apk app appimage application appref-ms appx appxbundle bat bash bin chm class cmd com command cpl crx csh
    deb desktop diagcab dll dmg elf exe fish gadget hlp hta img inf ins iqy iso jar jnlp js jse ksh library-ms lnk lua
    mde mobileconfig msc msi msix msixbundle msp mst one php pickle pif pkg pkl pl ps1 ps1xml psd1 psm1 py pyw rb
    rdp reg rpm run scf scpt scr sct search-ms searchconnector-ms settingcontent-ms sh shb slk sys terminal theme udl
    url vb vbe vbs vhd vhdx wasm website workflow ws wsb wsc wsf wsh xbap xll xpi zsh
"""
_SCRIPTED = "htm html ipynb mht mhtml shtml svg svgz swf xht xhtml xml xsl xslt"
_MACROS = "docm dotm pptm potm ppsm ppam sldm xlam xlsb xlsm xltm"
_PLAIN = "bib cfg conf csv env ics ini json log md rst tex toml tsv txt vcf yaml yml"
_PROGRAMS = frozenset(_RUNNING.split())
_ACTIVE = frozenset(_SCRIPTED.split())
_WITH_MACROS = frozenset(_MACROS.split())
_TEXTS = frozenset(_PLAIN.split())
_KEYS = re.compile(
    r"(?i)(?:^|[._ -])(?:id_(?:rsa|dsa|ecdsa|ed25519)|credentials?|secrets?|passw(?:ords?|ort|örter)|kennw(?:ort|örter)"
    r"|htpasswd|netrc)\b|^wallet\.dat$|\.env\b|\.(?:jks|kdbx?|key|keychain(?:-db)?|keystore|ovpn|p12|pem|pfx|ppk)$"
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
    **dict.fromkeys(
        ("zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", *_WITH_MACROS),
        "a ZIP archive",
    ),
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
_RUNS = (
    "a Windows program",
    "a Linux program",
    "a macOS program",
    "a program",
    "a Windows shortcut",
    "a script",
)
_SECRETS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File",
    "a key of a cloud": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}|\"private_key_id\"|\bGOCSPX-[\w-]{20,}"
    r"|\bAccountKey=[\w+/]{40,}|\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
    "an access token": r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|dh_[\w-]{40,}|sk-[\w-]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}|npm_\w{30,}|[sr]k_live_\w{16,}"
    r"|hooks\.slack\.com/services/\w+/\w+/\w{16,})|(?i:\bBearer|\bBasic) [\w.~+/-]{24,}",
    "a password": r"(?i)(?<![a-z])(?:password|passwd|passphrase|pwd|passwort|kennwort|secret|api[_-]?key|access[_-]?key"
    r"|(?:access|auth|refresh|bot)[_-]?token)(?:[_-]\w{1,20})?[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;<>{}$]{6,}"
    r"|\b[a-z][a-z+]{2,12}://[^\s/:@]{1,64}:[^\s/@]{3,64}@",
}
_DOCUMENT_PARTS = ("[content_types].xml", "mimetype")
_MACRO_PART = re.compile(r"vba(?:project\.bin|data\.xml)$|^basic/|/macrosheets/")
_ZIP_END = b"PK\5\6"
_LONGEST_END = 66_000
_TAG = re.compile(rb"<[^<>]*>")
_LINK = re.compile(rb"<Relationship\b[^<>]*>")
_LOADED = re.compile(rb"attachedTemplate|oleObject|subDocument|frame", re.IGNORECASE)
_PDF_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")
_PDF_ACTS = re.compile(
    rb"/(?:JavaScript|JS|Launch|EmbeddedFiles?|OpenAction|RichMedia|XFA)\b"
)


class Findings(NamedTuple):
    content_type: str
    alarming: tuple[str, ...]
    odd: tuple[str, ...]


def inspect(name: str, content: bytes) -> Findings:
    """What is known about a file before anybody opens it. Each finding is a phrase that follows its name."""
    extension = _extension(name)
    kind = _kind_of(content)
    budget = Budget(MOST_UNPACKED, MOST_MEMBERS, LOOKED_AT)
    alarming: list[str] = []
    odd: list[str] = []
    if extension in _PROGRAMS or kind in _RUNS:
        alarming.append(
            f"is {kind if kind in _RUNS else f'of a kind that runs (.{extension})'}"
        )
    elif extension in _ACTIVE:
        odd.append(f"is of a kind that may run scripts when it is opened (.{extension})")
    alarming += _misnamed(extension, kind, content)
    if kind is not None and kind.endswith("archive"):
        found = _read_archive(extension, kind, content, budget)
        alarming += found.alarming
        odd += found.odd
    elif (
        kind is not None
        and kind.endswith(("PDF", "picture"))
        and _ZIP_END in content[-_LONGEST_END:]
    ):
        alarming.append("is a ZIP archive as well")
    if kind == "an old Office file" and b"_\0V\0B\0A\0" in content:
        alarming.append("holds macros")
    if kind == "a PDF":
        odd += _read_pdf(content)
    if extension == "eml":
        alarming += [
            f"is a mail that holds {each}" for each in _look_at(_enclosed(content), budget)
        ]
    alarming += [f"has {each} in its name" for each in unseen.describe(name)]
    if _KEYS.search(name):
        alarming.append("is named as one that holds secrets")
    alarming += [f"holds {each}" for each in _find_secrets(kind, content, budget)]
    if kind is None and len(content) > LOOKED_AT:
        odd.append(f"was looked at up to byte {LOOKED_AT:,} alone")
    return Findings(_type_of(name, kind), tuple(alarming), tuple(odd))


def _extension(name: str) -> str:
    """As Windows takes a name: wide letters are letters, and what ends it does not count."""
    plain = unicodedata.normalize("NFKC", name).lower().partition("::$")[0]
    return plain.rstrip(". ").rpartition(".")[2]


def picture_type(content: bytes) -> str | None:
    """The type of a picture that a browser may show; None for everything else."""
    types = {
        "a PNG picture": "image/png",
        "a JPEG picture": "image/jpeg",
        "a GIF picture": "image/gif",
    }
    return types.get(_kind_of(content) or "")


def is_pdf(content: bytes) -> bool:
    return _kind_of(content) == "a PDF"


def is_text(content: bytes) -> bool:
    return _kind_of(content) in (None, "a script") and _text_of(content) is not None


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


def _text_of(content: bytes) -> str | None:
    """Its beginning as a text; None where it is none."""
    beginning = content[:LOOKED_AT]
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        beginning = beginning.decode("utf-16", "replace").encode("utf-8", "replace")
    return None if b"\0" in beginning else beginning.decode("utf-8", "replace")


def _misnamed(extension: str, kind: str | None, content: bytes) -> Iterator[str]:
    named = _NAMED.get(extension)
    if named is not None and content and kind != named:
        yield f"is named .{extension}, but its bytes are {kind or 'of another kind'}"
    elif extension in _TEXTS and (
        kind not in (None, "a script", "an RTF text") or _text_of(content) is None
    ):
        yield f"is named .{extension}, but its bytes are {kind or 'no text'}"


def _read_pdf(content: bytes) -> Iterator[str]:
    plain = _PDF_ESCAPE.sub(_unescape, content)
    if _PDF_ACTS.search(plain):
        yield "holds scripts, files or actions inside of the PDF"
    if b"/Encrypt" in plain:
        yield "is encrypted, and what is in it was not looked at"


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)])


def _read_archive(extension: str, kind: str, content: bytes, budget: Budget) -> Findings:
    odd: list[str] = []
    try:
        members, is_whole = _unpack(kind, content, budget)
    except DAMAGES:
        if kind == "a ZIP archive":
            return Findings("", ("is an archive that cannot be read",), ())
        return Findings("", (), (f"is {kind}, and what is in it was not looked at",))
    names = [member.name.lower() for member in members]
    is_document = any(name in _DOCUMENT_PARTS for name in names)
    alarming = [
        f"{'' if is_document else 'is an archive that '}holds {each}"
        for each in _look_at(members, budget)
    ]
    if any(member.is_locked for member in members):
        alarming.append("is an archive with a password")
    if extension in _WITH_MACROS and "holds macros" not in alarming:
        alarming.append(f"is of a kind that holds macros (.{extension})")
    if not is_whole:
        odd.append(f"is {kind} of which not all was looked at")
    if is_document:
        odd += _find_strange_parts(members)
    elif is_whole:
        odd.append(f"is an archive of {len(names):,} files")
    return Findings("", tuple(alarming), tuple(odd))


def _unpack(kind: str, content: bytes, budget: Budget) -> tuple[list[PackedFile], bool]:
    """The files of an archive, and whether these are all."""
    members: list[PackedFile] = []
    if kind not in OPENED:
        raise NotImplementedError(kind)
    try:
        for member in read_members(kind, content, budget):
            members.append(member)  # noqa: PERF402 - what was read before the budget ended is looked at
    except TooMuch:
        return members, False
    return members, True


def _look_at(
    members: Sequence[PackedFile], budget: Budget, depth: int = DEEPEST
) -> list[str]:
    """What is dangerous in an archive, of each kind the first."""
    found = {
        each.partition(":")[0]: each
        for each in reversed([*_find_dangers(members, budget, depth)])
    }
    return list(reversed(found.values()))


def _find_dangers(
    members: Sequence[PackedFile], budget: Budget, depth: int
) -> Iterator[str]:
    if any(
        _MACRO_PART.search(member.name.lower()) or _declares_macros(member)
        for member in members
    ):
        yield "macros"
    for member in members:
        extension = _extension(member.name)
        kind = _kind_of(member.content)
        shown = unseen.strip(member.name.lower())[0][-80:]
        if extension in _PROGRAMS - {"bin"} or kind in _RUNS:
            yield f"what runs: {shown}"
        if _KEYS.search(member.name.rpartition("/")[2]):
            yield f"what is named as secrets: {shown}"
        content = (
            _TAG.sub(b"", member.content[:LOOKED_AT])
            if extension == "xml"
            else member.content
        )
        yield from (
            f"{each}: {shown}"
            for each in _find_secrets(kind, content, budget)
            if each.startswith("what looks")
        )
        if depth:
            yield from _find_dangers(
                _inside(extension, kind, member, budget), budget, depth - 1
            )


def _inside(
    extension: str, kind: str | None, member: PackedFile, budget: Budget
) -> list[PackedFile]:
    if extension == "eml":
        return _enclosed(member.content)
    if kind in OPENED:
        with suppress(*DAMAGES):
            return _unpack(kind, member.content, budget)[0]
    return []


def _enclosed(mail: bytes) -> list[PackedFile]:
    return [PackedFile(each.name, each.content) for each in read_attachments(mail)]


def _declares_macros(member: PackedFile) -> bool:
    return (
        member.name.lower() == "[content_types].xml"
        and b"vbaproject" in member.content.lower()
    )


def _find_strange_parts(members: Sequence[PackedFile]) -> Iterator[str]:
    if any(
        re.search(r"/(?:embeddings|activex)/|^object \d", member.name.lower())
        for member in members
    ):
        yield "holds files or controls of other programs"
    links = [
        link
        for member in members
        if member.name.endswith(".rels")
        for link in _LINK.findall(member.content)
    ]
    if any(b"External" in link and _LOADED.search(link) for link in links):
        yield "loads something from elsewhere when it is opened"


def _find_secrets(kind: str | None, content: bytes, budget: Budget) -> Iterator[str]:
    text = _text_of(content) if kind is None else None
    if not text or budget.text <= 0:
        return
    budget.text -= len(text)
    for what, pattern in _SECRETS.items():
        if re.search(pattern, text):
            yield f"what looks like {what}"
    yield from unseen.describe(text.removeprefix("\ufeff"))
