"""The real Claude Code at a real desk, with a scripted model on loopback: its own tools are used after a yes, once.

    python3 run.py torture claude [PATH_OF_CLAUDE]      without a path: the `claude` of this shell

Without a terminal by the hook and by the permission-prompt tool, at a terminal by the hook alone.
"""

import asyncio
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.cards import Card
from torture.hooks import ScriptedModel, serving

DESKHAND = Path(sys.executable).with_name("deskhand")
STRANGER = Path(__file__).parents[1] / "tests" / "foreign" / "stranger.py"
TOOL = "mcp__deskhand-claude__permission_prompt"
Say = Callable[[Desk, Card], Awaitable[object]]


class WorkingModel(ScriptedModel):
    """Uses these tools one after the other, and then says that it is done."""

    def __init__(self, *uses: tuple[str, dict[str, Any]]) -> None:
        super().__init__()
        self._uses = uses
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def wait_until_done(self) -> None:
        await self._done.wait()

    def answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        if not request.get("tools"):
            return [{"type": "text", "text": "A title"}]
        self.asked.append(request)
        number = len(self.asked)
        if number > len(self._uses):
            self._loop.call_soon_threadsafe(self._done.set)
            return [{"type": "text", "text": "Hello, garden."}]
        name, given = self._uses[number - 1]
        return [{"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}]


@dataclass
class Office:
    """A person's account with a desk and Claude Code, connected to each other."""

    claude: str
    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "DESKHAND_HOME": str(self.folder / "desk"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ANTHROPIC_API_KEY": "none",
            "TERM": "xterm-256color",
        }

    def deskhand(self, *arguments: str) -> None:
        subprocess.run(
            [DESKHAND, *arguments], env=self.environment, check=True, capture_output=True
        )

    def list_servers(self) -> str:
        command = [self.claude, "mcp", "list"]
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout

    def set_up(self) -> None:
        self.work.mkdir()
        (self.folder / "vault").mkdir()
        self.deskhand(
            "init",
            "--vault",
            str(self.folder / "vault"),
            "--address",
            "me@example.com",
            "--yes",
        )
        (self.folder / "stranger").mkdir()
        command = [sys.executable, str(STRANGER), str(self.folder / "stranger")]
        self.deskhand("guard", "add", "stranger", "--", *command)
        self.deskhand("connect", "claude-code", "--permissions", "--yes")
        place = self.folder / ".claude.json"
        settings = json.loads(place.read_text())
        guarded = {
            "type": "stdio",
            "command": str(DESKHAND),
            "args": ["mcp", "stranger"],
            "env": {},
        }
        settings["mcpServers"]["stranger"] = guarded
        # What a person has clicked away at the first start.
        settings |= {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
        }
        settings["projects"] = {str(self.work): {"hasTrustDialogAccepted": True}}
        place.write_text(json.dumps(settings))

    @asynccontextmanager
    async def desk(self) -> AsyncIterator[Desk]:
        command = [DESKHAND, "up", "--no-browser", "--json", "--port", "0"]
        running = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert running.stdout is not None
        await running.stdout.readline()
        desk = Desk(load(self.environment).settings)
        try:
            yield desk
        finally:
            desk.close()
            running.terminate()
            await running.wait()

    async def run(self, model: ScriptedModel, *options: str) -> str:
        """What Claude Code says without a terminal."""
        with serving(model) as address:
            process = await asyncio.create_subprocess_exec(
                *(self.claude, "-p", "Go.", *options),
                cwd=self.work,
                env=self.environment | {"ANTHROPIC_BASE_URL": address},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            said, _ = await asyncio.wait_for(process.communicate(), 150)
        return said.decode()

    async def type_in(self, model: WorkingModel) -> None:
        """At a terminal, until the model has heard what came of everything."""
        parent, child = pty.openpty()
        with serving(model) as address:
            process = await asyncio.create_subprocess_exec(
                *(self.claude, "Go."),
                cwd=self.work,
                env=self.environment | {"ANTHROPIC_BASE_URL": address},
                stdin=child,
                stdout=child,
                stderr=child,
                start_new_session=True,
            )
            os.close(child)
            reading = asyncio.create_task(asyncio.to_thread(_read_all, parent))
            try:
                async with asyncio.timeout(150):
                    await model.wait_until_done()
            finally:
                process.kill()
                await process.wait()
                await reading


def _read_all(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 1 << 16):
            continue


async def answer_all(desk: Desk, say: Say, seen: list[Card]) -> None:
    """The person: answers whatever waits."""
    while True:
        for card in (await desk.waiting.cards())[0]:
            if card.state == "waiting" and card.id not in {each.id for each in seen}:
                seen.append(card)
                await say(desk, card)
        await asyncio.sleep(0.1)


async def approve(desk: Desk, card: Card) -> None:
    await desk.answers.approve_now(card.id, card.digest, "person")


async def reject(desk: Desk, card: Card) -> None:
    await desk.answers.reject(card.id, card.digest, "not today", "person")


async def stay_silent(desk: Desk, card: Card) -> None:
    """Nobody answers."""


def add_line(text: str) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": f"echo {text} >> made.txt", "description": "write it down"}


async def see(
    office: Office, desk: Desk, say: Say, *uses: tuple[str, dict[str, Any]], by: str
) -> tuple[str, list[Card], str]:
    """What was made, what was asked, and what the model heard."""
    made = office.work / "made.txt"
    made.unlink(missing_ok=True)
    model = WorkingModel(*uses)
    seen: list[Card] = []
    person = asyncio.create_task(answer_all(desk, say, seen))
    match by:
        case "hook":
            await office.run(model)
        case "tool":
            await office.run(
                model,
                "--permission-prompt-tool",
                TOOL,
                "--settings",
                '{"disableAllHooks": true}',
            )
        case "terminal":
            await office.type_in(model)
    person.cancel()
    return made.read_text() if made.exists() else "", seen, model.heard()


async def judge(office: Office) -> AsyncIterator[tuple[str, bool]]:
    office.set_up()
    twice = (add_line("one"), add_line("one"))
    async with office.desk() as desk:
        listed = await asyncio.to_thread(office.list_servers)
        yield (
            "claude mcp list: the permission tool is connected",
            _is_connected(listed, "deskhand-claude"),
        )
        yield (
            "claude mcp list: the guarded server is connected",
            _is_connected(listed, "stranger"),
        )
        for by in ("hook", "tool", "terminal"):
            new = office.work / f"{by}.txt"
            write = "Write", {"file_path": str(new), "content": "two\n"}
            made, seen, _ = await see(office, desk, approve, *twice, write, by=by)
            fine = made == "one\none\n" and new.exists() and len(seen) == 3
            yield f"{by}: each call is asked, and made once", fine
            made, seen, heard = await see(office, desk, reject, add_line(f"no {by}"), by=by)
            yield (
                f"{by}: what is denied is never made",
                not made and len(seen) == 1 and "not today" in heard,
            )
        made, seen, heard = await see(
            office, desk, stay_silent, add_line("late"), by="hook"
        )
        yield (
            "hook: without an answer it is told where it waits",
            not made and f"/requests/{seen[0].id}" in heard,
        )
        made, _, _ = await see(office, desk, approve, add_line("late"), by="hook")
        yield "hook: another session asks anew", made == "late\n"
    model = WorkingModel(add_line("closed"))
    await office.run(model)
    made = (office.work / "made.txt").read_text()
    yield (
        "no desk runs: nothing is made, and it is said why",
        "closed" not in made and "deskhand up" in model.heard(),
    )
    office.deskhand("connect", "claude-code", "--permissions", "--undo", "--yes")
    yield (
        "undone: nothing of the desk is left",
        not (office.folder / ".claude" / "settings.json").exists(),
    )


def _is_connected(listed: str, name: str) -> bool:
    return any(
        line.startswith(f"{name}:") and "Connected" in line for line in listed.splitlines()
    )


async def torture(claude: str) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        async for what, fine in judge(Office(claude, Path(place))):
            failed += not fine
            print(f"{'as promised' if fine else 'FAILED':12} {what}", flush=True)
    return min(failed, 1)


def main(argv: list[str]) -> int:
    claude = argv[0] if argv else shutil.which("claude")
    if claude is None:
        print(
            "no claude in this shell: `npm install @anthropic-ai/claude-code`, then name its path"
        )
        return 0
    return asyncio.run(torture(claude))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
