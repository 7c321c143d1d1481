"""What in the vault is the desk's own."""

from collections.abc import Sequence

WORKFLOW = (
    "Needs_Action",
    "Drafts",
    "Plans",
    "Pending_Approval",
    "Approved",
    "Rejected",
    "Done",
)
"""Where a note stands on its way from a mail to the answer."""
FOLDERS = (*WORKFLOW, "Logs")
DASHBOARD = "Dashboard.md"
"""The page on which the desk says how it stands."""


def is_own(path: str, inside: Sequence[str]) -> bool:
    """Whether a vault-relative path is of the desk's own folders, which lie `inside` a folder of the vault."""
    parts = path.split("/")
    if tuple(parts[: len(inside)]) != tuple(inside):
        return False
    name, *below = parts[len(inside) :] or [""]
    return (name in FOLDERS and bool(below)) or (name == DASHBOARD and not below)
