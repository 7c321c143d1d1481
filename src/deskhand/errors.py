"""Every failure that a caller may see.

    DeskError
    ├── InvalidInput          what was asked is malformed; names the fields
    │   ├── Unreadable        what was found is malformed (YAML, encoding)
    │   └── Contradiction     well-formed, but at odds with what is there
    ├── NotFound              no such note, mail, task, folder
    ├── Denied                not allowed: outside, protected, a link
    │   ├── TooLarge          more than is taken
    │   ├── OutOfScope        the caller's token does not open this part of the desk
    │   ├── AwaitsPerson      the person was asked, and has not answered
    │   ├── Exists            the destination is taken
    │   └── Changed           it is no longer what the caller saw
    ├── AuthRequired          a person must sign in
    ├── NoIdentity            nobody says which agent this is
    ├── RateLimited           later
    ├── SendFailed            the provider said no: certainly not sent
    │   ├── UnderWay          another process is sending it right now
    │   └── OutcomeUnknown    nobody knows whether it was sent; never tried again by itself
    ├── Unavailable           a part of the desk does not answer
    │   ├── VaultClosed       the machine's permissions keep the desk out of a folder of the vault
    │   ├── ProviderDown      the person's mail provider does not answer
    │   ├── NoAccount         the mail account is not, or no longer, one of this desk
    │   ├── PartlyDone        some of the mail accounts did it, the others are named
    │   ├── ServerDown        an MCP server does not answer: the word of whoever calls one
    │   ├── TimedOut
    │   └── BackendFailed     it answered, with a failure of its own
    ├── BadConfig             a setting is missing, unknown or malformed
    └── Internal              our fault or the machine's; has a reference id that is in the log

Raise deep, translate once at the door: `mcp_error` is the wire form of the Gmail server's contract,
`error_response` that of the tasks contract, `http_status` that of REST and the page, `exit_code` the command line's.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from deskhand.unseen import spell_out_line

MCPErrorCode = Literal[
    "auth_required",
    "not_found",
    "rate_limited",
    "permission_denied",
    "parse_error",
    "send_failed",
    "mcp_unavailable",
    "internal_error",
]
ErrorType = Literal[
    "authentication_error",
    "authorization_error",
    "not_found_error",
    "validation_error",
    "backend_error",
    "timeout_error",
    "connection_error",
]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that was refused: what is wrong with it, what came, what would do."""

    field: str
    message: str
    received_value: str | None = None
    suggestion: str | None = None


class DeskError(Exception):
    """A failure with a code for programs, a message for people and a hint what to do next."""

    code: ClassVar[MCPErrorCode] = "internal_error"
    error_type: ClassVar[ErrorType] = "backend_error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        fields: Sequence[FieldProblem] = (),
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.said: str | None = None
        """The sentence in which a server's contract refuses this, where it has one of its own."""
        self.waiting_note: str | None = None
        """Where a request of the person's waits: what the whole-desk server says instead."""
        self.to_person: tuple[str, str] | None = None
        """Message and hint for the page and the terminal, where the others name an assistant's tools or parameters."""
        self.details: dict[str, Any] = details
        if fields:
            self.details["fields"] = [asdict(problem) for problem in fields]

    @property
    def line(self) -> str:
        """As rows and the record keep it."""
        return f"{self.code}: {self.message}"


class InvalidInput(DeskError):
    code = "parse_error"
    error_type = "validation_error"
    exit_code = 2
    http_status = 422


class Unreadable(InvalidInput):
    pass


class Contradiction(InvalidInput):
    http_status = 409


class NotFound(DeskError):
    code = "not_found"
    error_type = "not_found_error"
    exit_code = 4
    http_status = 404


class Denied(DeskError):
    """`reason` is the word for programs: outside, protected, symlink, …; a class of its own has its own."""

    code = "permission_denied"
    error_type = "authorization_error"
    exit_code = 5
    http_status = 403

    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        hint: str | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, hint=hint, reason=reason or self.reason, **details)


class OutOfScope(Denied):
    reason = "scope"


class AwaitsPerson(Denied):
    reason = "no_approval"

    def __init__(self, message: str, *, id: str, is_new: bool, **details: Any) -> None:  # noqa: A002 - on the wire
        super().__init__(message, id=id, **details)
        self.id = id
        self.is_new = is_new
        """Whether this very call asked the person."""


class TooLarge(Denied):
    reason = "too_large"
    http_status = 413


class Exists(Denied):
    reason = "exists"
    http_status = 409


class Changed(Denied):
    reason = "changed"
    http_status = 412


class AuthRequired(DeskError):
    code = "auth_required"
    error_type = "authentication_error"
    exit_code = 6
    http_status = 401


class NoIdentity(DeskError):
    code = "auth_required"
    error_type = "authentication_error"


class RateLimited(DeskError):
    code = "rate_limited"
    exit_code = 7
    http_status = 429
    retryable = True


