"""What the two mail servers have in common: their arguments' descriptions, and how a call goes on the record."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

from mcp_types import ToolAnnotations
from pydantic import Field

from deskhand.app import Desk
from deskhand.audit import Result, masked, short_text
from deskhand.errors import FieldProblem, InvalidInput
from deskhand.gate import Outcome, Released
from deskhand.gate.actions import MOST_RECIPIENTS
from deskhand.mail import MailSummary
from deskhand.mail.mailboxes import MailView, account_of, find_kind, viewing
from deskhand.servers.calls import Call, Recorder
from deskhand.wording import STAYS_HERE

SENDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)
DRAFTS = ToolAnnotations(
    read_only_hint=False,
    destructive_hint=False,
    idempotent_hint=False,
    open_world_hint=True,
)
FETCHES = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
FILES = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)

To = Annotated[str, Field(description="Recipient email address")]
Subject = Annotated[str, Field(max_length=998, description="Email subject line")]

_TARGETS = ("to", "message_id", "query")
_ADDRESSES = ("to", "cc", "bcc")
# Of an unknown argument nobody knows what is in it, so only these are ever written down.
_LONGEST_ADDRESS = 1000
_RECORDED = frozenset(
    (
        *_TARGETS,
        *_ADDRESSES,
        "thread_id",
        "subject",
        "max_results",
        "reply_to_message_id",
        "destination_label",
        "label_name",
        "do",
        "label",
        "account",
    ),
)


def mail_recorder(desk: Desk, actor: str) -> Recorder:
    """Writes to the record and to the vault's log: which mail and which words were asked for, but no body."""

    async def record(call: Call) -> None:
        given = {
            key: value
            for key, value in call.arguments.items()
            if key in _RECORDED and value is not None
        }
        kept = {key: _redact_argument(key, value) for key, value in given.items()}
        target = _name_target(kept)
        result: Result | None = None
        if call.tool == "draft_email" and call.error is None and desk.settings.sending_off:
            result = "dev_mode"
        entry = (
            actor,
            call.tool,
            target,
            call.with_client(kept),
            call.error,
            call.milliseconds,
        )
        await desk.record(*entry, result=result, in_vault=True)

    return record


def _name_target(kept: Mapping[str, Any]) -> Any:
    """What a call is about; a thread is named as the gate names it."""
    if "thread_id" in kept:
        return f"thread {kept['thread_id']}"
    return next((kept[key] for key in _TARGETS if key in kept), "-")


def _redact_argument(key: str, value: Any) -> Any:
    if key not in _ADDRESSES:
        return value
    named = value if isinstance(value, list) else [value]
    return ", ".join(map(_mask_argument, named[:MOST_RECIPIENTS]))


def _mask_argument(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    # What is longer is none, and the entry has its beginning.
    return short_text(text) if len(text) > _LONGEST_ADDRESS else masked(text)


def account_names(desk: Desk) -> tuple[str, ...]:
    return tuple(account.name for account in desk.settings.mail_accounts)


def view_account_of(*mails: MailSummary) -> AbstractContextManager[MailView]:
    """What follows happens in the account that has the mails, and no other; they lie in one."""
    names = frozenset(name for name in map(account_of, mails) if name)
    if len(names) > 1:
        message = (
            "What waits for the person lies in one account: name it, and ask for each."
        )
        raise InvalidInput(message, fields=[FieldProblem("account", message)])
    return viewing(MailView(names)) if names else nullcontext(MailView())


async def stays_here(desk: Desk, outcome: Outcome) -> str | None:
    """What is to be said of a mail that reaches nobody."""
    if (
        not isinstance(outcome, Released)
        or await find_kind(desk.mailbox, desk.settings, outcome.action.account) != "local"
    ):
        return None
    return STAYS_HERE


def one_line(text: str) -> str:
    """What a stranger wrote stays on its line and cannot pass for another result or header."""
    return " ".join(text.split())
