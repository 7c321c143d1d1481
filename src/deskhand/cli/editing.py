"""A person changes a letter at the terminal: in their own editor, or by options."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deskhand import environment
from deskhand.cli.command import plain
from deskhand.errors import BadConfig, DeskError, InvalidInput
from deskhand.gate.answers import Letter
from deskhand.gate.risk import read_html
from deskhand.gate.waiting import Card

_LETTER = re.compile(r"To:[ \t]*([^\n]*)\nSubject:[ \t]*([^\n]*)\n\n(.*)\Z", re.DOTALL)


def letter(card: Card) -> Letter:
    return Letter(", ".join(each.address for each in card.to), card.subject, card.body)


def apply_options(old: Letter, to: str | None, subject: str | None, body_file: Path | None) -> Letter:
    try:
        body = old.body if body_file is None else body_file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {body_file}: {error}", hint="name a text file in UTF-8") from error
    return Letter(old.to if to is None else to, old.subject if subject is None else subject, body)


@contextmanager
def open_editor(old: Letter) -> Iterator[Letter]:
    """What the person makes of it in their editor. Where it cannot be used, the text is kept and its place is told."""
    command = environment.editor(environment.variables())
    if not command:
        raise BadConfig(
            "no editor is named", hint="set VISUAL or EDITOR, or use --to, --subject and --body-file", reason="editor"
        )
    end = "" if old.body.endswith("\n") else "\n"  # editors end a text with a line break
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="deskhand-", encoding="utf-8", delete=False) as made:
        made.write(f"To: {old.to}\nSubject: {old.subject}\n\n{old.body}{end}")
    file = Path(made.name)
    try:
        yield _run_editor(command, file, end)
    except DeskError as error:
        error.hint = f"{error.hint + '; ' if error.hint else ''}your text is kept in {file}"
        raise
    file.unlink()


def _run_editor(command: list[str], file: Path, end: str) -> Letter:
    try:
        code = subprocess.run([*command, str(file)], check=False).returncode
    except OSError as error:
        raise BadConfig(f"the editor {command[0]} cannot be started: {error.strerror}", hint="set EDITOR") from error
    if code != 0:
        raise InvalidInput(f"the editor ended with {code}, so nothing was changed")
    try:
        found = _LETTER.match(file.read_bytes().decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise InvalidInput("the edited text is not UTF-8") from error
    if found is None:
        raise InvalidInput("the edited text must begin with To:, Subject: and an empty line")
    to, subject, body = found.groups()
    edited = Letter(to.strip(), subject.strip(), body)
    return replace(edited, body=body.removesuffix(end)) if end else edited


def confirm_text(card: Card) -> bool:
    print(plain(f"To: {letter(card).to}\nSubject: {card.subject}\n\n{card.body}"), file=sys.stderr)
    if seen := read_html(card.body, as_text=card.as_text):
        print(plain(f"\nIt leaves as HTML. A reader sees this text:\n\n{seen.text}\n"), file=sys.stderr)
    print("send exactly this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
