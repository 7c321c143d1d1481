"""Several vaults as one.

A path may carry the name of its vault, `work:Projects/Garden.md`: no name inside a vault has a colon. A path without
one is of the first vault that the call may read, and the paths of the desk's first vault go out as they lie in it.
What one call sees of the vaults is its view: no more than its token opens, and of these the one that it names.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar, cast

from deskhand.errors import (
    BadConfig,
    DeskError,
    FieldProblem,
    InvalidInput,
    OutOfScope,
    printable,
)
from deskhand.notes.index import (
    TIERS,
    Last,
    NoteList,
    NoteMatch,
    cursor_behind,
    demand_limit,
    strange_cursor,
)
from deskhand.notes.vault import (
    DailyNote,
    EditedNote,
    MovedNote,
    NoteLinks,
    SearchBy,
    TagList,
    TemplatedNote,
    Vault,
    count_tags,
)
from deskhand.notes.view import current

T = TypeVar("T")
SIGN = ":"


class Place(NamedTuple):
    """Where a path leads: the name of a vault, and the path in it."""

    name: str
    path: str


class Vaults:
    def __init__(self, names: Sequence[str], open_vault: Callable[[str], Vault]) -> None:
        """`open_vault` gives the vault of a name, or says why it cannot be opened."""
        self._every = names
        self._open = open_vault

    @property
    def names(self) -> list[str]:
        """The vaults that the call may read, the first one first."""
        view = current()
        return [name for name in self._every if view.names is None or name in view.names]

    @property
    def are_several(self) -> bool:
        return len(self._every) > 1

    def place(self, path: str, near: str | None = None) -> Place:
        """Where the path leads for this call; one that names no vault leads to the vault
        `near`, if that is given."""
        asked = current().asked
        name, sign, own = path.partition(SIGN)
        if not sign or not self.are_several or name not in self.names:
            return Place(near or asked or self.names[0], path)
        if asked not in (None, name):
            problem = FieldProblem(
                "vault", f"the path is of the vault {name}", asked, "Leave one of them out"
            )
            raise InvalidInput("The path and the call name two vaults.", fields=[problem])
        return Place(name, own)

    def carry(self, name: str, path: str) -> str:
        """The path by which a path in this vault is known outside of it."""
        if not self.are_several or (name == self._every[0] and SIGN not in path):
            return path
        return f"{name}{SIGN}{path}"

    def vault(self, name: str) -> Vault:
        """The vault of this name, where the call may do there what it does."""
        opened = current().opened
        if opened is not None and name not in opened:
            raise OutOfScope(
                f"the client may only read in the vault {name}",
                scope=f"notes:write:{name}",
                hint=f"it may write in {', '.join(sorted(opened))}",
            )
        return self._open(name)

    def demand_one(self) -> None:
        """Say what is wrong where none of the vaults is there."""
        self._ask(dict.fromkeys(self._every), lambda vault, _: vault)

    def at(self, path: str, work: Callable[[Vault, str], T]) -> T:
        """What the work gives in the vault of this path, with the path in it; paths that
        come out carry the vault."""
        name, own = self.place(path)
        with self._saying(name):
            return self._carried(name, work(self.vault(name), own))

    def append(
        self, path: str, text: str, heading: str | None = None, *, create: bool = False
    ) -> EditedNote:
        return self.at(
            path, partial(Vault.append, text=text, heading=heading, create=create)
        )

    def list_notes(
        self, directory: str, only: str | None, limit: int, cursor: str | None
    ) -> NoteList:
        """The notes of a folder, by path."""
        return self.at(
            directory, lambda vault, own: vault.list_notes(own, only, limit, cursor)
        )

    def list_every(self, limit: int, cursor: str | None) -> NoteList:
        """The notes of one vault after another; a vault that is not there is left out."""
        start, _, place = (cursor or "").rpartition(SIGN)
        names = self.names
        if start in names:
            names = names[names.index(start) :]
        page = NoteList(notes=[])
        for name, following in zip_longest(names, names[1:]):
            with suppress(BadConfig):
                page = self._carried(
                    name, self.vault(name).list_notes("", None, limit, place or None)
                )
                if page.next_cursor:
                    page.next_cursor = f"{name}{SIGN}{page.next_cursor}"
                elif following:
                    page.next_cursor = f"{following}{SIGN}"
                return page
            place = ""
        return page

    def daily(self, when: str | None, *, create: bool = False) -> DailyNote:
        return self.at("", lambda vault, _: vault.daily(when, create=create))

    def move(
        self, source: str, destination: str, *, update_links: bool = False
    ) -> MovedNote:
        name, old = self.place(source)
        target, new = self.place(destination, near=name)
        if target != name:
            problem = FieldProblem(
                "destination", "is in another vault", printable(destination)
            )
            hint = "Read it, and write it there; links to it would lead nowhere."
            raise InvalidInput(
                "A note does not move from one vault to another.",
                fields=[problem],
                hint=hint,
            )
        with self._saying(name):
            return self.vault(name).move(old, new, update_links=update_links)

    def from_template(
        self, template: str, path: str, values: Mapping[str, Any]
    ) -> TemplatedNote:
        name, own = self.place(path)
        holder, pattern = self.place(template, near=name)
        if holder != name:
            problem = FieldProblem("template", "is in another vault", printable(template))
            raise InvalidInput(
                "A note is made from a template of its own vault.", fields=[problem]
            )
        with self._saying(name):
            return self._carried(name, self.vault(name).from_template(pattern, own, values))

    def save(self, path: str, data: bytes) -> str:
        """Put a file of any kind into a vault, never in another's place; its path."""
        name, own = self.place(path)
        with self._saying(name):
            return self.carry(name, self.vault(name).save(own, data))

    def attach(self, path: str, limit: int) -> tuple[str, bytes]:
        """A file of any kind that is none of the desk's own: its path, and what is in it."""
        name, own = self.place(path)
        with self._saying(name):
            found, content = self.vault(name).attach(own, limit)
        return self.carry(name, found), content

    def text(self, path: str) -> str:
        """A note as it lies on the disk."""
        return self.at(path, Vault.text)

    def locate(self, targets: Sequence[str], holder: str) -> dict[str, str]:
        """Where the notes and files are that the note `holder` names; those that are not there are left out."""
        name, own = self.place(holder)
        found = self.vault(name).locate(targets, own)
        return {target: self.carry(name, path) for target, path in found.items()}

    def tags(self) -> TagList:
        asked = dict.fromkeys(self._asked)
        found, missing = self._ask(asked, lambda vault, _: vault.index.tags())
        made = count_tags([*found.values()])
        made.missing = missing or None
        return made

    def search(
        self,
        query: str,
        limit: int,
        cursor: str | None,
        by: SearchBy = "words",
        last: Last = None,
    ) -> NoteList:
        """Find notes in every vault that the call sees, the best of each first; `last` is about the first."""
        if len(self._asked) == 1:
            if self._asked != [self._every[0]]:
                last = None
            return self.at(
                "", lambda vault, _: vault.search(query, limit, cursor, by, last)
            )
        demand_limit(limit)
        start, total = _read_cursor(cursor, self._asked)
        first: Vault | None = None
        with suppress(DeskError):  # which is told below
            first = self._open(self._every[0])

        def search(vault: Vault, place: str | None) -> NoteList:
            return vault.search(query, limit, place, by, last if vault is first else None)

        pages, missing = self._ask(start, search)
        shown = _merge(pages)[:limit]
        more = {
            name: place
            for name in _turns(pages, shown)
            for place in _find_rest(name, pages[name], shown, start)
        }
        total = total or sum(page.total or len(page.notes) for page in pages.values())
        made = NoteList(
            notes=[self._signed(*each) for each in shown], missing=missing or None
        )
        made.as_of = min(
            (page.as_of for page in pages.values() if page.as_of), default=None
        )
        made.not_known = sum(page.not_known or 0 for page in pages.values()) or None
        if more and by == "words":
            made.next_cursor = _write_cursor(more, total)
            made.total = total
        return made

    @property
    def _asked(self) -> list[str]:
        """To which vaults a question goes that names no path."""
        asked = current().asked
        if asked:
            return [asked]
        return self.names

    def _ask(
        self, places: Mapping[str, str | None], ask: Callable[[Vault, str | None], T]
    ) -> tuple[dict[str, T], dict[str, str]]:
        """What each vault answers, and why one does not; where none does, that is the answer."""
        answers: dict[str, T] = {}
        failures: dict[str, DeskError] = {}
        for name, place in places.items():
            try:
                answers[name] = ask(self.vault(name), place)
            except InvalidInput:
                raise  # so would the others
            except DeskError as error:
                failures[name] = error
        if failures and not answers:
            raise next(iter(failures.values()))
        return answers, {name: error.message for name, error in failures.items()}

    @contextmanager
    def _saying(self, name: str) -> Iterator[None]:
        """Let an error say of which vault it is."""
        try:
            yield
        except DeskError as error:
            if self.are_several:
                error.details.setdefault("vault", name)
            raise

    def _carried(self, name: str, found: T) -> T:
        if not self.are_several:
            return found
        carry = partial(self.carry, name)
        made: Any = found
        match found:
            case NoteList():
                made = found.model_copy(
                    update={"notes": [self._signed(name, each) for each in found.notes]}
                )
            case NoteLinks():
                outgoing = [
                    each.model_copy(update={"path": carry(each.path)})
                    for each in found.outgoing
                ]
                backlinks = [*map(carry, found.backlinks)]
                made = found.model_copy(
                    update={
                        "path": carry(found.path),
                        "outgoing": outgoing,
                        "backlinks": backlinks,
                    }
                )
            case object(path=str(path), model_copy=copy):
                made = copy(update={"path": carry(path)})
        return cast("T", made)

    def _signed(self, name: str, note: NoteMatch) -> NoteMatch:
        """The match with its vault's name."""
        return note.model_copy(update={"path": self.carry(name, note.path), "vault": name})


