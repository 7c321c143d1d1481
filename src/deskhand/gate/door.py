"""The person's door in the vault, open or closed: a desk without a vault does everything else all the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deskhand.errors import Denied
from deskhand.gate import files
from deskhand.gate.actions import Action
from deskhand.gate.folders import RequestFile
from deskhand.gate.following import name_in_inbox
from deskhand.gate.idle import IdleFile
from deskhand.gate.proofs import Policy
from deskhand.gate.requests import Folder, Request
from deskhand.gate.vault import VaultDoor


class ClosedDoor:
    """What a desk without a vault has in its place: nobody moves files, and there is nothing to follow."""

    how = "once the person approved it on the page"

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def show(self, request: Request) -> str:
        return files.render_draft(replace(request, origin="draft"))

    async def hear(self, request: Request) -> Request:
        return request

    async def find_moved(self, requests: Sequence[Request]) -> set[str]:
        del requests
        return set()

    async def hear_all(self) -> None: ...

    async def notice_drafts(self) -> None: ...

    async def catch_edit(self, request: Request) -> Request:
        return request

    def demand_unmoved(self, request: Request) -> None: ...

    async def follow(self, request: Request) -> None: ...

    async def follow_all(self) -> None: ...

    async def ensure_waiting(self, request: Request) -> str:
        return name_in_inbox(request)

    def name_place(self, folder: Folder, name: str) -> str:
        return f"{folder}/{name}"

    async def write_edit(self, request: Request, action: Action) -> None:
        del action
        # Its words stand in a file that this desk cannot reach.
        if request.home == "Drafts":
            raise Denied(
                "a draft is edited where the vault is",
                reason="no_vault",
                hint="set VAULT_PATH, or reject it",
            )

    async def replace(self, old: Request, new: Request) -> None: ...

    async def retire(self, request: Request) -> None: ...

    async def explain(self, request: Request, marks: dict[str, Any]) -> None: ...

    async def has_approved_thread(self, thread_id: str) -> bool:
        del thread_id
        return False

    async def find_hand_written(
        self, action: Action, author: str | None = None
    ) -> tuple[list[RequestFile], list[RequestFile]]:
        del action, author
        return [], []

    def demand_unchanged(self, found: RequestFile) -> None: ...

    async def find_idle(self) -> list[IdleFile]:
        return []


Door = VaultDoor | ClosedDoor
