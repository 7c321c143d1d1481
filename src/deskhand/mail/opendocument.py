"""The texts of OpenDocument files, which LibreOffice writes: letters, tables and slides."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from deskhand.mail.archive import Archive, Attributes, NoText, Pieces, Warn

CONTENT = "content.xml"
PAGES = "styles.xml"
MOST_REPEATED = 200
"""How often a row, a cell or a space is shown that is written once, with a number."""
LONGEST_REPEATED = 100_000
_SIGNS = {"tab": "\t", "line-break": "\n"}


def read_open(archive: Archive, warn: Warn) -> Pieces:
    if any(
        what == "encryption-data" for _, what, _ in archive.walk_if("META-INF/manifest.xml")
    ):
        raise NoText("The document is encrypted with a password.")
    unseen_styles = {
        style for name in (CONTENT, PAGES) for style in _find_unseen_styles(archive, name)
    }
    reader = _OpenReader(unseen_styles)
    yield from reader.read(archive, CONTENT)
    if not reader.slides:
        yield from reader.read(archive, PAGES)  # the heads and feet of pages
    if reader.hidden:
        warn(f"hidden text was removed: {reader.hidden:,} characters")


def _find_unseen_styles(archive: Archive, name: str) -> Iterator[str]:
    style = ""
    for event, what, given in archive.walk_if(name):
        match event, what:
            case "start", "style":
                style = given.get("name", "")
            case "start", "text-properties" if given.get("display") == "none":
                yield style


@dataclass
class _Repeated:
    """A row or a cell, which may stand for several."""

    times: int
    pieces: list[str] = field(default_factory=list)


class _OpenReader:
    def __init__(self, unseen_styles: set[str]) -> None:
        self.slides = 0
        self.hidden = 0
        self._unseen_styles = unseen_styles
        self._paragraphs = 0
        self._unseen = 0
        self._passed_over = 0
        self._around = [_Repeated(1)]

    def read(self, archive: Archive, name: str) -> Pieces:
        for event, what, given in archive.walk_if(name):
            match event:
                case "start":
                    self._begin(what, given)
                case "end":
                    self._end(what)
                case _ if self._unseen:
                    self.hidden += len(what)
                case _ if self._paragraphs and not self._passed_over:
                    self._write(" ".join(what.split("\n")))
            if len(self._around) == 1:
                yield "".join(self._around[0].pieces)
                self._around[0].pieces.clear()

    def _write(self, text: str) -> None:
        self._around[-1].pieces.append(text)

    def _begin(self, what: str, given: Attributes) -> None:
        if self._passed_over or what == "tracked-changes":
            self._passed_over += 1
            return
        if self._unseen or given.get("style-name") in self._unseen_styles:
            self._unseen += 1
            return
        match what:
            case "p" | "h":
                self._paragraphs += 1
            case "tab" | "line-break":
                self._write(_SIGNS[what])
            case "s":
                self._write(" " * _times(given.get("c")))
            case "page":
                self.slides += 1
                self._write(f"## Slide {self.slides}\n")
            case "table" if given.get("name"):
                self._write(f"## {given['name']}\n")
            case "table-row":
                self._around.append(_Repeated(_times(given.get("number-rows-repeated"))))
            case "table-cell" | "covered-table-cell":
                self._around.append(_Repeated(_times(given.get("number-columns-repeated"))))

    def _end(self, what: str) -> None:
        if self._passed_over:
            self._passed_over -= 1
            return
        if self._unseen:
            self._unseen -= 1
            return
        match what:
            case "p" | "h":
                self._paragraphs -= 1
                self._write("\n" if len(self._around) == 1 else " ")
            case "table-row":
                self._close("\n")
            case "table-cell" | "covered-table-cell":
                self._close("\t")

    def _close(self, ending: str) -> None:
        """A row that holds nothing is left out; of a cell its place is kept."""
        closed = self._around.pop()
        text = "".join(closed.pieces).rstrip()
        if text or ending == "\t":
            times = min(closed.times, LONGEST_REPEATED // (len(text) + 1) + 1)
            self._write(f"{text}{ending}" * times)


def _times(given: str | None) -> int:
    if given is None or not given.isdecimal():
        return 1
    return min(int(given[:9]), MOST_REPEATED)
