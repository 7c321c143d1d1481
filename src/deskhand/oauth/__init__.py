"""OAuth 2.1 for chat clients: which clients there are, and how the person's yes becomes tokens that end.

Every client is a public one: it proves itself by PKCE, by the address that its code is sent to, and by refresh tokens
that count once. So the desk keeps no client's secret. What a client gets is a token like any other (deskhand.tokens).
"""

from typing import Literal

from deskhand.errors import DeskError

OAuthError = Literal[
    "access_denied",
    "invalid_client",
    "invalid_client_metadata",
    "invalid_grant",
    "invalid_redirect_uri",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "temporarily_unavailable",
    "unsupported_grant_type",
    "unsupported_response_type",
]
_STATUS: dict[OAuthError, int] = {"invalid_client": 401, "temporarily_unavailable": 429}


class OAuthRefusal(DeskError):
    """A refusal in OAuth's own words: `error` is the word that programs read."""

    http_status = 400

    def __init__(self, error: OAuthError, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.error = error

    @property
    def status(self) -> int:
        return _STATUS.get(self.error, self.http_status)