class SendFailed(DeskError):
    code = "send_failed"
    exit_code = 8
    http_status = 502


class UnderWay(SendFailed):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, reason="under_way")


class OutcomeUnknown(SendFailed):
    pass


class Unavailable(DeskError):
    error_type: ClassVar[ErrorType] = "connection_error"
    exit_code = 7
    http_status = 503
    retryable = True


class VaultClosed(Unavailable):
    def __init__(self, place: object) -> None:
        super().__init__(
            f"the vault is closed to the desk: it may not enter {printable(str(place))}",
            hint="give it its rights there back; of a guarded desk `sudo deskhand service install --guarded` does that",
            reason="closed",
        )


class ProviderDown(Unavailable):
    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, reason="provider_unavailable", **details)


class NoAccount(Unavailable):
    """It may come back; until then what is asked of it is not found."""

    code = "not_found"
    error_type = "not_found_error"
    exit_code = 4
    http_status = 404
    retryable = False


class PartlyDone(Unavailable):
    def __init__(self, count: int, failed: "Mapping[str, DeskError]") -> None:
        why = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
        super().__init__(
            f"{'1 mail is' if count == 1 else f'{count} mails are'} changed, and none in the account {why}",
            hint="what was done stays done; the same call does the rest when the account can do it",
            changed=count,
            accounts=sorted(failed),
        )
        self.count = count
        self.failed = frozenset(failed)
        """The accounts in which nothing was done."""


class ServerDown(Unavailable):
    code = "mcp_unavailable"


class TimedOut(Unavailable):
    error_type = "timeout_error"


class BackendFailed(Unavailable):
    error_type = "backend_error"


class BadConfig(DeskError):
    exit_code = 3


class Internal(DeskError):
    """The caller gets a reference; the cause is in the log under it."""

    def __init__(
        self, message: str, *, reference: str, hint: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, hint=hint, reference=reference, **details)


def mcp_error(error: DeskError) -> dict[str, Any]:
    """The Gmail server's MCPError; hint and retryability travel in `details`."""
    details = _details(error)
    if error.hint:
        details["hint"] = error.hint
    if error.retryable:
        details["retryable"] = True
    return {"error": error.code, "message": error.message, "details": details or None}


def error_response(error: DeskError) -> dict[str, Any]:
    """The tasks server's ErrorResponse; the hint and each field's suggestion are its suggestions."""
    details = _details(error)
    suggestions = [
        error.hint,
        *(field["suggestion"] for field in details.get("fields", ())),
    ]
    return {
        "error_type": error.error_type,
        "message": error.message,
        "details": details or None,
        "suggestions": [each for each in suggestions if each] or None,
    }


def _details(error: DeskError) -> dict[str, Any]:
    return {key: value for key, value in error.details.items() if value is not None}


def printable(value: object, limit: int = 200) -> str:
    """`value` as text that any encoder takes, however hostile: short, no lone surrogates."""
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def as_sentence(text: str) -> str:
    """The text as a sentence of its own, with a capital letter and an end."""
    # What begins with a name of something, such as a path or an option, keeps its letters.
    first, _, _ = text.partition(" ")
    if first.isalpha() and first.islower():
        text = f"{text[0].upper()}{text[1:]}"
    return text if not text or text[-1] in ".!?:…”" else f"{text}."


def describe(error: DeskError) -> str:
    """The lines that the Email server answers. What is wrong is one line, whoever's words are in it."""
    return _describe(error, str)


def describe_in_sentences(error: DeskError) -> str:
    """The same as a person reads it on the command line."""
    return _describe(error, as_sentence)


def _describe(error: DeskError, form: Callable[[str], str]) -> str:
    lines = [f"error: {form(spell_out_line(error.message))}"]
    fields: Sequence[Mapping[str, Any]] = error.details.get("fields", ())
    if (error.message, error.hint) == error.to_person:
        fields = ()  # what is said in a person's words names no parameter
    lines += [
        spell_out_line(f"  {field['field']}: {field['message']}")
        + (
            f" (got {field['received_value']!r})"
            if field["received_value"] is not None
            else ""
        )
        + (f"; {field['suggestion']}" if field["suggestion"] else "")
        for field in fields
    ]
    if error.hint:
        lines.append(f"  {form(spell_out_line(error.hint))}")
    if "reference" in error.details:
        lines.append(f"  reference: {error.details['reference']}")
    return "\n".join(lines)


def speak_to_person(error: DeskError) -> DeskError:
    """The error in the words for a person: a door of theirs does this before it shows one."""
    if error.to_person:
        error.message, error.hint = error.to_person
    return error


def advice_on(refusal: OSError, otherwise: str) -> str:
    """What helps against this refusal of the machine."""
    if refusal.errno == errno.ELOOP:
        return "take the link away that is on the way, or give the path that it leads to"
    return otherwise
