"""What in the vault is the desk's own."""

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
