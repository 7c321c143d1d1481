"""Other people's servers behind the gate, each beside itself called directly: every tool, in both eras.

    python3 run.py torture servers [--only NAME]

The servers come from npm and PyPI into .judges/foreign. Each answer through the running desk is held against the
server's own, value by value. Then the Inspector, strict, and both TypeScript clients go through the desk.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.foreign.place import LineClient, without_era, without_own
from tests.home import TOKEN
from tests.judges.node import INSPECTOR, MODULES, NODE, node
from tests.judges.test_typescript_client import SCRIPT
from tests.mail.gmail_double import ADDRESS, CLIENT, GmailDouble
from tests.mail.letters import letter
from tests.resident.test_up import start
from tests.transports import ERAS

PLACE = Path(__file__).resolve().parents[1] / ".judges" / "foreign"
NPM = [
    f"@modelcontextprotocol/server-{name}@2026.8.31"
    for name in ("everything", "filesystem", "memory")
]
PYPI = ("workspace-mcp==2.2.1", "mcp-server-time==2026.10.19")
LONGEST = 16 << 20
Calls = list[tuple[str, dict[str, Any]]]
# Google's library asks Google: here it asks the double.
AT_THE_DOUBLE = """
import sys
from functools import partial
from googleapiclient import discovery
discovery.build = partial(discovery.build, client_options={"api_endpoint": sys.argv.pop(1)}, static_discovery=True)
from main import main
main()
"""
CHANGING = re.compile(
    r"(created|modified|accessed): [^\n]*|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{1,2}:\d\d:\d\d [AP]M"
    r"|\b(?=[0-9a-f]*\d)[0-9a-f]{16}\b|Draft ID: [^\s\"]+|session [-\w]+|https://accounts\.google\.com/[^\s\"]+"
)
"""What is another one at every call: times, the names that a mailbox gives to mails, those of sessions, an address in
which a set is written in the order of this very process."""
EVERYTHING: Calls = [
    ("echo", {"message": "h\u00e9 \U0001f600"}),
    ("echo", {}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-env", {}),
    ("get-resource-links", {"count": 3}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 2}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-sum", {"a": 1.5, "b": 2}),
    ("get-tiny-image", {}),
    (
        "gzip-file-as-resource",
        {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"},
    ),
    ("toggle-simulated-logging", {}),
    ("toggle-simulated-logging", {}),
    ("toggle-subscriber-updates", {}),
    ("toggle-subscriber-updates", {}),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
    ("simulate-research-query", {"topic": "mail"}),
]
TIME: Calls = [
    ("get_current_time", {"timezone": "Asia/Tokyo"}),
    ("get_current_time", {"timezone": "Nowhere"}),
    (
        "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
    ),
]
ANN = {"name": "Ann", "entityType": "person", "observations": ["writes"]}
LIKES = {"from": "Ann", "to": "Ann", "relationType": "likes"}
MEMORY: Calls = [
    ("create_entities", {"entities": [ANN]}),
    ("create_relations", {"relations": [LIKES]}),
    ("add_observations", {"observations": [{"entityName": "Ann", "contents": ["reads"]}]}),
    ("read_graph", {}),
    ("search_nodes", {"query": "Ann"}),
    ("open_nodes", {"names": ["Ann"]}),
    (
        "delete_observations",
        {"deletions": [{"entityName": "Ann", "observations": ["reads"]}]},
    ),
    ("delete_relations", {"relations": [LIKES]}),
    ("delete_entities", {"entityNames": ["Ann"]}),
    (
        "add_observations",
        {"observations": [{"entityName": "nobody", "contents": ["reads"]}]},
    ),
]
LISTS = ("resources/list", "resources/templates/list", "prompts/list")
MORE: list[tuple[str, dict[str, Any]]] = [
    ("resources/read", {"uri": "demo://resource/dynamic/text/1"}),
    ("prompts/get", {"name": "simple-prompt"}),
    ("prompts/get", {"name": "args-prompt", "arguments": {"city": "Paris", "state": "TX"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "completable-prompt"},
            "argument": {"name": "department", "value": "E"},
        },
    ),
]


def name_files(folder: Path) -> Calls:
    one = str(folder / "one.txt")
    return [
        ("list_allowed_directories", {}),
        ("write_file", {"path": one, "content": "alpha\nbeta\n"}),
        ("read_file", {"path": one}),
        ("read_text_file", {"path": one, "head": 1}),
        ("read_multiple_files", {"paths": [one, str(folder / "none.txt")]}),
        (
            "edit_file",
            {
                "path": one,
                "edits": [{"oldText": "beta", "newText": "gamma"}],
                "dryRun": False,
            },
        ),
        ("create_directory", {"path": str(folder / "sub")}),
        ("move_file", {"source": one, "destination": str(folder / "sub" / "two.txt")}),
        ("list_directory", {"path": str(folder)}),
        ("list_directory_with_sizes", {"path": str(folder / "sub")}),
        ("directory_tree", {"path": str(folder)}),
        ("search_files", {"path": str(folder), "pattern": "**/*.txt"}),
        ("get_file_info", {"path": str(folder / "sub" / "two.txt")}),
        ("write_file", {"path": str(folder / "a.png"), "content": "no picture"}),
        ("read_media_file", {"path": str(folder / "a.png")}),
        ("read_file", {"path": "/etc/passwd"}),
    ]


FIRST = "18d5a00000000001"
"""What the double calls its first mail."""
NEW = {
    "subject": "Hello",
    "body": "Hi.",
    "to": "ann@example.org",
    "include_signature": False,
}
MAIL: Calls = [
    ("search_gmail_messages", {"query": "subject:Lunch"}),
    ("get_gmail_message_content", {"message_id": FIRST}),
    ("get_gmail_messages_content_batch", {"message_ids": [FIRST]}),
    ("get_gmail_attachment_content", {"message_id": FIRST, "attachment_id": "none"}),
    ("get_gmail_thread_content", {"thread_id": FIRST}),
    ("get_gmail_threads_content_batch", {"thread_ids": [FIRST]}),
    ("list_gmail_labels", {}),
    ("manage_gmail_label", {"action": "delete", "label_id": "Label_none"}),
    ("list_gmail_filters", {}),
    ("manage_gmail_filter", {"action": "delete", "filter_id": "none"}),
    ("modify_gmail_message_labels", {"message_id": FIRST, "add_label_ids": ["STARRED"]}),
    (
        "batch_modify_gmail_message_labels",
        {"message_ids": [FIRST], "remove_label_ids": ["STARRED"]},
    ),
    ("draft_gmail_message", NEW),
    ("send_gmail_message", NEW),
    ("send_gmail_message", {"to": 7}),
    ("start_google_auth", {"service_name": "nothing"}),
]


@dataclass(frozen=True)
class Stranger:
    command: list[str]
    """How it is started, by the desk and by itself."""
    calls: Calls
    url: str | None = None
    """Where the desk finds it, if not by the command."""
    state: Path | None = None
    """A folder that is emptied before each round."""
    more: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def install() -> None:
    if not (PLACE / "node_modules").is_dir():
        print("  installing the servers from npm", flush=True)
        PLACE.mkdir(parents=True, exist_ok=True)
        quiet = ["--silent", "--no-audit", "--no-fund", "--no-package-lock"]
        subprocess.run(
            ["npm", "install", *quiet, "--prefix", PLACE, *NPM],
            check=True,
            capture_output=True,
        )
    python = PLACE / "python" / "bin" / "python"
    if not python.exists():
        venv.create(PLACE / "python", with_pip=True, clear=True)
    for package in PYPI:
        stamp = PLACE / package
        if not stamp.exists():
            print(f"  installing {package}", flush=True)
            pip = [python, "-m", "pip", "install", "-q", package]
            subprocess.run(pip, check=True, capture_output=True)
            stamp.touch()


@contextmanager
def strangers(folder: Path) -> Iterator[dict[str, Stranger]]:
    def script(name: str) -> list[str]:
        return [
            str(NODE),
            str(
                PLACE
                / "node_modules"
                / "@modelcontextprotocol"
                / f"server-{name}"
                / "dist"
                / "index.js"
            ),
        ]

    files = folder / "files"
    memory = folder / "memory"
    everything = script("everything")
    remembering = ["env", f"MEMORY_FILE_PATH={memory / 'memory.json'}", *script("memory")]
    with http_everything(everything) as url, GmailDouble() as double:
        double.account.deliver(letter(subject="Lunch", body="At noon?"), "INBOX", "UNREAD")
        yield {
            "everything": Stranger(everything, EVERYTHING, more=MORE),
            "everything-http": Stranger(everything, EVERYTHING, url=url, more=MORE),
            "filesystem": Stranger(
                [*script("filesystem"), str(files)], name_files(files), state=files
            ),
            "memory": Stranger(remembering, MEMORY, state=memory),
            "workspace": Stranger(workspace(folder, double), MAIL),
            "time": Stranger(
                [str(PLACE / "python" / "bin" / "python"), "-m", "mcp_server_time"], TIME
            ),
        }


@contextmanager
def http_everything(command: list[str]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        [*command, "streamableHttp"], env=os.environ | {"PORT": str(port)}, **quiet
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def workspace(folder: Path, double: GmailDouble) -> list[str]:
    place = folder / "google"
    place.mkdir()
    scopes = [
        f"https://www.googleapis.com/auth/gmail.{part}"
        for part in ("readonly", "modify", "send", "compose")
    ]
    scopes += [
        "https://www.googleapis.com/auth/gmail.labels",
        "https://www.googleapis.com/auth/gmail.settings.basic",
    ]
    known = {
        "refresh_token": "refresh-1",
        "token_uri": f"{double.origin}/token",
        "scopes": scopes,
        **CLIENT,
    }
    (place / f"{ADDRESS}.json").write_text(
        json.dumps(known | {"token": None, "expiry": None})
    )
    (place / "at_the_double.py").write_text(AT_THE_DOUBLE)
    given = {
        "WORKSPACE_MCP_CREDENTIALS_DIR": str(place),
        "GOOGLE_OAUTH_CLIENT_ID": CLIENT["client_id"],
        "GOOGLE_OAUTH_CLIENT_SECRET": CLIENT["client_secret"],
        "USER_GOOGLE_EMAIL": ADDRESS,
        "OAUTHLIB_INSECURE_TRANSPORT": "1",
    }
    variables = [f"{key}={value}" for key, value in given.items()]
    python = str(PLACE / "python" / "bin" / "python")
    return [
        *("env", *variables, python, str(place / "at_the_double.py")),
        double.origin,
        "--single-user",
        "--tools",
        "gmail",
    ]


@asynccontextmanager
async def connect(
    command: list[str], environment: dict[str, str], era: str
) -> AsyncIterator[LineClient]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        limit=LONGEST,
    )
    client = LineClient(process.stdout, process.stdin, era)
    try:
        await client.greet()
        yield client
    finally:
        await client.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()


async def ask_all(client: LineClient, stranger: Stranger) -> dict[str, Any]:
    """All answers, by what was asked."""
    if stranger.state is not None:
        shutil.rmtree(stranger.state, ignore_errors=True)
        stranger.state.mkdir()
    answers: dict[str, Any] = {"tools/list": await client.ask("tools/list")}
    for method in LISTS:
        answers[method] = await client.ask(method)
    for method, params in stranger.more:
        answers[f"{method} {json.dumps(params)}"] = await client.ask(method, **params)
    for number, (tool, arguments) in enumerate(stranger.calls):
        answers[f"{number} {tool}"] = await client.ask(
            "tools/call", name=tool, arguments=arguments
        )
    return answers


def comparable(asked: str, answer: dict[str, Any], era: str) -> str:
    plain = without_own(without_era(answer))
    if "get-env" in asked:
        plain = {"result": "an environment"}
    for tool in plain.get("result", {}).get("tools", []) if asked == "tools/list" else ():
        if era != "legacy":
            tool.pop("execution", None)  # a word of 2025-11-25 that 2026-07-28 has not
    text = json.dumps(as_one_number(plain), sort_keys=True, ensure_ascii=False)
    return CHANGING.sub("…", text.replace("\\n", "\n"))


def as_one_number(value: Any) -> Any:
    """To JSON 1 and 1.0 are the same number, and the SDK writes some of them with a point."""
    match value:
        case dict():
            return {key: as_one_number(each) for key, each in value.items()}
        case list():
            return [as_one_number(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


async def compare(name: str, stranger: Stranger, environment: dict[str, str]) -> bool:
    fine = True
    through = [sys.executable, "-m", "deskhand", "mcp", name]
    async with connect(stranger.command, environment, "legacy") as direct:
        for era in ERAS:
            own = await ask_all(direct, stranger)
            async with connect(through, environment, era) as client:
                fine = tell(name, era, own, await ask_all(client, stranger)) and fine
    return fine


def tell(name: str, era: str, own: dict[str, Any], through: dict[str, Any]) -> bool:
    listed = {each["name"] for each in own["tools/list"]["result"]["tools"]}
    called = {each.partition(" ")[2] for each in own} & listed
    pairs = {
        each: (comparable(each, own[each], era), comparable(each, through[each], era))
        for each in own
    }
    different = {each: pair for each, pair in pairs.items() if pair[0] != pair[1]}
    count = f"{len(listed):5} {len(called):6} {len(own):6} {len(own) - len(different):5} {len(different):9}"
    print(f"{name:16} {era:11} {count}", flush=True)
    for each, (itself, guarded) in different.items():
        print(
            f"    {each}\n      itself  {itself[:600]}\n      through {guarded[:600]}",
            flush=True,
        )
    return not different


def judge(name: str, stranger: Stranger, environment: dict[str, str], folder: Path) -> bool:
    """The Inspector and the TypeScript clients, through the desk."""
    fine = True
    command = [sys.executable, "-m", "deskhand", "mcp", name]
    for era in ("legacy", "modern"):
        how = (
            "--protocol-era",
            era,
            "--method",
            "tools/list",
            "--strict",
            "--format",
            "json",
        )
        home = f"DESKHAND_HOME={environment['DESKHAND_HOME']}"
        listed = node(
            INSPECTOR,
            "--cli",
            *command,
            "-e",
            home,
            *how,
            environment=environment | {"HOME": str(folder)},
        )
        works = listed.returncode == 0 and bool(
            json.loads(listed.stdout)["result"]["tools"]
        )
        print(
            f"{name:16} Inspector {era}: {'ok' if works else listed.stderr[-300:]}",
            flush=True,
        )
        fine = fine and works
    for version in ("v1", "v2"):
        given = {
            name: {"command": command[0], "args": command[1:], "calls": stranger.calls[:3]}
        }
        ran = node(SCRIPT, MODULES, version, json.dumps(given), environment=environment)
        print(
            f"{name:16} TypeScript {version}: {'ok' if ran.returncode == 0 else ran.stderr[-300:]}",
            flush=True,
        )
        fine = fine and ran.returncode == 0
    return fine


def run(only: str | None, folder: Path) -> bool:
    home = folder / "home"
    home.mkdir()
    around = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    environment = around | {
        "DESKHAND_HOME": str(home),
        "SERVICE_AUTH_TOKEN": TOKEN,
        "TZ": "UTC",
    }
    results = []
    with strangers(folder) as found:
        text = ""
        for name, each in found.items():
            how = (
                f"url = {json.dumps(each.url)}"
                if each.url
                else f"command = {json.dumps(each.command)}"
            )
            text += f'[servers.{name}]\n{how}\n[[servers.{name}.rules]]\ntool = "*"\ndo = "pass"\n'
            if each.state:
                each.state.mkdir()
        (home / "guard.toml").write_text(text)
        desk = start(folder, environment, "--port", "0")
        try:
            print(f"{'server':16} {'era':11} tools called asked equal different")
            for name, each in found.items():
                if only in (None, name):
                    results.append(asyncio.run(compare(name, each, environment)))
            for name, each in found.items():
                if only in (None, name):
                    results.append(judge(name, each, environment, folder))
        finally:
            desk.close()
    return all(results)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    options = parser.parse_args(argv)
    install()
    with tempfile.TemporaryDirectory() as name:
        return 0 if run(options.only, Path(name)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
