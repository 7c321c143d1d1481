"""The reference, made from the code: `python3 run.py reference` writes docs/reference/, `--check` says what is stale.

Nothing is listed here by name. Commands come from the parser, options from the settings, tools from the real servers
over a real client, errors from the tree. So the pages cannot forget what somebody adds.
"""

import argparse
import asyncio
import inspect
import logging
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from mcp import Client
from mcp_types import Prompt, ResourceTemplate, Tool

from deskhand import agentmail, errors
from deskhand.app import Desk
from deskhand.cli import EXIT_CODES, parser
from deskhand.config import OPTIONS, Settings, load, sentence
from deskhand.errors import DeskError
from deskhand.servers import SERVERS

FOLDER = Path(__file__).resolve().parent / "reference"
MADE = "<!-- Made from the code by `python3 run.py reference`. Change the code, not this page. -->"


def main(argv: list[str]) -> int:
    logging.disable(logging.INFO)
    made = asyncio.run(pages())
    if argv not in ([], ["--check"]):
        print("usage: python3 run.py reference [--check]", file=sys.stderr)
        return 2
    stale = [name for name, text in made.items() if kept(name) != text]
    if argv:
        print(
            "\n".join(f"docs/reference/{name} is stale" for name in stale)
            or "the reference is fresh"
        )
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(made[name], encoding="utf-8")
    print(
        "\n".join(f"wrote docs/reference/{name}" for name in stale)
        or "the reference was fresh"
    )
    return 0


def kept(name: str) -> str | None:
    file = FOLDER / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


async def pages() -> dict[str, str]:
    """Each page's name and its text as it should be."""
    made = {
        "commands.md": _commands(parser()),
        "options.md": _options(),
        "tools.md": [line async for line in _tools()],
        "errors.md": _errors(),
    }
    return {
        name: "\n".join([MADE, "", *lines]).rstrip() + "\n" for name, lines in made.items()
    }


# Commands.


def _commands(made: argparse.ArgumentParser) -> Iterator[str]:
    found = {" ".join(["deskhand", *words]): command for words, command in leaves(made)}
    yield "# Commands"
    yield ""
    yield "Data goes to stdout, everything else to stderr. From a clone, `python3 run.py` stands for `deskhand`."
    yield ""
    yield from _table("command", "what it does")
    for called, command in found.items():
        yield f"| [`{called}`](#{anchor(called)}) | {_cell(_about(command))} |"
    yield from ("", "```text", EXIT_CODES.rstrip(), "```", "")
    for called, command in found.items():
        usage = " ".join([called, *(_asked(action) for action in _shown(command))])
        yield from (f"## {called}", "", "```text", usage, "```", "")
        yield from _arguments(command)
    yield from ("## agentmail", "", "```text", agentmail.HELP.rstrip(), "```")


