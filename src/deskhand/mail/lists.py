"""How one leaves a mailing list: by what the list itself says in a mail of its own (RFC 2369)."""

import re
from dataclasses import dataclass
from email import message_from_bytes
from urllib.parse import parse_qs, unquote, urlsplit

LONGEST = 2000
_LINK = re.compile(r"<\s*([^<>\s]+)\s*>")


@dataclass(frozen=True, slots=True)
class WayOut:
    address: str | None
    """Whom to write to."""
    subject: str
    body: str
    page: str | None
    """Where a person can leave it in a browser."""


def find_way_out(raw: bytes) -> WayOut:
    """What the mail's List-Unsubscribe says. Copies to others that its link may ask for are left out."""
    header = str(message_from_bytes(raw).get("List-Unsubscribe", ""))
    links = _LINK.findall(" ".join(header.split()))
    page = next((link for link in links if link.lower().startswith("https://")), None)
    for link in links:
        parts = urlsplit(link)
        address = unquote(parts.path)
        if parts.scheme.lower() == "mailto" and address.count("@") == 1:
            asked = {key.lower(): values[0] for key, values in parse_qs(parts.query).items()}
            subject = " ".join(asked.get("subject", "unsubscribe").split())
            return WayOut(address, subject[:LONGEST], asked.get("body", "unsubscribe")[:LONGEST], page)
    return WayOut(None, "", "", page)
