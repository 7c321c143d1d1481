"""Names that the stranger's tools have, and that no honest tool has."""

ESCAPES = "bold\x1b[1m\u202etxt"
