"""What the backend and who asks it tell each other in headers of our own."""

from deskhand.askers import PERSON

ACTOR = "X-Deskhand-Actor"
"""By which door of the desk the service came; believed only with the service's token."""
ASKER = "X-Deskhand-Asker"
"""Who asked there, in a person's words, as a URL writes them; believed as the door is."""
RECORDED = "X-Deskhand-Recorded"
"""On an answer about something that is on the backend's record, so that nobody writes it down twice."""
KEYED = "X-Deskhand-Idempotent"
"""On every answer of a backend that makes one task of a create which is repeated under its Idempotency-Key."""
DOORS = frozenset({"tasks_mcp", "tasks_cli", PERSON})
