"""One table for what waits: proposed mails and drafts become requests, each with its answers.

Nothing is sent or decided here, and the vault is not looked at: what the person did with a file is heard at the first
look, as ever. A draft's words may have been edited in its file, and its thread was not written down; a yes to one names
the words alone, and the first look finds out whether the file still says them.
"""

import json
from hashlib import sha256
from typing import Any

from deskhand.store import Row, Transaction

_REQUESTS = """
    CREATE TABLE requests (
        id TEXT PRIMARY KEY,
        origin TEXT NOT NULL,
        send_id TEXT NOT NULL,
        asked TEXT NOT NULL,
        proposed TEXT NOT NULL,
        action TEXT NOT NULL,
        digest TEXT NOT NULL,
        recipient TEXT NOT NULL,
        state TEXT NOT NULL,
        file TEXT NOT NULL,
        folder TEXT NOT NULL,
        created BIGINT NOT NULL,
        revision INTEGER NOT NULL,
        expires BIGINT,
        asked_by TEXT,
        reason TEXT,
        mail TEXT,
        about TEXT,
        urgent INTEGER NOT NULL,
        sender TEXT,
        warnings TEXT NOT NULL,
        difference TEXT,
        fault TEXT,
        note TEXT,
        words TEXT,
        proof TEXT,
        decided_by TEXT,
        decided BIGINT,
        once_more INTEGER NOT NULL,
        due BIGINT,
        tried BIGINT,
        attempts INTEGER NOT NULL,
        error TEXT,
        resting TEXT,
        snoozed BIGINT,
        frozen BIGINT,
        lease BIGINT,
        token TEXT,
        message_id TEXT,
        thread_id TEXT,
        untold INTEGER NOT NULL,
        settled INTEGER NOT NULL
    )
"""
_ANSWERS = """
    CREATE TABLE answers (
        request_id TEXT NOT NULL,
        revision INTEGER NOT NULL,
        word TEXT NOT NULL,
        digest TEXT NOT NULL,
        proof TEXT NOT NULL,
        said_by TEXT NOT NULL,
        at BIGINT NOT NULL,
        words TEXT
    )
"""
_INDEXES = (
    # One open request for one proposal of a tool, whoever asks, however often.
    """
    CREATE UNIQUE INDEX requests_open ON requests (asked)
    WHERE origin = 'tool' AND state IN ('waiting', 'held', 'approved', 'sending', 'unknown')
    """,
    "CREATE INDEX requests_asked ON requests (asked, created)",
    "CREATE INDEX requests_digest ON requests (digest) WHERE origin = 'draft'",
    "CREATE INDEX requests_state ON requests (state, created, id)",
    "CREATE INDEX requests_due ON requests (due) WHERE due IS NOT NULL",
    "CREATE INDEX requests_file ON requests (file)",
    "CREATE INDEX requests_mail ON requests (mail) WHERE mail IS NOT NULL",
    "CREATE INDEX requests_decided ON requests (decided) WHERE decided IS NOT NULL",
    "CREATE INDEX requests_recipient ON requests (recipient) WHERE state = 'sent'",
    "CREATE INDEX requests_unsettled ON requests (created) WHERE origin = 'draft' AND settled = 0",
    "CREATE INDEX answers_request ON answers (request_id, digest)",
)
_FOLDERS = {
    "waiting": "Pending_Approval",
    "held": "Pending_Approval",
    "unknown": "Pending_Approval",
    "approved": "Approved",
    "sending": "Approved",
    "failed": "Approved",
    "rejected": "Rejected",
}
_BY_HAND = "hand-written approval"
_DRAFT = "email_draft:"
_ONCE_MORE = "once more"
_LOST = "Your yes came to nothing: it was changed after your yes. Look at it again."
_NO_REASON = "no reason was given"
_UNWRITTEN = "a note in Drafts/ that the desk did not write"
_UNSENDABLE = dict.fromkeys([*range(32), 0x7F, 0x85, 0x2028, 0x2029], " ")
_OLD_ACTION = (
    "id, asked, action, state, revision, file, created, expires, difference, decided_by, note, frozen, lease, token,"
    " message_id, thread_id, asked_by, decided, untold, sender, warnings"
)
_OLD_DRAFT = "id, mail, sender, proposed, approved, created, drafted_by, reason, account, warnings, words, decided"
Values = dict[str, Any]


