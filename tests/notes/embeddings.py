"""An embedding server on loopback, and 200 notes with 40 questions that say the same in other words.

Its vectors are of hashed stems, with a small table of words that mean the same: deterministic, and no more than that.
"""

import json
import re
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

DIMENSIONS = 512
# Words of the notes: words of the question. Of the last ten the table of the server knows nothing.
TOPICS = """\
car engine repair: vehicle motor fix
doctor appointment: physician visit
sofa delivery: couch shipment
salary raise: wage increase
holiday flight: vacation plane
kids school: children classroom
apartment lease: flat rental
laptop broken: notebook defective
wedding gift: marriage present
grocery shopping: food purchases
dentist tooth: dental molar
bicycle tyre: bike wheel
movie ticket: film admission
garden soil: yard earth
invoice payment: bill settlement
meeting agenda: conference programme
police report: constabulary statement
coffee beans: espresso roast
lawyer contract: attorney agreement
dog walk: puppy stroll
cat vaccination: kitten jab
house insurance: home coverage
tax refund: levy repayment
train timetable: railway schedule
mobile plan: cellphone tariff
rubbish collection: garbage pickup
lamp socket: light outlet
jacket zipper: coat fastener
soup recipe: broth instructions
novel chapter: book section
guitar strings: instrument cords
marathon training: race practice
window curtain: pane drape
password reset: credential renewal
parcel tracking: package tracing
boiler heating: furnace warmth
paint wall: colour surface
ladder roof: steps tiles
battery charger: accumulator supply
river boat: stream vessel"""
PAIRS = [tuple(side.split() for side in line.split(": ")) for line in TOPICS.splitlines()]
_SAME = {
    one: other
    for noted, asked in PAIRS[:30]
    for one, other in zip(asked, noted, strict=False)
}
_AROUND = (
    "Called about the {}.",
    "Notes on the {}, to be sorted.",
    "The {} again.",
    "Paid for the {}.",
    "Idea: {}.",
)


def write_notes(vault: Path) -> None:
    for number, (noted, _) in enumerate(PAIRS):
        for kind, sentence in enumerate(_AROUND):
            text = f"---\nnumber: {number}\n---\n{sentence.format(' '.join(noted))}\n"
            (vault / f"Note {number:02}-{kind}.md").write_text(text)


def questions() -> list[tuple[str, set[str]]]:
    """Each with the notes that answer it."""
    return [
        (" ".join(asked), {f"Note {number:02}-{kind}.md" for kind in range(len(_AROUND))})
        for number, (_, asked) in enumerate(PAIRS)
    ]


def vector(text: str) -> list[float]:
    found = [0.0] * DIMENSIONS
    for word in re.findall(r"[a-z]{3,}", text.lower()):
        stem = _SAME.get(word, word)[:5]
        found[int.from_bytes(sha256(stem.encode()).digest()[:4]) % DIMENSIONS] += 1.0
    return found


class EmbeddingStub:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.keys: set[str | None] = set()
        self.status = 200
        self.answer: bytes | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Embeddings)
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

    @property
    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return {
            "DESKHAND_EMBEDDING_URL": url,
            "DESKHAND_EMBEDDING_MODEL": "stub",
            "DESKHAND_EMBEDDING_KEY": "sk-test",
        }


class _Embeddings(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        stub: EmbeddingStub = self.server.stub  # type: ignore[attr-defined]
        asked: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers["Content-Length"]))
        )
        stub.texts += asked["input"]
        stub.keys.add(self.headers["Authorization"])
        data = [
            {"index": at, "embedding": vector(text)}
            for at, text in enumerate(asked["input"])
        ]
        body = stub.answer or json.dumps({"data": data[::-1]}).encode()
        self.send_response(stub.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...
