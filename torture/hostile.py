"""What attacked the desk's readers, once more: time, links and hidden text, the last two against a real Chromium.

python3 run.py torture hostile [--only time|megabyte|links|hiding] [--size N] [--every]

time: everything that reads text from outside gets each hostile shape in N/8 and N characters; at most 2.5 times the
time for twice the text. megabyte: a desk gets a megabyte of the worst shapes (with --every: of all) by every door, and
nothing takes a second of the event loop's own thread. links: where Chromium goes with each spelling of an address is
where the desk says it leads. hiding: each trick is rendered with its text forwards and backwards; what looks the same
hides it, and then the desk has taken it out or says so.
"""

import argparse
import asyncio
import base64
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from deskhand.mail import mime, weblinks
from tests.hostile.shapes import PIECES, READERS, failures
from tests.hostile.spellings import SPELLINGS
from tests.hostile.test_links import HOSTS
from tests.hostile.tricks import HIDING, NEWSLETTER, SHOWING
from tests.web.browser import chromium
from torture import loop

WORST = ("\x1b[", "\u200b", "<p>x</p>", "@a", "https://a.b ", "a: b\n", '"\\')
UNSEEN = 20
"""By how much of 255 a pixel may differ without anybody seeing it."""
COMPARE = """async shots => {
    const pixels = await Promise.all(shots.map(async shot => {
        const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + shot)).blob());
        const drawing = new OffscreenCanvas(image.width, image.height).getContext('2d');
        drawing.drawImage(image, 0, 0);
        return drawing.getImageData(0, 0, image.width, image.height).data;
    }));
    return pixels[0].reduce((most, value, at) => Math.max(most, Math.abs(value - pixels[1][at])), 0);
}"""


def slow_readers(size: int) -> Iterator[str]:
    for name in READERS:
        found = [*failures(name, size)]
        print(f"  {name}: {len(found) or 'none'} slow")
        yield from found


async def long_steps(pieces: Sequence[str]) -> list[str]:
    wrong: list[str] = []
    for piece in dict.fromkeys(pieces):
        longest = await loop.walk((piece * (1_000_000 // len(piece) + 1))[:1_000_000])
        step = max(longest, key=longest.__getitem__)
        print(
            f"  {piece!r}: at most {longest[step]:.2f} s of the loop, for {step}",
            flush=True,
        )
        wrong += [
            f"{step} takes {cost:.1f} s for {piece!r}"
            for step, cost in longest.items()
            if cost > 1
        ]
    return wrong


async def wrong_hosts() -> list[str]:
    async with chromium() as browser:
        page = await browser.new_page()
        hosts = await page.evaluate(HOSTS, [*SPELLINGS])
    wrong: list[str] = []
    for address, host in zip(SPELLINGS, hosts, strict=True):
        target = weblinks.resolve(address)
        if (target and target.host) != host:
            wrong.append(
                f"{address!r}: Chromium goes to {host}, the desk says {target and target.host}"
            )
    print(f"  {len(SPELLINGS)} spellings, {len(wrong)} wrong")
    return wrong


async def unwarned_tricks() -> list[str]:
    wrong: list[str] = []
    hidden = 0
    async with chromium() as browser:
        judge = await browser.new_page()
        for source in (*HIDING, *SHOWING, NEWSLETTER.replace("Hello Ann", "SECRET")):
            shots: list[str] = []
            # One that was shown before leaves its mark now and then: the next one is not drawn in time.
            page = await browser.new_page(viewport={"width": 1280, "height": 720})
            for text in (source, source.replace("SECRET", "TERCES")):
                await page.set_content(text)
                shots.append(base64.b64encode(await page.screenshot()).decode())
            await page.close()
            is_hidden = await judge.evaluate(COMPARE, shots) <= UNSEEN
            hidden += is_hidden
            mail = mime.parse(
                b"Content-Type: text/html; charset=utf-8\n\n" + source.encode()
            )
            if is_hidden and "SECRET" in mail.body and not mail.warnings:
                wrong.append(f"hidden, and neither taken out nor warned about: {source}")
            if not is_hidden and "SECRET" not in mail.body and not mail.warnings:
                wrong.append(f"seen, and taken out without a word: {source}")
    print(f"  {hidden} of {len(HIDING)} tricks hide in this Chromium, {len(wrong)} wrong")
    return wrong


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", choices=["time", "megabyte", "links", "hiding"])
    options.add_argument("--every", action="store_true")
    options.add_argument("--size", type=int, default=64_000)
    given = options.parse_args()

    def run(work: Callable[[], Awaitable[list[str]]]) -> list[str]:
        return asyncio.run(work())  # type: ignore[arg-type]

    parts: dict[str, Callable[[], list[str]]] = {
        "time": lambda: [*slow_readers(given.size)],
        "megabyte": lambda: run(partial(long_steps, PIECES if given.every else WORST)),
        "links": lambda: run(wrong_hosts),
        "hiding": lambda: run(unwarned_tricks),
    }
    logging.disable(logging.WARNING)
    wrong: list[str] = []
    for name, part in parts.items():
        if given.only in (None, name):
            print(name, flush=True)
            wrong += part()
    for each in wrong:
        print(f"WRONG {each}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
