"""The hosts that a text leads to, as browsers read them. Pure."""

from functools import lru_cache

from deskhand.mail import html, mime, weblinks
from deskhand.mail.html import Visible
from deskhand.mail.lookalikes import readable

LOOKED_AT = 200_000
"""Characters of a text that are looked at: each open page looks at every card once a second."""
MOST_LINKS = 300
UNREAD = f"more than {MOST_LINKS} links; the others were not looked at"


def read_html(body: str, beside: str = "", *, as_text: bool = False) -> Visible | None:
    """What a reader sees of a body that leaves as HTML, or of the HTML beside it; None where there is none."""
    if beside:
        return _read_html(beside[:LOOKED_AT])
    if as_text or not mime.is_html(body):
        return None
    return _read_html(body[:LOOKED_AT])


@lru_cache(maxsize=16)
def _read_html(source: str) -> Visible:
    return html.visible(source)


def linked_hosts(text: str, seen: Visible | None = None) -> tuple[list[str], list[str]]:
    """The hosts that the links in a text lead to, and those of links that show another name before it."""
    hosts: dict[str, None] = {}
    masked: dict[str, None] = {}
    for host in seen.hosts[:MOST_LINKS] if seen else ():
        hosts.setdefault(describe_host(host))
    if seen and len(seen.hosts) > MOST_LINKS:
        hosts.setdefault(UNREAD)
    for number, link in enumerate(weblinks.links_in(text)):
        if number == MOST_LINKS:
            hosts.setdefault(UNREAD)
            break
        if not link.targets:
            hosts.setdefault(weblinks.UNREAD)
        for target in link.targets:
            hosts.setdefault(describe_host(target.host))
            if target.user:
                masked.setdefault(describe_host(target.host))
    return list(hosts), list(masked)


def describe_host(host: str) -> str:
    """The host as it is looked up, and as it reads where that is something else."""
    read = readable(host)
    if read == host:
        return host
    return f"{host} (reads as {read})"
