"""What a person reads for each code of the desk: one table for the page, the terminal, the vault and the record.

Programs read the codes themselves (`--json`, MCP, file properties, addresses of pages). Here each has one name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from deskhand.askers import describe_asker
from deskhand.errors import MCPErrorCode

STATES = {
    "waiting": "waiting",
    "snoozed": "snoozed",
    "held": "approved",
    "approved": "approved",
    "sending": "sending",
    "sent": "sent",
    "unknown": "unclear",
    "rejected": "rejected",
    "expired": "expired",
    "withdrawn": "withdrawn",
    "failed": "not sent",
}
"""Of a request. A hold is a yes that can be undone: the person said yes, and that is what they read."""
_DONE = {"sending": "under way", "sent": "done", "failed": "not done"}
_ANSWERED = {"sent": "answered"}
_UNSENT = {
    "update_emails": _DONE,
    "unsubscribe": _DONE,
    "call_tool": _DONE,
    "ask_person": _DONE | _ANSWERED,
}
"""By kind: what is no mail is not sent."""

MAILS = {
    "arrived": "new",
    "decided": "being filed",
    "archived": "archived",
    "needs_info": "to decide",
    "delegated": "to decide",
    "handed": "with an assistant",
    "continued": "behind a newer mail",
    "drafted": "reply drafted",
    "answered": "answered",
    "rejected": "reply rejected",
}
"""Of a mail that came in."""

_LABELS = frozenset(
    {"INBOX", "UNREAD", "STARRED", "IMPORTANT", "SENT", "DRAFT", "TRASH", "SPAM"}
)
"""Of a mailbox itself; any other label the person or a program made."""

RESULTS = {
    "success": "done",
    "waiting": "waiting",
    "rejected": "refused",
    "rate_limited": "over the limit",
    "error": "failed",
    "dev_mode": "sending is off",
}
"""How something ended, on the record."""

LOCAL = "this desk works on a local mailbox, which reaches nobody."
STAYS_HERE = f"It stays on this machine: {LOCAL}"
"""Of a mail that was sent there."""

_ACTIONS = {
    # What the person said to a request.
    "held": "Approved",
    "approved": "Approved",
    "rejected": "Rejected",
    "edited": "Edited",
    "responded": "Sent back with a note",
    "snoozed": "Snoozed",
    "woken": "Brought back",
    "undone": "Undone",
    "permitted": "Permitted from now on",
    "expired": "Expired",
    "replied": "Answered",
    # What was asked for.
    "send_email": "Send a mail",
    "reply_email": "Reply to a mail",
    "forward_email": "Forward a mail",
    "draft_email": "Draft a mail",
    "update_emails": "Change mails",
    "unsubscribe": "Leave a list",
    "call_tool": "Call a tool",
    "ask_person": "Ask the person",
    "answer": "Prove an answer",
    "bring_in": "Bring in mail",
    "connect": "Connect",
    "decide_mail": "Decide about a mail",
    "follow_up": "Wait for an answer",
    "cancel_follow_up": "Wait for an answer no more",
    "mark_task_completed": "Complete a task",
    "reply_to_mail": "Begin a reply",
    "search": "Search",
    "undo_task_change": "Undo a change of a task",
}
"""What was done. What is not here is named by its own words."""

_DECISIONS = {
    "replied": "Begin a reply",
    "archived": "Archive",
    "later": "Put off",
    "handed": "Give to an assistant",
    "undone": "Take a decision back",
    "back": "Bring back",
    "answered": "Answered elsewhere",
    "trashed": "Trashed elsewhere",
    "spam": "Put into spam elsewhere",
    "deleted": "Deleted elsewhere",
}
"""What was decided about a mail that came in."""

_ACTORS = {
    "claude_mcp": "Claude Code, for its own tools",
    "desk_mcp": "assistants, at the whole desk",
    "email_mcp": "assistants, at the mail",
    "gmail_mcp": "assistants, at Gmail",
    "guard_mcp": "assistants, at other servers",
    "obsidian_mcp": "assistants, at the notes",
    "tasks_mcp": "assistants, at the tasks",
    "agentmail_mcp": "assistants, at messages",
    "tasks_api": "programs, at the tasks",
    "tasks_cli": "you, in the terminal",
    "follow_up": "the desk, for your follow-ups",
    "orchestrator": "the desk, for your mail",
}
_CODE = re.compile(rf"^(?:{'|'.join(get_args(MCPErrorCode))}): (?=.)", re.DOTALL)

_MAIL = re.compile(
    r"(?P<kind>thread )?(?:(?P<account>[^\s~/]{1,60})~)?(?:[mt][0-9a-f]{6,20}|[0-9a-f]{16})"
)
"""The id of a mail or of a thread, as Gmail and the desk's own mailbox make them."""
_TOOL = re.compile(r"(?P<server>[\w.-]{1,60})/(?P<tool>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)")


