"""The face of an action: what a request, its card, its file and the record ask of it, whatever its kind."""

import json
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from deskhand.foreign.edits import TextEdit
from deskhand.gate.enclosures import Enclosure


class Face(BaseModel):
    """Exact data with a digest, and the words by which a person knows what it is."""

    model_config = ConfigDict(frozen=True)

    counted: ClassVar[bool] = False
    """Whether it counts in the window of sends."""
    way_back: ClassVar[str]
    """What can be done about it afterwards."""
    caution: ClassVar[tuple[str, ...]]
    """What its risk has to be read with."""
    may_be_permitted: ClassVar[bool] = False
    """Whether the person may let others like it through, see `permissions`."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields in which what a permission covers may differ; without any it is for the very same once more."""

    noun: ClassVar[str] = "mail"
    done: ClassVar[str] = "been sent"
    again: ClassVar[str] = "send"
    effect: ClassVar[str] = "sends it"
    """What the same call does after a yes."""
    where_to_look: ClassVar[str] = "Look into your Sent folder."
    unknown: ClassVar[str] = (
        "the mail may or may not have been sent, and it is not sent again by itself"
    )
    """How it is spoken of where nobody knows whether it was done."""
    is_told_again: ClassVar[bool] = True
    """Whether the same call soon afterwards is taken for the one whose answer was lost."""

    @property
    def is_only_told(self) -> bool:
        """Whether the person's word to whoever asked is all that comes of it."""
        return False

    @property
    def lifetime(self) -> timedelta | None:
        """How long it waits for an answer, where that is not as long as anything does."""
        return None

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """What it says, name by name; empty where its body says it all."""
        return ()

    @property
    def edits(self) -> tuple[TextEdit, ...]:
        """What it would change in texts elsewhere."""
        return ()

    @cached_property
    def digest(self) -> str:
        return sha256(
            json.dumps(self.digested(), sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def digested(self) -> dict[str, Any]:
        """Every field that the digest covers."""
        return self.model_dump(mode="json")

    def named(self) -> dict[str, Any]:
        """Every field but the free ones: what a permission names."""
        return {
            name: value for name, value in self.digested().items() if name not in self.free
        }


class NoMail(Face):
    """An action that is no mail: it goes to nobody, answers none, and no hand-written file releases it."""

    effect = "does it"
    cc: ClassVar[str] = ""
    bcc: ClassVar[str] = ""
    everybody: ClassVar[tuple[str, ...]] = ()
    attachments: ClassVar[tuple[Enclosure, ...]] = ()
    send_at: ClassVar[None] = None
    thread_id: ClassVar[None] = None
    reply_to_message_id: ClassVar[None] = None
    in_reply_to: ClassVar[None] = None
    as_text: ClassVar[bool] = True
    html: ClassVar[str] = ""
