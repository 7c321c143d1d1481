"""The files that a card would take along: what they hold as far as a page can show it, and a download of each."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import NotFound
from deskhand.gate import enclosures
from deskhand.gate.cards import Card
from deskhand.gate.enclosures import Enclosure
from deskhand.mail.documents import find_reader
from deskhand.mail.extraction import extract
from deskhand.mail.first_page import can_draw, draw_first_page
from deskhand.mail.inspection import is_pdf, is_text, picture_type
from deskhand.web.entry import page
from deskhand.web.render import HEADERS, render
from deskhand.web.request import desk_of

LONGEST_TEXT = 2000
LONGEST_DOCUMENT = 20_000
_ALONE = {**HEADERS, "Content-Security-Policy": "default-src 'none'; sandbox"}


@dataclass(frozen=True, slots=True)
class Preview:
    """An attachment as its card shows it."""

    file: Enclosure
    address: str | None
    """Where it can be fetched; None where its bytes are no longer kept."""
    text: str | None = None
    cut: bool = False
    is_picture: bool = False
    is_document: bool = False
    """Its text is read on a page of its own, because that takes a moment."""
    has_page: bool = False
    """Its first page can be drawn."""


def routes() -> list[Route]:
    return [
        page("/approvals/{id}/attachments/{number:number}", _download),
        page("/approvals/{id}/attachments/{number:number}/picture", _picture),
        page("/approvals/{id}/attachments/{number:number}/page", _first_page),
        page("/approvals/{id}/attachments/{number:number}/text", _text),
    ]


async def show_attachments(desk: Desk, card: Card) -> dict[str, object]:
    """What the card says of its attachments, and whether one has changed since it was proposed."""
    if not card.attachments:
        return {"attached": [], "swapped": None}
    contents = await desk.waiting.load_attachments(card)
    previews = [_preview(card, number, content) for number, content in enumerate(contents)]
    swapped = None
    if card.state not in ("sent", "rejected", "expired", "withdrawn"):
        swapped = await to_thread.run_sync(
            enclosures.find_changed, desk.settings, card.attachments
        )
    return {"attached": previews, "swapped": swapped}


def _preview(card: Card, number: int, content: bytes | None) -> Preview:
    file = card.attachments[number]
    if content is None:
        return Preview(file, None)
    address = f"/approvals/{card.id}/attachments/{number}"
    if picture_type(content):
        return Preview(file, address, is_picture=True)
    if not is_text(content):
        is_document = find_reader(content, file.content_type, file.name) is not None
        has_page = is_pdf(content) and can_draw()
        return Preview(file, address, is_document=is_document, has_page=has_page)
    text = content[: LONGEST_TEXT * 4].decode("utf-8", "replace")
    return Preview(file, address, text[:LONGEST_TEXT], cut=len(text) > LONGEST_TEXT)


async def _download(request: Request) -> Response:
    file, content = await _find(request)
    named = {
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(file.name, safe='')}"
    }
    return Response(content, media_type="application/octet-stream", headers=_ALONE | named)


async def _picture(request: Request) -> Response:
    _, content = await _find(request)
    kind = picture_type(content)
    if kind is None:
        raise NotFound("this attachment is no picture")
    return Response(content, media_type=kind, headers=_ALONE)


async def _first_page(request: Request) -> Response:
    """How a PDF begins, drawn in a process of its own that can reach nothing."""
    _, content = await _find(request)
    drawn = None
    if is_pdf(content) and can_draw():
        drawn = await to_thread.run_sync(draw_first_page, content, limiter=_readers())
    if drawn is None:
        raise NotFound("the first page of this attachment cannot be drawn")
    return Response(drawn, media_type="image/png", headers=_ALONE)


async def _text(request: Request) -> Response:
    """What a document says, read in a process of its own that can reach nothing."""
    file, content = await _find(request)
    found = await to_thread.run_sync(
        extract, content, file.content_type, file.name, limiter=_readers()
    )
    return await render(
        request,
        "document.html",
        title=file.name,
        card=request.path_params["id"],
        text=found.text[:LONGEST_DOCUMENT],
        cut=len(found.text) > LONGEST_DOCUMENT,
        warnings=found.warnings,
    )


@cache
def _readers() -> CapacityLimiter:
    return CapacityLimiter(2)


async def _find(request: Request) -> tuple[Enclosure, bytes]:
    desk = desk_of(request)
    card = await desk.waiting.card(request.path_params["id"])
    number = request.path_params["number"]
    if number >= len(card.attachments):
        raise NotFound("the mail has no such attachment")
    content = (await desk.waiting.load_attachments(card))[number]
    if content is None or sha256(content).hexdigest() != card.attachments[number].sha256:
        raise NotFound("the bytes of this attachment are no longer kept")
    return card.attachments[number], content
