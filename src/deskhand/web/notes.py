"""Notes: by folder, by search, and one note rendered so that nothing in it runs or is loaded."""

import json
import posixpath
import re
from typing import Any
from urllib.parse import quote, urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.errors import DeskError, NotFound
from deskhand.notes.links import ending
from deskhand.notes.vault import Vault
from deskhand.web import markdown
from deskhand.web.entry import page
from deskhand.web.render import render
from deskhand.web.request import desk_of, next_page, number_in
from deskhand.web.unavailable import or_unavailable

PAGE = 50
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_LINK = re.compile(r"\[\[(?P<target>[^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|(?P<alias>[^\[\]\n]+))?\]\]")
FOLDER_PAGE = 200
BACKLINKS = 30


def routes() -> list[Route]:
    return [
        page("/notes", or_unavailable("Notes", _list)),
        page("/notes/open", or_unavailable("Notes", _open)),
        page("/notes/link", or_unavailable("Notes", _follow)),
        page("/notes/file", or_unavailable("Notes", _send_file)),
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
        html = await to_thread.run_sync(markdown.html, note.body, note.path, vault)
    links, count = await to_thread.run_sync(vault.index.backlinks, note.path, BACKLINKS)
    return await render(
        request,
        "note.html",
        title=posixpath.basename(note.path).removesuffix(".md"),
        note=note,
        folder=posixpath.dirname(note.path),
        properties=[(key, _values(value, note.path)) for key, value in note.frontmatter.items()],
        html=html,
        obsidian=f"obsidian://open?path={quote(str(desk_of(request).settings.vault / note.path), safe='')}",
        links=links,
        count=count,
    )


async def _follow(request: Request) -> Response:
    """Where a link of a note leads: looked up when somebody follows it, so that showing a note costs nothing."""
    name = request.query_params.get("to", "")
    holder = request.query_params.get("from", "")
    vault = desk_of(request).vault
    path = await to_thread.run_sync(_resolve, vault, name, holder)
    if path is not None:
        return RedirectResponse(markdown.note_address(path), 303)
    files = await to_thread.run_sync(vault.locate, [name], holder)
    if name not in files:
        raise NotFound(f"no note is named {name}", hint="the link leads to a note that is not there, or not yet")
    return RedirectResponse(markdown.file_address(files[name]), 303)


async def _send_file(request: Request) -> Response:
    """A file of the vault. Pictures are shown, all else is saved: what is in it is a stranger's and must not run."""
    vault = desk_of(request).vault
    path, data = await to_thread.run_sync(vault.file, request.query_params.get("path", ""))
    kind = ending(path)
    way = "inline"
    if kind not in markdown.PICTURES or kind == "svg":
        way = "attachment"
    headers = {
        "Content-Disposition": f"{way}; filename*=UTF-8''{quote(posixpath.basename(path), safe='')}",
        "Content-Security-Policy": _FILE_POLICY,
    }
    return Response(data, media_type=markdown.PICTURES.get(kind, "application/octet-stream"), headers=headers)


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


def _values(value: Any, holder: str) -> list[tuple[str, str | None]]:
    """The texts of a property, each with where it leads if it is a link."""
    return [_value(each, holder) for each in (value if isinstance(value, list) else [value])]


def _value(value: Any, holder: str) -> tuple[str, str | None]:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str), None
    link = _LINK.fullmatch(value.strip())
    if link is None:
        return value, None
    to = urlencode({"to": link["target"], "from": holder})
    return link["alias"] or link["target"], f"/notes/link?{to}"
