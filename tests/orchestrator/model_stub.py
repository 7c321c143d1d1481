"""A model server on loopback that answers what it was told to, one answer a request."""

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

GOOD = {
    "decision": "draft_reply",
    "confidence": 0.9,
    "reasoning": "She asks.",
    "reply_body": "Yes, at ten.",
}


class ModelStub:
    def __init__(self) -> None:
        self.answers: deque[Any] = deque()
        """A dict is a decision, a str what the model says, an int a status, None an empty answer, bytes a raw body."""
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.stub = self  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[0.02], daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def environment(self, provider: str = "openai") -> dict[str, Any]:
        return {
            "DESKHAND_MODEL": f"{provider}:stub",
            "DESKHAND_MODEL_BASE_URL": f"http://127.0.0.1:{self._server.server_port}",
            "DESKHAND_MODEL_API_KEY": "sk-test",
        }


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        stub: ModelStub = self.server.stub  # type: ignore[attr-defined]
        stub.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        stub.headers.append(dict(self.headers))
        answer = stub.answers.popleft() if stub.answers else 500
        match answer:
            case int():
                self._say(answer, b"{}")
            case bytes():
                self._say(200, answer)
            case {"tool_calls": _}:
                self._say(
                    200,
                    json.dumps(
                        {"choices": [{"message": {"content": None} | answer}]}
                    ).encode(),
                )
            case _:
                text = json.dumps(answer) if isinstance(answer, dict) else answer
                if self.path == "/v1/messages":
                    body: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
                else:
                    body = {
                        "choices": [{"message": {"role": "assistant", "content": text}}]
                    }
                self._say(200, json.dumps(body).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
