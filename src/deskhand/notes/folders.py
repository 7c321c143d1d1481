"""The desk's own folders in the vault."""

WORKFLOW = ("Needs_Action", "Drafts", "Plans", "Pending_Approval", "Approved", "Rejected", "Done")
"""Where a note stands on its way from a mail to the answer."""
FOLDERS = (*WORKFLOW, "Logs")
