"""Measures the notes server on vaults of several sizes, against ripgrep and against a plain scan of all files.

Each call is followed by a trivial one of a bare SDK server, so that what is measured does not depend on the machine.
Where that is busy, the CPU says more: what a call takes of it in the server and in the client.

python bench/notes.py --sizes 1000,10000 --json
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import anyio
import anyio.to_thread
from mcp import Client, StdioServerParameters

from bench import vaults
from bench.server import BARE, stdio_client
from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Unreadable
from deskhand.notes import frontmatter
from deskhand.notes.vault import SearchBy
from tests.notes import embeddings

PAGE = 20
LISTED = 50
COMPARED = 300
KINDS = ("rare", "common", "phrase", "prefix", "substring", "cjk")


Asked = tuple[str, dict[str, Any]]
"""A tool, and what it is given."""


class Taken(NamedTuple):
    """What one call took, in milliseconds: of time, and of CPU in the server and in the client."""

    time: float
    cpu: float


@dataclass(frozen=True)
class Sides:
    """The notes server, and a bare one that gives back what it is given; over the same client."""

    notes: Client
    bare: Client
    notes_process: int
    bare_process: int


@dataclass
class Figures:
    notes: int
    build_wall_s: float = 0
    build_cpu_s: float = 0
    index_mb: float = 0
    peak_rss_mb: float = 0
    refresh_ms: float = 0
    plain_write_ms: float = 0
    p50_ms: dict[str, float] = field(default_factory=dict)
    p99_ms: dict[str, float] = field(default_factory=dict)
    bare_ms: dict[str, float] = field(default_factory=dict)
    times_bare: dict[str, float] = field(default_factory=dict)
    cpu_ms: dict[str, float] = field(default_factory=dict)
    cpu_times_bare: dict[str, float] = field(default_factory=dict)
    ripgrep_ms: dict[str, float] = field(default_factory=dict)
    times_faster: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    different: list[str] = field(default_factory=list)


def measure_recall(endpoint: str | None) -> dict[str, float]:
    """Of the notes that answer a question, how many are among the first ten; with the stub, or with a real model."""
    with tempfile.TemporaryDirectory() as folder, embeddings.EmbeddingStub() as stub:
        model = stub.environment
        if endpoint:
            model |= {"DESKHAND_EMBEDDING_URL": endpoint}
        vault = Path(folder, "vault")
        vault.mkdir()
        embeddings.write_notes(vault)
        places = {"DESKHAND_HOME": f"{folder}/home", "VAULT_PATH": str(vault)}
        desk = Desk(load(places | model).settings)
        found = dict.fromkeys(get_args(SearchBy), 0)
        for question, wanted in embeddings.questions():
            for by in found:
                found[by] += len(
                    wanted
                    & {
                        note.path
                        for note in desk.vaults.search(question, 10, None, by).notes
                    }
                )
        desk.close()
    answers = sum(len(wanted) for _, wanted in embeddings.questions())
    return {by: round(count / answers, 3) for by, count in found.items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes",
        default="1000,10000,100000",
        help="numbers of notes, with commas between them",
    )
    parser.add_argument("--queries", type=int, default=40, help="queries of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--dir",
        type=Path,
        help="where vaults and indexes are made; default: a temporary folder",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave them there, and use those that are there"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object instead of a table"
    )
    parser.add_argument(
        "--meaning",
        action="store_true",
        help="recall at 10 of 40 questions, by words and by meaning",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the same with a real model on an OpenAI-compatible server",
    )
    options = parser.parse_args(argv)
    if options.meaning:
        print(json.dumps(measure_recall(options.endpoint)))
        return 0
    folder = options.dir or Path(tempfile.mkdtemp(prefix="deskhand-bench-"))
    results = []
    for size in map(int, options.sizes.split(",")):
        vault, home = (
            folder / f"vault-{size}-{options.seed}",
            folder / f"home-{size}-{options.seed}",
        )
        try:
            if not vault.exists():
                vaults.make(vault, size, options.seed)
            shutil.rmtree(home, ignore_errors=True)
            results.append(
                anyio.run(
                    partial(measure, vault, home, size, options.queries, options.seed)
                )
            )
        finally:
            shutil.rmtree(home, ignore_errors=True)
            if not options.keep:
                shutil.rmtree(vault, ignore_errors=True)
    if not options.keep and not options.dir:
        folder.rmdir()
    print(
        json.dumps({"results": [asdict(figures) for figures in results]}, indent=2)
        if options.json
        else table(results)
    )
    return 1 if any(figures.different for figures in results) else 0


async def measure(vault: Path, home: Path, size: int, count: int, seed: int) -> Figures:
    figures = Figures(size)
    texts = searchable(vault)
    environment = {
        "VAULT_PATH": str(vault),
        "DESKHAND_HOME": str(home),
        "PATH": os.environ["PATH"],
    }
    command = ["-m", "deskhand", "mcp", "obsidian"]
    before = set(children())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(
                StdioServerParameters(command=sys.executable, args=command, env=environment)
            )
        )
        (server,) = set(children()) - before
        bare = await stack.enter_async_context(stdio_client(BARE))
        (peer,) = set(children()) - before - {server}
        sides = Sides(client, bare, server, peer)
        await build(client, server, home, figures)
        await refresh(client, vault, figures)
        chance = random.Random(seed)
        for kind in KINDS:
            queries = [some_query(kind, chance, texts) for _ in range(count)]
            searches: list[Asked] = [
                ("search_notes", {"query": query, "limit": PAGE}) for query in queries
            ]
            await ask(sides, kind, searches, figures)
            beside_ripgrep(figures, kind, vault, queries[:8])
        wanted = {"directory": "", "filter": "status:done", "limit": LISTED}
        await ask(sides, "filtered list", [("list_notes", wanted)] * count, figures)
        beside_ripgrep(figures, "filtered list", vault, ["status: done"])
        await ask_for_links(sides, vault, [*texts], count, chance, figures)
        await compare(client, texts, chance, figures)
        await change_parts(sides, vault, count, figures)
        figures.peak_rss_mb = peak(server)
    return figures


async def ask(sides: Sides, kind: str, asked: Iterable[Asked], figures: Figures) -> None:
    """Ask one after the other, and the bare server after each."""
    ours: list[Taken] = []
    bare: list[Taken] = []
    for tool, arguments in asked:
        ours.append(await measured(sides.notes, sides.notes_process, tool, **arguments))
        bare.append(await measured(sides.bare, sides.bare_process, "echo", text="hello"))
    note(figures, kind, ours, bare)


async def measured(client: Client, server: int, tool: str, **arguments: Any) -> Taken:
    before = used(server) + time.process_time() * 1000
    took = await timed(client, tool, **arguments)
    return Taken(took, used(server) + time.process_time() * 1000 - before)


def used(process: int) -> float:
    """Milliseconds of CPU that its threads have used; one that has ended since was not there for a call."""
    total = 0
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e6


async def build(client: Client, server: int, home: Path, figures: Figures) -> None:
    """From the first question to an index that has everything."""
    start, before = time.perf_counter(), cpu(server)
    await timed(client, "search_notes", query="anything", limit=1)
    await anyio.to_thread.run_sync(wait_until_complete, home)
    figures.build_wall_s, figures.build_cpu_s = (
        time.perf_counter() - start,
        cpu(server) - before,
    )
    figures.index_mb = sum(file.stat().st_size for file in index_files(home)) / 1e6


async def refresh(client: Client, vault: Path, figures: Figures) -> None:
    """How long until the server finds what another program wrote. The first goes on the watch's account."""
    times = []
    for attempt in range(6):
        word = f"refreshed{attempt}"
        start = time.perf_counter()
        (vault / "refresh.md").write_text(word)
        while not (await call(client, "search_notes", query=word, limit=1))["notes"]:
            pass
        times.append((time.perf_counter() - start) * 1000)
    (vault / "refresh.md").unlink()
    figures.refresh_ms = round(statistics.median(times[1:]), 1)


