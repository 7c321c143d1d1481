"""Notes: by folder, by search, and one note rendered so that nothing in it runs or is loaded."""

import json
import posixpath
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import DeskError, NotFound
from deskhand.notes.vault import Vault
from deskhand.web import markdown
from deskhand.web.entry import page
from deskhand.web.presence import present
from deskhand.web.render import render

PAGE = 50
FOLDER_PAGE = 200


def routes() -> list[Route]:
    return [
        page("/notes", present("Notes", _list)),
        page("/notes/open", present("Notes", _open)),
        page("/notes/link", present("Notes", _follow)),
    ]


async def _list(request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    return await (_search(request, query) if query else _folder(request))


async def _search(request: Request, query: str) -> Response:
    desk: Desk = request.app.state.desk
    cursor = request.query_params.get("cursor")
    found = await to_thread.run_sync(lambda: desk.vault.search(query, PAGE, cursor))
    older = f"/notes?{urlencode({'q': query, 'cursor': found.next_cursor})}" if found.next_cursor else None
    return render(request, "notes_found.html", title="Notes", query=query, found=found, older=older)


async def _folder(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    folder = await to_thread.run_sync(lambda: desk.vault.folder(request.query_params.get("folder", "")))
    start = _number(request.query_params.get("from", ""))
    shown, more = folder.notes[start : start + FOLDER_PAGE], len(folder.notes) > start + FOLDER_PAGE
    older = f"/notes?{urlencode({'folder': folder.path, 'from': start + FOLDER_PAGE})}" if more else None
    parts = folder.path.split("/") if folder.path else []
    trail = [(part, "/".join(parts[: at + 1])) for at, part in enumerate(parts)]
    prefix = f"{folder.path}/" if folder.path else ""
    return render(
        request,
        "notes.html",
        title="Notes",
        query="",
        trail=trail,
        total=len(folder.notes),
        folders=[(name, f"{prefix}{name}") for name in folder.folders],
        notes=[(name, f"{prefix}{name}") for name in shown],
        older=older,
    )


async def _open(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    path = request.query_params.get("path", "")
    note = await to_thread.run_sync(lambda: desk.vault.read(path))
    rendered = len(note.body) <= markdown.LONGEST
    made = await to_thread.run_sync(lambda: markdown.html(note.body, note.path)) if rendered else None
    return render(
        request,
        "note.html",
        title=posixpath.basename(note.path).removesuffix(".md"),
        note=note,
        folder=posixpath.dirname(note.path),
        properties=[(key, _value(value)) for key, value in note.frontmatter.items()],
        html=made,
        links=await to_thread.run_sync(lambda: desk.vault.linked_from(note.path)),
    )


async def _follow(request: Request) -> Response:
    """Where a link of a note leads: looked up when somebody follows it, so that showing a note costs nothing."""
    desk: Desk = request.app.state.desk
    wanted, holder = request.query_params.get("to", ""), request.query_params.get("from", "")
    path = await to_thread.run_sync(lambda: _resolved(desk.vault, wanted, holder))
    if path is None:
        raise NotFound(f"no note is named {wanted}", hint="the link leads to a note that is not there, or not yet")
    return RedirectResponse(f"/notes/open?{urlencode({'path': path})}", 303)


def _resolved(vault: Vault, wanted: str, holder: str) -> str | None:
    named = wanted if wanted.lower().endswith(".md") else f"{wanted}.md"
    near = posixpath.normpath(posixpath.join(posixpath.dirname(holder), named))
    for path in (near, named.lstrip("/")):
        try:
            return vault.read(path).path
        except DeskError:
            continue  # not there, or no path of this vault: the name alone may still mean a note
    return next(iter(vault.paths_named(posixpath.basename(named).removesuffix(".md"))), None)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