def upgrade(tx: Transaction) -> None:
    tx.execute(_REQUESTS)
    tx.execute(_ANSWERS)
    for index in _INDEXES:
        tx.execute(index)
    drafts_of = {
        action: content.removeprefix(_DRAFT)
        for content, action in tx.all("SELECT content, action_id FROM used_approvals")
        if content.startswith(_DRAFT)
    }
    released: dict[str, Values] = {}
    for action in _read(tx, "actions", _OLD_ACTION):
        if action["id"] in drafts_of:
            released[drafts_of[action["id"]]] = _of_action(action)
        else:
            _insert(tx, _of_action(action))
    for draft in _read(tx, "drafts", _OLD_DRAFT):
        _insert(tx, _of_draft(tx, draft, released.pop(draft["id"], None)))
    for name, action in released.items():  # the person wrote these drafts
        _insert(tx, action | _as_draft(name, action) | {"asked_by": _UNWRITTEN})
    _take_over_tries(tx)
    _take_over_holds(tx, drafts_of)
    for name, until in tx.all("SELECT id, until FROM snoozes"):
        sql = "UPDATE requests SET snoozed = ? WHERE id = ? AND state <> 'held'"
        tx.execute(sql, until, drafts_of.get(name, name))
    for action_id, name in drafts_of.items():
        tx.execute("UPDATE sends SET action_id = ? WHERE action_id = ?", name, action_id)
    tx.execute("DELETE FROM used_approvals WHERE content LIKE ?", f"{_DRAFT}%")
    tx.execute("DELETE FROM steps WHERE kind = 'send'")
    for table in ("actions", "drafts", "holds", "snoozes"):
        tx.execute(f"DROP TABLE {table}")


def _read(tx: Transaction, table: str, columns: str) -> list[Values]:
    names = columns.split(", ")
    return [
        dict(zip(names, row, strict=True))
        for row in tx.all(f"SELECT {columns} FROM {table} ORDER BY created, id")
    ]


def _of_action(old: Values) -> Values:
    action = json.loads(old["action"])
    state = old["state"]
    once_more = old["note"] == _ONCE_MORE
    return old | {
        "origin": "tool",
        "send_id": old["id"],
        "proposed": old["action"],
        "digest": _digest(action),
        "recipient": action["to"].casefold(),
        "folder": _FOLDERS.get(state, "Done"),
        "once_more": int(once_more and state in ("waiting", "approved", "sending")),
        "note": None if once_more else old["note"],
        "proof": _proof(old),
        "due": _due(old),
        "warnings": old["warnings"] or "[]",
    }


def _of_draft(tx: Transaction, old: Values, released: Values | None) -> Values:
    letter = json.loads(old["proposed"])
    step = _step_of(tx, old["mail"])
    decision = step.get("decision") or {}
    known: Values = {
        "created": old["created"],
        "asked_by": old["drafted_by"],
        "reason": old["reason"],
        "mail": old["mail"],
        "about": step.get("note"),
        "urgent": int(decision.get("decision") == "urgent"),
        "sender": old["sender"],
        "warnings": old["warnings"] or "[]",
        "words": old["words"],
    }
    said = tx.one(
        "SELECT text, at FROM corrections WHERE draft_id = ? AND kind = 'rejected'",
        old["id"],
    )
    if released is not None:
        settled = step.get("draft_id") != old["id"] or step.get("state") != "drafted"
        known |= _as_draft(old["id"], released, letter)
        known["decided"] = released["decided"] or old["decided"] or released["created"]
        return (
            released
            | known
            | {"settled": int(settled and released["state"] in ("sent", "rejected"))}
        )
    action = _action_of(letter, old["account"])
    return {
        "id": old["id"],
        "origin": "draft",
        "send_id": sha256(old["id"].encode()).hexdigest()[:16],
        "asked": _digest(action),
        "proposed": json.dumps(action),
        "action": json.dumps(action),
        "digest": _digest(action),
        "recipient": action["to"].casefold(),
        "state": "waiting",
        "file": _draft_file(old["id"]),
        "folder": "Drafts",
        "revision": 1,
        "fault": None if action["body"].strip() else "The body is empty",
        **known,
        **_decided(old, said),
    }


def _action_of(letter: Values, account: str | None) -> Values:
    return {
        "kind": "send_email",
        "account": account or "",
        "to": letter["to"],
        "subject": letter["subject"].translate(_UNSENDABLE)[:998],
        "body": letter["body"].replace("\0", ""),
        "thread_id": None,
        "reply_to_message_id": letter.get("reply_to_message_id"),
        "in_reply_to": None,
        "references": [],
    }


def _decided(old: Values, said: Row | None) -> Values:
    """The person's answer to a draft that did not leave; a no without words is heard from
    its file, with its reason."""
    at = old["decided"] or old["created"]
    decided = {"decided": at, "decided_by": "person", "proof": "page"}
    if said is not None and said[1] >= at:
        if old["decided"] is None or old["approved"] is not None:
            decided = {"decided": said[1], "decided_by": "vault", "proof": "vault"}
        reason = None if said[0] == _NO_REASON else said[0]
        return decided | {
            "state": "rejected",
            "folder": "Rejected",
            "note": reason,
            "settled": 1,
        }
    if old["approved"] is not None:
        return decided | {
            "state": "approved",
            "folder": "Approved",
            "yes": old["approved"],
            "due": at,
        }
    if old["words"] is not None:
        return decided | {
            "state": "rejected",
            "folder": "Rejected",
            "note": f"do it this way: {old['words']}",
        }
    return {}


