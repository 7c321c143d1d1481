"""Notes: by folder, by search, and one note rendered so that nothing in it runs or is loaded."""

import json
import posixpath
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.errors import DeskError, NotFound
from deskhand.notes.vault import Vault
from deskhand.web import markdown
from deskhand.web.entry import page
from deskhand.web.render import render
from deskhand.web.request import desk_of, next_page, number_in
from deskhand.web.unavailable import or_unavailable

PAGE = 50
FOLDER_PAGE = 200


def routes() -> list[Route]:
    return [
        page("/notes", or_unavailable("Notes", _list)),
        page("/notes/open", or_unavailable("Notes", _open)),
        page("/notes/link", or_unavailable("Notes", _follow)),
    ]


async def _list(request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    if query:
        return await _search(request, query)
    return await _folder(request)


async def _search(request: Request, query: str) -> Response:
    vault = desk_of(request).vault
    cursor = request.query_params.get("cursor")
    found = await to_thread.run_sync(vault.search, query, PAGE, cursor)
    older = next_page("/notes", {"q": query}, "cursor", found.next_cursor)
    return await render(request, "notes_found.html", title="Notes", query=query, found=found, older=older)


async def _folder(request: Request) -> Response:
    vault = desk_of(request).vault
    folder = await to_thread.run_sync(vault.folder, request.query_params.get("folder", ""))
    start = number_in(request, "from", digits=7) or 0
    end = start + FOLDER_PAGE
    rest = folder.notes[end:]
    parts = folder.path.split("/") if folder.path else []
    return await render(
        request,
        "notes.html",
        title="Notes",
        query="",
        trail=[(part, "/".join(parts[:depth])) for depth, part in enumerate(parts, 1)],
        total=len(folder.notes),
        folders=[(name, posixpath.join(folder.path, name)) for name in folder.folders],
        notes=[(name, posixpath.join(folder.path, name)) for name in folder.notes[start:end]],
        older=next_page("/notes", {"folder": folder.path}, "from", rest and end),
    )


async def _open(request: Request) -> Response:
    vault = desk_of(request).vault
    note = await to_thread.run_sync(vault.read, request.query_params.get("path", ""))
    html = None
    if len(note.body) <= markdown.LONGEST:
        html = await to_thread.run_sync(markdown.html, note.body, note.path)
    return await render(
        request,
        "note.html",
        title=posixpath.basename(note.path).removesuffix(".md"),
        note=note,
        folder=posixpath.dirname(note.path),
        properties=[(key, _value(value)) for key, value in note.frontmatter.items()],
        html=html,
        links=await to_thread.run_sync(vault.linked_from, note.path),
    )


async def _follow(request: Request) -> Response:
    """Where a link of a note leads: looked up when somebody follows it, so that showing a note costs nothing."""
    name = request.query_params.get("to", "")
    holder = request.query_params.get("from", "")
    path = await to_thread.run_sync(_resolve, desk_of(request).vault, name, holder)
    if path is None:
        raise NotFound(f"no note is named {name}", hint="the link leads to a note that is not there, or not yet")
    return RedirectResponse(f"/notes/open?{urlencode({'path': path})}", 303)


def _resolve(vault: Vault, name: str, holder: str) -> str | None:
    """The path of the note that a link in the note `holder` means."""
    if not name.lower().endswith(".md"):
        name += ".md"
    near = posixpath.normpath(posixpath.join(posixpath.dirname(holder), name))
    for path in (near, name.lstrip("/")):
        try:
            return vault.read(path).path
        except DeskError:
            continue  # not there, or no path of this vault: the name alone may still mean a note
    return next(iter(vault.paths_named(posixpath.basename(name).removesuffix(".md"))), None)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
