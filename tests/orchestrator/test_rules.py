"""The person's rules for mail as a file: what is wrong in it is said, and a rule that is added changes nothing else."""

import re
from pathlib import Path

import pytest

from deskhand.errors import BadConfig
from deskhand.orchestrator.rules import FILE, Rule, add_rule, load_rules
from tests.requirements import requirement

ONE = '[[rule]]\nname = "a"\nsubject = "a"\ndecision = "archive"\n'
DEEP = ("a = " + "[" * 5000, "a = " + "{b = " * 5000, "a = " + "[" * 5000 + "]" * 5000)


@requirement("orchestrator:rules")
@pytest.mark.parametrize("text", DEEP, ids=["lists", "tables", "closed"])
def test_rules_that_are_nested_without_end_are_an_error_that_names_the_file(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / FILE).write_text(text)

    with pytest.raises(BadConfig, match=r"rules\.toml.*nested") as refused:
        load_rules(tmp_path)
    assert refused.value.hint


@requirement("doctor:rules")
def test_of_thousands_of_wrong_rules_the_first_are_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[[rule]]\nnam = "x"\n' * 3000)

    with pytest.raises(BadConfig) as refused:
        load_rules(tmp_path)

    said = refused.value.message
    assert "line 1: rule 1, name" in said
    assert said.count("; ") == 20
    assert said.endswith("more")


@requirement("doctor:rules")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('subjct = "y"', "line 5: rule 1, subjct: there is no such word here"),
        ("domain = 3", "line 5: rule 1, domain: is no text"),
        ('list_mail = "maybe"', "line 5: rule 1, list_mail: is neither true nor false"),
    ],
)
def test_what_is_wrong_in_a_rule_is_said_in_plain_words(
    tmp_path: Path, line: str, said: str
) -> None:
    (tmp_path / FILE).write_text(f"{ONE}{line}\n")
    with pytest.raises(BadConfig, match=re.escape(said)):
        load_rules(tmp_path)

    (tmp_path / FILE).write_text('[[rule]]\nname = "a"\ndecision = "archve"\n')
    with pytest.raises(BadConfig, match="rule 1, decision: is none of 'draft_reply'"):
        load_rules(tmp_path)


@requirement("orchestrator:rules")
@pytest.mark.parametrize("end", ["# the end", "# the end\n", ""])
def test_a_rule_is_added_behind_whatever_the_file_ends_with(
    tmp_path: Path, end: str
) -> None:
    (tmp_path / FILE).write_text(f"{ONE}{end}")

    add_rule(tmp_path, Rule(name="b", subject="b", decision="archive"))

    assert [rule.name for rule in load_rules(tmp_path).rule] == ["a", "b"]
    assert (tmp_path / FILE).read_text().startswith(f"{ONE}{end}")


@requirement("orchestrator:rules")
def test_the_line_ends_of_a_file_stay_when_a_rule_is_added(tmp_path: Path) -> None:
    before = ONE.replace("\n", "\r\n").encode()
    (tmp_path / FILE).write_bytes(before)

    add_rule(tmp_path, Rule(name="b", subject="b", decision="archive"))

    assert (tmp_path / FILE).read_bytes().startswith(before)
    assert [rule.name for rule in load_rules(tmp_path).rule] == ["a", "b"]