def _as_draft(name: str, released: Values, letter: Values | None = None) -> Values:
    """The row that the gate had for a draft becomes the draft's, under the id that its mail carries."""
    found = {"id": name, "origin": "draft", "untold": 0}
    if letter is not None:
        words = {key: letter[key] for key in ("to", "subject", "body")}
        proposed = json.loads(released["action"]) | words
        found |= {"proposed": json.dumps(proposed), "asked": _digest(proposed)}
    # Later ones wait in a sealed file: nobody knows whether it left.
    if released["revision"] == 1:
        found |= {"file": _draft_file(name), "decided_by": "person", "proof": "vault"}
    return found


def _draft_file(name: str) -> str:
    return f"reply-{name.removeprefix('draft-')}.md"


def _take_over_tries(tx: Transaction) -> None:
    """How often the orchestrator has tried what is approved, and when it tries again."""
    sql = "SELECT key, due, tried, attempts, error FROM steps WHERE kind = 'send' AND error IS NOT NULL AND due > 0"
    for key, *tries in tx.all(sql):
        sql = "UPDATE requests SET due = ?, tried = ?, attempts = ?, error = ? WHERE id = ? AND state = 'approved'"
        tx.execute(sql, *tries, key.removeprefix("send:"))


def _take_over_holds(tx: Transaction, drafts_of: dict[str, str]) -> None:
    for name, digest, by, until, taken, note in tx.all(
        "SELECT id, digest, decided_by, until, taken, note FROM holds"
    ):
        request_id = str(drafts_of.get(name, name))
        row = tx.one(
            "SELECT digest, state, origin, token FROM requests WHERE id = ?", request_id
        )
        if row is None:
            continue
        current, state, origin, token = row
        if note is not None:
            tx.execute(
                "UPDATE requests SET note = ? WHERE id = ? AND state <> 'sent'",
                note,
                request_id,
            )
            continue
        # A draft is approved by a hold before its file is moved: until then it rests.
        by_words = origin == "draft" and token is None
        if state not in ("waiting", "unknown") and not (by_words and state == "approved"):
            continue
        if digest != current and not by_words:
            tx.execute("UPDATE requests SET note = ? WHERE id = ?", _LOST, request_id)
            continue
        sql = (
            "UPDATE requests SET state = 'held', due = ?, decided_by = ?, decided = ?, proof = 'page', folder = CASE"
            " WHEN folder = 'Approved' THEN 'Drafts' ELSE folder END,"
            " once_more = CASE WHEN token IS NULL THEN once_more ELSE 1 END WHERE id = ?"
        )
        tx.execute(sql, until if taken is None else taken, by, until, request_id)
        _answer(tx, request_id, "held", digest, "page", by, until)


def _insert(tx: Transaction, made: Values) -> None:
    plain = {
        "urgent": 0,
        "once_more": 0,
        "attempts": 0,
        "untold": 0,
        "settled": 0,
        "warnings": "[]",
    }
    values: Values = plain | made
    yes = values.pop("yes", values["digest"])
    names = ", ".join(values)
    marks = ", ".join("?" for _ in values)
    tx.execute(f"INSERT INTO requests ({names}) VALUES ({marks})", *values.values())
    if values["state"] in ("approved", "sending", "sent", "unknown"):
        at = values.get("decided") or values["created"]
        proof = values.get("proof") or "vault"
        _answer(
            tx,
            values["id"],
            "approved",
            yes,
            proof,
            values.get("decided_by") or "vault",
            at,
        )


def _answer(
    tx: Transaction, name: str, word: str, digest: str, proof: str, by: str, at: int
) -> None:
    tx.execute(
        "INSERT INTO answers (request_id, revision, word, digest, proof, said_by, at) VALUES (?, 1, ?, ?, ?, ?, ?)",
        *(name, word, digest, proof, by, at),
    )


def _step_of(tx: Transaction, key: str) -> Values:
    row = tx.one("SELECT data, state FROM steps WHERE key = ?", key)
    return json.loads(row[0]) | {"state": row[1]} if row else {}


def _proof(old: Values) -> str | None:
    if old["decided_by"] is None:
        return None
    if old["decided_by"] == _BY_HAND:
        return "hand-written"
    return "vault" if old["decided_by"] == "vault" else "page"


def _due(old: Values) -> Any:
    if old["state"] == "sending":
        return old["lease"] or old["created"]
    if old["state"] == "approved":
        return old["decided"] or old["created"]
    return None


def _digest(action: Values) -> str:
    return sha256(
        json.dumps(action, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
