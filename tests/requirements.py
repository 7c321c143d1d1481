"""What the product promises, one sentence each; a test cites the ones it shows.

`test_repository.py` fails when a promise has no test or a test cites a promise that nobody made.
"""

from typing import Any

import pytest

REQUIREMENTS = {
    "start:light": "deskhand --help imports neither mcp nor FastAPI nor SQLAlchemy.",
    "config:errors-name-the-key": "An unknown key or bad value is an error that names key, value and allowed form.",
    "config:sources": "config show says where each value came from and masks secrets.",
    "errors:two-forms": "Each error has seed 000's and seed 003's wire form and an exit code.",
    "server:strict": "Unknown arguments and wrong types are refused with field, message, value and suggestion.",
    "server:hints": "A tool without a title and four hints cannot be served.",
    "server:masked": "The text of a crash stays in the log, under a reference id the caller gets.",
    "server:stdout": "Nothing but the protocol reaches stdout.",
    "server:answers": "Malformed JSON and lone surrogates are answered, and the server lives on.",
    "server:bearer": "Over HTTP nobody enters without the bearer token, nor with a foreign Host or Origin.",
    "store:durable": "What a transaction returned is committed; one that raised left nothing.",
    "store:many-processes": "Several processes may start and write at once.",
    "audit:chained": "A changed, removed, inserted or cut-off line is found and named.",
    "audit:redacted": "No body, secret or full address reaches the record.",
    "notes:seed": "Models, errors and round trip are seed 000's, on every transport in both eras.",
    "notes:round-trip": "For any frontmatter and body, write then read gives the same.",
    "notes:bytes-kept": "Changing one key leaves every other byte of the note alone.",
    "notes:paths": "No spelling of a path leaves the vault or reaches a protected folder for writing.",
    "notes:swapped-links": "A symlink swapped in during the call leads nowhere.",
    "notes:atomic": "Whatever is killed, a note is the old or the new one, whole.",
    "notes:disk-trouble": "A full disk and an I/O error give a clear error and change nothing.",
    "notes:no-lost-edit": "With if_match no edit is lost, whoever else writes.",
    "notes:links-follow": "Links follow a moved note when asked to, in the form in which they were written.",
    "notes:peers-faults": "None of the faults found in other servers is here.",
    "index:equals-scan": "Search finds exactly what a scan of all files finds.",
    "index:fresh": "What was written is found: through us at once, by another program within moments.",
    "index:disposable": "A deleted or damaged index costs time, never an answer.",
    "tasks:seed": "Tools, models, errors and life cycle are seed 003's, over HTTP on both databases.",
    "tasks:isolation": "Nobody sees, changes or counts another user's task.",
    "tasks:identity": "Nobody is somebody by default: a token's owner, whom a proven service names, the desk's user.",
    "tasks:validation": "A bad field is named with a suggestion before the backend is called.",
    "tasks:null-clears": "An explicit null clears; what is absent stays.",
    "tasks:log": "Each backend call is one log line with the seed's fields and no secret.",
    "tasks:pages": "Pages show each task once, filters see all tasks, an answer stays short.",
    "tasks:embedded": "Without a backend URL the same server works in one process, over HTTP and stdio.",
    "tasks:retry": "Only what is safe is tried again; one create call makes one task.",
    "tasks:errors": "Each failure of the backend has its error_type, and nothing of a driver is shown.",
    "tasks:commit": "What was answered is committed; a failing commit is no success.",
    "tasks:versions": "With If-Match no change of another window is lost.",
    "tasks:restore": "What was deleted can be brought back, the last change undone.",
    "tasks:settings": "Seed 003's settings and their checks hold, from the environment and a .env file.",
    "tasks:rest": "REST answers as its OpenAPI says, whatever is sent.",
    "tasks:model": "For any sequence of calls of two users REST and MCP answer as a model does.",
    "tasks:beyond": "Labels, projects, subtasks, recurrence, bulk and due words do what they say.",
    "agents:commands": "The existing program's table of commands holds row by row, in real tmux.",
    "agents:light": "The short commands import the standard library only; a hook without mail is nearly free.",
    "agents:bytes": "The files are the existing program's, byte for byte; marking read changes five bytes in place.",
    "agents:once": "A message is given to exactly one caller, however many ask at once.",
    "agents:durable": "A message that was acknowledged survives any kill, and so does its being read.",
    "agents:damage": "Damaged lines stop nobody, and nothing of them is dropped silently.",
    "agents:history": "What was read long ago costs a receiver nothing.",
    "agents:one-contract": "Files, SQLite and PostgreSQL keep one contract; machines that share a database share mail.",
    "agents:identity": "An agent is its tmux window, or its given name outside tmux; no two share an address.",
    "agents:seed": "The MCP server has the seed's four tools, results and texts, on every transport in both eras.",
    "agents:tmux-ends": "When the tmux session ends, the MCP server exits with code 1 within a second.",
    "agents:waiting": "Whoever waits for mail is woken by a bell.",
    "agents:mailman": "The mailman tells an agent with mail, by the seed's states and timings, and there is only one.",
    "agents:no-stray-keys": "A shell, an editor or a half-typed line never gets a keystroke.",
    "agents:copies": "Mail is copied between the stores as often as one likes, each message once.",
    "judges:conformance": "The official conformance suite passes for both revisions.",
    "judges:clients": "The Inspector and the TypeScript SDK are content.",
}


def requirement(name: str) -> Any:
    """Marks the test that shows a promise kept."""
    return pytest.mark.requirement(name)
