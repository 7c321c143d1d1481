"""The person's rules for mail as a file: what is wrong in it is said, and a rule that is added changes nothing else."""

import re
from pathlib import Path

import pytest

from deskhand import audit
from deskhand.errors import BadConfig
from deskhand.mail.changes import Deed
from deskhand.mail.local import Incoming
from deskhand.orchestrator import steps
from deskhand.orchestrator.loop import Orchestrator
from deskhand.orchestrator.rules import FILE, Rule, add_rule, load_rules
from deskhand.store import Transaction
from tests.mail.letters import letter
from tests.orchestrator.office import Office, local
from tests.requirements import requirement

ONE = '[[rule]]\nname = "a"\nsubject = "a"\ndecision = "archive"\n'
OTHER = '[[rule]]\nname = "b"\nlist_mail = true\nleave_inbox = true\ndecision = "needs_info"\ninfo_needed = "?"'
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
        (OTHER, "rule 2: leave_inbox is for the decision archive alone"),
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


LEAVING = """
[[rule]]
name = "shop"
sender = "shop@example.org"
decision = "archive"
leave_inbox = true

[[rule]]
name = "club"
sender = "club@example.org"
decision = "archive"
"""


def offers() -> list[Incoming]:
    return [
        Incoming(
            letter(sender=sender, subject=sender, message_id=f"<{sender}>"), seen=False
        )
        for sender in ("shop@example.org", "club@example.org")
    ]


@pytest.mark.anyio
@requirement("orchestrator:leave-inbox")
async def test_what_such_a_rule_archives_leaves_the_inbox_and_what_another_archives_stays(
    office: Office,
) -> None:
    (office.home.path / FILE).write_text(LEAVING)
    desk = office.desk()
    await local(desk).receive(offers())
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    left = [mail.subject for mail in await desk.mailbox.search("in:inbox", 9)]
    (shop,) = await desk.mailbox.search("from:shop", 9)

    assert left == ["club@example.org"]
    assert "AI_PROCESSED" in shop.labels
    assert len(office.files("Done")) == 2
    entries = [entry for _, entry in await desk.store.read(audit.entries)]
    told = [
        (each.target, each.parameters) for each in entries if each.actor == "orchestrator"
    ]
    assert told == [(shop.id, {"done": "archived", "by": "rule:shop"})]

    # The same step once more, as after a kill before anything was written down of it.
    def begin_again(tx: Transaction, *, leaves: bool) -> None:
        for step in steps.in_states(tx, ("archived",), 9):
            data = step.data.model_copy(update={"leaves_inbox": leaves})
            tx.execute(
                "UPDATE steps SET state = 'decided', due = 0, data = ? WHERE key = ? AND data LIKE '%rule:shop%'",
                *(data.model_dump_json(), step.key),
            )

    await desk.store.write(begin_again, leaves=True)
    await orchestrator.once()
    assert "INBOX" not in (await desk.mailbox.list_mails([shop.id]))[0].labels

    # And where it was written down, and the person has taken the mail back into the inbox meanwhile.
    await desk.mailbox.change([shop.id], Deed("unarchive"))
    await desk.store.write(begin_again, leaves=False)
    await orchestrator.once()
    assert "INBOX" in (await desk.mailbox.list_mails([shop.id]))[0].labels
    await orchestrator.close()
    await desk.close_mailbox()
    desk.close()


@pytest.mark.anyio
@requirement("orchestrator:leave-inbox")
async def test_while_nothing_may_leave_the_desk_such_a_mail_stays_and_that_is_said(
    office: Office,
) -> None:
    (office.home.path / FILE).write_text(LEAVING)
    desk = office.desk(DEV_MODE="true")
    await local(desk).receive(offers())
    orchestrator = Orchestrator(desk)
    await orchestrator.once()
    troubles = await desk.store.read(steps.troubles, 9)
    kept = await desk.mailbox.search("in:inbox", 9)
    await orchestrator.close()
    await desk.close_mailbox()
    desk.close()

    assert len(kept) == 2
    assert [each.error for each in troubles] == [
        "inbox: DEV_MODE is on: it stays in the inbox"
    ]