def leaves(
    made: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command that can be run, with the words that call it."""
    groups = [
        action for action in made._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not groups:
        yield words, made
    for group in groups:
        for name, inner in group.choices.items():
            yield from leaves(inner, (*words, name))


def _about(command: argparse.ArgumentParser) -> str:
    return _one_line(command.description or "")


def _asked(action: argparse.Action) -> str:
    """An argument as a usage line has it. argparse's own lines depend on the terminal and the version of Python."""
    if not action.option_strings:
        name = _name(action)
        match action.nargs:
            case "?":
                return f"[{name}]"
            case "*" | argparse.REMAINDER:
                return f"[{name} …]"
            case "+" if action.required:
                return f"{name} […]"
            case "+":
                return f"[{name} …]"
            case _:
                return name
    return (
        _flag(action)
        if action.required
        else f"[{_flag(action)}]{' …' if _repeats(action) else ''}"
    )


def _shown(command: argparse.ArgumentParser) -> list[argparse.Action]:
    hidden = argparse._HelpAction
    found = [
        each
        for each in command._actions
        if each.help != argparse.SUPPRESS and not isinstance(each, hidden)
    ]
    return sorted(found, key=lambda each: bool(each.option_strings))


def _flag(action: argparse.Action) -> str:
    longest = max(action.option_strings, key=len)
    return longest if action.nargs == 0 else f"{longest} {_name(action)}"


def _repeats(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _name(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper()


def _arguments(command: argparse.ArgumentParser) -> Iterator[str]:
    yield _about(command)
    yield ""
    rows = [
        f"| `{_flag(each) if each.option_strings else _name(each)}` | {_said(each)} |"
        for each in _shown(command)
    ]
    if rows:
        yield from (*_table("argument", "what it is"), *rows, "")
    if command.epilog:
        yield from ("```text", command.epilog.rstrip(), "```", "")


def _said(action: argparse.Action) -> str:
    text = _cell((action.help or "") % (vars(action) | {"prog": "deskhand"}))
    choices = ", ".join(f"`{each}`" for each in action.choices or ())
    return "; ".join(
        part for part in (text, f"one of {choices}" if choices else "") if part
    )


# Options.


def _options() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "From the environment, else from config.toml in DESKHAND_HOME (`mail.kind` is `kind` in its table `[mail]`),"
    yield "else the default. An unknown key or a bad value stops the program and is named. `deskhand config show` says"
    yield "what each one is and where that came from."
    yield ""
    yield from _table("key", "variable", "form", "default", "what it is")
    for name, option in OPTIONS.items():
        cells = (
            f"`{option.key}`",
            f"`{option.variable}`",
            option.form,
            _default(name),
            sentence(name),
        )
        yield f"| {' | '.join(_cell(each) for each in cells)} |"


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    if field.is_required():
        return {
            "home": "the platform's user directory",
            "timezone": "the machine's zone",
            "proof": "vault; guarded passkey",
        }[name]
    match field.default:
        case None:
            return "none"
        case bool() as switch:
            return f"`{str(switch).lower()}`"
        case float() as number:
            return f"`{number:g}`"
        case other:
            return f"`{other}`"


# Tools.


async def _tools() -> Any:
    yield "# Tools"
    yield ""
    yield "Each server speaks MCP on stdio (`deskhand mcp NAME`) and over HTTP."
    yield "How they answer is in [servers](servers.md)."
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(load(_somebody(Path(folder))).settings)
        for name in sorted(SERVERS):
            async with Client(SERVERS[name].make(desk)) as client:
                for line in await _server(name, client):
                    yield line
        desk.close()


def _somebody(folder: Path) -> Mapping[str, str]:
    """A desk where every part is set up, so that each server can be made."""
    (folder / "vault").mkdir()
    return {
        "DESKHAND_HOME": str(folder / "home"),
        "VAULT_PATH": str(folder / "vault"),
        "DESKHAND_ADDRESS": "me@example.org",
        "DESKHAND_USER": "me",
        "DESKHAND_AGENT": "me",
    }


async def _server(name: str, client: Client) -> list[str]:
    tools = (await client.list_tools()).tools
    lines = ["", f"## {name}", ""]
    if client.instructions:
        lines += [
            "What the server tells an assistant:",
            "",
            "```text",
            client.instructions.rstrip(),
            "```",
            "",
        ]
    for each in tools:
        lines += _tool(name, each)
    if client.server_capabilities.resources:
        lines += _templates((await client.list_resource_templates()).resource_templates)
    if client.server_capabilities.prompts:
        lines += _prompts((await client.list_prompts()).prompts)
    return lines


def _tool(server: str, tool: Tool) -> Iterator[str]:
    yield f"### {server}: `{tool.name}`"
    yield ""
    yield f"{tool.title}. {_hints(tool)}"
    yield ""
    yield f"> {_one_line(tool.description or '')}"
    yield ""
    properties = tool.input_schema.get("properties", {})
    required = tool.input_schema.get("required", ())
    if properties:
        yield from _table("argument", "form", "default", "what it is")
        for name, schema in properties.items():
            default = "required" if name in required else _json(schema.get("default"))
            about = schema.get("description") or _inner(schema).get("description", "")
            yield f"| `{name}` | {_cell(_form(schema, tool.input_schema))} | {_cell(default)} | {_cell(about)} |"
        yield ""
    answers = (tool.output_schema or {}).get("properties", {})
    if answers and list(answers) != ["result"]:
        yield f"Answers with {', '.join(f'`{name}`' for name in answers)}."
        yield ""


def _hints(tool: Tool) -> str:
    hints = tool.annotations
    if hints is None:
        return ""
    words = [
        "reads" if hints.read_only_hint else "writes",
        "destructive" if hints.destructive_hint else "",
        "safe to repeat" if hints.idempotent_hint else "",
        "reaches beyond the desk" if hints.open_world_hint else "",
    ]
    return f"({', '.join(word for word in words if word)})"


def _inner(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(
        (each for each in schema.get("anyOf", ()) if each.get("type") != "null"), {}
    )


def _form(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """A schema in words: what kind of value, and its bounds."""
    match schema:
        case {"$ref": str() as place}:
            words = _form(whole["$defs"][place.rpartition("/")[2]], whole)
        case {"anyOf": [*ways]}:
            words = " or ".join(dict.fromkeys(_form(each, whole) for each in ways))
        case {"enum": [*allowed]}:
            words = ", ".join(f"`{each}`" for each in allowed)
        case {"const": only}:
            words = f"`{only}`"
        case {"type": [*ways]}:
            words = " or ".join(_form({**schema, "type": each}, whole) for each in ways)
        case {"type": "array"}:
            words = f"list of {_form(schema.get('items', {}), whole)}{_bounds(schema)}"
        case _:
            words = (
                f"{schema.get('format') or schema.get('type', 'anything')}{_bounds(schema)}"
            )
    return words


def _bounds(schema: Mapping[str, Any]) -> str:
    known = {
        "minimum": "from",
        "maximum": "to",
        "maxLength": "at most",
        "maxItems": "at most",
    }
    return "".join(f" {word} {schema[key]}" for key, word in known.items() if key in schema)


def _json(value: object) -> str:
    return (
        ""
        if value is None
        else f"`{value}`"
        if isinstance(value, str) and value
        else f"`{value!r}`"
    )


def _templates(found: list[ResourceTemplate]) -> Iterator[str]:
    if found:
        yield from ("Resources:", "")
        yield from (
            f"- `{each.uri_template}`: {_one_line(each.description or each.name)}"
            for each in found
        )
        yield ""


def _prompts(found: list[Prompt]) -> Iterator[str]:
    if found:
        yield from ("Prompts:", "")
        for each in found:
            arguments = ", ".join(f"`{argument.name}`" for argument in each.arguments or ())
            yield f"- `{each.name}`{f' ({arguments})' if arguments else ''}: {_one_line(each.description or '')}"
        yield ""


# Errors.


def _errors() -> Iterator[str]:
    about = dict(re.findall(r"[├└]── (\w+) *(.*)", inspect.getdoc(errors) or ""))
    yield "# Errors"
    yield ""
    yield "One tree stands behind every door. Most servers answer with `code`, the tasks server and its backend with"
    yield "`error_type`, the command line with the exit code. A retryable call may be repeated later as it is."
    yield ""
    yield from _table("error", "code", "error_type", "exit code", "retryable", "when")
    for each in kinds(DeskError):
        cells = (
            f"`{each.code}`",
            f"`{each.error_type}`",
            str(each.exit_code),
            "yes" if each.retryable else "no",
        )
        yield f"| {each.__name__} | {' | '.join(cells)} | {_cell(about.get(each.__name__, ''))} |"
    for title, words in (("code", errors.MCPErrorCode), ("error_type", errors.ErrorType)):
        yield from (
            "",
            f"Every `{title}`: {', '.join(f'`{word}`' for word in get_args(words))}.",
        )


def kinds(error: type[DeskError]) -> Iterator[type[DeskError]]:
    """The error classes of the tree, as it is drawn."""
    for each in error.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from kinds(each)


# Text.


def anchor(heading: str) -> str:
    """The name by which a heading is linked."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(*titles: str) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
