"""The foreign judges through the pipe: conformance, Inspector and both TypeScript clients, all six servers.

    python3 run.py torture judges [oauth | tasks | fixtures | servers]

Each server is `deskhand mcp NAME`, joined to a running desk. The conformance judge speaks HTTP only, so a bridge stands
before the pipe, and the scenarios that are about HTTP itself are left out.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from deskhand.servers import SERVERS
from tests.home import TOKEN, Home
from tests.judges import consent, joined_app, test_inspector, test_typescript_client
from tests.judges.bridge import Bridge
from tests.judges.conftest import judged_home
from tests.judges.node import CONFORMANCE, MODULES, NODE, node
from tests.judges.test_conformance import required_scenarios, statuses
from tests.resident.test_up import Running, start
from tests.test_chat import HELLO, answer

ROOT = Path(__file__).resolve().parent.parent
WAITING = ROOT / "tests" / "judges" / "waiting.mjs"
OF_HTTP = ("dns-", "http-", "server-sse-", "server-session-", "server-stateless")
MAIN_TOOLS = test_inspector.SERVERS | {"/claude/mcp": "permission_prompt"}
FOR_EVERY_SERVER = ("server-initialize", "ping", "tools-list")
QUESTION = {"ask_person": "question"}
"""Where a tool's own words stand that tell its calls apart; of a mail they are its body."""
FAILED: list[str] = []


def report(what: str, *, works: bool, why: str = "") -> None:
    print(f"{'ok  ' if works else 'FAIL'}  {what}", flush=True)
    if not works:
        FAILED.append(what)
        print(why[-1500:], flush=True)


@contextmanager
def bridged(home: Home, name: str) -> Iterator[str]:
    """The address at which the pipe to this server is reached by HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))
    bridge = Bridge([sys.executable, "-m", "deskhand", "mcp", name], home.environment)
    server = uvicorn.Server(
        uvicorn.Config(bridge.app, log_config=None, timeout_graceful_shutdown=1)
    )

    async def serve() -> None:
        await server.serve([listener])
        await bridge.close()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join()


def judge_scenarios(home: Home, server: str, revision: str, scenarios: list[str]) -> None:
    with bridged(home, server) as address, tempfile.TemporaryDirectory() as folder:
        wrong = []
        for each in scenarios:
            place = Path(folder) / each
            wanted = (
                "--url",
                address,
                "--scenario",
                each,
                "--spec-version",
                revision,
                "--output-dir",
                place,
            )
            said = node(CONFORMANCE, "server", *wanted, environment=home.environment)
            if set().union(*statuses(place).values()) != {"SUCCESS"}:
                wrong.append(f"{each}: {said.stdout[-300:]}{said.stderr[-300:]}")
    count = f"{len(scenarios) - len(wrong)} of {len(scenarios)} scenarios"
    report(
        f"conformance {revision} {server}: {count}", works=not wrong, why="\n".join(wrong)
    )


def judge_fixtures(place: Path) -> None:
    """What the judge calls by name, through a pipe to the desk's socket."""
    home = judged_home(place)
    command = [sys.executable, "-m", joined_app.__name__]
    with subprocess.Popen(
        command, env=home.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as app:
        assert app.stdout
        app.stdout.readline()
        wait_for(place / "home" / "desk.sock")
        for revision in ("2025-11-25", "2026-07-28"):
            required = [
                each
                for each in required_scenarios(revision)
                if not each.startswith(OF_HTTP)
            ]
            judge_scenarios(home, "conformance", revision, required)
        app.terminate()


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)


def judge_servers(place: Path) -> None:
    home = judged_home(place)
    desk = start(place, home.environment, "--port", "0")
    try:
        for name, kind in SERVERS.items():
            judge_scenarios(home, name, "2025-11-25", list(FOR_EVERY_SERVER))
            for era in ("legacy", "modern"):
                with tempfile.TemporaryDirectory() as folder:
                    found = test_inspector.names_on_stdio(name, era, home, Path(folder))
                report(
                    f"Inspector {era} {name}",
                    works=MAIN_TOOLS[kind.path] in found,
                    why=str(found),
                )
        for version in ("v1", "v2"):
            test_typescript_client.drive(version, {}, home, desk.address)
            report(f"TypeScript {version}, all six", works=True)
    finally:
        desk.close()


