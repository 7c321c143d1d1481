"""Notes: by folder, by search, and one note rendered so that nothing in it runs or is loaded."""

import json
import posixpath
import re
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from anyio import to_thread
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.askers import PERSON
from deskhand.errors import BadConfig, Changed, DeskError, InvalidInput, NotFound
from deskhand.notes.links import ending
from deskhand.notes.vault import FolderListing, Vault
from deskhand.notes.view import VaultView, viewing
from deskhand.web import markdown
from deskhand.web.entry import effect, page
from deskhand.web.obsidian_markdown import TICKS
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, next_page, number_in, text_in
from deskhand.web.unavailable import or_unavailable

PAGE = 50
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_LINK = re.compile(
    r"\[\[(?P<target>[^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|(?P<alias>[^\[\]\n]+))?\]\]"
)
_LINE = re.compile(r"[0-9]{1,6}")
_CHANGED = Changed(
    "The note was changed since you opened it, so nothing was ticked",
    hint="this is how it stands now; tick it here",
)
_DONE = {"tick": "Ticked.", "untick": "No longer ticked."}
FOLDER_PAGE = 200
BACKLINKS = 30


def routes() -> list[Route]:
    return [
        page("/notes", or_unavailable("Notes", _list)),
        page("/notes/open", or_unavailable("Notes", _open)),
        page("/notes/link", or_unavailable("Notes", _follow)),
        page("/notes/file", or_unavailable("Notes", _send_file)),
        effect("/notes/tick", _tick),
    ]


