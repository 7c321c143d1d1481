"""Draws the first page of a PDF in a process of its own: `python -m deskhand.mail.first_page`.

PDFium is C++, and the document may be a stranger's: it is drawn only where the kernel shuts the process in. What leaves
it are pixels, of which the desk itself makes the picture: who took over the process could paint, and no more.
"""

import importlib.util
import struct
import sys
import zlib

from deskhand.mail import confinement
from deskhand.mail.extraction import run_apart

LONGEST_SIDE = 1200
_SIZE = struct.Struct(">II")
_DEPTH = bytes((8, 2, 0, 0, 0))
"""Of a PNG: a byte for each of red, green and blue, and nothing unusual."""


def can_draw() -> bool:
    return confinement.is_known() and importlib.util.find_spec("pypdfium2") is not None


def draw_first_page(content: bytes) -> bytes | None:
    """A PNG; None where the page cannot be drawn."""
    drawn = run_apart("deskhand.mail.first_page", (), content).written
    if len(drawn) < _SIZE.size:
        return None
    width, height = _SIZE.unpack_from(drawn)
    pixels = drawn[_SIZE.size :]
    is_sound = 0 < width <= LONGEST_SIDE and 0 < height <= LONGEST_SIDE
    if not is_sound or len(pixels) != width * height * 3:
        return None
    return _write_png(width, height, pixels)


def _write_png(width: int, height: int, pixels: bytes) -> bytes:
    line = width * 3
    lines = b"".join(
        b"\0" + pixels[start : start + line] for start in range(0, height * line, line)
    )
    chunks = {
        b"IHDR": _SIZE.pack(width, height) + _DEPTH,
        b"IDAT": zlib.compress(lines),
        b"IEND": b"",
    }
    written = b"\x89PNG\r\n\x1a\n"
    for name, data in chunks.items():
        check = zlib.crc32(name + data)
        written += struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
    return written


# The process.


def main() -> int:
    confinement.limit()
    import pypdfium2

    content = sys.stdin.buffer.read()
    if not confinement.shut_in():
        return 1
    document = pypdfium2.PdfDocument(content)
    document.init_forms()  # what was filled in belongs to the page
    page = document[0]
    scale = min(2.0, LONGEST_SIDE / (max(page.get_size()) + 1))
    drawn = page.render(scale=scale, rev_byteorder=True)
    line = drawn.width * 3
    pixels = bytes(drawn.buffer)
    sys.stdout.buffer.write(_SIZE.pack(drawn.width, drawn.height))
    for start in range(0, drawn.height * drawn.stride, drawn.stride):
        sys.stdout.buffer.write(pixels[start : start + line])
    return 0


if __name__ == "__main__":
    sys.exit(main())