_Shown = list[tuple[str, NoteMatch]]


def _merge(pages: Mapping[str, NoteList]) -> _Shown:
    """The matches of all in turn: first those with the whole query, in which each vault's own order stays."""
    shown: _Shown = []
    for tier in TIERS:
        lists = [
            [(name, note) for note in page.notes if note.tier == tier]
            for name, page in pages.items()
        ]
        shown += [each for row in zip_longest(*lists) for each in row if each is not None]
    return shown


def _turns(pages: Mapping[str, NoteList], shown: _Shown) -> list[str]:
    """The vaults in the order in which the next page asks them: the one behind the last
    that was shown comes first."""
    names = [*pages]
    following = names.index(shown[-1][0]) + 1 if shown else 0
    return names[following:] + names[:following]


def _find_rest(
    name: str, page: NoteList, shown: _Shown, start: Mapping[str, str | None]
) -> Iterator[str | None]:
    """Where this vault's answer goes on behind what is shown of it; nothing where all of it is."""
    taken = sum(each == name for each, _ in shown)
    if taken == len(page.notes) and not page.next_cursor:
        return
    yield cursor_behind(page, page.notes[taken - 1]) if taken else start[name]


def _write_cursor(places: Mapping[str, str | None], total: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([places, total]).encode()).decode()


def _read_cursor(
    cursor: str | None, names: Sequence[str]
) -> tuple[dict[str, str | None], int]:
    """Where each vault's answer goes on, of those that are seen, and how many matches there are in all."""
    if cursor is None:
        return dict.fromkeys(names), 0
    try:
        places, total = json.loads(
            base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        )
        found = {name: place for name, place in places.items() if name in names}
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = {}
    if (
        not found
        or not all(isinstance(place, str | None) for place in found.values())
        or not isinstance(total, int)
    ):
        raise strange_cursor(cursor)
    return found, total
