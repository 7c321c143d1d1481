"""A code that a phone's camera reads: it signs that browser in, once, within a few minutes."""

from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING

from deskhand.app import Desk
from deskhand.errors import BadConfig
from deskhand.web import sessions

if TYPE_CHECKING:
    import segno

_BESIDE = 4
"""Modules of white around a code, without which cameras do not find it."""


@dataclass(frozen=True, slots=True)
class Pairing:
    link: str
    minutes: int

    def draw_blocks(self) -> str:
        """The code in half blocks, for a terminal that writes light on dark."""
        drawn = StringIO()
        self._code().terminal(drawn, border=_BESIDE, compact=True)
        return drawn.getvalue().rstrip("\n")

    def draw_svg(self) -> str:
        """The code for the page, dark on light whatever colours the page has."""
        about = "The code, for the camera of the device"
        return self._code().svg_inline(
            border=_BESIDE,
            light="#fff",
            scale=6,
            omitsize=True,
            title=about,
            svgclass="code",
        )

    def _code(self) -> "segno.QRCode":
        import segno

        return segno.make_qr(self.link, error="m")


async def pair(desk: Desk, by: str) -> Pairing:
    """Make a code; `by` is the door at which it was asked for."""
    origin = desk.settings.inbox_origin
    if origin is None:
        raise BadConfig(
            "a phone cannot reach this desk: it has no address of its own",
            hint="set inbox.origin to its https address behind a proxy; docs/how-to/own-address.md says how",
        )
    key = await desk.store.write(partial(sessions.invite, now=desk.now(), way="pairing"))
    minutes = round(sessions.LINK_LIVES["pairing"].total_seconds() / 60)
    await desk.record("person", "make_pairing_code", by, {"minutes": minutes})
    return Pairing(f"{origin}/pair/{key}", minutes)
