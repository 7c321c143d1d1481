"""A person changes a letter at the terminal: in their own editor, or by options."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deskhand import environment
from deskhand.errors import BadConfig, DeskError, InvalidInput
from deskhand.gate.cards import Card
from deskhand.gate.letters import Letter

_LETTER = re.compile(
    r"To:[ \t]*([^\n]*)\n(?:Cc:[ \t]*([^\n]*)\n)?(?:Bcc:[ \t]*([^\n]*)\n)?Subject:[ \t]*([^\n]*)\n\n(.*)\Z",
    re.DOTALL,
)


def letter(card: Card) -> Letter:
    to, cc, bcc = (
        ", ".join(each.address for each in several)
        for several in (card.to, card.cc, card.bcc)
    )
    return Letter(to, card.subject, card.body, cc, bcc)


def apply_options(
    old: Letter, given: Mapping[str, str | None], body_file: Path | None
) -> Letter:
    try:
        body = old.body if body_file is None else body_file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"cannot read {body_file}: {error}", hint="name a text file in UTF-8"
        ) from error
    return replace(
        old,
        body=body,
        **{name: value for name, value in given.items() if value is not None},
    )


def write_letter(card: Card) -> str:
    """The letter as an editor shows it."""
    made = letter(card)
    return f"{_heading(made)}{made.body}"


def _heading(letter: Letter) -> str:
    lines = {"To": letter.to, "Cc": letter.cc, "Bcc": letter.bcc}
    return (
        "".join(f"{name}: {line}\n" for name, line in lines.items() if line)
        + f"Subject: {letter.subject}\n\n"
    )


@contextmanager
def open_editor(old: Letter) -> Iterator[Letter]:
    """What the person makes of it in their editor. Where it cannot be used, the text is
    kept and its place is told."""
    command = environment.editor(environment.variables())
    if not command:
        raise BadConfig(
            "no editor is named",
            hint="set VISUAL or EDITOR, or use --to, --subject and --body-file",
            reason="editor",
        )
    end = "" if old.body.endswith("\n") else "\n"  # editors end a text with a line break
    with tempfile.NamedTemporaryFile(
        "w", suffix=".txt", prefix="deskhand-", encoding="utf-8", delete=False
    ) as made:
        made.write(f"{_heading(old)}{old.body}{end}")
    file = Path(made.name)
    try:
        yield _run_editor(command, file, end)
    except DeskError as error:
        error.hint = (
            f"{error.hint + '; ' if error.hint else ''}your text is kept in `{file}`"
        )
        raise
    file.unlink()


def _run_editor(command: list[str], file: Path, end: str) -> Letter:
    try:
        code = subprocess.run([*command, str(file)], check=False).returncode
    except OSError as error:
        raise BadConfig(
            f"the editor {command[0]} cannot be started: {error.strerror}",
            hint="set EDITOR",
        ) from error
    if code != 0:
        raise InvalidInput(f"the editor ended with {code}, so nothing was changed")
    try:
        found = _LETTER.match(file.read_bytes().decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise InvalidInput("the edited text is not UTF-8") from error
    if found is None:
        raise InvalidInput(
            "the edited text must begin with To:, Subject: and an empty line"
        )
    to, cc, bcc, subject, body = found.groups(default="")
    edited = Letter(to.strip(), subject.strip(), body, cc.strip(), bcc.strip())
    return replace(edited, body=body.removesuffix(end)) if end else edited
