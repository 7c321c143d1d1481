"""The record of what was done at this desk: append-only, redacted, hash-chained.

entry is one line of it, redact what may stand there, chain how lines are kept and proved, search how they are found.
vault_log, beside it, writes the log files in the vault.
"""

from deskhand.audit.chain import START, Broken, Mark, Verified, append, follow, head, verify
from deskhand.audit.entry import Entry, Result
from deskhand.audit.redact import masked, redact, redact_entry
from deskhand.audit.search import SCAN, EntryFilter, EntryPage, by_day, entries, find, names

__all__ = [
    "SCAN",
    "START",
    "Broken",
    "Entry",
    "EntryFilter",
    "EntryPage",
    "Mark",
    "Result",
    "Verified",
    "append",
    "by_day",
    "entries",
    "find",
    "follow",
    "head",
    "masked",
    "names",
    "redact",
    "redact_entry",
    "verify",
]
