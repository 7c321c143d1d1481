"""Take the pictures of each page from a demo desk: `.venv/bin/python docs/pictures.py`, of calls alone: `… calls`."""

import asyncio
import json
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from deskhand.app import Desk
from deskhand.config import load
from deskhand.foreign.arguments import canonical
from deskhand.gate import ledger
from deskhand.gate.toolcall import ToolCall, Workplace

PLACE = Path(__file__).parent / "pictures"
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
PAGES = ("mail", "notes", "tasks", "agents", "timeline", "checkup")
LARGEST = 150_000
GARDEN = Workplace(folder="/srv/garden", session="a session")
CALLS = {
    "issue": ToolCall(
        server="github",
        tool="create_issue",
        arguments=canonical(
            {
                "owner": "kim",
                "repo": "garden",
                "title": "The watering plan skips Sundays",
                "body": "The plan in `plan.py` starts the week on Monday.\n\nSee https://example.org/plan.",
                "labels": ["bug"],
            }
        ),
        definition="",
        asker="an assistant",
        template="Open an issue in {owner}/{repo}: {title}",
    ),
    "message": ToolCall(
        server="slack",
        tool="slack_post_message",
        arguments=canonical(
            {"channel_id": "C0123ABCD", "text": "The seeds are here. Who waters on Sunday?"}
        ),
        definition="",
        asker="an assistant",
        template="Say in {channel_id}: {text}",
    ),
    "write": ToolCall(
        server="claude-code",
        tool="Edit",
        arguments=canonical(
            {
                "file_path": "/srv/garden/plan.py",
                "old_string": "def week(day):\n    return day.weekday()\n",
                "new_string": "def week(day):\n    # The week begins on Sunday.\n    return (day.weekday() + 1) % 7\n",
            }
        ),
        definition="",
        asker="Claude Code",
        template="Edit {file_path}",
        at=GARDEN,
    ),
    "command": ToolCall(
        server="claude-code",
        tool="Bash",
        arguments=canonical(
            {
                "command": "pytest -q tests/test_plan.py",
                "description": "Run the tests of the plan",
            }
        ),
        definition="",
        asker="Claude Code",
        template="Run {command}",
        at=GARDEN,
    ),
}
"""By the names of their pictures; the last one is permitted."""
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-lcd-text"]


def main() -> int:
    PLACE.mkdir(exist_ok=True)
    with demo() as (link, home), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS
        )
        page = browser.new_page(viewport=viewport("wide"))
        page.goto(link)
        # The demo's orchestrator drafts its replies while one looks.
        expect(page.locator(".cards li").nth(3)).to_be_visible(timeout=60_000)
        state = page.context.storage_state()
        for size in SIZES if len(sys.argv) == 1 else ():
            take(browser, state, page.url, size)
        take_calls(browser, state, page.url, Path(home))
        browser.close()
    large = [file.name for file in PLACE.glob("*.png") if file.stat().st_size > LARGEST]
    print(
        "\n".join(
            f"{file.stat().st_size:>8} {file.name}" for file in sorted(PLACE.glob("*.png"))
        )
    )
    return 1 if large else 0


@contextmanager
def demo() -> Iterator[tuple[str, str]]:
    """The link into a demo desk that runs for as long as the block does, and its home."""
    command = [
        sys.executable,
        "-m",
        "deskhand",
        "up",
        "--demo",
        "--no-browser",
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            yield told["link"], told["home"]
        finally:
            process.send_signal(signal.SIGTERM)


def take(browser: Browser, state: object, inbox: str, size: str) -> None:
    context = browser.new_context(
        storage_state=state, viewport=viewport(size), reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(inbox)
    shoot(page, "approvals", size)
    cards = {
        name: page.locator(".cards li", has_text=name).first.locator("a")
        for name in ("high risk", "low risk")
    }
    links = {
        name: card.get_attribute("href") for name, card in cards.items() if card.count()
    }
    for name, path in links.items():
        page.goto(f"{inbox.rstrip('/')}{path}")
        shoot(page, f"card-{name.split()[0]}", size)
    page.goto(f"{page.url}/edit")
    shoot(page, "edit", size)
    for name in PAGES:
        page.goto(f"{inbox.rstrip('/')}/{name}")
        shoot(page, name, size)
    context.close()


def take_calls(browser: Browser, state: object, inbox: str, home: Path) -> None:
    """The cards of calls, and a permission that is made from one."""
    context = browser.new_context(
        storage_state=state, viewport=viewport("wide"), reduced_motion="reduce"
    )
    page = context.new_page()
    apart = ThreadPoolExecutor()  # Playwright has the event loop of this thread
    desk = Desk(load({"DESKHAND_HOME": str(home)}).settings)
    for name, call in CALLS.items():
        apart.submit(asyncio.run, desk.gate.propose(call, "guard_mcp")).result()
        found = desk.store.write_sync(ledger.find_asked, call.digest)
        assert found is not None
        page.goto(f"{inbox.rstrip('/')}/approvals/{found.id}")
        shoot(page, f"card-{name}", "wide")
    card = apart.submit(
        asyncio.run, desk.answers.approve(found.id, found.digest, "person")
    ).result()
    page.goto(f"{inbox.rstrip('/')}/approvals/{card.id}")
    page.get_by_text("And from now on").click()
    page.get_by_role("button", name="Permit this").scroll_into_view_if_needed()
    shoot(page, "card-permit", "wide")
    page.get_by_role("button", name="Permit this").click()
    page.goto(f"{inbox.rstrip('/')}/permissions")
    shoot(page, "permissions", "wide")
    desk.close()
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
    chunks = (
        (b"IHDR", head),
        (b"PLTE", b"".join(palette)),
        (b"IDAT", body),
        (b"IEND", b""),
    )
    return png[:8] + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def nearest(colour: bytes, palette: list[bytes]) -> int:
    return min(
        range(len(palette)),
        key=lambda at: sum((a - b) ** 2 for a, b in zip(colour, palette[at], strict=True)),
    )


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