async def ask_for_links(
    sides: Sides,
    vault: Path,
    paths: list[str],
    count: int,
    chance: random.Random,
    figures: Figures,
) -> None:
    asked = [chance.choice(paths) for _ in range(count)]
    await ask(sides, "links", [("get_links", {"path": path}) for path in asked], figures)
    beside_ripgrep(figures, "links", vault, [f"[[{Path(path).stem}" for path in asked[:8]])
    await ask(sides, "tags", [("list_tags", {})] * count, figures)
    beside_ripgrep(figures, "tags", vault, ["#"])


async def change_parts(sides: Sides, vault: Path, count: int, figures: Figures) -> None:
    """A line added to a note of a megabyte, and a part of it changed."""
    large = vault / "large.md"
    section = "words of a long note that nobody wants to send for one line\n" * 80
    large.write_text(
        "---\nstatus: open\n---\n"
        + "".join(f"## Part {number}\n\n{section}\n" for number in range(210))
    )
    written = []

    def additions() -> Iterator[Asked]:
        for number in range(count):
            yield (
                "append_note",
                {"path": "large.md", "text": f"- {number}", "heading": "Part 100"},
            )
            written.append(plain_write(vault, large.read_bytes()))

    await ask(sides, "append to 1 MB", additions(), figures)
    figures.plain_write_ms = round(statistics.median(written), 2)
    edits: list[Asked] = []
    for number in range(count):
        heading = {"heading": f"Part {number}", "do": "replace", "text": f"new {number}"}
        key = {"key": "status", "do": "replace", "value": str(number)}
        edits.append(("edit_note", {"path": "large.md", "edits": [heading, key]}))
    await ask(sides, "edit of 1 MB", edits, figures)
    large.unlink()
    (vault / ".plain").unlink()