def judge_oauth(place: Path) -> None:
    """Who connects by OAuth to the running desk."""
    desk = start(place, judged_home(place).environment, "--port", "0")
    try:
        with consent.person_at(desk) as browser:
            for era in ("legacy", "modern"):
                home = place / era
                home.mkdir()
                works, said = consent.inspect(browser, desk, home, era)
                report(f"Inspector {era} by OAuth", works=works, why=said)
            works, said = consent.judge_server(browser, desk, place)
            report("conformance of the authorization server", works=works, why=said)
    finally:
        desk.close()


def judge_tasks(place: Path) -> None:
    """Who waits by a handle until the person has answered, in both eras."""
    home = judged_home(place)
    desk = start(place, home.environment, "--port", "0")
    wanted = {("first", "Approved"): "sent successfully", ("first", "Rejected"): "failed"}
    wanted |= {("new", "Approved"): "sent successfully", ("new", "Rejected"): "isError"}
    try:
        for (era, folder), said in wanted.items():
            letter = json.dumps(HELLO | {"subject": f"{era} {folder}"})
            command = [NODE, WAITING, MODULES, era, f"{desk.address}/mcp", TOKEN, letter]
            judge = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert judge.stdout
            heard = judge.stdout.readline()
            if heard.startswith("task "):
                answer(home, folder)
            try:
                heard += judge.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                judge.kill()
            report(f"a task of the {era} era, {folder}", works=said in heard, why=heard)
    finally:
        desk.close()
    judge_returning(place, home)


MAIL = """From: Ann <ann@example.org>
To: me@example.com
Subject: Lunch
Message-ID: <lunch@example.org>
Date: Mon, 16 Nov 2026 08:00:00 +0000

At noon?
"""


def judge_returning(place: Path, home: Home) -> None:
    """Who went away with a handle and comes back to a desk that was started anew meanwhile."""
    (place / "lunch.eml").write_text(MAIL)
    home.command("mail", "import", str(place / "lunch.eml"))
    mail = json.loads(home.command("mail", "search", "lunch", "--json").stdout)
    answered = {"message_id": mail["id"], "body": "Yes."}
    calls: dict[str, dict[str, Any]] = {
        "send_email": HELLO,
        "reply_email": answered | {"thread_id": mail["thread_id"]},
        "forward_email": answered | {"to": "ben@example.org"},
        "ask_person": {"question": "Which colour?"},
    }

    def run_client(desk: Running, era: str, tool: str, then: str) -> str:
        given = json.dumps(calls[tool] | {QUESTION.get(tool, "body"): f"{era} {tool}"})
        command = [
            NODE,
            WAITING,
            MODULES,
            era,
            f"{desk.address}/mcp",
            TOKEN,
            given,
            tool,
            then,
        ]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=90, check=False
        )
        return ran.stdout + ran.stderr

    desk = start(place, home.environment, "--port", "0")
    wanted = [(era, tool) for era in ("first", "new") for tool in calls]
    handles = {each: run_client(desk, *each, "leave") for each in wanted}
    desk.close()
    desk = start(place, home.environment, "--port", "0")
    try:
        for (era, tool), begun in handles.items():
            task = begun.removeprefix("task ").strip()
            how = (
                ["respond", task, "blue"]
                if tool in QUESTION
                else ["approve", task, "--yes"]
            )
            told = home.command(*how)
            heard = run_client(desk, era, tool, task)
            works = any(each in heard for each in ("sent successfully", 'blue\\"'))
            why = begun + told.stdout + told.stderr + heard
            report(f"{tool} of the {era} era, back after a restart", works=works, why=why)
    finally:
        desk.close()


def main(argv: list[str]) -> int:
    judges = {
        "oauth": judge_oauth,
        "tasks": judge_tasks,
        "fixtures": judge_fixtures,
        "servers": judge_servers,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    chosen = parser.parse_args(argv).names or list(judges)
    for unknown in set(chosen).difference(judges):
        parser.error(f"there is no {unknown}; there are {', '.join(judges)}")
    with tempfile.TemporaryDirectory() as folder:
        for each in chosen:
            place = Path(folder) / each
            place.mkdir()
            judges[each](place)
    print(f"{len(FAILED)} failed")
    return int(bool(FAILED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
