"""How one leaves a mailing list: by what the list itself says in a mail of its own (RFC 2369, RFC 8058)."""

import re
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from urllib.parse import parse_qs, unquote

from deskhand.abroad import is_plain

LONGEST = 2000
_TAG = re.compile(r"(?:^|;)([a-z]+)=([^;]*)")
_DOMAIN = re.compile(r"[A-Za-z0-9.-]{1,253}")
_LINK = re.compile(r"<\s*([^<>\s]+)\s*>")


@dataclass(frozen=True, slots=True)
class WayOut:
    address: str | None
    """Whom to write to."""
    subject: str
    body: str
    page: str | None
    """Where a person can leave it in a browser."""
    one_click: str | None = None
    """Where one POST is enough, as a signed part of the mail says."""
    signed_by: str = ""


def find_way_out(raw: bytes) -> WayOut:
    """What the mail's List-Unsubscribe says. Copies to others that its link may ask for are left out."""
    head = BytesHeaderParser().parsebytes(raw)
    header = str(head.get("List-Unsubscribe", ""))
    links = _LINK.findall(" ".join(header.split()))
    page = next((link for link in links if link.lower().startswith("https://")), None)
    signer = _find_signer(head)
    if page and signer and is_plain(page) and len(page) <= LONGEST:
        return WayOut(None, "", "", page, page, signer)
    for link in links:
        scheme, _, rest = link.partition(":")
        path, _, query = rest.partition("#")[0].partition("?")
        address = unquote(path)
        if scheme.lower() == "mailto" and path[:1] != "/" and address.count("@") == 1:
            # In such a link a plus is a plus (RFC 6068), not a form's space.
            given = parse_qs(query.replace("+", "%2B"))
            asked = {key.lower(): values[0] for key, values in given.items()}
            subject = " ".join(asked.get("subject", "unsubscribe").split())
            return WayOut(
                address, subject[:LONGEST], asked.get("body", "unsubscribe")[:LONGEST], page
            )
    return WayOut(None, "", "", page)


def _find_signer(head: Message) -> str:
    """Whose signature covers that one POST is enough, as the mail says; empty where none
    does, or it says it twice."""
    said = [
        str(each).strip().casefold() for each in head.get_all("List-Unsubscribe-Post", [])
    ]
    if (
        said != ["list-unsubscribe=one-click"]
        or len(head.get_all("List-Unsubscribe", [])) != 1
    ):
        return ""
    for signature in head.get_all("DKIM-Signature", []):
        tags: dict[str, str] = dict(_TAG.findall("".join(str(signature).split())))
        covered = tags.get("h", "").casefold().split(":")
        if {"list-unsubscribe", "list-unsubscribe-post"} <= set(
            covered
        ) and _DOMAIN.fullmatch(tags.get("d", "")):
            return tags["d"].casefold()
    return ""
