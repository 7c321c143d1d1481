"""A desk as the version before requests left it: its rows, its files, and what its mailbox knows of them.

There was a table for what tools proposed (`actions`), one for drafts, and `holds` and `snoozes` beside both. The file
of a mail that was being sent lay in Approved/.sending/. The forms were read off a desk that that version had made.
"""

import hmac
import json
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from deskhand.clock import iso, to_ms
from deskhand.gate.actions import Mail, compose
from deskhand.mail import Sent
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes import frontmatter
from tests.home import Home
from tests.mail.letters import unwritten
from tests.old_database import database_at

ME = "me@example.com"
MAY_HAVE_LEFT = (
    "This mail may have been sent already (the mailbox did not say). Look into your Sent folder. To send it once more,"
    " move this file to Approved/; to leave it at that, to Rejected/."
)
_KEY = "a-key-for-tests"
_PAGE = """
# Send to {to}?

It would leave from me@example.com, exactly as it stands here.
Move this file to Approved/ to say yes, to Rejected/ to say no; nothing has to be edited.

## Message

```text
{body}
```

## Rollback plan

Before it left: move this file to Rejected/. Afterwards only a second mail can correct it.
"""


def name_of(word: str) -> str:
    """The id of the action for a word that a test calls it by."""
    return sha256(word.encode()).hexdigest()[:16]


def mail_of(word: str) -> Mail:
    return Mail(
        kind="send_email",
        account=ME,
        to=f"{word}@example.org",
        subject=word,
        body=f"About {word}.\n",
    )


def draft_of(word: str) -> str:
    return f"draft-{name_of(word)}"


