import shutil
import subprocess

import pytest

from deskhand.cli import parser
from tests.requirements import requirement
from tests.setup.account import Account

ASKED = [
    ("deskhand ", {"mcp", "up", "doctor", "notes"}),
    ("deskhand do", {"doctor"}),
    ("deskhand mcp ", {"email", "gmail", "obsidian", "tasks", "agentmail"}),
    ("deskhand notes ", {"index", "search", "list"}),
    ("deskhand notes search --", {"--limit", "--json", "--help"}),
    (
        "deskhand connect --server email c",
        {"codex", "claude-code", "claude-desktop", "cursor"},
    ),
    (
        "deskhand connect codex --server ",
        {"desk", "email", "gmail", "obsidian", "tasks", "agentmail"},
    ),
    ("deskhand completion f", {"fish"}),
    ("deskhand backup ba", {"backup.file"}),
]


@requirement("completion:shells")
@pytest.mark.parametrize(("typed", "wanted"), ASKED)
def test_bash_completes_commands_choices_flags_and_files(
    account: Account, typed: str, wanted: set[str]
) -> None:
    script = account.deskhand("completion", "bash").out
    (account.folder / "backup.file").touch()
    words = typed.split(" ")
    ask = (
        f"{script}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
        '_deskhand\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )

    done = subprocess.run(
        ["bash", "--norc", "-u"],
        input=ask,
        capture_output=True,
        text=True,
        check=True,
        cwd=account.folder,
    )

    found = set(done.stdout.split())
    assert done.stderr == ""
    assert wanted <= found
    assert all(word.startswith(words[-1]) for word in found)


@requirement("completion:shells")
def test_every_command_is_known_to_every_shell(account: Account) -> None:
    names = {
        name for action in parser()._subparsers._group_actions for name in action.choices
    }

    for shell in ("bash", "zsh", "fish"):
        script = account.deskhand("completion", shell).out
        assert [name for name in names if name not in script] == []


@requirement("completion:shells")
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_take_the_script(account: Account, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = account.folder / "script"
    script.write_text(account.deskhand("completion", shell).out)

    done = subprocess.run(
        [shell, "-n", str(script)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@requirement("completion:shells")
def test_fish_completes_commands_and_their_words(account: Account) -> None:
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    script = account.folder / "script"
    script.write_text(account.deskhand("completion", "fish").out)
    asked = f"source {script}; complete -C 'deskhand appr'; complete -C 'deskhand connect --server e'"

    done = subprocess.run(
        ["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=False
    )

    assert (done.stdout.split(), done.stderr) == (["approvals", "approve", "email"], "")
