"""A stranger's text whose addresses of the web can be opened, each with the host that a browser goes to."""

from collections.abc import Callable
from itertools import islice

from markupsafe import Markup, escape

from deskhand import unseen
from deskhand.gate.links import LOOKED_AT, MOST_LINKS
from deskhand.mail import weblinks
from deskhand.mail.lookalikes import readable
from deskhand.web.visible import visible

_CLOSING = ".,;:!?*'`)]}"
"""Signs that belong to the sentence around an address, not to it."""


def linked(text: str, *, marked: bool = False) -> Markup:
    """`text`, escaped, with links; `marked` as `visible` shows it. What could be read in two ways is no link."""
    show: Callable[[str], Markup] = visible if marked else escape
    pieces: list[Markup] = []
    place = 0
    for link in islice(weblinks.links_in(text[:LOOKED_AT]), MOST_LINKS):
        address = link.address.rstrip(_CLOSING)
        if link.start < place or not _opens(link, address):
            continue
        pieces += [show(text[place : link.start]), _anchor(address)]
        place = link.start + len(address)
    return Markup().join([*pieces, show(text[place:])])


def _opens(link: weblinks.Link, address: str) -> bool:
    """Whether it is a whole address of the web that leads to one host, however it is read."""
    return (
        address.lower().startswith(("http://", "https://"))
        and len(link.address) < weblinks.LONGEST
        and len(link.targets) == 1
        and weblinks.resolve(address) == link.targets[0]
        and not unseen.count(address)
    )


def _anchor(address: str) -> Markup:
    target = weblinks.resolve(address)
    host = target.host if target else weblinks.UNREAD
    if (read := readable(host)) != host:
        host = f"{host}, which reads as {read}"
    return Markup(
        '<a href="{0}" target="_blank" rel="noreferrer noopener">{0}</a>'
        ' <span class="soft small">(<bdi>{1}</bdi>)</span>'
    ).format(address, host)
