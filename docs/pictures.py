"""Take the pictures of each page from a demo desk: `.venv/bin/python docs/pictures.py`."""

import json
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

PLACE = Path(__file__).parent / "pictures"
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
PAGES = ("mail", "notes", "tasks", "agents", "timeline", "checkup")
LARGEST = 150_000
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-lcd-text"]


def main() -> int:
    PLACE.mkdir(exist_ok=True)
    with demo() as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=viewport("wide"))
        page.goto(link)
        # The demo's orchestrator drafts its replies while one looks.
        expect(page.locator(".cards li").nth(4)).to_be_visible(timeout=60_000)
        state = page.context.storage_state()
        for size in SIZES:
            take(browser, state, page.url, size)
        browser.close()
    large = [file.name for file in PLACE.glob("*.png") if file.stat().st_size > LARGEST]
    print("\n".join(f"{file.stat().st_size:>8} {file.name}" for file in sorted(PLACE.glob("*.png"))))
    return 1 if large else 0


@contextmanager
def demo() -> Iterator[str]:
    """The link into a demo desk that runs for as long as the block does."""
    command = [sys.executable, "-m", "deskhand", "up", "--demo", "--no-browser", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["link"]
        finally:
            process.send_signal(signal.SIGTERM)


def take(browser: Browser, state: object, inbox: str, size: str) -> None:
    context = browser.new_context(storage_state=state, viewport=viewport(size), reduced_motion="reduce")
    page = context.new_page()
    page.goto(inbox)
    shoot(page, "approvals", size)
    cards = {name: page.locator(".cards li", has_text=name).first.locator("a") for name in ("high risk", "low risk")}
    links = {name: card.get_attribute("href") for name, card in cards.items() if card.count()}
    for name, path in links.items():
        page.goto(f"{inbox.rstrip('/')}{path}")
        shoot(page, f"card-{name.split()[0]}", size)
    page.goto(f"{page.url}/edit")
    shoot(page, "edit", size)
    for name in PAGES:
        page.goto(f"{inbox.rstrip('/')}/{name}")
        shoot(page, name, size)
    context.close()


def viewport(size: str) -> dict[str, int]:
    width, height = SIZES[size]
    return {"width": width, "height": height}


def shoot(page: Page, name: str, size: str) -> None:
    (PLACE / f"{name}-{size}.png").write_bytes(packed(page.screenshot()))


# The browser packs pictures in haste. Text on plain grounds needs 256 colours and a fifth of the bytes.


def packed(png: bytes) -> bytes:
    (width, height), rows = pixels(png)
    counted = Counter(row[at : at + 3] for row in rows for at in range(0, len(row), 3))
    palette = [colour for colour, _ in counted.most_common(256)]
    place = {colour: nearest(colour, palette) for colour in counted}
    lines = (bytes(place[row[at : at + 3]] for at in range(0, len(row), 3)) for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    chunks = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", body), (b"IEND", b""))
    return png[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def nearest(colour: bytes, palette: list[bytes]) -> int:
    return min(range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(colour, palette[at], strict=True)))


def pixels(png: bytes) -> tuple[tuple[int, int], list[bytes]]:
    """The size, and each row as red, green, blue."""
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        data += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    width, height = struct.unpack(">II", png[16:24])
    raw, stride, above, rows = zlib.decompress(data), 3 * width, bytes(3 * width), []
    for start in range(0, len(raw), stride + 1):
        above = unfiltered(raw[start], raw[start + 1 : start + 1 + stride], above)
        rows.append(above)
    return (width, height), rows


def unfiltered(kind: int, row: bytes, above: bytes) -> bytes:
    """PNG keeps of each byte the difference to what its neighbours let expect."""
    made = bytearray(3) + bytearray(row)
    above = bytes(3) + above
    for at in range(3, len(made)):
        left, up, corner = made[at - 3], above[at], above[at - 3]
        match kind:
            case 0:
                break
            case 1:
                expected = left
            case 2:
                expected = up
            case 3:
                expected = (left + up) // 2
            case _:
                guess = left + up - corner
                expected = min((left, up, corner), key=lambda each: abs(guess - each))
        made[at] = (made[at] + expected) & 255
    return bytes(made[3:])


if __name__ == "__main__":
    sys.exit(main())
