"""`deskhand completion`: what a shell needs to complete our commands, made from the commands themselves."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskhand.cli.command import command


@dataclass(frozen=True, slots=True)
class Node:
    """One command: what may follow it."""

    words: tuple[str, ...]
    """Sub-commands and choices of its arguments."""
    flags: tuple[str, ...]
    valued: tuple[str, ...]
    """Flags that are followed by a value."""
    choices: dict[str, tuple[str, ...]]
    """The values of those flags that have a few."""
    files: bool


def add_to(commands: Any) -> None:
    made = command(commands, "completion", _completion, "print the completion of a shell; `source` it in your profile")
    made.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _completion(options: argparse.Namespace) -> None:
    from deskhand.cli import parser

    tree = dict(_tree(parser(), ()))
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](tree), end="")


def _tree(made: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    actions = made._actions  # noqa: SLF001 - argparse has no other way to read a parser
    groups = [action for action in actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    named = [action for action in actions if action.option_strings]
    placed = [action for action in actions if not action.option_strings]
    words = [str(word) for action in placed for word in action.choices or ()]
    valued = [flag for action in named if action.nargs != 0 for flag in action.option_strings]
    choices = {
        flag: tuple(str(word) for word in action.choices)
        for action in named
        if action.choices
        for flag in action.option_strings
    }
    flags = [flag for action in named for flag in action.option_strings]
    files = any(action.type is Path for action in (*placed, *named))
    yield path, Node(tuple(words), tuple(flags), tuple(valued), choices, files)
    for group in groups:
        for name, inner in group.choices.items():
            yield from _tree(inner, (*path, name))


def _cases(tree: dict[tuple[str, ...], Node]) -> Iterator[tuple[str, Node]]:
    for path, node in tree.items():
        yield " ".join(path), node


def _walk(tree: dict[tuple[str, ...], Node], name: str, index: str, first: int) -> str:
    """Which command is being typed: the words so far that are commands, flags and their values passed over."""
    known = "|".join(f"'{path}'" for path, _ in _cases(tree) if path)
    valued = "|".join(sorted({flag for node in tree.values() for flag in node.valued}))
    return f"""\
  local at="" word skip="" i
  for ((i = {first}; i < {index}; i++)); do
    word="${{{name}[i]}}"
    if [[ -n "$skip" ]]; then skip=""; continue; fi
    case "$word" in {valued}) skip=1; continue ;; -*) continue ;; esac
    case "${{at:+$at }}$word" in {known}) at="${{at:+$at }}$word" ;; esac
  done
"""


def _answers(tree: dict[tuple[str, ...], Node]) -> str:
    lines = []
    for path, node in _cases(tree):
        for flag, words in node.choices.items():
            lines.append(f"    '{path}:{flag}') answer='{' '.join(words)}'; return ;;")
        lines += [f"    '{path}:{flag}') answer=; return ;;" for flag in node.valued if flag not in node.choices]
    shown = [
        f"    '{path}') words='{' '.join(node.words)}'; flags='{' '.join(node.flags)}'; files={'1' * node.files} ;;"
        for path, node in _cases(tree)
    ]
    return (
        '  case "$1:$2" in\n' + "\n".join(lines) + "\n  esac\n  local words= flags= files=\n"
        '  case "$1" in\n' + "\n".join(shown) + "\n  esac\n"
        '  if [[ "$3" == -* ]]; then answer="$flags"; else answer="$words"; fi\n'
        '  if [[ -z "$words" && -n "$files" && "$3" != -* ]]; then return 1; fi\n'
    )


def _bash(tree: dict[tuple[str, ...], Node]) -> str:
    return f"""\
# deskhand completion for bash: source <(deskhand completion bash)
_deskhand_answers() {{
{_answers(tree)}  return 0
}}
_deskhand() {{
{_walk(tree, "COMP_WORDS", "COMP_CWORD", 1)}\
  local current="${{COMP_WORDS[COMP_CWORD]}}" answer=""
  if _deskhand_answers "$at" "${{COMP_WORDS[COMP_CWORD-1]}}" "$current" && [[ -n "$answer" ]]; then
    COMPREPLY=($(compgen -W "$answer" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _deskhand deskhand
"""


def _zsh(tree: dict[tuple[str, ...], Node]) -> str:
    return f"""\
#compdef deskhand
# deskhand completion for zsh: source <(deskhand completion zsh)
_deskhand_answers() {{
{_answers(tree)}  return 0
}}
_deskhand() {{
{_walk(tree, "words", "CURRENT", 2)}\
  local current="${{words[CURRENT]}}" answer=""
  if _deskhand_answers "$at" "${{words[CURRENT-1]}}" "$current" && [[ -n "$answer" ]]; then
    compadd -- ${{=answer}}
  else
    _files
  fi
}}
compdef _deskhand deskhand
"""


def _fish(tree: dict[tuple[str, ...], Node]) -> str:
    known = " ".join(f"'{path}'" for path, _ in _cases(tree) if path)
    valued = " ".join(sorted({flag for node in tree.values() for flag in node.valued}))
    lines = [
        f"complete -c deskhand -n \"test (__deskhand_at) = '{path}'\" {rule}"
        for path, node in _cases(tree)
        for rule in _fish_rules(node)
    ]
    return f"""\
# deskhand completion for fish: deskhand completion fish | source
function __deskhand_at
    set -l at ""
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word {valued}
            set skip 1
        else if not string match -q -- '-*' $word
            set -l next (string trim -- "$at $word")
            contains -- $next {known}; and set at $next
        end
    end
    echo "$at"
end
complete -c deskhand -f
{chr(10).join(lines)}
"""


def _fish_rules(node: Node) -> Iterator[str]:
    if node.words:
        yield f"-a '{' '.join(node.words)}'"
    elif node.files:
        yield "-F"
    for flag in node.flags:
        kind, name = ("-l", flag[2:]) if flag.startswith("--") else ("-s", flag[1:])
        value = f" -x -a '{' '.join(node.choices[flag])}'" if flag in node.choices else ""
        value = value or (" -r" if flag in node.valued else "")
        yield f"{kind} {name}{value}"
