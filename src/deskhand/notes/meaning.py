"""Finds notes by what they mean: vectors of an embedding model, kept in a cache beside the index.

A vector is asked for when a question needs it and belongs to the file as it was then: what changed is asked for again.
What lies in the desk's own folders, mail above all, is never sent to the model.
"""

import json
import math
import operator
import sqlite3
import ssl
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from deskhand.errors import AuthRequired, TimedOut, Unavailable
from deskhand.notes import frontmatter, walk
from deskhand.notes.folders import FOLDERS
from deskhand.notes.paths import Inside
from deskhand.notes.walk import Key

BATCH = 16
"""So many texts go to the model in one request: a slow one answers in time."""
AT_ONCE = 1_000
PATIENCE = 20
"""So many notes, and for so many seconds, are sent for one question at most; the next questions send the others."""
SENT = 2_000
"""So many characters of a note are sent."""
LEAST = 0.2
"""What is less alike than this is no match."""
SECONDS = 30

_TABLES = """
CREATE TABLE IF NOT EXISTS vector(path TEXT PRIMARY KEY, key TEXT NOT NULL, model TEXT NOT NULL, data BLOB NOT NULL);
"""

Embed = Callable[[Sequence[str]], list[list[float]]]


@dataclass(frozen=True, slots=True)
class Likeness:
    """A note and how much it is like the question, from 0 to 1."""

    path: str
    score: float
    text: str


class Meaning:
    def __init__(
        self,
        root: Path,
        file: Path,
        model: str,
        embed: Embed,
        inside: Inside = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`embed` gives a vector for each text."""
        self._root = root
        self._file = file
        self._model = model
        self._embed = embed
        self._now = now
        own = () if inside is None else inside or FOLDERS
        self._closed = tuple(f"{name}/".casefold() for name in own)
        self._turn = Lock()

    def search(self, query: str, limit: int) -> tuple[list[Likeness], int]:
        """The notes most like the question, and how many are not known to the model yet."""
        with self._turn, walk.open_root(self._root) as root, self._opened() as db:
            there = {
                path: key
                for path, key in walk.scan(root).items()
                if not path.casefold().startswith(self._closed)
            }
            left = self._fill(db, root, there)
            (asked,) = map(_normal, self._embed([query]))
            rows = db.execute(
                "SELECT path, data FROM vector WHERE model = ?", (self._model,)
            )
            scores = [
                (_likeness(asked, data), path) for path, data in rows if path in there
            ]
            scores.sort(key=lambda each: (-each[0], each[1]))
            best = [(score, path) for score, path in scores[:limit] if score >= LEAST]
            return [Likeness(path, score, _text(root, path)) for score, path in best], left

    def _fill(
        self, db: sqlite3.Connection, root: walk.Root, there: Mapping[str, Key]
    ) -> int:
        """Ask for the vectors that are missing, as many as one question may; how many are left."""
        known = dict(
            db.execute("SELECT path, key FROM vector WHERE model = ?", (self._model,))
        )
        missing = [
            path for path, key in there.items() if known.get(path) != json.dumps(key)
        ]
        # The newest first: those are asked about.
        missing.sort(key=lambda path: there[path], reverse=True)
        last = self._now() + PATIENCE
        sent = 0
        while sent < min(len(missing), AT_ONCE) and self._now() < last:
            paths = missing[sent : sent + BATCH]
            sent += len(paths)
            vectors = self._embed([_describe(path, _text(root, path)) for path in paths])
            rows = [
                (path, json.dumps(there[path]), self._model, _normal(vector).tobytes())
                for path, vector in zip(paths, vectors, strict=True)
            ]
            with db:
                db.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?)", rows)
        with db:
            db.executemany(
                "DELETE FROM vector WHERE path = ?",
                [(path,) for path in known.keys() - there.keys()],
            )
        return len(missing) - sent

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        db = sqlite3.connect(self._file, timeout=SECONDS)
        try:
            self._file.chmod(0o600)
            db.executescript(_TABLES)
            yield db
        except sqlite3.DatabaseError as error:
            self._file.unlink(missing_ok=True)  # a cache: the next question makes it anew
            raise Unavailable(
                f"The vectors of the notes cannot be used: {error}.", hint="Ask once more."
            ) from error
        finally:
            db.close()


def open_endpoint(url: str, model: str, key: str | None) -> Embed:
    """Vectors from a server that speaks as OpenAI's does."""

    @cache
    def trust() -> ssl.SSLContext:
        """The certificates of this machine, which take longer to read than a question to be answered."""
        import httpx2

        return httpx2.create_ssl_context()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        import httpx2

        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            asked = {"model": model, "input": [*texts]}
            answer = httpx2.post(
                f"{url}/embeddings",
                headers=headers,
                json=asked,
                timeout=SECONDS,
                verify=trust(),
            )
        except httpx2.TimeoutException as error:
            raise TimedOut("the embedding model did not answer in time") from error
        except httpx2.HTTPError as error:
            raise Unavailable(
                "the embedding model cannot be reached", reason=type(error).__name__
            ) from error
        if answer.status_code in (401, 403):
            raise AuthRequired(
                "the embedding model does not accept the key",
                hint="set DESKHAND_EMBEDDING_KEY",
            )
        if answer.status_code != 200:
            raise Unavailable(
                f"the embedding model answered {answer.status_code}",
                status=answer.status_code,
            )
        return _read_vectors(answer, len(texts))

    return embed


def _read_vectors(answer: Any, count: int) -> list[list[float]]:
    try:
        given = sorted(answer.json()["data"], key=operator.itemgetter("index"))
        vectors = [[float(number) for number in each["embedding"]] for each in given]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("the embedding model's answer has no vectors") from error
    if len(vectors) != count or len({*map(len, vectors)}) != 1:
        raise Unavailable("the embedding model's answer has not one vector for each text")
    return vectors


def _describe(path: str, text: str) -> str:
    return f"{path.rpartition('/')[2].removesuffix('.md')}\n{text}"[:SENT]


def _text(root: walk.Root, path: str) -> str:
    """The body of the note as it is now."""
    content = walk.read(root, path)
    return frontmatter.split(content[0].decode("utf-8", "replace"))[1] if content else ""


def _normal(vector: Iterable[float]) -> "array[float]":
    """The vector with the length 1; one of zeros, or of what is no number, is like nothing."""
    numbers = array("f", vector)
    length = math.sqrt(sum(map(operator.mul, numbers, numbers)))
    if not math.isfinite(length) or not length:
        return array("f", [0.0] * len(numbers))
    return array("f", [number / length for number in numbers])


def _likeness(asked: "array[float]", data: bytes) -> float:
    other = array("f")
    other.frombytes(data)
    if len(other) != len(asked):
        return 0.0  # of a model of the same name that was another one
    return float(sum(map(operator.mul, asked, other)))