def name_state(state: str, kind: str = "send_email") -> str:
    """The state of a request of that kind."""
    return _UNSENT.get(kind, {}).get(state) or STATES[state]


def name_label(label: str) -> str:
    """The label of a mail: one of the mailbox itself in plain letters."""
    if label in _LABELS:
        return label.lower()
    if label.startswith("CATEGORY_"):
        return spaced(label.removeprefix("CATEGORY_").lower())
    return label


def name_result(result: str) -> str:
    return RESULTS.get(result) or spaced(result)


def name_action(action: str) -> str:
    """What was done; of a tool that only another server knows its own name, in words."""
    words = _ACTIONS.get(action)
    if words is None:
        words = spaced(action)
        words = f"{words[:1].upper()}{words[1:]}"
    return words


def name_deed(action: str, parameters: Mapping[str, Any]) -> str:
    """The same of a line of the record, which knows what was decided, and of what an assistant was only told."""
    if parameters.get("told") is True:
        return f"{name_action(action)}, asked again: it was done before"
    decided = parameters.get("done") if action == "decide_mail" else None
    return _DECISIONS.get(str(decided)) or name_action(action)


def name_actor(actor: str) -> str:
    """Whoever acts by that name on the record, all of them together."""
    return _ACTORS.get(actor) or describe_asker(None, actor)


def name_target(target: str) -> str:
    """What a line of the record is about: a tool, a mail or a conversation in words,
    anything else as it stands."""
    if found := _MAIL.fullmatch(target):
        kind = "conversation" if found["kind"] else "mail"
        account = found["account"]
        return f"a {kind} in {account}" if account else f"a {kind}"
    if found := _TOOL.fullmatch(target):
        return f"{spaced(found['tool'])}, of {found['server']}"
    return target


def find_mail(target: str) -> tuple[str, str] | None:
    """Whether a line of the record is about a mail or a thread, and its id; None where
    it is about neither."""
    if not (found := _MAIL.fullmatch(target)):
        return None
    return "thread" if found["kind"] else "mail", target.removeprefix("thread ")


def name_mails(counts: Mapping[str, int]) -> dict[str, int]:
    """How many mails have each name; two states that are one to a person are counted together."""
    found: dict[str, int] = {}
    for state, count in counts.items():
        name = MAILS.get(state) or spaced(state)
        found[name] = found.get(name, 0) + count
    return found


def name_choices(codes: Iterable[str], name: Callable[[str], str]) -> list[tuple[str, str]]:
    """Each code with its name, by name: what a list offers."""
    return sorted(
        ((code, name(code)) for code in codes), key=lambda each: each[1].casefold()
    )


def plain_error(error: str) -> str:
    """An error of the record without the code that it begins with."""
    return _CODE.sub("", error)


def begin_small(sentence: str) -> str:
    """A sentence as it goes on after a colon; a name in capitals keeps them."""
    if sentence[1:2].isupper():
        return sentence
    return f"{sentence[:1].lower()}{sentence[1:]}"


def quoted(words: str) -> str:
    """Somebody's words as the end of a sentence, with one full stop."""
    words = words.strip()
    stop = "" if words.endswith((".", "!", "?", "…")) else "."
    return f"“{words}”{stop}"


def spaced(code: str) -> str:
    return code.replace("_", " ")
