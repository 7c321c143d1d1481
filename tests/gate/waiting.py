"""Requests as the gate makes them, for tests that need many."""

from datetime import datetime, timedelta
from typing import Any

from deskhand.gate.actions import Mail
from deskhand.gate.requests import Request, draft_file_name, file_name


def proposed(name: str, to: str, at: datetime, **more: Any) -> Request:
    """A mail that a tool proposed and that waits."""
    file = file_name(name, "send_email", 1)
    facts = {"file": file, "folder": "Pending_Approval", "expires": at + timedelta(days=7)}
    return _request(name, to, at, origin="tool", **facts | more)


def drafted(name: str, to: str, at: datetime, **more: Any) -> Request:
    """A draft of the orchestrator that waits."""
    facts = {"file": draft_file_name(name), "folder": "Drafts", "asked_by": "rule:x"}
    return _request(name, to, at, origin="draft", **facts | more)


def _request(name: str, to: str, at: datetime, **more: Any) -> Request:
    mail = Mail(kind="send_email", account="me@example.com", to=to, subject="x", body="y\n")
    known: dict[str, Any] = {
        "asked": mail.digest,
        "proposed": mail,
        "action": mail,
        "digest": mail.digest,
        "state": "waiting",
    }
    return Request(id=name, send_id=name, created=at, **known | more)
