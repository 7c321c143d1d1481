"""An IMAP server that answers as the standard lets it and hardly any does: with OddImap(list=b"..."): ..."""

import re
import socket
import threading
from typing import Any, Self

HEADER = (
    b"From: ann@example.org\r\nSubject: Number %d\r\nMessage-ID: <m%d@example.org>\r\n\r\n"
)
MAILS = {3: HEADER % (3, 3) + b"Three\r\n", 8: HEADER % (8, 8) + b"Eight\r\n"}
"""What lies in the inbox, by its UID."""
PLAIN = {
    "greeting": b"* OK ready\r\n",
    "capability": b"* CAPABILITY IMAP4rev1 IDLE NAMESPACE\r\n",
    "namespace": b'* NAMESPACE (("" "/")) NIL NIL\r\n',
    "list": b'* LIST () "/" INBOX\r\n',
    "examine": b"* 2 EXISTS\r\n* OK [UIDVALIDITY 5] ok\r\n* OK [UIDNEXT 9] ok\r\n",
    "search": b"* SEARCH 3 8\r\n",
    "idle": b"+ idling\r\n",
    "uid": b"UID %d",
    "flags": b"FLAGS (\\Seen)",
    "size": b"RFC822.SIZE %d",
    "date": b'INTERNALDATE "16-Nov-2026 10:00:00 +0000"',
    "header": b"BODY[HEADER.FIELDS (FROM)] {%d}\r\n%b",
    "opening": b"BODY[]<0> {%d}\r\n%b",
    "whole": b"BODY[] {%d}\r\n%b",
}


class OddImap:
    """`closed` is a folder that it does not open, `gone` a mail that left after the search, `small` its letters."""

    def __init__(
        self, closed: str = "", gone: int = 0, *, small: bool = False, **answers: bytes
    ) -> None:
        self._mails = MAILS
        self._answers = PLAIN | answers
        if small:
            self._answers = {name: text.lower() for name, text in self._answers.items()}
        self._closed = closed.encode()
        self._gone = gone
        self._small = small
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._connections):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.sendall(self._answers["greeting"])
            lines = connection.makefile("rb")
            while line := lines.readline():
                tag, _, said = line.strip().partition(b" ")
                connection.sendall(self._answer(said))
                if said.upper().startswith(b"IDLE"):
                    lines.readline()
                done = b"NO" if self._closed and self._closed in said else b"OK"
                connection.sendall(tag + b" " + self._write(done) + b" done\r\n")
        except OSError:
            return

    def _answer(self, said: bytes) -> bytes:
        words = said.removeprefix(b"UID ").split()
        command = words[0].decode().lower()
        if command == "fetch":
            fetch = self._write(b"FETCH")
            return b"".join(
                b"* %d %b (%b)\r\n" % (place, fetch, self._describe(uid, said))
                for place, uid in enumerate(self._mails, 1)
                if uid != self._gone and re.search(rb"\b%d\b" % uid, words[1])
            )
        return self._answers.get(command, b"")

    def _describe(self, uid: int, said: bytes) -> bytes:
        def put(name: str) -> bytes:
            form = self._answers[name]
            if name == "size" and b"%d" in form:
                return form % len(self._mails[uid])
            return (
                form % (len(self._mails[uid]), self._mails[uid]) if b"%b" in form else form
            )

        parts: dict[bytes, Any] = {
            b"FLAGS": "flags",
            b"INTERNALDATE": "date",
            b"RFC822.SIZE": "size",
            b"HEADER": "header",
            b"PEEK[]<": "opening",
            b"PEEK[])": "whole",
        }
        named = [put(name) for word, name in parts.items() if word in said]
        form = self._answers["uid"]
        number = form % uid if b"%d" in form else form
        return b" ".join(filter(None, [number, *named]))

    def _write(self, word: bytes) -> bytes:
        return word.lower() if self._small else word
