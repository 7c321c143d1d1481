"""What the product promises, one sentence each; a test cites the ones it shows.

`test_repository.py` fails when a promise has no test or a test cites a promise that nobody made.
"""

from typing import Any

import pytest

REQUIREMENTS = {
    "start:light": "deskhand --help imports neither mcp nor FastAPI nor SQLAlchemy.",
    "config:errors-name-the-key": "An unknown key or bad value is an error that names key, value and allowed form.",
    "config:sources": "config show says where each value came from and masks secrets.",
    "errors:two-forms": "Each error has seed 000's and seed 003's wire form and an exit code.",
    "server:strict": "Unknown arguments and wrong types are refused with field, message, value and suggestion.",
    "server:hints": "A tool without a title and four hints cannot be served.",
    "server:masked": "The text of a crash stays in the log, under a reference id the caller gets.",
    "server:stdout": "Nothing but the protocol reaches stdout.",
    "server:answers": "Malformed JSON and lone surrogates are answered, and the server lives on.",
    "server:bearer": "Over HTTP nobody enters without the bearer token, nor with a foreign Host or Origin.",
    "store:durable": "What a transaction returned is committed; one that raised left nothing.",
    "store:many-processes": "Several processes may start and write at once.",
    "audit:chained": "A changed, removed, inserted or cut-off line is found and named.",
    "audit:redacted": "No body, secret or full address reaches the record.",
    "notes:seed": "Models, errors and round trip are seed 000's, on every transport in both eras.",
    "notes:round-trip": "For any frontmatter and body, write then read gives the same.",
    "notes:bytes-kept": "Changing one key leaves every other byte of the note alone.",
    "notes:paths": "No spelling of a path leaves the vault or reaches a protected folder for writing.",
    "notes:swapped-links": "A symlink swapped in during the call leads nowhere.",
    "notes:atomic": "Whatever is killed, a note is the old or the new one, whole.",
    "notes:disk-trouble": "A full disk and an I/O error give a clear error and change nothing.",
    "notes:no-lost-edit": "With if_match no edit is lost, whoever else writes.",
    "notes:links-follow": "Links follow a moved note when asked to, in the form in which they were written.",
    "notes:peers-faults": "None of the faults found in other servers is here.",
    "index:equals-scan": "Search finds exactly what a scan of all files finds.",
    "index:fresh": "What was written is found: through us at once, by another program within moments.",
    "index:disposable": "A deleted or damaged index costs time, never an answer.",
    "gmail:round-trips": "A search of 50 takes two round trips, and one more for the first sign-in.",
    "gmail:errors": "Each answer of Gmail becomes the seed's error, with what to do next.",
    "gmail:reads-retried": "Reads are tried again at most three times, with jitter and Retry-After; nothing else is.",
    "gmail:sign-in": "An expired token is renewed once, a rotated one is kept, a revoked one names the command to run.",
    "gmail:never-twice": "Whatever answer of Gmail is lost, a mail leaves at most once and exactly as it was prepared.",
    "gmail:honest-double": "The Gmail double keeps to Google's discovery document, and Google's own client agrees.",
    "imap:stable": "A mail's id on IMAP holds when the mail is moved, and copies of a mail are one mail.",
    "imap:never-twice": "Whatever breaks during SMTP, what may have left is never sent again by itself.",
    "imap:kept": "The connection is kept, and a dead one is replaced without the caller's notice.",
    "imap:no-injection": "No query, label or id reaches the server as a command.",
    "mail:secrets": "Tokens and passwords lie in the keyring, else in a file that only the person can read.",
    "gate:asks": "A mail nobody approved is not sent; its sealed request waits, once, where the person looks.",
    "gate:released": "What the person approved is sent exactly so, and its approval is used up.",
    "gate:content-bound": "An approval for one mail never releases another, and an edited one releases nothing.",
    "gate:once": "Whatever answer is lost or process killed, a mail leaves at most once for one approval.",
    "gate:expires": "An approval that expired releases nothing and says so.",
    "gate:rejected": "A no is told apart from no answer yet.",
    "gate:withdrawn": "A yes that was taken back releases nothing.",
    "gate:hand-written": "Seed 001's hand-written approvals release one mail that they cover, and no other.",
    "gate:rate": "One rate window in the ledger holds for every server and over restarts.",
    "gate:put-back": "What was certainly not sent spends neither the approval nor the rate.",
    "gate:unknown": "What may or may not have been sent is never sent again by itself; the person decides.",
    "gate:recorded": "Every call writes one redacted entry, together with its effect.",
    "gate:race": "Of any number of processes that race for one approval, one sends.",
    "gate:takeover": "A send whose process died is looked up and finished by another, once its lease ended.",
    "email:seed": "The Email server's texts and order of checks are seed 002's, on stdio and HTTP in both eras.",
    "gmail-server:seed": "The Gmail server's models and error codes are seed 000's, on stdio and HTTP in both eras.",
    "mail:bad-input": "Bad input gets a clear error; nothing is sent and nothing lost.",
    "mail:small-schemas": "All mail tool schemas together stay under 16,000 characters.",
    "cli:approvals": "A person can list, read, approve and reject requests from the command line.",
    "judges:conformance": "The official conformance suite passes for both revisions.",
    "judges:clients": "The Inspector and the TypeScript SDK are content.",
}


def requirement(name: str) -> Any:
    """Marks the test that shows a promise kept."""
    return pytest.mark.requirement(name)