async def _list(request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    if query:
        return await _search(request, query)
    return await _folder(request)


async def _search(request: Request, query: str) -> Response:
    vaults = desk_of(request).vaults
    name = request.query_params.get("vault") or None
    if name is not None:
        desk_of(request).settings.find_vault(name)
    with viewing(VaultView(asked=name)):
        found = await to_thread.run_sync(
            vaults.search,
            query,
            PAGE,
            request.query_params.get("cursor"),
            "words",
            desk_of(request).is_own_note,
        )
    given = {"q": query, "vault": name or ""}
    older = next_page("/notes", given, "cursor", found.next_cursor)
    return await render(
        request,
        "notes_found.html",
        title="Notes",
        query=query,
        vault=name,
        vaults=vaults.names,
        found=found,
        older=older,
    )


async def _folder(request: Request) -> Response:
    vaults = desk_of(request).vaults
    vault, asked = vaults.place(request.query_params.get("folder", ""))
    carry = partial(vaults.carry, vault)
    problem = None
    try:
        folder = await to_thread.run_sync(vaults.vault(vault).folder, asked)
    except BadConfig as error:
        if not vaults.are_several:
            raise
        problem = error.message  # the others are there
        folder = FolderListing("", [], [])
    start = number_in(request, "from", digits=7) or 0
    end = start + FOLDER_PAGE
    rest = folder.notes[end:]
    parts = folder.path.split("/") if folder.path else []
    return await render(
        request,
        "notes.html",
        title="Notes",
        query="",
        vault=vault,
        vaults=vaults.names,
        problem=problem,
        root=carry(""),
        trail=[
            (part, carry("/".join(parts[:depth]))) for depth, part in enumerate(parts, 1)
        ],
        total=len(folder.notes),
        folders=[
            (name, carry(posixpath.join(folder.path, name))) for name in folder.folders
        ],
        notes=[
            (name, carry(posixpath.join(folder.path, name)))
            for name in folder.notes[start:end]
        ],
        older=next_page("/notes", {"folder": carry(folder.path)}, "from", rest and end),
    )


async def _open(request: Request) -> Response:
    return await _show(request, request.query_params.get("path", ""))


async def _tick(request: Request, form: FormData) -> Response:
    """Tick a box of the note as it was shown, or take the tick out."""
    desk = desk_of(request)
    asked = text_in(form, "path")
    line = int(text_in(form, "line")) if _LINE.fullmatch(text_in(form, "line")) else -1
    name, path = desk.vaults.place(asked)
    vault = desk.vaults.vault(name)
    note = await to_thread.run_sync(vault.read, path)
    if note.etag != text_in(form, "etag"):
        return await _show(request, asked, _CHANGED)
    mark = await to_thread.run_sync(markdown.find_box, note.body, line)
    if mark is None:
        raise InvalidInput("No checkbox is on that line.", hint="open the note again")
    now = TICKS[mark]
    await desk.settle_record()
    try:
        await to_thread.run_sync(vault.tick, path, line, now, note.etag)
    except Changed:
        return await _show(request, asked, _CHANGED)
    carried = desk.vaults.carry(name, note.path)
    facts = {"path": carried, "line": line + 1}
    done = "untick" if now == " " else "tick"
    await desk.record(PERSON, f"{done}_checkbox", carried, facts)
    return RedirectResponse(f"{markdown.note_address(carried)}&done={done}#box-{line}", 303)


async def _show(request: Request, asked: str, problem: DeskError | None = None) -> Response:
    desk = desk_of(request)
    vaults = desk.vaults
    name, path = vaults.place(asked)
    carry = partial(vaults.carry, name)
    vault = vaults.vault(name)
    note = await to_thread.run_sync(vault.read, path)
    html = None
    if len(note.body) <= markdown.LONGEST:
        ticks = not vault.is_closed(note.path)
        draw = partial(markdown.html, note.body, carry(note.path), vaults, ticks=ticks)
        html = await to_thread.run_sync(draw)
    links, count = await to_thread.run_sync(vault.index.backlinks, note.path, BACKLINKS)
    place = desk.settings.find_vault(name).path / note.path
    folder = posixpath.dirname(note.path)
    return await render(
        request,
        "note.html",
        title=posixpath.basename(note.path).removesuffix(".md"),
        note=note,
        path=carry(note.path),
        done=done_in(request, _DONE),
        problem=problem,
        vault=name,
        several=vaults.are_several,
        root=carry(""),
        folder=folder,
        folder_path=carry(folder),
        properties=[
            (key, _values(value, carry(note.path)))
            for key, value in note.frontmatter.items()
        ],
        html=html,
        longest=f"{markdown.LONGEST:,}",
        obsidian=f"obsidian://open?path={quote(str(place), safe='')}",
        links=[(path, carry(path)) for path in links],
        count=count,
    )


async def _follow(request: Request) -> Response:
    """Where a link of a note leads: looked up when somebody follows it, so that showing a note costs nothing."""
    name = request.query_params.get("to", "")
    vaults = desk_of(request).vaults
    own, holder = vaults.place(request.query_params.get("from", ""))
    vault = vaults.vault(own)
    path = await to_thread.run_sync(_resolve, vault, name, holder)
    if path is not None:
        return RedirectResponse(markdown.note_address(vaults.carry(own, path)), 303)
    files = await to_thread.run_sync(vault.locate, [name], holder)
    if name not in files:
        raise NotFound(
            f"no note is named {name}",
            hint="the link leads to a note that is not there, or not yet",
        )
    return RedirectResponse(markdown.file_address(vaults.carry(own, files[name])), 303)


async def _send_file(request: Request) -> Response:
    """A file of the vault. Pictures are shown, all else is saved: what is in it is a
    stranger's and must not run."""
    vaults = desk_of(request).vaults
    name, asked = vaults.place(request.query_params.get("path", ""))
    path, data = await to_thread.run_sync(vaults.vault(name).file, asked)
    kind = ending(path)
    way = "inline"
    if kind not in markdown.PICTURES or kind == "svg":
        way = "attachment"
    headers = {
        "Content-Disposition": f"{way}; filename*=UTF-8''{quote(posixpath.basename(path), safe='')}",
        "Content-Security-Policy": _FILE_POLICY,
    }
    return Response(
        data,
        media_type=markdown.PICTURES.get(kind, "application/octet-stream"),
        headers=headers,
    )


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
    return [
        _value(each, holder) for each in (value if isinstance(value, list) else [value])
    ]


def _value(value: Any, holder: str) -> tuple[str, str | None]:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str), None
    link = _LINK.fullmatch(value.strip())
    if link is None:
        return value, None
    to = urlencode({"to": link["target"], "from": holder})
    return link["alias"] or link["target"], f"/notes/link?{to}"