@dataclass
class OldDesk:
    home: Home
    url: str
    now: datetime
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.path.mkdir(parents=True)
        (self.home.path / "seal.key").write_text(_KEY)
        self.mailbox = LocalMailbox(self.home.path / "mail.db", ME, lambda: self.now)

    def save(self) -> None:
        mark = "?" if self.url.startswith("sqlite") else "%s"
        with database_at(self.url, "0009") as connection:
            for table, row in self.rows:
                marks = ", ".join(mark for _ in row)
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})",
                    [*row.values()],
                )

    # What tools proposed.

    def propose(
        self,
        word: str,
        state: str = "waiting",
        folder: str | None = "Pending_Approval",
        **more: Any,
    ) -> Mail:
        mail = mail_of(word)
        row = self._act(word, mail, state, **more)
        if folder is not None:
            self._seal(folder, row, mail)
        return mail

    def _act(self, word: str, mail: Mail, state: str, **more: Any) -> dict[str, Any]:
        revision = more.get("revision", 1)
        ending = f"-{revision}" if revision > 1 else ""
        row = {
            "id": name_of(word),
            "asked": mail.digest,
            "action": mail.model_dump_json(exclude={"as_text"}),
            "state": state,
            "revision": revision,
            "file": f"email-send-{name_of(word)}{ending}.md",
            "created": to_ms(self.now - timedelta(hours=1)),
            "expires": to_ms(self.now + timedelta(days=7)),
            "asked_by": "email_mcp",
            "recipient": mail.to,
        }
        self.rows.append(("actions", row | more))
        return row | more

    def _seal(self, folder: str, row: dict[str, Any], mail: Mail) -> None:
        properties = {
            "type": "email_send",
            "status": "pending_approval",
            "action_type": "send_email",
            "to": mail.to,
            "subject": mail.subject,
            "created": iso(self.now),
            "action_id": row["id"],
            "digest": mail.digest,
            "expires": iso(self.now + timedelta(days=7)),
        }
        if row["revision"] > 1:
            properties["revision"] = row["revision"]
        text = frontmatter.render(properties, _PAGE.format(to=mail.to, body=mail.body))
        seal = hmac.new(_KEY.encode(), text.encode(), sha256).hexdigest()
        opening, _, rest = text.partition("\n---\n")
        self.write(
            folder,
            row["file"],
            f'{opening}\nseal: "{seal}"\n---\n{rest}',
            claimed_by=row["id"],
        )

    # Drafts.

    async def draft(
        self, word: str, folder: str | None = "Drafts", body: str | None = None, **more: Any
    ) -> Mail:
        """A draft that answers a mail of its own; `body` is what the person made of it in its file."""
        mail = await self.receive(word)
        letter = {"to": mail.to, "subject": mail.subject, "body": mail.body}
        letter["reply_to_message_id"] = mail.reply_to_message_id or ""
        key = f"mail:local:{mail.reply_to_message_id}"
        state = more.pop("step", "drafted")
        drafted: dict[str, Any] = {
            "id": draft_of(word),
            "mail": key,
            "sender": mail.to,
            "proposed": json.dumps(letter),
        }
        drafted |= {
            "created": to_ms(self.now - timedelta(hours=1)),
            "drafted_by": "rule:x",
            "reason": "why",
        }
        self.rows.append(("drafts", drafted | {"account": ME, "warnings": "[]"} | more))
        facts: dict[str, Any] = {
            "message_id": mail.reply_to_message_id,
            "note": f"email-{word}.md",
            "sender": mail.to,
        }
        facts |= {
            "letter": letter,
            "draft_id": draft_of(word),
            "drafts": 1,
            "warnings": [],
            "filed": False,
        }
        facts |= {
            "decided_by": "rule:x",
            "decided_at": iso(self.now),
            "proposed": None,
            "words": None,
        }
        self.add_step(key, "mail", state, facts)
        if folder is not None:
            self.write_draft(
                folder, word, mail.model_copy(update={"body": body or mail.body})
            )
        return mail

    async def receive(self, word: str) -> Mail:
        """The answer to a mail that has just come."""
        lines = f"From: {word}@example.org\nTo: {ME}\nSubject: {word}\nMessage-ID: <{word}@example.org>\n\nWell?\n"
        await self.mailbox.receive([Incoming(lines.encode(), seen=True)])
        (found,) = await self.mailbox.search(f"from:{word}@example.org", 2)
        return Mail(
            kind="send_email",
            account=ME,
            to=f"{word}@example.org",
            subject=f"Re: {word}",
            body=f"About {word}.\n",
            thread_id=found.thread_id,
            reply_to_message_id=found.id,
            in_reply_to=f"<{word}@example.org>",
            references=(f"<{word}@example.org>",),
        )

    def release(self, word: str, mail: Mail, state: str, **more: Any) -> dict[str, Any]:
        """The gate's row for a draft that is leaving."""
        row = self._act(
            word,
            mail,
            state,
            **{"decided_by": "approved draft", "asked_by": "gmail_mcp"} | more,
        )
        used = {
            "content": f"email_draft:{draft_of(word)}",
            "action_id": row["id"],
            "at": to_ms(self.now),
        }
        self.rows.append(("used_approvals", used))
        self.rows.append(
            (
                "sends",
                {"action_id": row["id"], "at": to_ms(self.now - timedelta(minutes=9))},
            )
        )
        return row

    def ask_again(
        self, word: str, mail: Mail, state: str, folder: str, **more: Any
    ) -> None:
        """Nobody knew whether the draft had left, so the person was asked with a sealed file."""
        row = self.release(
            word,
            mail,
            state,
            **self.begun(token="lost", revision=2) | {"lease": None} | more,
        )
        self._seal(folder, row, mail)
        self.write_draft("Done", word, mail, status="unknown")

    def write_draft(self, folder: str, word: str, mail: Mail, **more: str) -> None:
        properties = {
            "type": "email_draft",
            "status": "pending_approval",
            "to": mail.to,
            "subject": mail.subject,
        }
        properties |= {
            "reply_to_message_id": mail.reply_to_message_id or "",
            "draft_id": draft_of(word),
        }
        properties |= {
            "drafted_by": "rule:x",
            "drafted_at": iso(self.now),
            "answers": f"email-{word}.md",
        }
        text = frontmatter.render(properties | more, mail.body)
        self.write(folder, f"reply-{name_of(word)}.md", text, claimed_by=name_of(word))

    # Around both.

    def begun(self, token: str | None, *, over: bool = True, **more: Any) -> dict[str, Any]:
        """The columns of a mail that somebody has begun to send."""
        lease = self.now - timedelta(minutes=1) if over else self.now + timedelta(minutes=1)
        return {"frozen": to_ms(self.frozen), "lease": to_ms(lease), "token": token} | more

    @property
    def frozen(self) -> datetime:
        return self.now - timedelta(minutes=9)

    async def prepare(self, word: str, mail: Mail) -> str:
        return await self.mailbox.prepare(compose(mail, name_of(word), self.frozen))

    async def send(self, word: str, mail: Mail) -> str:
        """It left, and the process died before it could write that down."""
        token = await self.prepare(word, mail)
        sent = await self.mailbox.send(
            token, compose(mail, name_of(word), self.frozen), unwritten
        )
        assert isinstance(sent, Sent)
        return token

    def hold(self, name: str, digest: str, **more: Any) -> None:
        row = {
            "id": name,
            "digest": digest,
            "decided_by": "person",
            "until": to_ms(self.now + timedelta(seconds=10)),
        }
        self.rows.append(("holds", row | more))

    def snooze(self, name: str) -> None:
        self.rows.append(
            ("snoozes", {"id": name, "until": to_ms(self.now + timedelta(days=1))})
        )

    def correct(self, word: str, reason: str) -> None:
        """The orchestrator has seen the person's no."""
        row = {
            "draft_id": draft_of(word),
            "kind": "rejected",
            "sender": f"{word}@example.org",
            "text": reason,
        }
        self.rows.append(("corrections", row | {"at": to_ms(self.now)}))

    def add_step(
        self, key: str, kind: str, state: str, data: dict[str, Any], **more: Any
    ) -> None:
        row = {
            "key": key,
            "kind": kind,
            "state": state,
            "data": json.dumps(data),
            "lease": 0,
            "tried": 0,
        }
        self.rows.append(
            ("steps", row | {"attempts": 0, "created": to_ms(self.now)} | more)
        )

    def write(self, folder: str, name: str, text: str, *, claimed_by: str) -> Path:
        place = self.home.vault / folder
        place.mkdir(parents=True, exist_ok=True)
        file = place / (f"{claimed_by} {name}" if folder.endswith(".sending") else name)
        file.write_text(text)
        written = self.now.timestamp() - 60
        os.utime(file, (written, written))
        return file


def digest_words(mail: Mail, body: str | None = None) -> str:
    """By what that version knew a draft that somebody approved."""
    fields = {"to": mail.to, "subject": mail.subject, "body": body or mail.body}
    fields["reply_to_message_id"] = mail.reply_to_message_id or ""
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
