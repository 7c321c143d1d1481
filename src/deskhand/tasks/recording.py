"""How the backend and who asks it agree on the record: which door it was, and whether it is written down already."""

ACTOR = "X-Deskhand-Actor"
"""By which door of the desk the service came; believed only with the service's token."""
RECORDED = "X-Deskhand-Recorded"
"""On an answer about something that is on the backend's record, so that nobody writes it down twice."""
DOORS = frozenset({"tasks_mcp", "tasks_cli"})
