"""What holds for the repository as a whole: promises have tests, dependencies reasons, names say what they mean."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "deskhand"

PARTICIPLES = {
    *(
        "found",
        "said",
        "told",
        "sent",
        "made",
        "kept",
        "shown",
        "begun",
        "known",
        "taken",
        "seen",
        "left",
        "held",
    ),
    *(
        "lost",
        "put",
        "written",
        "spoken",
        "done",
        "given",
        "gone",
        "heard",
        "lent",
        "driven",
        "rung",
        "built",
        "bound",
    ),
}
NO_PARTICIPLES = {"need", "speed", "feed", "seed", "embed", "heed"}

# What the source may hold at most; a ceiling only ever comes down.
EFFECTS_NAMED_AS_VALUES = 0
PARTICIPLES_IN_100_FUNCTIONS = 2
LAMBDAS_IN_1000_LINES = 3
TERNARIES_IN_1000_LINES = 12
LONG_FUNCTIONS = 5
LINES_OF_A_FUNCTION = 50
LINES_OF_A_GATE_MODULE = 350
LINES_OF_THE_GATE = 200
MODULES_THAT_A_MAIL_PASSES = 14

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_every_promise_has_a_test_and_every_test_cites_a_promise_that_was_made() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    cited = set(re.findall(r'requirement\("([\w:-]+)"\)', sources))

    assert sorted(set(REQUIREMENTS) - cited) == []
    assert sorted(cited - set(REQUIREMENTS)) == []


def test_every_dependency_has_its_reason_in_a_decision() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    named = sum(groups, project["project"]["dependencies"])
    names = [re.split(r"[\[<>=]", name)[0] for name in named]
    decisions = "\n".join(
        path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md")
    ).lower()

    assert [name for name in names if name.lower() not in decisions] == []


def test_no_committed_file_names_a_registry_or_a_folder_of_some_machine() -> None:
    hosts = [
        "pypi" + ".org",
        "python" + "hosted.org",
        "registry.npm" + "js.org",
        "deb.debian" + ".org",
    ]
    homes = re.compile("/" + r"(root|home/\w+|Users/\w+|work)/")

    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in tracked()
        for line in path.read_text(errors="replace").splitlines()
        if any(host in line for host in hosts) or homes.search(line)
    ]

    assert found == []


def test_every_lock_is_hashed_and_the_desk_has_its_own() -> None:
    packages = {}
    for file in (ROOT / "locks").glob("*.lock"):
        blocks = re.split(r"\n(?=\S)", file.read_text().strip())
        assert [
            block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block
        ] == []
        packages[file.stem] = {re.match(r"[a-z0-9-]+(?===)", block)[0] for block in blocks}

    assert sorted(packages) == [
        "desk",
        "dev",
        "documents",
        "installer",
        "notify",
        "postgresql",
    ]
    assert len(packages["desk"] | packages["dev"]) > 80
    assert not packages["desk"] & {"psycopg", "greenlet", "apprise", "pytest", "mypy", "uv"}


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deskhand", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert re.fullmatch(r"deskhand \d+\.\d+\.\d+\n", done.stdout)


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    trees = {
        str(file.relative_to(SOURCE)): ast.parse(file.read_text())
        for file in sorted(SOURCE.rglob("*.py"))
    }
    return [(file, node) for file, tree in trees.items() for node in ast.walk(tree)]


def functions() -> Iterator[tuple[str, Function]]:
    return ((file, node) for file, node in nodes() if isinstance(node, Function))


def test_decisions_are_numbered_one_after_the_other() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    for number, file in enumerate(files, start=1):
        assert file.name.startswith(f"{number:04}-"), file.name
        assert file.read_text().startswith(f"# {number}. "), file.name


def test_every_program_of_bench_and_torture_still_loads() -> None:
    """They run too seldom for anybody to notice that a name they use is gone."""
    files = [
        file.relative_to(ROOT)
        for folder in ("bench", "torture")
        for file in (ROOT / folder).glob("*.py")
    ]
    names = ", ".join(".".join(file.with_suffix("").parts) for file in sorted(files))
    done = subprocess.run(
        [sys.executable, "-c", f"import {names}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in PARTICIPLES or (
        "_" not in word and word.endswith("ed") and word not in NO_PARTICIPLES
    )


def has_effects(function: Function) -> bool:
    """A function that waits, or works in a transaction, does something."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return isinstance(function, ast.AsyncFunctionDef) or "tx" in {
        each.arg for each in arguments
    }


def test_a_function_that_does_something_is_not_named_as_a_value() -> None:
    every = list(functions())
    named = [(file, each) for file, each in every if is_participle(each.name)]
    wrong = [
        f"{file}:{each.lineno} {each.name}" for file, each in named if has_effects(each)
    ]

    assert len(wrong) <= EFFECTS_NAMED_AS_VALUES, wrong
    assert 100 * len(named) / len(every) <= PARTICIPLES_IN_100_FUNCTIONS, [
        each.name for _, each in named
    ]


def test_one_class_name_means_one_thing() -> None:
    found = Counter(node.name for _, node in nodes() if isinstance(node, ast.ClassDef))

    assert {name for name, times in found.items() if times > 1} == set()


def test_lambdas_and_ternaries_stay_rare() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py"))
    found = Counter(type(node) for _, node in nodes())

    assert 1000 * found[ast.Lambda] / lines <= LAMBDAS_IN_1000_LINES
    assert 1000 * found[ast.IfExp] / lines <= TERNARIES_IN_1000_LINES


def test_a_function_fits_a_screen() -> None:
    long = [
        f"{file}:{each.lineno} {each.name}"
        for file, each in functions()
        if _count_lines(each) > LINES_OF_A_FUNCTION
    ]

    assert len(long) <= LONG_FUNCTIONS, long


def _count_lines(function: Function) -> int:
    """Without the docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    first = function.body[0]
    return lines - ((first.end_lineno or 0) - first.lineno + 1)


def test_each_module_of_the_gate_is_read_at_one_sitting() -> None:
    lengths = {
        file.name: len(file.read_text().splitlines())
        for file in (SOURCE / "gate").glob("*.py")
    }

    assert lengths["__init__.py"] < LINES_OF_THE_GATE
    assert {
        name: lines for name, lines in lengths.items() if lines > LINES_OF_A_GATE_MODULE
    } == {}


def test_the_architecture_names_the_modules_that_a_mail_passes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate.walk"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    passed = done.stdout.splitlines()
    told = (ROOT / "ARCHITECTURE.md").read_text()
    _, found, paragraph = told.partition("**A mail that an assistant asks for**")
    named = re.findall(r"`(\w+/\w+\.py)`", paragraph.split("\n\n")[0])

    assert found
    assert sorted(named) == sorted(passed)
    assert len(passed) <= MODULES_THAT_A_MAIL_PASSES
