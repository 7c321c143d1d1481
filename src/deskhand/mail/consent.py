"""One sign-in in a browser: the person agrees there, and the code comes back to this machine (RFC 8252, with PKCE)."""

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from deskhand.errors import AuthRequired, TimedOut, printable

CONSENT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the provider gives tokens for."""

    code: str
    verifier: str
    redirect: str

    @property
    def form(self) -> dict[str, str]:
        return {
            "code": self.code,
            "code_verifier": self.verifier,
            "redirect_uri": self.redirect,
        }


@dataclass(frozen=True, slots=True)
class Consent:
    """Where the person is asked, and by which command."""

    auth_url: str
    query: Mapping[str, str]
    login: str
    host: str = "127.0.0.1"
    """How the address that the browser comes back to names this machine; some providers
    know it as localhost alone."""

    def ask(
        self, visit: Callable[[str], None], paste: Callable[[], str] | None = None
    ) -> Agreed:
        """Send the browser to the provider by `visit`, and wait for it to come back.

        Where it runs on another machine it cannot come back; `paste` gives the address at which it ended.
        """
        state = secrets.token_urlsafe(24)
        verifier = secrets.token_urlsafe(64)
        with _Landing(("127.0.0.1", 0), _Page) as landing:
            landing.login = self.login
            redirect = f"http://{self.host}:{landing.server_port}"
            visit(self._address(redirect, state, verifier))
            answer = self._parse(paste()) if paste else _wait_for_answer(landing)
        return Agreed(self._read_code(answer, state), verifier, redirect)

    def _address(self, redirect: str, state: str, verifier: str) -> str:
        challenge = (
            base64.urlsafe_b64encode(sha256(verifier.encode()).digest())
            .rstrip(b"=")
            .decode()
        )
        own = {"response_type": "code", "redirect_uri": redirect, "state": state}
        proof = {"code_challenge": challenge, "code_challenge_method": "S256"}
        return f"{self.auth_url}?{urlencode({**own, **proof, **self.query})}"

    def _parse(self, address: str) -> dict[str, str]:
        answer = _read_query(address.strip())
        if "state" not in answer:
            raise AuthRequired(
                "that is not the address at which the browser ended",
                hint=f"run `{self.login} --paste` again, and copy all of it, from http://{self.host} to its end",
            )
        return answer

    def _read_code(self, answer: dict[str, str], state: str) -> str:
        if not secrets.compare_digest(answer["state"].encode(), state.encode()):
            raise AuthRequired(
                "the answer in the browser belongs to another sign-in",
                hint=f"run `{self.login}` again",
            )
        if "code" not in answer:
            why = printable(answer.get("error", "without a reason"), 100)
            raise AuthRequired(
                f"the provider said no: {why}", hint=f"run `{self.login}` again"
            )
        return answer["code"]


class _Landing(HTTPServer):
    """Where the browser comes back to."""

    timeout = CONSENT_SECONDS
    answer: dict[str, str] | None = None
    login = ""

    def handle_timeout(self) -> None:
        raise TimedOut(
            f"nobody consented within {CONSENT_SECONDS} seconds",
            hint=f"run `{self.login}` again",
        )


class _Page(BaseHTTPRequestHandler):
    server: _Landing
    timeout = 5  # browsers open connections that they never use

    def do_GET(self) -> None:
        answer = _read_query(self.path)
        if "state" not in answer:  # a favicon is asked for as well
            self.send_error(404)
            return
        self.server.answer = answer
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"Deskhand has the answer. You can close this page.\n")

    def log_message(self, *_: object) -> None:
        """Log nothing: the request line holds the code."""


def _wait_for_answer(landing: _Landing) -> dict[str, str]:
    while landing.answer is None:
        landing.handle_request()
    return landing.answer


def _read_query(address: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