def plain_write(vault: Path, data: bytes) -> float:
    """The least that a safe write takes: a file beside its place, synced, put there, and its folder synced."""
    start = time.perf_counter()
    with Path(vault, ".beside").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(vault, ".beside").rename(vault / ".plain")
    folder = os.open(vault, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return (time.perf_counter() - start) * 1000


async def compare(
    client: Client, texts: dict[str, str], chance: random.Random, figures: Figures
) -> None:
    for number in range(COMPARED):
        query = some_query(KINDS[number % len(KINDS)], chance, texts)
        whole = fold(query).strip()
        words = whole.split()
        first = {path for path, text in texts.items() if whole in text}
        second = {
            path for path, text in texts.items() if all(word in text for word in words)
        } - first
        found = [path async for path in every_hit(client, query, len(first) + len(second))]
        if len(first) + len(second) > len(found) == 1000:
            right = set(found) <= first | second and set(found[: len(first)]) <= first
        else:
            right = set(found[: len(first)]) == first and set(found[len(first) :]) == second
        figures.compared += 1
        if not right or len(found) != len(set(found)):
            figures.different.append(query)


async def every_hit(client: Client, query: str, expected: int) -> Any:
    """All the hits, page by page; of very many the first thousand."""
    cursor, seen = None, 0
    while True:
        page = await call(client, "search_notes", query=query, limit=200, cursor=cursor)
        for hit in page["notes"]:
            yield hit["path"]
        seen += len(page["notes"])
        cursor = page.get("next_cursor")
        if cursor is None or (seen >= 1000 and expected > 1000):
            return


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(
        tool, {name: value for name, value in arguments.items() if value is not None}
    )
    if result.is_error or result.structured_content is None:
        raise RuntimeError(f"{tool} {arguments}: {result.content}")
    return result.structured_content


async def timed(client: Client, tool: str, **arguments: Any) -> float:
    start = time.perf_counter()
    await call(client, tool, **arguments)
    return (time.perf_counter() - start) * 1000


def note(figures: Figures, kind: str, ours: list[Taken], bare: list[Taken]) -> None:
    ordered = sorted(each.time for each in ours)
    figures.p50_ms[kind] = round(statistics.median(ordered), 2)
    figures.p99_ms[kind] = round(
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2
    )
    beside = statistics.median(each.time for each in bare)
    figures.bare_ms[kind] = round(beside, 2)
    figures.times_bare[kind] = round(statistics.median(ordered) / beside, 2)
    cpu_of_ours = statistics.median(each.cpu for each in ours)
    cpu_of_bare = statistics.median(each.cpu for each in bare)
    figures.cpu_ms[kind] = round(cpu_of_ours, 2)
    figures.cpu_times_bare[kind] = round(cpu_of_ours / cpu_of_bare, 2)


def beside_ripgrep(
    figures: Figures, kind: str, vault: Path, queries: Iterable[str]
) -> None:
    scans = [ripgrep(vault, query) for query in queries]
    figures.ripgrep_ms[kind] = round(statistics.median(scans), 1)
    figures.times_faster[kind] = round(figures.ripgrep_ms[kind] / figures.p50_ms[kind], 1)


def ripgrep(vault: Path, query: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        ["rg", "-il", "-m1", "--fixed-strings", "--", query, str(vault)],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return (time.perf_counter() - start) * 1000


def some_query(kind: str, chance: random.Random, texts: dict[str, str]) -> str:
    """A query of this kind that at least one note answers."""
    if kind == "cjk":
        passage = chance.choice(vaults.PASSAGES[:3])
        start = chance.randrange(len(passage) - 4)
        return passage[start : start + chance.randrange(1, 5)].strip() or passage[:2]
    paths = list(texts)
    while True:
        words = [word for word in texts[chance.choice(paths)].split() if word.isalpha()]
        start = chance.randrange(max(1, len(words)))
        word = (
            max(words[start : start + 12], key=len, default="")
            if kind == "rare"
            else "".join(words[start : start + 1])
        )
        match kind:
            case "rare" | "common" if len(word) > (12 if kind == "rare" else 0):
                return word
            case "phrase" if len(words) > start + 2:
                return " ".join(words[start : start + chance.randrange(2, 4)])
            case "prefix" if len(word) > 5:
                return word[: chance.randrange(3, 6)]
            case "substring" if len(word) > 7:
                return word[2 : 2 + chance.randrange(4, 7)]


def searchable(vault: Path) -> dict[str, str]:
    """What search looks at in every note, put together the plain way."""
    found = {}
    for file in vault.rglob("*.md"):
        source = file.read_bytes().decode("utf-8", "replace")
        try:
            parsed = frontmatter.parse(source)
            values, body = [*frontmatter.value_texts(parsed.frontmatter)], parsed.body
        except Unreadable:
            block, body = frontmatter.split(source)
            values = [block or ""]
        path = file.relative_to(vault).as_posix()
        found[path] = "\n".join(map(fold, [path, *values, body]))
    return found


def fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def index_files(home: Path) -> Iterator[Path]:
    return home.glob("**/notes-*.db")


def wait_until_complete(home: Path) -> None:
    while not complete(home):
        time.sleep(0.1)


def complete(home: Path) -> bool:
    for file in index_files(home):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
            seen, stale = db.execute("SELECT count(*), sum(stale) FROM note").fetchone()
            return bool(seen) and not stale
    return False


def children() -> list[int]:
    own = f"/proc/{os.getpid()}/task"
    return [
        int(pid)
        for task in Path(own).iterdir()
        for pid in (task / "children").read_text().split()
    ]


def cpu(pid: int) -> float:
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return 0


def table(results: list[Figures]) -> str:
    return "\n\n".join("\n".join(lines(figures)) for figures in results)


def lines(figures: Figures) -> Iterator[str]:
    yield f"{figures.notes} notes"
    yield f"index: {figures.build_wall_s:.1f} s, {figures.build_cpu_s:.1f} s CPU, {figures.index_mb:.0f} MB"
    yield f"peak memory of the server: {figures.peak_rss_mb:.0f} MB"
    yield f"found after a change by another program: {figures.refresh_ms} ms"
    yield f"compared with a plain scan: {figures.compared} queries, different: {figures.different or 'none'}"
    yield (
        f"{'':16}{'p50 ms':>10}{'p99 ms':>10}{'bare ms':>10}{'of bare':>9}{'CPU ms':>9}{'of bare':>9}"
        f"{'ripgrep ms':>12}{'times':>8}"
    )
    for kind, p50 in figures.p50_ms.items():
        beside = ""
        if kind in figures.ripgrep_ms:
            beside = f"{figures.ripgrep_ms[kind]:12.1f}{figures.times_faster[kind]:8.0f}"
        bare = f"{figures.bare_ms[kind]:10.2f}{figures.times_bare[kind]:9.2f}"
        bare += f"{figures.cpu_ms[kind]:9.2f}{figures.cpu_times_bare[kind]:9.2f}"
        yield f"{kind:16}{p50:10.2f}{figures.p99_ms[kind]:10.2f}{bare}{beside}"
    yield f"{'plain write':16}{figures.plain_write_ms:10.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
