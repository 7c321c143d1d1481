"""What stands in a request's file: the sealed text of a tool's request, or a draft that may be edited.

A sealed file is bound to one revision of one request by an HMAC over what it says; the key is never in the vault.
A draft is not sealed: the person may edit it, and what they make of it is what they say yes to.
"""

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from deskhand.clock import iso
from deskhand.errors import FieldProblem, InvalidInput, printable
from deskhand.foreign.arguments import shorten_rows
from deskhand.gate.actions import Action, SendEmail, addresses_of
from deskhand.gate.folders import RequestFile
from deskhand.gate.handwritten import is_sealed
from deskhand.gate.letters import trim
from deskhand.gate.links import read_html
from deskhand.gate.question import Question
from deskhand.gate.requests import Request
from deskhand.gate.risk import assess_text
from deskhand.mail.addresses import recipients
from deskhand.notes import frontmatter
from deskhand.notes.markdown import escape, escape_sentence

DRAFT = "email_draft"
"""The type of a draft's file."""
_MEANT = (
    *("type", "action_type", "to", "cc", "bcc", "subject"),
    *("created", "thread_id", "action_id", "digest", "expires", "revision"),
)
"""What the seal covers. Other properties are the person's or a plugin's, and `status` is how the person says yes."""
_YES = ("pending_approval", "approved")
_OVER = ("done", "rejected")
_MESSAGE = re.compile(r"^## Message\n\n(`{3,})text\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
_SEAL_LINE = re.compile(r'\nseal: "[0-9a-f]{64}"\n')
_HOW = "Move this file to Approved/ to say yes, to Rejected/ to say no; nothing has to be edited."
_CHOOSE = (
    "Choose on the desk's page, or with `deskhand respond {} CHOICE`. Move this file to Rejected/ to say that it is"
    " none of them; in Approved/ it chooses nothing."
)
_WISH = "Answer it on the desk's page. A file that is moved or edited is only a wish here."


# A sealed request.


def render_request(request: Request, key: bytes, *, wish: bool = False) -> str:
    """The text of a request's file: always the same for the same revision. As a `wish` moving it is no answer."""
    properties = _properties(request)
    page = _page(request, _WISH if wish else _tell_how(request))
    return frontmatter.render(properties | {"seal": _seal(properties, page, key)}, page)


def is_intact(found: RequestFile, request: Request, key: bytes) -> bool:
    """Whether the file says what the desk wrote for this revision of this request, in whatever spelling."""
    given = found.properties
    named = (given.get("digest"), given.get("revision", 1))
    if not is_sealed_for(found, request) or named != (request.digest, request.revision):
        return False
    status = given.get("status", "approved")
    # What was said no to, the desk marks itself: moved to Approved/ afterwards, it is a yes.
    was_no = status == "rejected" and request.state == "rejected"
    if status not in _YES and not was_no:
        return False
    seal = str(given.get("seal")).encode()
    seals = (_seal(given, found.body, key), _seal_bytes(found.text, key))
    return any(hmac.compare_digest(each.encode(), seal) for each in seals)


def is_file_of(found: RequestFile, request: Request) -> bool:
    """Whether it is the request's, by what it says: its draft, or sealed for it."""
    return found.properties.get("draft_id") == request.id or is_sealed_for(found, request)


def is_sealed_for(found: RequestFile, request: Request) -> bool:
    """Whether it says that it was sealed for this request; an earlier version sealed a
    draft by the id that its mail carries."""
    return found.properties.get("action_id") in (request.id, request.send_id)


def written_revision(found: RequestFile) -> int:
    """The revision that a sealed file says it is of."""
    written = found.properties.get("revision", 1)
    return written if isinstance(written, int) else 1


def read_edit(action: Action, found: RequestFile) -> Action:
    """The mail as the person left it in a sealed file; as it was, where it can no longer be read as a mail."""
    given = found.properties
    changes = {
        key: given[key]
        for key in ("to", "cc", "bcc", "subject")
        if isinstance(given.get(key), str)
    }
    message = _MESSAGE.search(found.text)
    if message:
        changes["body"] = message[2]
    try:
        return action.edit(changes)
    except InvalidInput:
        return action


def fenced(text: str) -> str:
    """As it is, in a fence that nothing inside can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _properties(request: Request) -> dict[str, Any]:
    action = request.action
    found: dict[str, Any] = {
        "type": action.file_type,
        "status": "pending_approval",
        "action_type": action.kind,
        **_heading(action),
        "created": iso(request.created),
    }
    if action.thread_id:
        found["thread_id"] = action.thread_id
    found |= {"action_id": request.id, "digest": request.digest}
    if request.expires:
        found["expires"] = iso(request.expires)
    if request.revision > 1:
        found["revision"] = request.revision
    return found


def _list_arguments(action: Action) -> str:
    rows, unshown = shorten_rows(action.rows)
    listed = [f"{escape(name)}\n\n{fenced(text)}" for name, text in rows]
    if unshown:
        listed.append(f"{unshown:,} more are in the message alone.")
    return "\n\n".join(listed)


def _heading(action: Action) -> dict[str, str]:
    """Who gets it, and what it is about."""
    copies = {name: line for name, line in (("cc", action.cc), ("bcc", action.bcc)) if line}
    return {"to": action.to, **copies, "subject": action.subject}


def _tell_how(request: Request) -> str:
    """How to answer by the file; a yes is none of the choices of a question."""
    action = request.action
    if isinstance(action, Question) and action.choices:
        return _CHOOSE.format(request.id)
    return _HOW


def _page(request: Request, how: str) -> str:
    action = request.action
    parts = [
        f"# {escape(action.question.removesuffix('?'))}?",
        f"{escape(action.about)}\n{how}",
        f"## Message\n\n{fenced(action.body)}",
        "## Risk assessment\n\n"
        + "\n".join(f"- {escape_sentence(line)}" for line in assess_text(action)),
        f"## Rollback plan\n\n{action.way_back}",
    ]
    if seen := read_html(action.body, as_text=action.as_text):
        parts.insert(
            3,
            f"## What a reader sees\n\nIt leaves as HTML. A reader sees this text:\n\n{fenced(seen.text)}",
        )
    if action.html:
        parts.insert(
            3,
            f"## HTML\n\nMost readers see the same text as this page:\n\n{fenced(action.html)}",
        )
    if action.rows:
        parts.insert(2, f"## Arguments\n\n{_list_arguments(action)}")
    if action.attachments:
        parts.insert(
            3,
            "## Attachments\n\n"
            + "\n".join(f"- {escape(each.describe())}" for each in action.attachments),
        )
    if len(action.everybody) > 1:
        parts.insert(2, f"## Who gets it\n\n{_list_recipients(action)}")
    if request.note:
        parts.insert(2, f"## Please look first\n\n{escape_sentence(request.note)}")
    if request.difference:
        parts.append(f"## What was changed\n\n{fenced(request.difference)}")
    return "\n" + "\n\n".join(parts) + "\n"


def _list_recipients(action: Action) -> str:
    """One by one: nobody is overlooked in a long line."""
    lines = {
        "To": action.to,
        "Copy (Cc)": action.cc,
        "Blind copy (Bcc), which the others do not see": action.bcc,
    }
    return "\n".join(
        f"- {name}: {escape(each)}"
        for name, line in lines.items()
        for each in addresses_of(line)
    )


def _seal(properties: Mapping[str, Any], page: str, key: bytes) -> str:
    """Over what is said: quoting, the order of keys and the kind of line ends do not count."""
    meant = [[name, str(properties[name])] for name in _MEANT if name in properties]
    said = json.dumps([meant, page.replace("\r\n", "\n").strip()])
    return hmac.new(key, said.encode(), sha256).hexdigest()


def _seal_bytes(text: str, key: bytes) -> str:
    """As an earlier version sealed a file: over every byte of it but the seal."""
    unsealed = _SEAL_LINE.sub("\n", text, count=1)
    return hmac.new(key, unsealed.encode(), sha256).hexdigest()


# A draft.


def render_draft(request: Request) -> str:
    action = request.action
    properties: dict[str, Any] = {
        "type": DRAFT,
        "status": "pending_approval",
        **_heading(action),
        "reply_to_message_id": action.reply_to_message_id,
        "draft_id": request.id,
        "drafted_by": request.asked_by,
        "drafted_at": iso(request.created),
    }
    if request.urgent:
        properties["priority"] = "urgent"
    if request.warnings:
        properties["warnings"] = list(request.warnings)
    if request.about:
        properties["answers"] = request.about
    return frontmatter.render(properties, action.body)


def is_draft(found: RequestFile) -> bool:
    """Whether it is a mail to be sent as it stands: by its type, or without one by its recipient and subject."""
    given = found.properties
    if "type" in given or is_sealed(given):
        return given.get("type") == DRAFT
    return "to" in given and "subject" in given


def read_draft(found: RequestFile) -> SendEmail:
    """What a draft's file says now. One that is no mail any more is refused with the reason."""
    given = {
        key: found.properties.get(key)
        for key in ("to", "cc", "bcc", "subject", "reply_to_message_id")
    }
    for key, value in given.items():
        if not isinstance(value, str) and (value is not None or key in ("to", "subject")):
            problem = FieldProblem(key, "is missing or no text", printable(value))
            raise InvalidInput(f"the draft's {key} is missing or no text", fields=[problem])
    if given["reply_to_message_id"] == "":
        problem = FieldProblem("reply_to_message_id", "is empty", "")
        raise InvalidInput(
            "the draft's reply_to_message_id is empty",
            hint="name the mail that it answers, or take the line out",
            fields=[problem],
        )
    lines = {
        key: recipients(given[key] or "", key)
        for key in ("to", "cc", "bcc")
        if given[key] or key == "to"
    }
    others = {key: given[key] for key in ("subject", "reply_to_message_id")}
    return SendEmail(body=trim(found.body), **others, **lines)


def demand_open(found: RequestFile) -> None:
    """A draft of which the desk knows nothing is no yes where it says itself that it was sent or refused."""
    status = found.properties.get("status")
    if isinstance(status, str) and status.strip().lower() in _OVER:
        raise InvalidInput(
            f"its status is {status.strip().lower()}: write pending_approval there to have it sent"
        )


def digest_draft_words(letter: Action) -> str:
    """By what an earlier version knew a draft that somebody approved: its words, without account and thread."""
    fields = letter.model_dump(include={"to", "subject", "body", "reply_to_message_id"})
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def rewrite_draft(found: RequestFile, action: Action) -> str:
    """The draft's file with the person's new words; every other byte stays."""
    others = {
        key: value for key, value in found.properties.items() if key not in ("cc", "bcc")
    }
    return frontmatter.rewrite(found.text, others | _heading(action), action.body)
